//! What a source has to be, condition by condition, each with the SQL that makes it so.

mod log;
mod table;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::config::{Location, Mode, SourceConfig, quote};
use crate::context::StoreAddress;
use crate::init::{InitObject, init_parts, join};
use crate::postgres::connect::{Address, Session};
use crate::postgres::poll::refuse_pooler;
use crate::sqlite;
use crate::trouble::Trouble;

/// What was found about one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which condition, in a word.
    pub condition: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to run or to change; nothing if all is well or nothing can be done.
    pub fix: Option<String>,
}

/// Whether a condition is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The condition is met.
    Good,
    /// The source works, at a price.
    Warning,
    /// The source does not work.
    Bad,
}

impl Finding {
    fn good(condition: &'static str, found: impl Into<String>) -> Self {
        Self { condition, verdict: Verdict::Good, found: found.into(), fix: None }
    }

    fn warning(condition: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { condition, verdict: Verdict::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    fn bad(condition: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { condition, verdict: Verdict::Bad, found: found.into(), fix: Some(fix.into()) }
    }

    /// Good if it holds, and bad otherwise.
    fn of(
        condition: &'static str,
        holds: bool,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        if holds { Self::good(condition, found) } else { Self::bad(condition, found, fix) }
    }

    fn of_trouble(condition: &'static str, trouble: &Trouble) -> Self {
        let fix = trouble.remedy().map(str::to_owned);
        Self { condition, verdict: Verdict::Bad, found: trouble.to_string(), fix }
    }
}

/// Checks every condition of a source. A condition that cannot be checked because another one does not
/// hold is left out.
pub async fn check(config: &SourceConfig, store: Option<&StoreAddress>) -> Vec<Finding> {
    if let Location::Sqlite(path) = &config.location {
        return check_sqlite(path, config).await;
    }
    let mut findings = Vec::new();
    if let Err(trouble) = check_postgres(config, store, &mut findings).await {
        findings.push(Finding::of_trouble("connection", &trouble));
    }
    findings
}

/// Adds to the findings. What fails beyond them is the connection.
async fn check_postgres(
    config: &SourceConfig,
    store: Option<&StoreAddress>,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let (session, other) = connect(config, store).await?;
    findings.push(Finding::good(
        "connection",
        format!("connected as {}", role(&session.client).await?),
    ));
    match refuse_pooler(&session, &other).await {
        Ok(()) => {
            findings.push(Finding::good("direct connection", "no pooler in transaction mode"));
        }
        Err(trouble) => {
            findings.push(Finding::of_trouble("direct connection", &trouble));
            return Ok(());
        }
    }
    check_server(&session.client, config, findings).await?;
    if config.mode != Mode::Messages && !table::check(&session.client, config, findings).await? {
        return Ok(());
    }
    if config.mode != Mode::Poll {
        log::check(&session.client, config, findings).await?;
    }
    Ok(())
}

async fn connect(
    config: &SourceConfig,
    store: Option<&StoreAddress>,
) -> Result<(Session, Session), Trouble> {
    let address = Address::of(config, store)?;
    Ok((address.connect("check").await?, address.connect("check").await?))
}

async fn role(client: &Client) -> Result<String, Trouble> {
    Ok(client.query_one("SELECT quote_ident(current_user)", &[]).await?.try_get(0)?)
}

async fn setting(client: &Client, name: &str) -> Result<String, Trouble> {
    let sql = "SELECT coalesce(current_setting($1, true), '')";
    Ok(client.query_one(sql, &[&name]).await?.try_get(0)?)
}

async fn version(client: &Client) -> Result<u32, Trouble> {
    let number: i32 = setting(client, "server_version_num").await?.parse().unwrap_or_default();
    Ok(number as u32 / 10_000)
}

async fn check_server(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let version = version(client).await?;
    let least = if config.mode == Mode::Messages { 14 } else { 13 };
    let found = format!("PostgreSQL {version}");
    findings.push(Finding::of(
        "version",
        version >= least,
        found,
        format!("use PostgreSQL {least} or later"),
    ));
    let standby: bool = client.query_one("SELECT pg_is_in_recovery()", &[]).await?.try_get(0)?;
    let found = if standby { "a standby" } else { "a primary" };
    let fix = "name the primary in `url`, or all hosts and target_session_attrs=read-write";
    findings.push(Finding::of("primary", !standby, found, fix));
    let encoding = setting(client, "server_encoding").await?;
    let found = format!("the database's encoding is {encoding}");
    let fix = "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0; -- and move the tables there";
    findings.push(Finding::of("encoding", encoding == "UTF8", found, fix));
    Ok(())
}

async fn check_sqlite(path: &std::path::Path, config: &SourceConfig) -> Vec<Finding> {
    match sqlite::check(path, config).await {
        Err(trouble) => vec![Finding::of_trouble("file", &trouble)],
        Ok(autoincrement) => {
            let found = if autoincrement {
                "numbers are never used twice"
            } else {
                "numbers may be used twice"
            };
            let fix = "make the order's column INTEGER PRIMARY KEY AUTOINCREMENT";
            let order = Finding::of("order", autoincrement, found, fix);
            vec![Finding::good("file", format!("{} holds {}", path.display(), config.table)), order]
        }
    }
}

/// Runs what [`init_sql`](crate::init_sql) says, without the parts that are there already. Answers what it ran.
pub async fn init(config: &SourceConfig, store: Option<&StoreAddress>) -> Result<String, Trouble> {
    let parts = init_parts(config);
    if let Location::Sqlite(path) = &config.location {
        return sqlite::init(path, config.table.name.clone(), join(&parts)).await;
    }
    let session = Address::of(config, store)?.connect("init").await?;
    let mut missing = Vec::new();
    for part in parts {
        if !is_there(&session.client, config, part.object).await? {
            missing.push(part);
        }
    }
    let sql = join(&missing);
    let made = session.client.batch_execute(&sql).await;
    made.map(|()| sql).map_err(|error| match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let remedy = "name a role that may create tables: --url postgres://admin@…; or let one run what \
                          --print shows";
            Trouble::wrong(Trouble::from(error).to_string(), remedy)
        }
        _ => error.into(),
    })
}

/// Whether a part is there. A function is always made again: an older one may be there.
async fn is_there(
    client: &Client,
    config: &SourceConfig,
    object: InitObject,
) -> Result<bool, Trouble> {
    let (table, slot) = (config.table.sql(), &config.slot);
    let found = match object {
        InitObject::Function | InitObject::Column => return Ok(false),
        InitObject::Table => {
            client.query_opt("SELECT FROM pg_class WHERE oid = to_regclass($1)", &[&table]).await?
        }
        InitObject::Trigger => client.query_opt(TRIGGER, &[&table]).await?,
        InitObject::Publication => {
            client.query_opt("SELECT FROM pg_publication WHERE pubname = $1", &[slot]).await?
        }
    };
    Ok(found.is_some())
}

/// Removes what was made at a source for the relay, also by an earlier configuration: its replication slot, the
/// publication and the trigger. The table and its rows stay. Answers what was removed.
pub async fn drop_source(
    config: &SourceConfig,
    store: Option<&StoreAddress>,
) -> Result<Vec<String>, Trouble> {
    if let Location::Sqlite(_) = config.location {
        return Ok(Vec::new());
    }
    let session = Address::of(config, store)?.connect("drop").await?;
    let mut removed = drop_slot(&session.client, config).await?;
    // The trigger in the store's own schema is the store's.
    if config.location != Location::Store {
        removed.extend(drop_trigger(&session.client, config).await?);
    }
    Ok(removed)
}

/// `$1`: the table. The trigger that wakes the relay.
const TRIGGER: &str =
    "SELECT FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgname = 'railpost_outbox_notify'";

async fn drop_slot(client: &Client, config: &SourceConfig) -> Result<Vec<String>, Trouble> {
    let mut removed = Vec::new();
    let sql =
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
    if client.query_opt(sql, &[&config.slot]).await?.is_some() {
        removed.push(format!("slot {}", config.slot));
    }
    let sql = "SELECT FROM pg_publication WHERE pubname = $1";
    if client.query_opt(sql, &[&config.slot]).await?.is_some() {
        client.batch_execute(&format!("DROP PUBLICATION {}", quote(&config.slot))).await?;
        removed.push(format!("publication {}", config.slot));
    }
    Ok(removed)
}

async fn drop_trigger(client: &Client, config: &SourceConfig) -> Result<Option<String>, Trouble> {
    let table = config.table.sql();
    if client.query_opt(TRIGGER, &[&table]).await?.is_none() {
        return Ok(None);
    }
    client.batch_execute(&format!("DROP TRIGGER railpost_outbox_notify ON {table}")).await?;
    Ok(Some(format!("trigger railpost_outbox_notify on {}", config.table)))
}
