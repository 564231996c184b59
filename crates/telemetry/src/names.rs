//! Every name by which operators know what they see: metrics, log events and spans.
//! `docs/reference/telemetry.md` lists them too, and a test keeps both the same.

/// Name, type and meaning of every metric.
pub(super) const METRICS: [(&str, &str, &str); 36] = [
    ("railpost_build_info", "gauge", "Always 1; its label says the version"),
    ("railpost_events_accepted_total", "counter", "Events accepted"),
    ("railpost_events_duplicate_total", "counter", "Events that had been accepted before"),
    ("railpost_deliveries_created_total", "counter", "Deliveries made of accepted events"),
    (
        "railpost_requests_total",
        "counter",
        "Requests to the API, by method, route and class of status",
    ),
    ("railpost_request_duration_seconds", "histogram", "How long requests to the API took"),
    ("railpost_connections_open", "gauge", "Connections to the API"),
    ("railpost_attempts_total", "counter", "Attempts that ended, by outcome"),
    (
        "railpost_attempt_results_total",
        "counter",
        "Attempts that ended, by class of status or by failure",
    ),
    ("railpost_attempt_duration_seconds", "histogram", "How long attempts took"),
    (
        "railpost_delivery_duration_seconds",
        "histogram",
        "How long deliveries took from accept to acknowledgement",
    ),
    (
        "railpost_deliveries_dead_total",
        "counter",
        "Deliveries given up on after an attempt, by reason",
    ),
    ("railpost_breakers_open", "gauge", "Endpoints whose breaker is not closed"),
    ("railpost_breaker_opened_total", "counter", "Times that a breaker opened"),
    ("railpost_lanes_held_total", "counter", "Times that a dead letter came to hold its lane"),
    (
        "railpost_endpoints_switched_off_total",
        "counter",
        "Endpoints that the engine switched off, by their new status",
    ),
    (
        "railpost_endpoints_blocked",
        "gauge",
        "Endpoints that nothing can be sent to as they are, such as without a valid secret",
    ),
    ("railpost_attempts_in_flight", "gauge", "Attempts under way"),
    ("railpost_engine_attempts_started_total", "counter", "Attempts that the engine started"),
    (
        "railpost_engine_acknowledged_total",
        "counter",
        "Deliveries that the engine saw acknowledged",
    ),
    ("railpost_engine_retries_planned_total", "counter", "Retries that the engine planned"),
    ("railpost_engine_dead_total", "counter", "Deliveries that the engine gave up on"),
    ("railpost_engine_loads_total", "counter", "Times that the engine asked the store for more"),
    ("railpost_engine_ignored_total", "counter", "Inputs that made no sense to the engine, by why"),
    ("railpost_deliveries", "gauge", "Deliveries that are not closed, and dead letters, by state"),
    ("railpost_oldest_open_age_seconds", "gauge", "Age of the oldest delivery that is open"),
    ("railpost_store_up", "gauge", "Whether the store could be read and written just now"),
    ("railpost_store_size_bytes", "gauge", "Bytes that the store takes, as far as it knows"),
    (
        "railpost_store_trouble_total",
        "counter",
        "Times that the store could not be written or read",
    ),
    ("railpost_pruned_events_total", "counter", "Events deleted because their time was past"),
    ("railpost_log_lines_dropped_total", "counter", "Log lines that there was no room for"),
    ("railpost_spans_sent_total", "counter", "Spans that the collector took"),
    (
        "railpost_spans_dropped_total",
        "counter",
        "Spans that there was no room for, or that the collector did not take",
    ),
    ("process_start_time_seconds", "gauge", "When the process started, in seconds since 1970"),
    ("process_resident_memory_bytes", "gauge", "Memory of the process that is in use"),
    ("process_open_fds", "gauge", "Open files and sockets of the process"),
];

/// Every log event with its fields, besides `timestamp`, `level` and `event`.
#[cfg(test)]
pub(super) const LOG_EVENTS: [(&str, &[&str]); 28] = [
    ("started", &["version", "address", "url", "store", "tls"]),
    ("config_warning", &["problem"]),
    ("environment_ignored", &["variables"]),
    ("loopback_closed", &["reason", "setting"]),
    ("stopping", &["signal", "drain_timeout"]),
    ("stopped", &["drained"]),
    (
        "attempt",
        &[
            "tenant",
            "endpoint",
            "event_id",
            "event_type",
            "delivery",
            "line",
            "seq",
            "attempt",
            "outcome",
            "http_status",
            "failure",
            "message",
            "latency_ms",
            "dns_ms",
            "connect_ms",
            "tls_ms",
            "first_byte_ms",
            "next_retry_at",
            "dead",
            "holds_lane",
            "replay",
            "trace_id",
        ],
    ),
    ("breaker_opened", &["endpoint", "until"]),
    ("breaker_closed", &["endpoint"]),
    ("lane_held", &["endpoint", "lane", "delivery"]),
    ("endpoint_switched_off", &["endpoint", "status"]),
    ("endpoint_blocked", &["endpoint", "reason"]),
    ("endpoint_unblocked", &["endpoint"]),
    ("store_trouble", &["problem", "times"]),
    ("store_stopped", &["problem"]),
    ("request", &["method", "route", "status", "latency_ms", "address"]),
    ("sign_in_failed", &["address"]),
    ("figures_lost", &["problem", "entries"]),
    ("prune_failed", &["problem"]),
    ("removed_closed", &["deliveries"]),
    ("close_removed_failed", &["problem"]),
    ("tenant_erased", &["tenant"]),
    ("erase_failed", &["problem"]),
    ("validation_overran", &["tenant"]),
    ("traces_not_taken", &["problem", "spans"]),
    ("connections_not_taken", &["problem"]),
    ("log_lines_dropped", &["lines"]),
    ("dependency", &["target", "message"]),
];

/// Every span with its attributes.
#[cfg(test)]
pub(super) const SPANS: [(&str, &[&str]); 2] = [
    ("accept", &["http.request.method", "http.route", "http.response.status_code"]),
    (
        "attempt",
        &[
            "railpost.tenant",
            "railpost.endpoint",
            "railpost.event.id",
            "railpost.event.type",
            "railpost.delivery",
            "railpost.attempt",
            "railpost.outcome",
            "railpost.replay",
            "http.response.status_code",
            "error.type",
        ],
    ),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const PAGE: &str = include_str!("../../../docs/reference/telemetry.md");

    /// The cells between backticks of each row of the table below a heading.
    fn rows(heading: &str) -> Vec<Vec<String>> {
        let (_, after) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = after.split("\n## ").next().unwrap();
        let quoted =
            |line: &str| line.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        section.lines().filter(|line| line.starts_with("| `")).map(quoted).collect()
    }

    fn listed(names: &[(&str, &[&str])]) -> Vec<Vec<String>> {
        let row = |(name, fields): &(&str, &[&str])| {
            let cells = std::iter::once(*name).chain(fields.iter().copied());
            cells.map(str::to_owned).collect()
        };
        names.iter().map(row).collect()
    }

    #[test]
    fn the_page_lists_every_metric_and_no_other() {
        let (_, after) = PAGE.split_once("\n## Metrics\n").unwrap();
        let page: Vec<&str> = after
            .split("\n## ")
            .next()
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| `"))
            .collect();
        let row =
            |(name, kind, help): &(&str, &str, &str)| format!("| `{name}` | {kind} | {help} |");
        let names: Vec<String> = METRICS.iter().map(row).collect();
        assert_eq!(page, names);
    }

    #[test]
    fn the_page_lists_every_log_event_and_span_with_its_fields() {
        assert_eq!(rows("Log events"), listed(&LOG_EVENTS));
        assert_eq!(rows("Spans"), listed(&SPANS));
    }
}
