//! Rows that are too large to be kept: a source that is tailed names them, and goes on when they are gone.

use railpost_store::limits::PARKED_ROW_LEN_MAX;
use railpost_store::{
    PageRequest, ParkedAction, ParkedCommand, ParkedQuery, ParkedRow, ParkedTarget, SourceName,
};

use super::database::Database;
use super::support::{World, source};
use super::tail::{end, following};

/// More than one message of the log may have.
const BEYOND_THE_STREAM: usize = railpost_replication::limits::MESSAGE_LEN_MAX + 1;

fn shop() -> SourceName {
    "shop".parse().unwrap()
}

/// Lets the table take payloads of any size.
async fn unchecked(database: &Database) {
    let sql = "ALTER TABLE railpost_outbox DROP CONSTRAINT payload_of_at_most_1048576_bytes";
    database.run(sql).await;
}

fn insert(id: &str, key: &str, len: usize) -> String {
    format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) VALUES ('{id}', 'order.paid', '{key}', repeat('x', {len}))"
    )
}

async fn parked(world: &World) -> Vec<ParkedRow> {
    let query = ParkedQuery::of(shop(), PageRequest::first(100));
    world.store.parked_rows(query).await.unwrap().items
}

/// The row is parked without its payload, and says so.
async fn is_parked_without_payload(world: &World, id: &str, len: usize) {
    let rows = parked(world).await;
    let row = rows.iter().find(|row| row.fields.id.as_deref() == Some(id)).unwrap();
    let refusal = row.refusal.clone().unwrap();
    assert_eq!(refusal.code, "payload");
    assert!(refusal.reason.contains(&len.to_string()), "{}", refusal.reason);
    assert_eq!(world.store.parked_payload(&shop(), row.number).await.unwrap(), None);
}

async fn command(world: &World, action: ParkedAction, number: u64) {
    let target = ParkedTarget::Head(number);
    let command = ParkedCommand { source: shop(), action, target, audit: None };
    world.store.command_parked(command).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_the_log_that_is_too_large_is_named_with_the_sql_that_removes_it() {
    let (database, world, config, relay) = following("").await;
    unchecked(&database).await;
    database.run(&insert("before", "k", 1)).await;
    database.run(&insert("large", "k", PARKED_ROW_LEN_MAX)).await;
    database.run(&insert("behind", "k", 1)).await;
    database.run(&insert("other", "o", 1)).await;
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("row large at "), "{trouble}");
    assert!(relay.status()[0].pending > 0, "{:?}", relay.status());
    assert_eq!(world.ids(), ["before"]);
    let remedy = trouble.remedy().unwrap();
    assert!(remedy.starts_with("DELETE FROM"), "{remedy}");
    database.run(remedy).await;
    relay.wake();
    world.until_accepted(2).await;
    world.until_parked(&shop(), 2).await;
    assert_eq!(world.ids(), ["before", "other"]);
    is_parked_without_payload(&world, "large", PARKED_ROW_LEN_MAX).await;
    // A retry cannot bring the payload back: the reason stays.
    let number = parked(&world).await[0].number;
    command(&world, ParkedAction::Retry, number).await;
    relay.wake();
    let retried = async {
        while parked(&world).await[0].released {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), retried).await.unwrap();
    is_parked_without_payload(&world, "large", PARKED_ROW_LEN_MAX).await;
    command(&world, ParkedAction::Skip, number).await;
    relay.wake();
    world.until_accepted(3).await;
    assert_eq!(world.ids(), ["before", "other", "behind"]);
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_made_smaller_is_taken_from_the_table_in_its_place() {
    let (database, world, config, relay) = following("").await;
    unchecked(&database).await;
    database.run(&insert("large", "k", PARKED_ROW_LEN_MAX)).await;
    database.run(&insert("behind", "k", 1)).await;
    world.until_trouble("shop", "wrong").await;
    database.run("UPDATE railpost_outbox SET payload = '{}' WHERE id = 'large'").await;
    relay.wake();
    let accepted = world.until_accepted(2).await;
    assert_eq!(world.ids(), ["large", "behind"]);
    assert_eq!(&accepted[0].1.payload[..], b"{}");
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_row_that_is_in_the_log_alone_is_parked_without_its_payload() {
    let (database, world, config, relay) = following("").await;
    unchecked(&database).await;
    let large = insert("large", "k", PARKED_ROW_LEN_MAX);
    database.run(&format!("BEGIN; {large}; DELETE FROM railpost_outbox; COMMIT")).await;
    database.run(&insert("other", "o", 1)).await;
    world.until_accepted(1).await;
    world.until_parked(&shop(), 1).await;
    is_parked_without_payload(&world, "large", PARKED_ROW_LEN_MAX).await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_a_large_message() {
    let (database, world, config, relay) = following("mode = \"messages\"").await;
    let message = |id: &str, len: usize| {
        format!(
            "SELECT pg_logical_emit_message(true, 'railpost', json_build_object('id', '{id}', 'type', 'order.paid', \
             'payload', repeat('x', {len}))::text)"
        )
    };
    database.run(&message("large", PARKED_ROW_LEN_MAX)).await;
    database.run(&message("other", 1)).await;
    world.until_accepted(1).await;
    world.until_parked(&shop(), 1).await;
    // With its quotes.
    is_parked_without_payload(&world, "large", PARKED_ROW_LEN_MAX + 2).await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_beyond_what_the_stream_reads_is_named_and_costs_the_slot_when_it_is_gone() {
    let (database, world, config, relay) = following("").await;
    unchecked(&database).await;
    database.run(&insert("before", "k", 1)).await;
    database.run(&insert("large", "k", BEYOND_THE_STREAM)).await;
    database.run(&insert("behind", "k", 1)).await;
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("row large "), "{trouble}");
    database.run(trouble.remedy().unwrap()).await;
    relay.wake();
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["before", "behind"]);
    assert!(world.until_alarm().await.contains("is made again"), "{:?}", world.alarms());
    world.until_reading("shop", 2).await;
    database.run(&insert("new", "k", 1)).await;
    world.until_accepted(3).await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_beyond_what_the_stream_reads_is_passed_by_the_sql_that_is_told() {
    let (database, world, config, relay) = following("mode = \"messages\"").await;
    let large = format!(
        "SELECT pg_logical_emit_message(true, 'railpost', repeat('x', {BEYOND_THE_STREAM}))"
    );
    database.run(&large).await;
    let trouble = world.until_trouble("shop", "wrong").await;
    let advancing = async {
        // It fails while a try of the source has the slot.
        while database.client.batch_execute(trouble.remedy().unwrap()).await.is_err() {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), advancing).await.unwrap();
    let next = "SELECT pg_logical_emit_message(true, 'railpost', '{\"id\":\"e2\",\"type\":\"a\",\"payload\":1}')";
    database.run(next).await;
    world.until_accepted(1).await;
    assert_eq!(world.ids(), ["e2"]);
    assert!(world.until_alarm().await.contains("messages between the two are lost"));
    end(&database, &config, relay).await;
}

/// A source of this mode whose table has a large row when it is first read.
async fn in_the_table(mode: &str) {
    let database = Database::with_outbox().await;
    unchecked(&database).await;
    database.run(&insert("before", "k", 1)).await;
    database.run(&insert("large", "k", BEYOND_THE_STREAM)).await;
    database.run(&insert("behind", "k", 1)).await;
    let slot = database.url.rsplit('/').next().unwrap();
    let is_tailed = mode == "tail";
    let slot = if is_tailed { format!("slot = \"{slot}\"") } else { String::new() };
    let fields = format!("tenant = \"acme\"\nmode = \"{mode}\"\n{slot}");
    let config = source("shop", &database.url, &fields);
    let database = match is_tailed {
        true => Database::with_publication(&config, database).await,
        false => database,
    };
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    let trouble = world.until_trouble("shop", "wrong").await;
    assert!(trouble.to_string().contains("row "), "{trouble}");
    database.run(trouble.remedy().unwrap()).await;
    relay.wake();
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["before", "behind"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_row_of_a_table_is_removed_by_the_sql_that_is_told() {
    in_the_table("poll").await;
    in_the_table("tail").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_refused_rows_are_parked_though_they_are_more_than_one_call_may_bring() {
    let database = Database::with_outbox().await;
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nmode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &database.url, &fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    world.refuse_types(&["order.paid"]);
    let fill = format!(
        "INSERT INTO railpost_outbox (id, type, key, payload) \
         SELECT 'e' || n, 'order.paid', 'k' || n, repeat('x', 1048576) FROM generate_series(1, {}) AS n",
        PARKED_ROW_LEN_MAX / 1_048_576 + 4
    );
    database.run(&fill).await;
    let relay = world.relay(vec![config.clone()]);
    world.until_parked(&shop(), (PARKED_ROW_LEN_MAX / 1_048_576 + 4) as u64).await;
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}
