//! The names of all metrics, log events and spans. `docs/reference/telemetry.md` lists them too, and a test
//! compares both.

/// Name, type and meaning of every metric.
pub(super) const METRICS: [(&str, &str, &str); 64] = [
    ("railpost_build_info", "gauge", "Always 1, with the version as a label"),
    ("railpost_events_accepted_total", "counter", "Events accepted"),
    ("railpost_events_duplicate_total", "counter", "Duplicate events"),
    ("railpost_deliveries_created_total", "counter", "Deliveries created for accepted events"),
    (
        "railpost_requests_total",
        "counter",
        "Requests to the API, by method, route and class of status",
    ),
    ("railpost_request_duration_seconds", "histogram", "Duration of requests to the API"),
    ("railpost_connections_open", "gauge", "Open connections to the API"),
    ("railpost_attempts_total", "counter", "Attempts that ended, by outcome"),
    (
        "railpost_attempt_results_total",
        "counter",
        "Attempts that ended, by class of status or by failure",
    ),
    ("railpost_attempt_duration_seconds", "histogram", "Duration of attempts"),
    (
        "railpost_delivery_duration_seconds",
        "histogram",
        "Time from accepting an event to its acknowledgement",
    ),
    ("railpost_deliveries_dead_total", "counter", "Dead letters made after an attempt, by reason"),
    (
        "railpost_deliveries_judged_total",
        "counter",
        "Deliveries judged by the objective, each once, by result",
    ),
    (
        "railpost_first_success_duration_seconds",
        "histogram",
        "Time from the start of a delivery's first attempt to its acknowledgement",
    ),
    (
        "railpost_first_attempt_delay_seconds",
        "histogram",
        "Time from accepting an event to the start of a delivery's first attempt",
    ),
    (
        "railpost_delivery_attempts",
        "histogram",
        "Attempts that a delivery needed until it was acknowledged or given up on",
    ),
    (
        "railpost_attempt_statuses_total",
        "counter",
        "Attempts with a response, by status, up to 100 of them and `other`",
    ),
    (
        "railpost_deliveries_exhausted_total",
        "counter",
        "Dead letters made because attempts were exhausted or the time to live was over",
    ),
    ("railpost_deliveries_dispatched_total", "counter", "Deliveries whose first attempt ended"),
    (
        "railpost_tenant_deliveries_total",
        "counter",
        "Deliveries acknowledged or given up on, by tenant, if `telemetry.labels` has it",
    ),
    (
        "railpost_endpoint_deliveries_total",
        "counter",
        "Deliveries acknowledged or given up on, by endpoint, if `telemetry.labels` has it",
    ),
    (
        "railpost_event_type_deliveries_total",
        "counter",
        "Deliveries acknowledged or given up on, by event type, if `telemetry.labels` has it",
    ),
    ("railpost_breakers_open", "gauge", "Endpoints whose breaker is not closed"),
    ("railpost_breaker_opened_total", "counter", "Number of times a breaker opened"),
    (
        "railpost_lanes_held_total",
        "counter",
        "Number of times a dead letter began to hold its lane",
    ),
    (
        "railpost_endpoints_switched_off_total",
        "counter",
        "Endpoints that the engine switched off, by their new status",
    ),
    (
        "railpost_endpoints_blocked",
        "gauge",
        "Blocked endpoints, such as those without a valid secret",
    ),
    ("railpost_alerts_open", "gauge", "Open alerts, by severity"),
    ("railpost_notices_total", "counter", "Notices published, by status"),
    ("railpost_attempts_in_flight", "gauge", "Attempts in flight"),
    ("railpost_engine_attempts_started_total", "counter", "Attempts that the engine started"),
    (
        "railpost_engine_acknowledged_total",
        "counter",
        "Deliveries that the engine saw acknowledged",
    ),
    ("railpost_engine_retries_planned_total", "counter", "Retries that the engine planned"),
    ("railpost_engine_dead_total", "counter", "Dead letters made by the engine"),
    ("railpost_engine_loads_total", "counter", "Loads that the engine requested from the store"),
    ("railpost_engine_ignored_total", "counter", "Inputs that the engine ignored, by reason"),
    ("railpost_deliveries", "gauge", "Open deliveries and dead letters, by state"),
    ("railpost_oldest_open_age_seconds", "gauge", "Age of the oldest open delivery"),
    (
        "railpost_oldest_dead_age_seconds",
        "gauge",
        "Age of the oldest dead letter, counted from when its event was accepted",
    ),
    ("railpost_store_up", "gauge", "1 if the store can be read and written, otherwise 0"),
    ("railpost_store_size_bytes", "gauge", "Size of the store in bytes, if known"),
    (
        "railpost_disk_free_bytes",
        "gauge",
        "Bytes that can still be written to the disk of the data folder, if known",
    ),
    ("railpost_disk_size_bytes", "gauge", "Size of the disk of the data folder in bytes, if known"),
    ("railpost_store_trouble_total", "counter", "Failed reads and writes of the store"),
    ("railpost_pruned_events_total", "counter", "Events deleted past their retention"),
    (
        "railpost_log_lines_dropped_total",
        "counter",
        "Log lines dropped because the buffer was full",
    ),
    ("railpost_spans_sent_total", "counter", "Spans that the collector accepted"),
    (
        "railpost_spans_dropped_total",
        "counter",
        "Spans dropped because the buffer was full or the collector did not accept them",
    ),
    ("process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970"),
    ("process_resident_memory_bytes", "gauge", "Resident memory of the process"),
    ("process_open_fds", "gauge", "Open files and sockets of the process"),
    ("railpost_outbox_relayed_total", "counter", "Rows of a source that were accepted as events"),
    (
        "railpost_outbox_duplicates_total",
        "counter",
        "Rows of a source that had been accepted before",
    ),
    ("railpost_outbox_refused_total", "counter", "Rows of a source that were refused"),
    ("railpost_outbox_parked", "gauge", "Parked rows of a source"),
    ("railpost_outbox_pending", "gauge", "Rows that are known to wait at a source"),
    (
        "railpost_outbox_lag_seconds",
        "gauge",
        "Age of the oldest row of the last batch, 0 when all was read",
    ),
    (
        "railpost_outbox_batch_seconds",
        "histogram",
        "Duration of storing a batch of rows of a source",
    ),
    (
        "railpost_outbox_wakes_total",
        "counter",
        "Number of times a source was looked at, by what caused it",
    ),
    (
        "railpost_outbox_up",
        "gauge",
        "1 if the source is read by this server or another, otherwise 0",
    ),
    ("railpost_outbox_leader", "gauge", "1 if this server reads the source, otherwise 0"),
    (
        "railpost_outbox_slot_retained_bytes",
        "gauge",
        "Bytes of log that the database keeps for the replication slot",
    ),
    (
        "railpost_outbox_slot_safe_bytes",
        "gauge",
        "Bytes of log that it may keep further before the slot is lost, if bounded",
    ),
    ("railpost_outbox_slot_lost", "gauge", "1 if the replication slot is lost, otherwise 0"),
];

/// Every log event with its fields, besides `timestamp`, `level` and `event`.
#[cfg(test)]
pub(super) const LOG_EVENTS: &[(&str, &[&str])] = &[
    ("started", &["version", "address", "url", "store", "tls"]),
    ("config_warning", &["problem"]),
    ("environment_ignored", &["variables"]),
    ("loopback_closed", &["reason", "setting"]),
    ("notice_sent_directly", &["event_id", "endpoint", "section", "result"]),
    ("notice_dropped", &["event_id", "tenant", "problem"]),
    ("stopping", &["signal", "drain_timeout"]),
    ("stopped", &["drained"]),
    (
        "attempt",
        &[
            "service",
            "tenant",
            "endpoint",
            "event_id",
            "idempotency_key",
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
            "dlq_transition_pending",
            "replay",
            "trace_id",
            "span_id",
        ],
    ),
    ("breaker_opened", &["endpoint", "until"]),
    ("breaker_closed", &["endpoint"]),
    ("lane_held", &["endpoint", "lane", "delivery"]),
    ("alert_fired", &["alert", "rule", "severity", "tenant", "subject", "summary"]),
    ("alert_resolved", &["alert", "rule", "severity", "tenant", "subject", "summary"]),
    ("alerts_unsaved", &["problem"]),
    ("endpoint_switched_off", &["endpoint", "status"]),
    ("endpoint_blocked", &["endpoint", "reason"]),
    ("endpoint_unblocked", &["endpoint"]),
    ("outbox_reading", &["source"]),
    ("outbox_trouble", &["source", "code", "problem", "retry_ms", "times", "fix"]),
    ("outbox_alarm", &["source", "problem"]),
    ("outbox_batch", &["source", "accepted", "duplicates", "parked", "latency_ms"]),
    ("outbox_refused", &["source", "code", "dropped", "times", "tenant", "event_id", "event_type"]),
    ("outbox_released", &["source", "rows"]),
    ("store_trouble", &["problem", "times"]),
    ("store_stopped", &["problem"]),
    ("request", &["method", "route", "status", "latency_ms", "address"]),
    ("sign_in_failed", &["address"]),
    ("figures_lost", &["problem", "entries"]),
    ("judging_failed", &["problem"]),
    ("prune_failed", &["problem"]),
    ("removed_closed", &["deliveries"]),
    ("close_removed_failed", &["problem"]),
    ("tenant_erased", &["tenant"]),
    ("erase_failed", &["problem"]),
    ("secrets_rotated", &["endpoints"]),
    ("secret_rotation_failed", &["endpoint", "problem"]),
    ("secret_rotations_failed", &["problem"]),
    ("master_key_rotated", &["reencrypted"]),
    ("master_key_rotation_failed", &["problem"]),
    ("validation_overran", &["tenant"]),
    ("traces_not_taken", &["problem", "spans"]),
    ("connections_not_taken", &["problem"]),
    ("log_lines_dropped", &["lines"]),
    ("dependency", &["target", "message"]),
];

/// Every span with its attributes.
#[cfg(test)]
pub(super) const SPANS: [(&str, &[&str]); 2] = [
    (
        "accept",
        &[
            "messaging.system",
            "messaging.operation.name",
            "http.request.method",
            "http.route",
            "http.response.status_code",
        ],
    ),
    (
        "attempt",
        &[
            "messaging.system",
            "messaging.operation.name",
            "messaging.operation.type",
            "messaging.destination.name",
            "messaging.message.id",
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
        assert_eq!(rows("Log events"), listed(LOG_EVENTS));
        assert_eq!(rows("Spans"), listed(&SPANS));
    }
}
