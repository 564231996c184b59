//! Rows that the log does not tell of, because the publication lacked their table or published no inserts.

use super::database::Database;
use super::support::World;
use super::tail::{end, following, tailed};

/// What makes the publication wrong, and right again.
async fn wrong_for_a_while(wrong: &str, right: &str) {
    let (database, world, config, relay) = following("").await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_accepted(1).await;
    database.until_empty("railpost_outbox").await;
    let slot = &config.slot;
    database.run(&format!("ALTER PUBLICATION {slot} {wrong}")).await;
    database.emit("unpublished", "order.paid", Some("1")).await;
    world.until_trouble("shop", "wrong").await;
    database.run(&format!("ALTER PUBLICATION {slot} {right}")).await;
    database.emit("published", "order.paid", Some("1")).await;
    world.until_accepted(3).await;
    assert_eq!(world.ids(), ["e1", "unpublished", "published"]);
    assert!(world.until_alarm().await.contains("publication"), "{:?}", world.alarms());
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_from_while_the_publication_lacked_the_table_are_read_in_order() {
    wrong_for_a_while("DROP TABLE railpost_outbox", "ADD TABLE railpost_outbox").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_are_rows_from_while_it_published_no_inserts() {
    wrong_for_a_while("SET (publish = 'update')", "SET (publish = 'insert')").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_was_wrong_between_two_looks_or_two_starts_costs_no_row() {
    let (database, world, config, relay) = following("").await;
    let slot = &config.slot;
    database.run(&format!("ALTER PUBLICATION {slot} DROP TABLE railpost_outbox")).await;
    database.emit("e1", "order.paid", Some("1")).await;
    database.run(&format!("ALTER PUBLICATION {slot} ADD TABLE railpost_outbox")).await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    database.until_empty("railpost_outbox").await;
    relay.stop().await;
    database.run(&format!("ALTER PUBLICATION {slot} SET (publish = 'update')")).await;
    database.emit("e3", "order.paid", Some("1")).await;
    database.run(&format!("ALTER PUBLICATION {slot} SET (publish = 'insert')")).await;
    database.emit("e4", "order.paid", Some("1")).await;
    let relay = world.relay(vec![config.clone()]);
    world.until_accepted(4).await;
    assert_eq!(world.ids()[2..], ["e3", "e4"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_table_that_was_made_again_before_it_was_published_are_read() {
    let (database, world, config, relay) = following("").await;
    database.run("DROP TABLE railpost_outbox").await;
    database.run(railpost_outbox::sql::POSTGRES_TABLE).await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_trouble("shop", "wrong").await;
    let slot = &config.slot;
    database.run(&format!("ALTER PUBLICATION {slot} ADD TABLE railpost_outbox")).await;
    database.emit("e2", "order.paid", Some("1")).await;
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e2"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_log_never_tells_of_is_found_in_the_table() {
    let (database, world, config, relay) = following("").await;
    // Its insert is older than the table's place in the publication, its commit younger than the stream.
    let slot = &config.slot;
    let late = database.connect().await;
    database.run(&format!("ALTER PUBLICATION {slot} DROP TABLE railpost_outbox")).await;
    late.batch_execute("BEGIN; SELECT railpost_emit('order.paid', '{}', id => 'late')")
        .await
        .unwrap();
    world.until_trouble("shop", "wrong").await;
    database.run(&format!("ALTER PUBLICATION {slot} ADD TABLE railpost_outbox")).await;
    world.until_reading("shop", 2).await;
    late.batch_execute("COMMIT").await.unwrap();
    world.until_accepted(1).await;
    world
        .until(
            || world.alarms().iter().any(|alarm| alarm.contains("not in the log")),
            || format!("{:?}", world.alarms()),
        )
        .await;
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_from_while_a_column_had_another_name_are_read_from_the_table() {
    let (database, world, config, relay) = following("").await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_accepted(1).await;
    database.run("ALTER TABLE railpost_outbox RENAME traceparent TO trace").await;
    let insert = "INSERT INTO railpost_outbox (id, type, key, payload) VALUES ('e2', 'order.paid', '1', '{}')";
    database.run(insert).await;
    world.until_trouble("shop", "wrong").await;
    database.run("ALTER TABLE railpost_outbox RENAME trace TO traceparent").await;
    database.emit("e3", "order.paid", Some("1")).await;
    relay.wake();
    world.until_accepted(3).await;
    assert_eq!(world.ids(), ["e1", "e2", "e3"]);
    let alarm = world.until_alarm().await;
    assert!(alarm.contains("traceparent") && alarm.contains("is made again"), "{alarm}");
    world.until_reading("shop", 2).await;
    database.emit("e4", "order.paid", Some("1")).await;
    world.until_accepted(4).await;
    database.until_empty("railpost_outbox").await;
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_the_log_never_has_stops_the_source_and_keeps_its_slot() {
    let (database, world, config, relay) = following("").await;
    let slot = &config.slot;
    let list = "(seq, id, tenant, type, key, payload)";
    database.run(&format!("ALTER PUBLICATION {slot} SET TABLE railpost_outbox {list}")).await;
    database.emit("e1", "order.paid", Some("1")).await;
    world.until_told("leaves out column").await;
    database.run(&format!("ALTER PUBLICATION {slot} SET TABLE railpost_outbox")).await;
    database.emit("e2", "order.paid", Some("1")).await;
    relay.wake();
    world.until_accepted(2).await;
    assert_eq!(world.ids(), ["e1", "e2"]);
    end(&database, &config, relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_does_a_generated_column() {
    let database = Database::empty().await;
    let create = "CREATE TABLE events (id bigserial PRIMARY KEY, kind text, body text, \
                  name text GENERATED ALWAYS AS (kind || '.done') STORED)";
    database.run(create).await;
    let fields = "shape = \"custom\"\ntable = \"events\"\n\
                  columns = { id = \"id\", type = \"name\", payload = \"body\" }";
    let config = tailed(&database, fields);
    let database = Database::with_publication(&config, database).await;
    let world = World::new().await;
    let relay = world.relay(vec![config.clone()]);
    world.until_reading("shop", 1).await;
    database.run("INSERT INTO events (kind, body) VALUES ('a', '{}')").await;
    world.until_told("is generated").await;
    assert_eq!(world.alarms(), Vec::<String>::new());
    end(&database, &config, relay).await;
}
