//! Sources in SQLite: a file that is only read.
//!
//! SQLite has one writer at a time, so numbers of an AUTOINCREMENT column appear in the order in which
//! they were given. What was read is remembered in the store as the number of the last row, with a digest
//! of that row. A number means nothing in a table that was made again: if another row has it, or none has
//! it, the table is read from its beginning.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use railpost_store::limits::PARKED_ROW_LEN_MAX;
use railpost_store::{SourceFields, SourcePosition};
use ring::digest::{Context, SHA256};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::config::{Column, SourceConfig};
use crate::context::Observation;
use crate::handover::Handover;
use crate::row::SourceRow;
use crate::run::SourceTask;
use crate::trouble::Trouble;

/// Reads the file until something fails.
pub(crate) async fn run(
    task: &SourceTask,
    path: &Path,
    handover: &mut Handover,
) -> Result<(), Trouble> {
    let config = &*task.config;
    let mut reader = Reader::open(path, config).await?;
    let sources = &task.context.sources;
    let saved = sources.source_position(&config.name).await?;
    let mut last = saved.and_then(|saved| LastRow::of_position(&saved, path));
    task.reading();
    let (shortest, longest) = config.poll_interval;
    let (shortest, longest) =
        (Duration::from_millis(shortest.as_millis()), Duration::from_millis(longest.as_millis()));
    let mut interval = shortest;
    loop {
        let Found { rows, is_another } = reader.rows_after(last.clone()).await?;
        handover.keep().await?;
        if let Some(last) = last.as_ref().filter(|_| is_another) {
            let alarm = format!(
                "row {} of the file, up to which it was read, is gone or another one, and rows before it are there: the \
                 file or its table was replaced or restored, and is read again from its beginning",
                last.number
            );
            task.context.observer.observe(&config.name, &Observation::Alarm(&alarm));
        }
        let taken = rows.len();
        if taken > 0 {
            last = Some(take(task, path, &rows, handover).await?);
        }
        if taken == config.batch {
            continue;
        }
        task.status.caught_up();
        interval = if taken > 0 { shortest } else { (interval * 2).min(longest) };
        while !reader.wait(task, interval, handover).await? {
            interval = (interval * 2).min(longest);
            handover.keep().await?;
        }
    }
}

/// The last row that was read: its number, and a digest of what it held.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastRow {
    number: i64,
    digest: String,
}

impl LastRow {
    fn of(row: &SourceRow) -> Self {
        let fields = &row.fields;
        let [schema_version, time] = [fields.schema_version, fields.time]
            .map(|number| number.map(|number| number.to_string()));
        let texts = [
            &fields.id,
            &fields.tenant,
            &fields.event_type,
            &fields.key,
            &fields.content_type,
            &schema_version,
            &time,
            &fields.traceparent,
        ];
        let parts = texts.into_iter().map(|text| text.as_ref().map(String::as_bytes));
        let mut context = Context::new(&SHA256);
        for part in parts.chain([row.payload.as_deref()]) {
            // With its length before it, no part can pass for the end of another one.
            let len = part.map_or(-1, |part| part.len() as i64);
            context.update(&len.to_be_bytes());
            context.update(part.unwrap_or_default());
        }
        let mut digest = String::new();
        for byte in &context.finish().as_ref()[..16] {
            let _ = write!(digest, "{byte:02x}");
        }
        Self { number: row.number, digest }
    }

    /// Nothing if the position is another file's.
    fn of_position(saved: &SourcePosition, path: &Path) -> Option<Self> {
        let (digest, of) = saved.system.strip_prefix("sqlite ")?.split_once(' ')?;
        let is_ours = of == path.display().to_string();
        is_ours.then(|| Self { number: saved.number as i64, digest: digest.to_owned() })
    }

    fn position(&self, path: &Path) -> SourcePosition {
        let system = format!("sqlite {} {}", self.digest, path.display());
        SourcePosition { system, number: self.number as u64 }
    }
}

/// Rows, and whether the table is another one than that which was read.
struct Found {
    rows: Vec<SourceRow>,
    is_another: bool,
}

/// Hands rows over, and notes the last of them that was taken.
async fn take(
    task: &SourceTask,
    path: &Path,
    read: &[SourceRow],
    handover: &mut Handover,
) -> Result<LastRow, Trouble> {
    let config = &*task.config;
    if let Some(row) = read.iter().find(|row| row.is_too_large()) {
        let order = config.columns.order.as_ref().expect("a polled source has an order");
        let number = row.number.to_string();
        return Err(Trouble::too_large(&number, config, order, &number));
    }
    let mut rows = read.to_vec();
    for row in &mut rows {
        row.complete(config);
    }
    let handed = handover.hand_over(&rows).await;
    let taken = match &handed {
        Ok(_) => read.len(),
        Err(Trouble::Stopped { before, .. }) => *before,
        Err(_) => 0,
    };
    // The row as it was read: only so it is known again.
    let last = read[..taken].last().map(LastRow::of);
    if let Some(last) = &last {
        let (sources, position) = (&task.context.sources, last.position(path));
        sources.save_source_position(&config.name, handover.epoch(), position).await?;
    }
    handed?;
    Ok(last.expect("rows were taken"))
}

/// Whether the file can be read and its numbers are never used twice.
pub(crate) async fn check(path: &Path, config: &SourceConfig) -> Result<bool, Trouble> {
    let (path, config) = (path.to_owned(), config.clone());
    blocking(move || {
        let file = File::open(&path, &config)?;
        let sql = "SELECT sql LIKE '%AUTOINCREMENT%' FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        file.db.query_row(sql, [&config.table.name], |row| row.get(0)).map_err(|error| trouble(&error))
    })
    .await
}

/// Makes the table in the file, unless it is there. Answers what it ran.
pub(crate) async fn init(path: &Path, table: String, sql: String) -> Result<String, Trouble> {
    let path = path.to_owned();
    blocking(move || {
        let db = Connection::open(&path).map_err(|error| trouble(&error))?;
        let exists =
            "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
        let exists: bool =
            db.query_row(exists, [&table], |row| row.get(0)).map_err(|error| trouble(&error))?;
        if exists {
            return Ok(String::new());
        }
        db.execute_batch(&sql).map_err(|error| trouble(&error))?;
        Ok(sql)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(gone()))
}

/// The file's reader: a thread of its own, because reading a file blocks.
struct Reader {
    questions: mpsc::Sender<Question>,
    /// What `PRAGMA data_version` said when rows were last asked for.
    seen: i64,
    path: PathBuf,
    /// Which file was opened.
    inode: Inode,
}

/// A file's device and its number there. No other file gets it while this one is open.
type Inode = (u64, u64);

/// The file that has this name.
async fn inode(path: &Path) -> Result<Inode, Trouble> {
    let path = path.to_owned();
    blocking(move || match std::fs::metadata(&path) {
        Ok(file) => Ok((file.dev(), file.ino())),
        Err(error) => Err(cannot_open(&path, &error)),
    })
    .await
}

fn cannot_open(path: &Path, error: &dyn std::error::Error) -> Trouble {
    let problem = format!("cannot open {}: {error}", path.display());
    Trouble::wrong(problem, "name a SQLite file that this user may read behind `sqlite:`")
}

/// What the thread is asked, and where the answer goes.
enum Question {
    Rows { after: Option<LastRow>, answer: oneshot::Sender<Result<(i64, Found), Trouble>> },
    Version(oneshot::Sender<Result<i64, Trouble>>),
}

impl Reader {
    async fn open(path: &Path, config: &SourceConfig) -> Result<Self, Trouble> {
        let (questions, mut asked) = mpsc::channel(1);
        let (opened, answer) = oneshot::channel();
        let (path, config) = (path.to_owned(), config.clone());
        // Looked at before it is opened: one that is replaced in between is opened again.
        let (inode, name) = (inode(&path).await?, path.clone());
        let work = move || match File::open(&path, &config) {
            Err(trouble) => drop(opened.send(Err(trouble))),
            Ok(file) => {
                let _ = opened.send(Ok(()));
                while let Some(question) = asked.blocking_recv() {
                    file.answer(question);
                }
            }
        };
        let thread = std::thread::Builder::new().name("railpost-outbox".to_owned()).spawn(work);
        thread.map_err(|error| Trouble::Unavailable(format!("no thread to read with: {error}")))?;
        answer.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { questions, seen: 0, path: name, inode })
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, Trouble>>) -> Question,
    ) -> Result<T, Trouble> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(question(answer)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn rows_after(&mut self, after: Option<LastRow>) -> Result<Found, Trouble> {
        let (seen, found) = self.ask(|answer| Question::Rows { after, answer }).await?;
        self.seen = seen;
        Ok(found)
    }

    /// Waits for this long, or until a person wants something. Answers whether the file has changed
    /// since its rows were read. Fails if another file has its name: who has opened it sees the old one.
    async fn wait(
        &self,
        task: &SourceTask,
        interval: Duration,
        handover: &mut Handover,
    ) -> Result<bool, Trouble> {
        if timeout(interval, task.wake.notified()).await.is_ok() {
            handover.renew().await?;
        }
        if inode(&self.path).await? != self.inode {
            let problem = format!("{} is another file than was opened", self.path.display());
            return Err(Trouble::Unavailable(problem));
        }
        let changed = self.ask(Question::Version).await? != self.seen;
        task.status.woken(!changed);
        Ok(changed)
    }
}

fn gone() -> Trouble {
    Trouble::Unavailable("the file's reader has stopped".to_owned())
}

/// The open file.
struct File {
    db: Connection,
    rows: String,
    batch: usize,
    source: String,
}

impl File {
    fn open(path: &Path, config: &SourceConfig) -> Result<Self, Trouble> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db =
            Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, &error))?;
        let busy = db.busy_timeout(Duration::from_secs(5));
        busy.map_err(|error| trouble(&error))?;
        let file = Self {
            rows: rows_sql(config),
            batch: config.batch,
            source: config.name.to_string(),
            db,
        };
        // Whether the table is there and has these columns shows at once.
        file.db.prepare(&file.rows).map_err(|error| trouble(&error))?;
        Ok(file)
    }

    fn answer(&self, question: Question) {
        // A caller that stopped waiting needs no answer.
        match question {
            Question::Rows { after, answer } => {
                let found = self.version().and_then(|seen| Ok((seen, self.find(after.as_ref())?)));
                drop(answer.send(found.map_err(|error| trouble(&error))));
            }
            Question::Version(answer) => {
                drop(answer.send(self.version().map_err(|error| trouble(&error))));
            }
        }
    }

    /// A number that changes with every commit of another connection.
    fn version(&self) -> rusqlite::Result<i64> {
        self.db.query_row("PRAGMA data_version", [], |row| row.get(0))
    }

    /// The rows behind the last one that was read, or all if that one is not there any more. Then rows
    /// with lower numbers tell that the table was made again: who cleans up begins with the oldest.
    fn find(&self, last: Option<&LastRow>) -> rusqlite::Result<Found> {
        // On one snapshot: the table may be made again between two statements.
        let snapshot = self.db.unchecked_transaction()?;
        let found = match last {
            Some(last) if !self.holds(last)? => {
                let rows = self.read(0)?;
                let is_another = rows.first().is_some_and(|row| row.number <= last.number);
                Found { rows, is_another }
            }
            last => {
                Found { rows: self.read(last.map_or(0, |last| last.number))?, is_another: false }
            }
        };
        snapshot.finish()?;
        Ok(found)
    }

    /// Whether the row is there, as it was read.
    fn holds(&self, last: &LastRow) -> rusqlite::Result<bool> {
        let mut statement = self.db.prepare_cached(&self.rows)?;
        let mut found = statement.query((last.number - 1, 1))?;
        let Some(row) = found.next()? else { return Ok(false) };
        Ok(LastRow::of(&self.read_row(row)?) == *last)
    }

    /// The rows behind a number, as many as make a batch and no more bytes than one may have.
    fn read(&self, after: i64) -> rusqlite::Result<Vec<SourceRow>> {
        let mut statement = self.db.prepare_cached(&self.rows)?;
        let mut found = statement.query((after, self.batch))?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next()? {
            let row = self.read_row(row)?;
            let size = row.payload.as_ref().map_or(0, Bytes::len);
            if size >= PARKED_ROW_LEN_MAX && !rows.is_empty() {
                break;
            }
            bytes += size;
            if bytes > railpost_store::limits::BATCH_BYTES_MAX / 2 && !rows.is_empty() {
                break;
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn read_row(&self, row: &Row<'_>) -> rusqlite::Result<SourceRow> {
        let id = match row.get_ref(1)? {
            ValueRef::Integer(number) => Some(format!("{}:{number}", self.source)),
            value => text(value),
        };
        let payload = match row.get_ref(5)? {
            ValueRef::Blob(bytes) => Some(Bytes::copy_from_slice(bytes)),
            value => text(value).map(Bytes::from),
        };
        let fields = SourceFields {
            id,
            tenant: text(row.get_ref(2)?),
            event_type: text(row.get_ref(3)?),
            key: text(row.get_ref(4)?),
            content_type: text(row.get_ref(6)?),
            schema_version: number(row.get_ref(7)?),
            time: number(row.get_ref(8)?),
            traceparent: text(row.get_ref(9)?),
        };
        Ok(SourceRow { number: row.get(0)?, fields, payload, left_out: None })
    }
}

fn rows_sql(config: &SourceConfig) -> String {
    let columns = &config.columns;
    let order = columns.order.as_ref().expect("a polled source has an order").sql();
    let maybe = |column: &Option<Column>| column.as_ref().map_or("NULL".to_owned(), Column::sql);
    let parts = [
        order.clone(),
        columns.id.sql(),
        maybe(&columns.tenant),
        columns.event_type.sql(),
        maybe(&columns.key),
        columns.payload.sql(),
        maybe(&columns.content_type),
        maybe(&columns.schema_version),
        maybe(&columns.time),
        maybe(&columns.traceparent),
    ];
    let table = config.table.sql();
    format!("SELECT {} FROM {table} WHERE {order} > ?1 ORDER BY {order} LIMIT ?2", parts.join(", "))
}

/// A value as text. Bytes that are not UTF-8 are shown as well as they can be: they are refused.
fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    }
}

/// A value as a number; -1, which is refused, for what is none.
fn number(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number),
        value => Some(text(value).and_then(|text| text.parse().ok()).unwrap_or(-1)),
    }
}

fn trouble(error: &rusqlite::Error) -> Trouble {
    let text = error.to_string();
    if text.contains("no such table") || text.contains("no such column") {
        return Trouble::wrong(format!("SQLite: {text}"), "make the table: railpost outbox init");
    }
    Trouble::Unavailable(format!("SQLite: {text}"))
}
