//! Writers with transactions of mixed lengths, rollbacks and savepoints, and the judge of what was
//! relayed.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use railpost_store::Event;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::database::Database;

pub(crate) const WRITERS: u64 = 16;
const KEYS: u32 = 20;

/// What the writers have committed: the ids by key, in the order of the key's counter.
pub(crate) struct Committed {
    pub(crate) events: usize,
    pub(crate) by_key: HashMap<String, i64>,
    pub(crate) rolled_back: usize,
}

/// How writers write an event: its id, key and payload in a statement.
pub(crate) type Emit = fn(&str, &str, i64) -> String;

pub(crate) fn emit_own(id: &str, key: &str, number: i64) -> String {
    format!("SELECT railpost_emit('order.changed', '{{\"n\":{number}}}', '{key}', '{id}')")
}

/// Sixteen writers, each with so many transactions. A key's counter is a row that each transaction locks
/// before it emits.
pub(crate) async fn write(database: &Database, transactions: usize, emit: Emit) -> Committed {
    database.run("CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL)").await;
    let fill =
        format!("INSERT INTO counters SELECT 'k' || n, 0 FROM generate_series(1, {KEYS}) AS n");
    database.run(&fill).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = database.connect().await;
        writers.spawn(write_all(client, writer, transactions, emit));
    }
    let (mut events, mut rolled_back) = (0, 0);
    while let Some(done) = writers.join_next().await {
        let (wrote, undone) = done.unwrap();
        events += wrote;
        rolled_back += undone;
    }
    let rows = database.client.query("SELECT key, n FROM counters", &[]).await.unwrap();
    let by_key = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    Committed { events, by_key, rolled_back }
}

async fn write_all(client: Client, writer: u64, transactions: usize, emit: Emit) -> (usize, usize) {
    let mut dice = Rng::with_seed(writer);
    let (mut committed, mut undone) = (0, 0);
    for transaction in 0..transactions {
        let id = format!("w{writer}-{transaction}");
        if write_one(&client, &mut dice, &id, emit).await { committed += 1 } else { undone += 1 }
    }
    (committed, undone)
}

/// One transaction. Answers whether its event was committed.
async fn write_one(client: &Client, dice: &mut Rng, id: &str, emit: Emit) -> bool {
    let key = format!("k{}", dice.u32(1..=KEYS));
    let pause = if dice.u8(..) < 200 { 0 } else { dice.u64(0..12) };
    let run = async |sql: &str| client.batch_execute(sql).await.unwrap();
    run("BEGIN").await;
    // A transaction that has written before it waits for the key has a low number and commits late.
    if dice.bool() {
        run("SELECT pg_current_xact_id()").await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let undone = dice.u8(..) < 40;
    let saved = dice.u8(..) < 60;
    if saved {
        // What is rolled back to a savepoint was never there, also if it has the same key.
        run("SAVEPOINT s").await;
        run(&emit(&format!("{id}-never"), &key, -1)).await;
        run("ROLLBACK TO SAVEPOINT s").await;
    }
    let lock = format!("UPDATE counters SET n = n + 1 WHERE key = '{key}' RETURNING n");
    let number: i64 = client.query_one(&lock, &[]).await.unwrap().get(0);
    run(&emit(id, &key, number)).await;
    tokio::time::sleep(Duration::from_millis(pause)).await;
    run(if undone { "ROLLBACK" } else { "COMMIT" }).await;
    !undone
}

/// None lost, none early, none out of order: each key's events count 1, 2, 3 … up to its counter.
pub(crate) fn judge(committed: &Committed, relayed: &[(String, Event)]) {
    let mut last: HashMap<String, i64> = HashMap::new();
    for (_, event) in relayed {
        let key = event.key.as_ref().unwrap().to_string();
        let payload: HashMap<String, i64> = serde_json::from_slice(&event.payload).unwrap();
        let last = last.entry(key.clone()).or_default();
        assert_eq!(payload["n"], *last + 1, "key {key}: {} comes after number {last}", event.id);
        *last += 1;
    }
    let expected: HashMap<_, _> = committed.by_key.iter().filter(|(_, n)| **n > 0).collect();
    assert_eq!(last.iter().collect::<HashMap<_, _>>(), expected);
    assert_eq!(relayed.len(), committed.events);
    println!(
        "{} writers: {} committed, {} rolled back, {} relayed, 0 lost, 0 early, 0 out of order",
        WRITERS,
        committed.events,
        committed.rolled_back,
        relayed.len()
    );
}
