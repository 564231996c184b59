//! Backups of a PostgreSQL store: every table, as the server itself copies it, in one file.
//!
//! The file begins with a mark, the version of its form and the schema's version. Then, table by table, come
//! pieces of at most 4 GiB, each after its length; an empty piece ends the table. The last 32 bytes are the
//! SHA-256 of all before them.

use std::path::Path;

use bytes::Bytes;
use futures_util::{SinkExt, TryStreamExt};
use railpost_engine::Timestamp;
use ring::digest::{Context, Digest, SHA256, SHA256_OUTPUT_LEN};
use tokio::fs::File;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, BufWriter,
    SeekFrom,
};
use tokio_postgres::Transaction;

use super::errors::{Translate, translate};
use super::link::{Purpose, ServerIdentity};
use super::lock::TakenLock;
use super::node::Node;
use super::schema::{self, SCHEMA};
use railpost_store::backend::codes::millis;
use railpost_store::backend::lines;
use railpost_store::{Result, Setup, StoreError};

/// What a backup begins with. Stable.
pub(super) const MARK: &[u8; 16] = b"railpost pg dump";

/// The version of the file's form. It is higher than any schema of the form without checksum, which had the
/// schema's version in its place.
const FORM: u32 = 100;

/// How much of a file is read at once.
const CHECK_CHUNK: usize = 256 * 1024;

/// The tables in the order of the file, each with the version of the schema that brought it. Stable:
/// new ones come last.
pub(super) const TABLES: [(&str, u32); 24] = [
    ("store", 1),
    ("tenants", 1),
    ("endpoints", 1),
    ("secrets", 1),
    ("event_types", 1),
    ("api_keys", 1),
    ("audit", 1),
    ("idempotency", 1),
    ("partitions", 1),
    ("events", 1),
    ("lanes", 1),
    ("deliveries", 1),
    ("attempts", 1),
    ("replays", 2),
    ("figures", 2),
    ("eras", 4),
    ("old_lines", 4),
    ("lane_follows", 4),
    ("sources", 6),
    ("parked", 6),
    ("railpost_outbox", 6),
    ("emit_roles", 6),
    ("alerts", 9),
    ("silences", 9),
];

/// The tables that give out numbers, the column, and the version of the schema that brought it.
const NUMBERED: [(&str, &str, u32); 6] = [
    ("tenants", "num", 1),
    ("endpoints", "num", 1),
    ("events", "num", 1),
    ("lanes", "id", 1),
    ("parked", "num", 6),
    ("railpost_outbox", "seq", 6),
];

pub(super) async fn backup(node: &Node, to: &Path) -> Result<()> {
    let trouble = |error: std::io::Error| {
        StoreError::Unavailable(format!("cannot write the backup {}: {error}", to.display()))
    };
    let file = File::create_new(to).await.map_err(trouble)?;
    let (mut client, _) = node.address.connect(Purpose::LongWork).await?;
    let snapshot = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await
        .translated()?;
    let mut file = ChecksumWriter { file: BufWriter::new(file), digest: Context::new(&SHA256) };
    file.write(MARK).await.map_err(trouble)?;
    file.write(&FORM.to_be_bytes()).await.map_err(trouble)?;
    file.write(&SCHEMA.to_be_bytes()).await.map_err(trouble)?;
    for (table, _) in TABLES {
        let rows = snapshot
            .copy_out(&format!("COPY {table} TO STDOUT (FORMAT binary)"))
            .await
            .translated()?;
        let mut rows = std::pin::pin!(rows);
        while let Some(piece) = rows.try_next().await.translated()? {
            file.write_piece(&piece).await.map_err(trouble)?;
        }
        file.write_piece(&[]).await.map_err(trouble)?;
    }
    file.finish().await.map_err(trouble)
}

/// A file that ends with the checksum of all that was written before.
struct ChecksumWriter {
    file: BufWriter<File>,
    digest: Context,
}

impl ChecksumWriter {
    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.digest.update(bytes);
        self.file.write_all(bytes).await
    }

    async fn write_piece(&mut self, piece: &[u8]) -> std::io::Result<()> {
        let len = u32::try_from(piece.len()).map_err(std::io::Error::other)?;
        self.write(&len.to_be_bytes()).await?;
        self.write(piece).await
    }

    async fn finish(mut self) -> std::io::Result<()> {
        self.file.write_all(self.digest.finish().as_ref()).await?;
        self.file.flush().await?;
        self.file.get_ref().sync_all().await
    }
}

/// Opens a backup and reads all of it, to compare it with its checksum. Answers the file after its mark
/// and form.
async fn open_checked(from: &Path) -> Result<BufReader<File>> {
    let trouble = |error| unreadable(from, &error);
    let mut file = BufReader::with_capacity(CHECK_CHUNK, File::open(from).await.map_err(trouble)?);
    let len = file.get_ref().metadata().await.map_err(trouble)?.len();
    let mut mark = [0; MARK.len()];
    file.read_exact(&mut mark).await.map_err(trouble)?;
    if mark != *MARK {
        let problem = format!("{} is no backup of a PostgreSQL store", from.display());
        return Err(StoreError::Corrupt(problem));
    }
    let form = file.read_u32().await.map_err(trouble)?;
    if form != FORM {
        let problem = format!("its form is {form}, and this version reads form {FORM} only");
        return Err(StoreError::Corrupt(format!("the backup {}: {problem}", from.display())));
    }
    let content = len.checked_sub(SHA256_OUTPUT_LEN as u64).ok_or_else(|| damaged(from))?;
    file.rewind().await.map_err(trouble)?;
    let found = digest(&mut (&mut file).take(content)).await.map_err(trouble)?;
    let mut expected = [0; SHA256_OUTPUT_LEN];
    file.read_exact(&mut expected).await.map_err(trouble)?;
    if found.as_ref() != expected {
        return Err(damaged(from));
    }
    let start = (MARK.len() + size_of_val(&FORM)) as u64;
    file.seek(SeekFrom::Start(start)).await.map_err(trouble)?;
    Ok(file)
}

/// The checksum of all that can be read.
async fn digest(file: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Digest> {
    let mut digest = Context::new(&SHA256);
    loop {
        let bytes = file.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(digest.finish());
        }
        digest.update(bytes);
        let len = bytes.len();
        file.consume(len);
    }
}

fn damaged(from: &Path) -> StoreError {
    let problem = "it does not match its checksum: use another backup or another copy of it";
    StoreError::Corrupt(format!("the backup {} is damaged: {problem}", from.display()))
}

fn unreadable(from: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => StoreError::Corrupt(format!(
            "the backup {} is damaged: it is cut short",
            from.display()
        )),
        _ => StoreError::Unavailable(format!("cannot read {}: {error}", from.display())),
    }
}

/// Fills an empty schema with what a backup holds.
pub(super) async fn restore(to: &mut TakenLock, from: &Path, setup: &Setup) -> Result<()> {
    let mut file = open_checked(from).await?;
    let found = file.read_u32().await.map_err(|error| unreadable(from, &error))?;
    if found > SCHEMA {
        return Err(StoreError::NewerSchema { found, known: SCHEMA });
    }
    let change = to.client.transaction().await.translated()?;
    schema::lock(&change).await?;
    if schema::version(&change).await? > 0 {
        let problem = "expected an empty one to restore into; this one holds a store: name another \
                       schema (`options=-csearch_path%3D…` in the URL), or drop this one first";
        return Err(StoreError::conflict("schema", problem));
    }
    schema::create(&change, found).await?;
    for (table, _) in TABLES.into_iter().filter(|(_, since)| *since <= found) {
        fill(&change, table, &mut file).await.map_err(|error| match error {
            RestoreError::File(error) => unreadable(from, &error),
            RestoreError::Database(error) => translate(&error),
        })?;
    }
    schema::verify_keys(&change, setup, found).await?;
    for (table, column, _) in NUMBERED.iter().filter(|(_, _, since)| *since <= found) {
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), \
             coalesce(max({column}), 0) + 1, false) FROM {table}"
        );
        change.execute(&sql, &[]).await.translated()?;
    }
    schema::upgrade(&change, found).await?;
    begin_era(&change, to.server, setup.source.now()).await?;
    change.commit().await.translated()
}

/// Begins an era, and moves all lanes with open deliveries into it.
async fn begin_era(change: &Transaction<'_>, server: ServerIdentity, now: Timestamp) -> Result<()> {
    let ServerIdentity { system, timeline } = server;
    // A schema that had no eras has lanes of the first one.
    for sql in [
        "SELECT railpost_begin_era($1, $2, $3) WHERE NOT EXISTS (SELECT FROM eras)",
        "SELECT railpost_begin_era($1, $2, $3)",
    ] {
        change.execute(sql, &[&millis(now), &system, &timeline]).await.translated()?;
    }
    // Tables that were just filled have no statistics to plan by.
    change.batch_execute("ANALYZE deliveries, lanes, old_lines").await.translated()?;
    // A trigger writes down the lines that are left.
    change.batch_execute(lines::MOVE_OPEN_LANES).await.translated()?;
    change.batch_execute(lines::FOLLOW_OPEN).await.translated()
}

enum RestoreError {
    File(std::io::Error),
    Database(tokio_postgres::Error),
}

async fn fill(
    change: &Transaction<'_>,
    table: &str,
    file: &mut BufReader<File>,
) -> std::result::Result<(), RestoreError> {
    let sql = format!("COPY {table} FROM STDIN (FORMAT binary)");
    let sink = change.copy_in::<_, Bytes>(&sql).await.map_err(RestoreError::Database)?;
    let mut sink = std::pin::pin!(sink);
    loop {
        let len = file.read_u32().await.map_err(RestoreError::File)? as usize;
        if len == 0 {
            break;
        }
        let mut piece = vec![0; len];
        file.read_exact(&mut piece).await.map_err(RestoreError::File)?;
        sink.send(piece.into()).await.map_err(RestoreError::Database)?;
    }
    sink.finish().await.map(drop).map_err(RestoreError::Database)
}
