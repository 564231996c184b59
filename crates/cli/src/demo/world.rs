//! The environment of the scenes: the client of the server, the application, the receivers, and background traffic.

use std::time::Duration;

use railpost_engine::Span;
use serde_json::{Value, json};

use super::application::Application;
use super::client::DemoClient;
use super::receiver::{Behaviour, Receiver};
use super::{DemoError, DemoServer};

/// The key that the poisoned receiver refuses.
pub(super) const POISONED_KEY: &str = "order-13";
/// Between two events of the traffic that goes on.
const TRAFFIC_EVERY: Duration = Duration::from_millis(400);

#[derive(Debug)]
pub(super) struct DemoWorld {
    pub(super) client: DemoClient,
    pub(super) application: Application,
    pub(super) steady: Receiver,
    pub(super) flaky: Receiver,
    pub(super) forgetful: Receiver,
    pub(super) slow: Receiver,
    pub(super) down: Receiver,
    pub(super) poisoned: Receiver,
    pub(super) rate_limiting: Receiver,
    pub(super) down_for: Duration,
}

impl DemoWorld {
    /// Starts the receivers and makes an endpoint for each; each wants events of its own types.
    pub(super) async fn set(server: DemoServer<'_>, down_for: Duration) -> Result<Self, DemoError> {
        let client = DemoClient::of(server)?;
        let application = Application::of(server.database);
        let steady = endpoint(&client, "steady", Behaviour::Steady, "customer.*").await?;
        let flaky = endpoint(&client, "flaky", Behaviour::Flaky, "payment.*").await?;
        let forgetful = endpoint(&client, "forgetful", Behaviour::Forgetful, "account.*").await?;
        let slow = endpoint(&client, "slow", Behaviour::Slow, "report.*").await?;
        let down = endpoint(&client, "down", Behaviour::Down(down_for), "invoice.*").await?;
        let poisoned = Behaviour::Poisoned(POISONED_KEY);
        let poisoned = endpoint(&client, "poisoned", poisoned, "order.*").await?;
        let rate_limiting = Behaviour::RateLimiting;
        let rate_limiting = endpoint(&client, "rate-limiting", rate_limiting, "mail.*").await?;
        Ok(Self {
            client,
            application,
            steady,
            flaky,
            forgetful,
            slow,
            down,
            poisoned,
            rate_limiting,
            down_for,
        })
    }

    /// What the receivers are called, with what they do.
    pub(super) fn names(&self) -> Vec<String> {
        let down_for = u64::try_from(self.down_for.as_millis()).unwrap_or(u64::MAX);
        vec![
            "steady".to_owned(),
            "flaky".to_owned(),
            "forgetful (its answers get lost)".to_owned(),
            "slow".to_owned(),
            format!("down (for {})", Span::from_millis(down_for)),
            format!("poisoned (by the key {POISONED_KEY})"),
            "rate-limiting".to_owned(),
        ]
    }

    /// Events for every receiver until the demo ends, and a held lane for the user to release.
    pub(super) async fn run_traffic(&self) -> Result<(), DemoError> {
        self.poisoned.set_fixed(false);
        for number in 1..=3 {
            let payload = json!({ "poison": number });
            self.client.publish("order.created", POISONED_KEY, payload).await?;
        }
        let kinds = [
            "order.paid",
            "payment.taken",
            "report.made",
            "invoice.sent",
            "mail.sent",
            "account.opened",
            "customer.joined",
        ];
        let mut ticks = tokio::time::interval(TRAFFIC_EVERY);
        for number in 0_usize.. {
            ticks.tick().await;
            // Once somebody acts on the dead letter, it lands.
            self.poisoned.set_fixed(number > 0);
            let kind = kinds[number % kinds.len()];
            let (family, _) = kind.split_once('.').unwrap_or((kind, ""));
            let key = format!("{family}-{}", number / kinds.len() % 3 + 1);
            self.client.publish(kind, &key, json!({ "number": number })).await?;
        }
        Ok(())
    }
}

async fn endpoint(
    client: &DemoClient,
    name: &str,
    behaviour: Behaviour,
    types: &str,
) -> Result<Receiver, DemoError> {
    let receiver = Receiver::start(name, behaviour).await?;
    let body = json!({
        "url": receiver.url,
        "description": format!("the {name} receiver of the demo"),
        "types": [types],
        "policy": policy(),
    });
    client.post("/endpoints", Some(&body)).await?;
    Ok(receiver)
}

/// Short waits, so that one can watch them; no breaker, so that nothing else slows a scene down.
fn policy() -> Value {
    json!({
        "retry": {
            "backoff": { "strategy": "exponential", "base": "1s", "jitter": "equal" },
            "max_delay": "3s",
        },
        "breaker": null,
        "quarantine_after": null,
    })
}
