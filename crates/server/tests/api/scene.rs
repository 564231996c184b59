//! What tests of deliveries have in common: a tenant's endpoints, events, and waiting for a state.

use std::time::{Duration, Instant};

use railpost_engine::Span;
use railpost_store::{Alert, Severity, Told};
use railpost_wire::AlertId;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::world::{Answer, World};

/// What is the default tenant's.
pub(crate) const TENANT: &str = "/v1/tenants/default";

/// Longest that a test waits for something that must come. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    /// An endpoint of the default tenant for this receiver that retries at once; `policy` says what
    /// is different about it.
    pub(crate) fn endpoint(&self, receiver: &Receiver, policy: &Value) -> String {
        let mut whole = json!({
            "retry": {"backoff": {"strategy": "fixed", "delay": "1ms"}},
            "breaker": null,
            "quarantine_after": null,
        });
        whole.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        self.endpoint_with(&json!({"url": receiver.url(), "policy": whole}))
    }

    pub(crate) fn endpoint_with(&self, new: &Value) -> String {
        let made = self.post(&of_tenant("endpoints"), new).expect(201);
        text(&made.json()["id"])
    }

    /// Publishes an event with this id, type and key, and the id as its payload.
    pub(crate) fn publish(&self, id: &str, event_type: &str, key: Option<&str>) {
        let event = json!({"id": id, "type": event_type, "key": key, "payload": id});
        self.post(&of_tenant("events"), &event).expect(202);
    }

    /// Puts an alert about an endpoint on record, as the server does when a breaker opens. Answers its id.
    pub(crate) fn fire(&self, tenant: &str, endpoint: &str) -> String {
        let app = self.server().app();
        let now = app.source.now();
        let alert = Alert {
            id: AlertId::generate(now.as_millis(), app.random()),
            rule: "breaker_open".to_owned(),
            tenant: Some(tenant.parse().unwrap()),
            subject: endpoint.to_owned(),
            severity: Severity::Warning,
            summary: "Breaker of http://127.0.0.1:9999/hooks opened: 12 of 20 attempts failed in a minute, last 503. \
                      Nothing is sent until 14:02:10Z."
                .to_owned(),
            details: json!({}),
            fired_at: now,
            last_held_at: now,
            resolved_at: None,
            told: Told::Fired,
        };
        self.wait_for(app.store.save_alerts(vec![alert.clone()])).unwrap();
        alert.id.to_string()
    }

    /// Ends an alert, as the server does when its condition is gone.
    pub(crate) fn resolve(&self, id: &str) {
        let store = &self.server().app().store;
        let mut alert = self.wait_for(store.alert(id.parse().unwrap())).unwrap().unwrap();
        alert.resolved_at = Some(alert.fired_at + Span::from_secs(90));
        self.wait_for(store.save_alerts(vec![alert])).unwrap();
    }

    pub(crate) fn act(&self, path: &str) -> Answer {
        self.post(&of_tenant(path), &json!({}))
    }

    pub(crate) fn look(&self, path: &str) -> Value {
        self.get(&of_tenant(path)).expect(200).json()
    }

    /// What is at this path, as soon as it is as it should be: records are written a moment after
    /// what they tell of.
    #[track_caller]
    pub(crate) fn look_until(&self, path: &str, done: impl Fn(&Value) -> bool) -> Value {
        self.get_until(&of_tenant(path), done)
    }

    /// The same for a path of any tenant.
    #[track_caller]
    pub(crate) fn get_until(&self, path: &str, done: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let found = self.get(path).expect(200).json();
            if done(&found) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "{path} stays {found}");
            std::thread::yield_now();
        }
    }

    /// The only delivery of an event, as soon as it is in this state.
    #[track_caller]
    pub(crate) fn delivery_in(&self, event: &str, state: &str) -> Value {
        let path = format!("events/{event}/deliveries");
        let found = self.look_until(&path, |found| found["items"][0]["state"] == state);
        found["items"][0].clone()
    }
}

/// The path of something of the default tenant.
pub(crate) fn of_tenant(path: &str) -> String {
    format!("{TENANT}/{path}")
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The values of one field of all items of a page.
pub(crate) fn column(page: &Value, field: &str) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| text(&item[field])).collect()
}
