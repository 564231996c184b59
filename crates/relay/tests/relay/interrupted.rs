//! Relays that are cut off at any moment: after reading, after accepting, before removing or confirming.

use std::sync::Arc;
use std::time::Duration;

use railpost_relay::SourceConfig;
use railpost_store::StoreError;

use super::database::Database;
use super::support::{World, source};
use super::writers::{emit_own, judge, write};

const ROUNDS: usize = 100;

/// While the writers write, one relay after the other is started and dropped a few milliseconds later,
/// wherever it is.
async fn interrupt(database: Database, config: SourceConfig) -> (Database, Arc<World>) {
    let world = World::new().await;
    let cutting = async {
        let mut dice = fastrand::Rng::with_seed(7);
        for round in 0..ROUNDS {
            let relay = world.relay_of(&format!("round {round}"), vec![config.clone()]);
            // Every other one meets a store that takes nothing for a moment.
            let away = StoreError::Unavailable("away".to_owned());
            *world.failure.lock().unwrap() = dice.bool().then_some(away);
            tokio::time::sleep(Duration::from_millis(dice.u64(0..40))).await;
            *world.failure.lock().unwrap() = None;
            tokio::time::sleep(Duration::from_millis(dice.u64(0..40))).await;
            relay.stop().await;
        }
        world.relay_of("last", vec![config.clone()])
    };
    let (committed, relay) = tokio::join!(write(&database, 60, emit_own), cutting);
    let relayed = world.until_accepted(committed.events).await;
    judge(&committed, &relayed);
    database.until_empty("railpost_outbox").await;
    println!("{ROUNDS} relays were cut off");
    relay.stop().await;
    (database, world)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_polls_may_be_cut_off_at_any_moment() {
    let database = Database::with_outbox().await;
    let config = source("shop", &database.url, "tenant = \"acme\"\nbatch = 5");
    interrupt(database, config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_follows_the_log_may_be_cut_off_at_any_moment() {
    let database = Database::with_outbox().await;
    let slot = database.url.rsplit('/').next().unwrap().to_owned();
    let fields = format!("tenant = \"acme\"\nmode = \"tail\"\nbatch = 5\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    let (database, world) = interrupt(database, config.clone()).await;
    assert_eq!(world.alarms(), Vec::<String>::new());
    let dropping = async { while railpost_relay::drop_source(&config, None).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), dropping).await.unwrap();
    drop(database);
}
