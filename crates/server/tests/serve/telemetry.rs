//! What operators see of an eventful run.

use railpost_store::{FiguresScope, Period, Resolution};
use serde_json::{Value, json};

use super::process::{ADMIN_KEY, Running};
use super::receiver::Receiver;
use super::seeded::{TOKEN, endpoint, look, secret, seed, tenant};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PAGE: &str = include_str!("../../../../docs/reference/telemetry.md");

/// Names between backticks in the row of the page that is about this.
fn row(section: &str, name: &str) -> Vec<String> {
    let (_, after) = PAGE.split_once(&format!("\n## {section}\n")).unwrap();
    let line = after.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
    let line = line.unwrap_or_else(|| panic!("{name} is not on the page"));
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn start(folder: &std::path::Path, set: &[(&str, &str)]) -> (Running, Receiver) {
    let receiver = Receiver::new();
    seed(folder, &receiver.url());
    let set = [set, &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)]].concat();
    (Running::start_with(folder, &["--log-level", "debug"], &set), receiver)
}

/// An event that fails, is retried and arrives; then one that is refused for good.
pub(crate) fn eventful(server: &mut Running, receiver: &Receiver) -> Vec<Value> {
    let event = |id: &str| {
        json!({"id": id, "type": "order.paid", "key": "customer-jane-doe",
            "payload": {"text": "the payload nobody may see"},
            "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01")})
    };
    server.publish(&event("evt_1"));
    receiver.next().answer(503);
    receiver.next().answer(200);
    server.publish(&event("evt_2"));
    receiver.next().answer(400);
    (0..3).map(|_| server.wait_for("attempt")).collect()
}

#[test]
fn each_attempt_has_one_wide_line() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, receiver) = start(folder.path(), &[]);
    let lines = eventful(&mut server, &receiver);
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            json!([line["event_id"], line["attempt"], line["outcome"], line["http_status"]])
        })
        .collect();
    let expected = json!([
        ["evt_1", 1, "retryable", 503],
        ["evt_1", 2, "acknowledged", 200],
        ["evt_2", 1, "permanent", 400]
    ]);
    assert_eq!(json!(seen), expected);
    for line in &lines {
        assert_eq!(line["tenant"], "default");
        assert_eq!(line["endpoint"], endpoint().to_string());
        assert_eq!(line["event_type"], "order.paid");
        assert_eq!(line["trace_id"], TRACE);
        assert_eq!(line["span_id"].as_str().unwrap().len(), 16, "{line}");
        assert_eq!(line["service"], "railpost");
        assert_eq!(line["idempotency_key"], line["event_id"]);
        assert_eq!(line["replay"], false);
        assert!(line["latency_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
    assert!(lines[0]["next_retry_at"].is_string(), "{}", lines[0]);
    assert!(lines[0]["connect_ms"].is_number(), "{}", lines[0]);
    let pending: Vec<_> = lines.iter().map(|line| &line["dlq_transition_pending"]).collect();
    assert_eq!(pending, [false, false, true], "a dead letter, and nothing that is far from one");
    assert_eq!((&lines[2]["dead"], &lines[2]["holds_lane"]), (&json!("permanent"), &json!(true)));
    assert_eq!(server.wait_for("lane_held")["endpoint"], endpoint().to_string());
}

#[test]
fn no_line_holds_a_payload_a_secret_or_a_key_and_every_name_is_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, receiver) = start(folder.path(), &[]);
    eventful(&mut server, &receiver);
    let (code, log) = server.stopped();
    assert_eq!(code, 0, "{log}");
    let secret = secret().reveal().to_string();
    let forbidden = ["nobody may see", "customer-jane-doe", TOKEN, ADMIN_KEY, "whsec_", &secret];
    for text in forbidden {
        assert!(!log.contains(text), "{text} was logged");
    }
    let mut events = Vec::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let event = line["event"].as_str().unwrap();
        let known = row("Log events", event);
        for field in line.as_object().unwrap().keys() {
            let always = ["timestamp", "level", "event"].contains(&field.as_str());
            assert!(always || known.contains(field), "{field} of {event} is not on the page");
        }
        events.push(event.to_owned());
    }
    for expected in ["started", "request", "attempt", "lane_held", "stopping", "stopped"] {
        assert!(events.iter().any(|event| event == expected), "{expected} not in {log}");
    }
}

#[test]
fn metrics_count_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, receiver) = start(folder.path(), &[]);
    eventful(&mut server, &receiver);
    let (status, page) = server.get("/metrics", "");
    assert_eq!(status, 200);
    for line in [
        "railpost_events_accepted_total 2",
        "railpost_deliveries_created_total 2",
        "railpost_requests_total{method=\"POST\",route=\"/v1/tenants/{tenant}/events\",status=\"2xx\"} 2",
        "railpost_attempts_total{outcome=\"acknowledged\"} 1",
        "railpost_attempts_total{outcome=\"retryable\"} 1",
        "railpost_attempts_total{outcome=\"permanent\"} 1",
        "railpost_attempt_results_total{result=\"5xx\"} 1",
        "railpost_attempt_duration_seconds_count 3",
        "railpost_delivery_duration_seconds_count 1",
        "railpost_deliveries_dead_total{reason=\"permanent\"} 1",
        "railpost_lanes_held_total 1",
        "railpost_attempts_in_flight 0",
        "railpost_engine_attempts_started_total 3",
        "railpost_store_up 1",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} not in {page}");
    }
}

#[test]
fn figures_over_time_are_in_the_store_when_it_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, receiver) = start(folder.path(), &[]);
    eventful(&mut server, &receiver);
    assert_eq!(server.stopped().0, 0);
    for scope in
        [FiguresScope::All, FiguresScope::Tenant(tenant()), FiguresScope::Endpoint(endpoint())]
    {
        let hours = look(folder.path(), async |store| {
            store.figures(&scope, Resolution::Hour, Period::default()).await.unwrap()
        });
        // An hour may begin in the middle of the test.
        let sum = |of: fn(&railpost_store::Figures) -> u64| -> u64 {
            hours.iter().map(|(_, figures)| of(figures)).sum()
        };
        let seen =
            [sum(|f| f.accepted), sum(|f| f.attempts), sum(|f| f.acknowledged), sum(|f| f.dead)];
        assert_eq!(seen, [2, 3, 1, 1], "{scope:?}");
    }
}

#[test]
fn spans_belong_to_the_producers_trace_and_are_those_that_receivers_see() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Receiver::new();
    let url = collector.url();
    let (server, receiver) = start(folder.path(), &[("RAILPOST_TELEMETRY_OTLP_URL", &url)]);
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let event = json!({"id": "evt_1", "type": "order.paid", "payload": 1});
    server.publish_with(&event, &[("traceparent", &traceparent)]);
    let arrived = receiver.next();
    let seen = arrived.header("traceparent").unwrap().to_owned();
    arrived.answer(200);
    let mut spans: Vec<Value> = Vec::new();
    while spans.len() < 2 {
        let batch = collector.next();
        assert!(batch.head.starts_with("POST /v1/traces "), "{}", batch.head);
        let body: Value = serde_json::from_str(&batch.body).unwrap();
        let sent = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.extend(sent.as_array().unwrap().iter().cloned());
        batch.answer(200);
    }
    let span = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    for name in ["accept", "attempt"] {
        assert_eq!(span(name)["traceId"], TRACE);
        assert_eq!(span(name)["parentSpanId"], "00f067aa0ba902b7");
        let known = row("Spans", name);
        for attribute in span(name)["attributes"].as_array().unwrap() {
            let key = attribute["key"].as_str().unwrap().to_owned();
            assert!(known.contains(&key), "{key} of {name} is not on the page");
        }
    }
    let attempt = span("attempt")["spanId"].as_str().unwrap();
    assert_eq!(seen, format!("00-{TRACE}-{attempt}-01"));
}

#[test]
fn spans_carry_the_configured_headers_and_are_sent_again_when_the_collector_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Receiver::new();
    let url = collector.url();
    let settings = [
        ("RAILPOST_TELEMETRY_OTLP_URL", url.as_str()),
        ("RAILPOST_TELEMETRY_OTLP_HEADERS", "authorization=Bearer%20t0ken,x-team=orders"),
    ];
    let (mut server, receiver) = start(folder.path(), &settings);
    server.publish(&json!({"id": "evt_1", "type": "order.paid", "payload": 1}));
    let busy = collector.next();
    assert_eq!(busy.header("authorization"), Some("Bearer t0ken"));
    assert_eq!(busy.header("x-team"), Some("orders"));
    let first = busy.body.clone();
    busy.answer(503);
    let again = collector.next();
    assert_eq!(again.body, first, "the same batch comes again");
    again.answer(200);
    receiver.next().answer(200);
    let last = collector.next();
    assert_ne!(last.body, first, "what was taken does not come again");
    last.answer(400);
    let line = server.wait_for("traces_not_taken");
    assert_eq!(line["problem"], "the collector answered 400", "it is refused for good");
}

#[test]
fn a_collector_that_is_gone_costs_a_line_and_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let (mut server, receiver) = start(folder.path(), &[("RAILPOST_TELEMETRY_OTLP_URL", &url)]);
    server.publish(&json!({"id": "evt_1", "type": "order.paid", "payload": 1}));
    receiver.next().answer(200);
    assert_eq!(server.wait_for("traces_not_taken")["problem"], "refused");
    let page = server.get("/metrics", "").1;
    assert!(!page.contains("railpost_spans_dropped_total 0\n"), "{page}");
}
