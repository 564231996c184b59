//! What tests of deliveries have in common: a tenant's endpoints, events, and waiting for a state.

use std::time::{Duration, Instant};

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
