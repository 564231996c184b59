//! The scenes: each does something, waits until it can be seen, and says what happened.

use serde_json::{Value, json};

use super::DemoError;
use super::application::Death;
use super::receiver::DemoRequest;
use super::request::explained;
use super::world::{DemoWorld, POISONED_KEY};

/// One scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    OneRequest,
    RetryWithBackoff,
    HeadOfLine,
    OtherKeysFlow,
    DuplicateIgnored,
    RateLimited,
    Slow,
    DeadLetterHolds,
    ReplayReleases,
    EventLost,
    EventInTransaction,
    BackFromDown,
}

pub(super) const ALL: [Scene; 12] = [
    Scene::OneRequest,
    Scene::RetryWithBackoff,
    Scene::HeadOfLine,
    Scene::OtherKeysFlow,
    Scene::DuplicateIgnored,
    Scene::RateLimited,
    Scene::Slow,
    Scene::DeadLetterHolds,
    Scene::ReplayReleases,
    Scene::EventLost,
    Scene::EventInTransaction,
    Scene::BackFromDown,
];

impl Scene {
    /// What to watch.
    pub(super) fn line(self) -> String {
        match self {
            Scene::OneRequest => "one event goes to the steady receiver. This is the request that arrives.".to_owned(),
            Scene::RetryWithBackoff => "an event goes to the flaky receiver, which fails twice. Railpost retries, each time after a longer wait.".to_owned(),
            Scene::HeadOfLine => "three events of one key. The first fails for now; the other two wait behind it.".to_owned(),
            Scene::OtherKeysFlow => "the same once more, and at the same time events of four other keys: a waiting lane delays no other lane.".to_owned(),
            Scene::DuplicateIgnored => "the forgetful receiver processes the event, but its answer is lost. The event is sent again, with the same id.".to_owned(),
            Scene::RateLimited => "the rate-limiting receiver answers 429 with Retry-After. Railpost waits that long.".to_owned(),
            Scene::Slow => "the slow receiver takes a second for each event; one key keeps its order.".to_owned(),
            Scene::DeadLetterHolds => format!("the receiver rejects the first event of `{POISONED_KEY}` for good. The dead letter holds its lane."),
            Scene::ReplayReleases => "the receiver is fixed, and the dead letter is replayed. It is delivered, and the events behind it follow in order.".to_owned(),
            Scene::EventLost => "an application writes to its database, then publishes the event. It dies between the two writes.".to_owned(),
            Scene::EventInTransaction => "the same with an outbox: the event is in the transaction of the change. One application dies before its commit, another one after it.".to_owned(),
            Scene::BackFromDown => "the receiver that was down is back: nothing was lost.".to_owned(),
        }
    }

    /// Plays it, and says what happened.
    pub(super) async fn play(self, world: &mut DemoWorld) -> Result<String, DemoError> {
        match self {
            Scene::OneRequest => one_request(world).await,
            Scene::RetryWithBackoff => retry_with_backoff(world).await,
            Scene::HeadOfLine => head_of_line(world).await,
            Scene::OtherKeysFlow => other_keys_flow(world).await,
            Scene::DuplicateIgnored => duplicate_ignored(world).await,
            Scene::RateLimited => rate_limited(world).await,
            Scene::Slow => slow(world).await,
            Scene::DeadLetterHolds => dead_letter_holds(world).await,
            Scene::ReplayReleases => replay_releases(world).await,
            Scene::EventLost => event_lost(world).await,
            Scene::EventInTransaction => event_in_transaction(world).await,
            Scene::BackFromDown => back_from_down(world).await,
        }
    }
}

/// Publishes a few events of one key.
async fn publish(world: &DemoWorld, kind: &str, key: &str, count: u32) -> Result<(), DemoError> {
    for number in 1..=count {
        world.client.publish(kind, key, json!({ "number": number })).await?;
    }
    Ok(())
}

/// The seqs of a key that were acknowledged, in the order in which they were.
fn landed(requests: &[DemoRequest], key: &str) -> Vec<u64> {
    let of_key = requests.iter().filter(|received| received.key == key && received.status == 200);
    of_key.map(|received| received.seq).collect()
}

async fn one_request(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "customer.joined", "customer-1", 1).await?;
    let requests = world.steady.wait(|requests| !landed(requests, "customer-1").is_empty()).await;
    let explained = requests.first().map(explained).unwrap_or_default();
    Ok(format!(
        "POST {}{explained}\n      It answered 200: that is the acknowledgement.",
        world.steady.url
    ))
}

async fn retry_with_backoff(world: &DemoWorld) -> Result<String, DemoError> {
    // The receiver that is down gets its share here: it is looked at in the last scene.
    world.down.begin_outage();
    publish(world, "invoice.sent", "invoice-1", 3).await?;
    publish(world, "payment.taken", "payment-1", 1).await?;
    let requests = world.flaky.wait(|requests| !landed(requests, "payment-1").is_empty()).await;
    let attempts = requests.iter().filter(|received| received.key == "payment-1").count();
    Ok(format!("it landed with attempt {attempts}."))
}

async fn head_of_line(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "payment.taken", "payment-2", 3).await?;
    let refused = |received: &DemoRequest| received.key == "payment-2" && received.status != 200;
    world.flaky.wait(|requests| requests.iter().any(refused)).await;
    Ok("seq 1 was refused once; seq 2 and 3 have not left.".to_owned())
}

async fn other_keys_flow(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "payment.taken", "payment-3", 3).await?;
    for number in 1..=4 {
        publish(world, "order.created", &format!("order-{number}"), 2).await?;
    }
    let keys = ["order-1", "order-2", "order-3", "order-4"];
    let all = |requests: &[DemoRequest]| keys.iter().all(|key| landed(requests, key).len() >= 2);
    world.poisoned.wait(all).await;
    let requests = world.flaky.wait(|requests| landed(requests, "payment-3").len() >= 3).await;
    Ok(format!(
        "four other keys landed; then payment-3 did, in order: {:?}.",
        landed(&requests, "payment-3")
    ))
}

async fn duplicate_ignored(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "account.opened", "account-1", 1).await?;
    let requests = world
        .forgetful
        .wait(|requests| requests.iter().any(|received| received.is_duplicate))
        .await;
    let event = requests.last().map(|received| received.event.clone()).unwrap_or_default();
    Ok(format!("{event} came twice and was applied once."))
}

async fn rate_limited(world: &DemoWorld) -> Result<String, DemoError> {
    for number in 1..=8 {
        publish(world, "mail.sent", &format!("mail-{number}"), 1).await?;
    }
    let count = |requests: &[DemoRequest], status| {
        requests.iter().filter(|received| received.status == status).count()
    };
    let requests = world.rate_limiting.wait(|requests| count(requests, 200) >= 8).await;
    Ok(format!("8 landed; {} were told to come back, and did.", count(&requests, 429)))
}

async fn slow(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "report.made", "report-1", 2).await?;
    publish(world, "report.made", "report-2", 2).await?;
    let all = |requests: &[DemoRequest]| {
        ["report-1", "report-2"].iter().all(|key| landed(requests, key) == [1, 2])
    };
    world.slow.wait(all).await;
    Ok("both keys landed in order, side by side.".to_owned())
}

async fn dead_letter_holds(world: &DemoWorld) -> Result<String, DemoError> {
    publish(world, "order.created", POISONED_KEY, 3).await?;
    let lanes = world.client.wait("/lanes", |lanes| held(lanes).is_some()).await?;
    let waiting = held(&lanes).map(|lane| lane["waiting_behind"].clone()).unwrap_or_default();
    Ok(format!("the lane is held; {waiting} wait behind the dead letter."))
}

fn held(lanes: &Value) -> Option<&Value> {
    let lanes = lanes["items"].as_array()?;
    lanes.iter().find(|lane| lane["key"] == POISONED_KEY)
}

async fn replay_releases(world: &DemoWorld) -> Result<String, DemoError> {
    world.poisoned.set_fixed(true);
    let lanes = world.client.wait("/lanes", |lanes| held(lanes).is_some()).await?;
    let lane = held(&lanes).map(|lane| lane["lane"].to_string()).unwrap_or_default();
    world.client.post(&format!("/lanes/{}/replay", lane.trim_matches('"')), None).await?;
    let requests = world.poisoned.wait(|requests| landed(requests, POISONED_KEY).len() >= 3).await;
    Ok(format!("they landed in order: {:?}.", landed(&requests, POISONED_KEY)))
}

async fn event_lost(world: &DemoWorld) -> Result<String, DemoError> {
    world.application.pay_and_die_before_publishing("order-21").await?;
    Ok(format!("order-21: {}. Nobody remembers to publish it.", outcome(world, "order-21").await?))
}

async fn event_in_transaction(world: &DemoWorld) -> Result<String, DemoError> {
    world.application.pay_with_event("order-22", Death::BeforeCommit).await?;
    world.application.pay_with_event("order-23", Death::AfterCommit).await?;
    world.poisoned.wait(|requests| !landed(requests, "order-23").is_empty()).await;
    let (before, after) = (outcome(world, "order-22").await?, outcome(world, "order-23").await?);
    Ok(format!("order-22: {before}. order-23: {after}, and it landed."))
}

/// What an application that died left of an order: at its database, and here.
async fn outcome(world: &DemoWorld, order: &'static str) -> Result<String, DemoError> {
    let change = if world.application.is_paid(order).await? { "a change" } else { "no change" };
    let events = world.client.get(&format!("/events?key={order}")).await?;
    let has_event = events["items"].as_array().is_some_and(|events| !events.is_empty());
    Ok(format!("{change}, {}", if has_event { "an event" } else { "no event" }))
}

async fn back_from_down(world: &DemoWorld) -> Result<String, DemoError> {
    let requests = world.down.wait(|requests| landed(requests, "invoice-1").len() >= 3).await;
    let refused = requests.iter().filter(|received| received.status != 200).count();
    Ok(format!(
        "after {refused} refusals everything landed in order: {:?}.",
        landed(&requests, "invoice-1")
    ))
}
