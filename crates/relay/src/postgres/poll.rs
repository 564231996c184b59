//! Polling: the visible rows in the order of the database's number, removed by exactly these numbers.
//!
//! A transaction that committed late shows its rows to the next scan, wherever their numbers stand: no
//! row is passed over because a later one was seen. A scan begins at the floor, a transaction number
//! below which no row can appear any more. The floor lives as long as the session: a restored database
//! counts its transactions from elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use railpost_outbox::sql::NOTIFY_CHANNEL;
use railpost_store::limits::{BATCH_BYTES_MAX, PARKED_ROW_LEN_MAX};
use tokio::time::{Instant, timeout};

use super::connect::{Address, Session};
use super::mapping::Mapping;
use crate::config::{SourceConfig, Wake};
use crate::handover::Handover;
use crate::limits::{
    CURSOR_ROWS, FULL_SCAN_EVERY, NEAR_ROWS_MAX, NOTIFY_INTERVAL, PASS_TIME_MAX, READER_IDLE_MAX,
};
use crate::row::SourceRow;
use crate::run::SourceTask;
use crate::trouble::Trouble;

/// The floor of a scan that goes through everything.
const NO_FLOOR: &str = "0";

/// The number of a row, and the size of its payload.
type Key = (i64, usize);

/// A source that is polled.
struct Poller<'r> {
    task: &'r SourceTask,
    config: &'r SourceConfig,
    mapping: Mapping,
    /// Reads, and holds the lock.
    reader: Session,
    /// Removes what was taken: not in the reader's transaction.
    remover: Session,
    /// No row of a transaction below this one can appear any more.
    floor: String,
    /// When a scan last began without a floor.
    full_scan_at: Instant,
}

/// Reads the source until something fails.
pub(crate) async fn run(task: &SourceTask, handover: &mut Handover) -> Result<(), Trouble> {
    let mut poller = Poller::open(task).await?;
    task.reading();
    let (shortest, longest) = task.config.poll_interval;
    let (shortest, longest) =
        (Duration::from_millis(shortest.as_millis()), Duration::from_millis(longest.as_millis()));
    let mut interval = shortest;
    loop {
        let taken = poller.pass(handover).await?;
        interval = if taken > 0 { shortest } else { (interval * 2).min(longest) };
        if taken < task.config.batch {
            poller.wait(interval, handover).await?;
        }
    }
}

impl<'r> Poller<'r> {
    async fn open(task: &'r SourceTask) -> Result<Self, Trouble> {
        let config = &*task.config;
        let address = Address::of(config, task.context.store_address.as_ref())?;
        let reader = address.connect(config.name.as_str()).await?;
        let remover = address.connect(config.name.as_str()).await?;
        refuse_pooler(&reader, &remover).await?;
        let mapping = Mapping::of(&reader.client, config).await?;
        let interval_max = Duration::from_millis(config.poll_interval.1.as_millis());
        reader.end_when_idle_for(READER_IDLE_MAX.max(interval_max * 2)).await?;
        lock(&reader, config).await?;
        if config.wake == Wake::Notify {
            reader.client.batch_execute(&format!("LISTEN {NOTIFY_CHANNEL}")).await?;
        }
        let (floor, full_scan_at) = (NO_FLOOR.to_owned(), Instant::now());
        Ok(Self { task, config, mapping, reader, remover, floor, full_scan_at })
    }

    /// Takes all that is visible, within bounds. Answers how many rows those were.
    async fn pass(&mut self, handover: &mut Handover) -> Result<usize, Trouble> {
        if self.full_scan_at.elapsed() >= FULL_SCAN_EVERY {
            NO_FLOOR.clone_into(&mut self.floor);
            self.full_scan_at = Instant::now();
        }
        let near = self.reader.client.query_one(&self.mapping.near, &[&self.floor]).await?;
        handover.keep().await?;
        let (numbers, sizes): (Vec<i64>, Vec<i64>) = (near.try_get(1)?, near.try_get(2)?);
        if numbers.len() > NEAR_ROWS_MAX {
            return self.long_pass(handover).await;
        }
        if !numbers.is_empty() {
            self.task.status.lock().pending = numbers.len() as u64;
            let keys: Vec<Key> =
                numbers.iter().copied().zip(sizes.iter().map(|size| *size as usize)).collect();
            self.take(handover, &keys).await?;
        }
        // All that the snapshot showed is taken: what is to come has its transaction's number or a
        // higher one.
        self.floor = near.try_get(0)?;
        self.task.status.caught_up();
        Ok(numbers.len())
    }

    /// Takes many rows on one snapshot, which goes through them once, dead ones too.
    async fn long_pass(&mut self, handover: &mut Handover) -> Result<usize, Trouble> {
        let began = Instant::now();
        let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.reader.client.batch_execute(&format!("{snapshot}; {}", self.mapping.all)).await?;
        let mut taken = 0;
        while began.elapsed() < PASS_TIME_MAX {
            let fetch = format!("FETCH {CURSOR_ROWS} FROM railpost_keys");
            let rows = self.reader.client.query(&fetch, &[]).await?;
            handover.keep().await?;
            let keys =
                rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)? as usize)));
            let keys: Vec<Key> = keys.collect::<Result<_, tokio_postgres::Error>>()?;
            self.task.status.lock().pending = keys.len() as u64;
            taken += self.take(handover, &keys).await?;
            if keys.len() < CURSOR_ROWS {
                break;
            }
        }
        self.reader.client.batch_execute("COMMIT").await?;
        Ok(taken)
    }

    /// Takes rows in order, batch by batch: while one is handed over, the one before is removed and the
    /// next one read. No batch is read past one whose removal failed.
    async fn take(&self, handover: &mut Handover, keys: &[Key]) -> Result<usize, Trouble> {
        let mut batches = batches(keys, self.config.batch).into_iter();
        let mut next = match batches.next() {
            Some(first) => Some(self.read(first).await?),
            None => None,
        };
        let mut handed_over: &[Key] = &[];
        let mut taken: &[Key];
        let mut rest = keys;
        while let Some(rows) = next.take() {
            (taken, rest) = rest.split_at(rows.keys);
            handover.keep().await?;
            let read = async {
                match batches.next() {
                    Some(batch) => self.read(batch).await.map(Some),
                    None => Ok(None),
                }
            };
            let (handed, removed, read) =
                tokio::join!(handover.hand_over(&rows.rows), self.remove(handed_over), read);
            removed?;
            handed_over = match &handed {
                Ok(_) => taken,
                Err(Trouble::Stopped { before, .. }) => keys_before(taken, &rows.rows[*before]),
                Err(_) => &[],
            };
            next = match handed.and(read) {
                Ok(read) => read,
                Err(trouble) => {
                    self.remove(handed_over).await?;
                    return Err(trouble);
                }
            };
        }
        self.remove(handed_over).await?;
        Ok(keys.len())
    }

    async fn read(&self, keys: &[Key]) -> Result<Batch, Trouble> {
        if let Some((number, _)) = keys.iter().find(|(_, size)| *size >= PARKED_ROW_LEN_MAX) {
            return Err(self.too_large(*number));
        }
        let numbers: Vec<i64> = keys.iter().map(|(number, _)| *number).collect();
        let found = self.reader.client.query(&self.mapping.rows, &[&numbers]).await?;
        let rows = found.iter().map(|row| self.mapping.read(row));
        let mut by_number: HashMap<i64, SourceRow> = HashMap::with_capacity(found.len());
        for row in rows {
            let mut row = row?;
            if row.is_too_large() {
                return Err(self.too_large(row.number));
            }
            row.complete(self.config);
            by_number.insert(row.number, row);
        }
        // A row that is gone meanwhile was removed by somebody else.
        let rows = numbers.iter().filter_map(|number| by_number.remove(number)).collect();
        Ok(Batch { keys: keys.len(), rows })
    }

    fn too_large(&self, number: i64) -> Trouble {
        let order = self.config.columns.order.as_ref().expect("a polled source has an order");
        let number = number.to_string();
        Trouble::too_large(&number, self.config, order, &number)
    }

    async fn remove(&self, keys: &[Key]) -> Result<(), Trouble> {
        if keys.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = keys.iter().map(|(number, _)| *number).collect();
        self.remover.client.execute(&self.mapping.remove, &[&numbers]).await?;
        Ok(())
    }

    async fn wait(&self, interval: Duration, handover: &mut Handover) -> Result<(), Trouble> {
        let interval = match self.config.wake {
            Wake::Poll => interval,
            Wake::Notify => NOTIFY_INTERVAL,
        };
        let notified = timeout(interval, self.reader.notified.notified());
        let by_clock = tokio::select! {
            notified = notified => notified.is_err(),
            () = self.task.wake.notified() => {
                handover.renew().await?;
                false
            }
        };
        self.task.status.woken(by_clock);
        Ok(())
    }
}

/// Rows that are handed over together.
struct Batch {
    /// How many numbers were asked for.
    keys: usize,
    rows: Vec<SourceRow>,
}

/// The keys in front of a row's.
fn keys_before<'k>(keys: &'k [Key], row: &SourceRow) -> &'k [Key] {
    let end = keys.iter().position(|(number, _)| *number == row.number);
    &keys[..end.unwrap_or_default()]
}

/// Cuts numbers into batches, by count and by size.
fn batches(keys: &[Key], most: usize) -> Vec<&[Key]> {
    let (mut batches, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, (_, size)) in keys.iter().enumerate() {
        let full = index - start == most || bytes + size > BATCH_BYTES_MAX / 2;
        if full && index > start {
            batches.push(&keys[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < keys.len() {
        batches.push(&keys[start..]);
    }
    batches
}

/// Two sessions that have one process at the server share it, transaction by transaction.
pub(crate) async fn refuse_pooler(one: &Session, other: &Session) -> Result<(), Trouble> {
    let sql = "SELECT pg_backend_pid()";
    let one: i32 = one.client.query_one(sql, &[]).await?.try_get(0)?;
    let other: i32 = other.client.query_one(sql, &[]).await?.try_get(0)?;
    if one != other {
        return Ok(());
    }
    Err(Trouble::pooler("two sessions share one process"))
}

/// One reader of a table at a time, also where two installations name it by mistake.
async fn lock(reader: &Session, config: &SourceConfig) -> Result<(), Trouble> {
    let sql = "SELECT pg_try_advisory_lock(hashtextextended('railpost outbox ' || to_regclass($1)::oid, 0))";
    let locked: bool = reader.client.query_one(sql, &[&config.table.sql()]).await?.try_get(0)?;
    if locked {
        return Ok(());
    }
    let holder = "SELECT concat_ws(', ', a.application_name, 'from ' || host(a.client_addr), 'session ' || l.pid) \
                  FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
                  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                  AND ((l.classid::bigint << 32) | l.objid::bigint) \
                    = hashtextextended('railpost outbox ' || to_regclass($1)::oid, 0)";
    let holder = reader.client.query_opt(holder, &[&config.table.sql()]).await?;
    let holder = holder.map_or_else(|| "it has just gone".to_owned(), |row| row.get(0));
    Err(Trouble::Elsewhere(holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_into_batches_by_count_and_by_size() {
        let large = BATCH_BYTES_MAX / 4;
        for (sizes, most, expected) in [
            (vec![], 2, vec![]),
            (vec![1, 1, 1], 2, vec![2, 1]),
            (vec![1, 1, 1, 1], 2, vec![2, 2]),
            (vec![large, large, large], 500, vec![2, 1]),
            (vec![4 * large, 1], 500, vec![1, 1]),
            (vec![1, 4 * large, 1], 500, vec![1, 1, 1]),
        ] {
            let keys: Vec<Key> =
                sizes.iter().enumerate().map(|(n, size)| (n as i64, *size)).collect();
            let lens: Vec<usize> = batches(&keys, most).iter().map(|batch| batch.len()).collect();
            assert_eq!(lens, expected, "{sizes:?}");
        }
    }
}
