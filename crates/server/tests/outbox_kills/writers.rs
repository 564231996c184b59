//! Applications that write events in transactions, some of which they roll back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::judge::Written;
use super::receiver::Receiver;
use super::source::Source;

/// Writers of a source, and the keys that they share.
const WRITERS: u32 = 6;
const KEYS: u32 = 20;
/// Longest time that a transaction stays open after its event is written, and between two transactions, in
/// milliseconds.
const OPEN_MS_MAX: u64 = 8;
const PAUSE_MS_MAX: u64 = 20;

/// What the writers look at before each transaction.
#[derive(Default)]
struct Signals {
    stopped: AtomicBool,
    /// How many servers were killed or stopped so far.
    kills: AtomicU32,
}

/// Writers that write until they are stopped.
pub(crate) struct Writers {
    signals: Arc<Signals>,
    running: JoinSet<Written>,
}

impl Writers {
    /// Starts them. They tell the receiver what it may get.
    pub(crate) async fn start(source: &Source, receiver: &Arc<Receiver>, dice: &mut Rng) -> Self {
        let counters = format!(
            "CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL); \
             INSERT INTO counters SELECT 'k' || n, 0 FROM generate_series(1, {KEYS}) AS n"
        );
        source.connect().await.batch_execute(&counters).await.unwrap();
        let signals = Arc::new(Signals::default());
        let mut running = JoinSet::new();
        for writer in 1..=WRITERS {
            let client = source.connect().await;
            let dice = dice.fork();
            running.spawn(write(client, writer, dice, signals.clone(), receiver.clone()));
        }
        Self { signals, running }
    }

    /// Events of transactions that begin after this tell of one kill more.
    pub(crate) fn note_kill(&self) {
        self.signals.kills.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) async fn stop(mut self) -> Written {
        self.signals.stopped.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        while let Some(written) = self.running.join_next().await {
            let written = written.unwrap();
            all.committed.extend(written.committed);
            all.rolled_back += written.rolled_back;
        }
        all
    }
}

async fn write(
    client: Client,
    writer: u32,
    mut dice: Rng,
    signals: Arc<Signals>,
    receiver: Arc<Receiver>,
) -> Written {
    let mut written = Written::default();
    let mut number = 0;
    while !signals.stopped.load(Ordering::Relaxed) {
        number += 1;
        let id = format!("w{writer}-{number}");
        let kills = signals.kills.load(Ordering::Relaxed);
        let commits = dice.u8(..) >= 40;
        count_and_emit(&client, &id, kills, &mut dice).await;
        if commits {
            receiver.arrivals().allow(&id);
        }
        client.batch_execute(if commits { "COMMIT" } else { "ROLLBACK" }).await.unwrap();
        if commits {
            written.committed.insert(id);
        } else {
            written.rolled_back += 1;
        }
        tokio::time::sleep(Duration::from_millis(dice.u64(..PAUSE_MS_MAX))).await;
    }
    written
}

/// Begins a transaction that counts its key on under the row's lock, and tells of the number. It stays open for a
/// while.
async fn count_and_emit(client: &Client, id: &str, kills: u32, dice: &mut Rng) {
    let key = format!("k{}", dice.u32(1..=KEYS));
    let count_and_emit = format!(
        "BEGIN; \
         WITH counted AS (UPDATE counters SET n = n + 1 WHERE key = '{key}' RETURNING n) \
         SELECT railpost_emit('order.changed', json_build_object('id', '{id}', 'key', '{key}', 'n', n, \
         'kills', {kills})::text, '{key}', '{id}') FROM counted"
    );
    client.batch_execute(&count_and_emit).await.unwrap();
    tokio::time::sleep(Duration::from_millis(dice.u64(..OPEN_MS_MAX))).await;
}
