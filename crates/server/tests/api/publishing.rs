use serde_json::{Value, json};

use crate::world::{JSON, World};

const EVENTS: &str = "/v1/tenants/default/events";

#[test]
fn an_event_is_accepted_and_the_same_again_is_a_duplicate() {
    let world = World::new();
    let event =
        json!({"id": "order-1-created", "type": "order.created", "key": "1", "payload": {"a": 1}});
    let first = world.post(EVENTS, &event).expect(202).json();
    assert_eq!((&first["id"], &first["duplicate"]), (&json!("order-1-created"), &json!(false)));
    let again = world.post(EVENTS, &event).expect(202).json();
    assert_eq!((&again["accepted_at"], &again["duplicate"]), (&first["accepted_at"], &json!(true)));
    let other =
        json!({"id": "order-1-created", "type": "order.created", "key": "1", "payload": {"a": 2}});
    assert_eq!(world.post(EVENTS, &other).expect(409).code(), "conflict");
}

#[test]
fn a_bad_event_is_refused_with_its_field() {
    let world = World::new();
    let batch = format!("{EVENTS}/batch");
    let good = json!({"type": "a", "payload": 1});
    let many: Vec<Value> = vec![good.clone(); 1001];
    for (path, body, status, field) in [
        (EVENTS, json!({"type": "a"}), 422, ""),
        (EVENTS, json!({"type": "", "payload": 1}), 422, "type"),
        (EVENTS, json!({"type": "a", "payload": 1, "key": ""}), 422, "key"),
        (EVENTS, json!({"type": "a", "payload": 1, "traceparent": "00-x"}), 422, "traceparent"),
        (EVENTS, json!({"type": "a", "payload": 1, "time": "noon"}), 422, "time"),
        (&batch, json!({"events": []}), 422, "events"),
        (&batch, json!({"events": many}), 422, "events"),
        (
            &batch,
            json!({"events": [good, {"type": "a", "payload": 1, "time": "noon"}]}),
            422,
            "events[1].time",
        ),
    ] {
        let refused = world.post(path, &body).expect(status);
        assert_eq!(refused.json()["field"].as_str().unwrap_or_default(), field, "{}", refused.text);
    }
}

#[test]
fn a_request_with_an_idempotency_key_does_its_work_once() {
    let world = World::new();
    let call = |key: &str, body: Value| {
        let headers = [JSON[0], ("idempotency-key", key)];
        world.call("POST", EVENTS, &world.admin, &headers, body.to_string().as_bytes())
    };
    let first = call("k1", json!({"type": "a", "payload": 1})).expect(202);
    let again = call("k1", json!({"type": "a", "payload": 1})).expect(202);
    assert_eq!(first.text, again.text);
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let reused = call("k1", json!({"type": "a", "payload": 2})).expect(409);
    assert_eq!(reused.code(), "idempotency_key_reused");
    assert_ne!(call("k2", json!({"type": "a", "payload": 1})).expect(202).text, first.text);
}
