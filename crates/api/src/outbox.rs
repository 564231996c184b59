//! Sources that events are relayed from: how they are, and what is wrong with them.

mod grants;
mod parked;

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use http::Method;
use railpost_engine::Time;
use railpost_store::limits::SOURCE_NAME_LEN_MAX;
use railpost_store::{SourceName, SourcePosition, StoreError};
use railpost_telemetry::{SlotSample, SourceSample};
use railpost_wire::TenantId;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::path::{NoPath, OfSource};
use super::problem::Problem;
use super::query::{ListPage, NoQuery};
use super::route::Route;

pub(crate) use grants::RoleParam;

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(
            Method::GET,
            "/v1/outbox",
            Needs::Admin,
            "List the sources that events are relayed from",
            list,
        ),
        Route::new(Method::GET, "/v1/outbox/{source}", Needs::Admin, "Show a source", show),
        Route::new(
            Method::POST,
            "/v1/outbox/{source}/check",
            Needs::Admin,
            "Check every condition of a source at its database",
            check,
        ),
    ];
    [own, parked::routes(), grants::routes()].concat()
}

/// The sources of the configuration, as far as this server reads them.
#[async_trait]
pub trait RunningSources: fmt::Debug + Send + Sync {
    /// How each of them is, in the order of the configuration.
    fn status(&self) -> Vec<SourceView>;

    /// Checks every condition of a source at its database; `None` if the configuration does not have it.
    async fn check(&self, source: &SourceName) -> Option<Vec<FindingView>>;

    /// Whose events a source has, if the configuration says so.
    fn tenant(&self, source: &SourceName) -> Option<TenantId>;

    /// Lets them look at once: a person has released parked rows.
    fn wake(&self);
}

/// A source that events are relayed from. Counts are of this server, since its start.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Source")]
pub struct SourceView {
    /// Its name.
    pub name: String,
    /// How it is read; nothing if the configuration does not have it.
    pub mode: Option<SourceMode>,
    /// Where it is, without the password; nothing if the configuration does not have it.
    pub url: Option<String>,
    /// What it is doing.
    pub state: SourceState,
    /// Why it is not read.
    pub trouble: Option<SourceTrouble>,
    /// Rows that were accepted for the first time.
    pub relayed: u64,
    /// Rows that had been accepted before.
    pub duplicates: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// Rows that are parked.
    pub parked_rows: u64,
    /// How many bytes they have.
    pub parked_bytes: u64,
    /// Rows that are known to wait at the source.
    pub pending: u64,
    /// Age of the oldest row of the last batch in milliseconds; 0 when all was read. While the source is in
    /// trouble: how long the oldest row waits, as far as it is known, and at least since the trouble began.
    pub lag_ms: u64,
    /// When a row was last taken.
    pub last_row_at: Option<Time>,
    /// How far it was read: the last number of a SQLite source, the position in the log of a tailed one.
    pub position: Option<String>,
    /// Reads because the poll interval was over.
    pub wakes_by_poll: u64,
    /// Reads after a notification, a change in the log, or a command.
    pub wakes_by_notify: u64,
    /// The replication slot of a tailed source.
    pub slot: Option<SlotView>,
}

/// How a source is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceMode {
    /// By asking for the rows of a table.
    Poll,
    /// By following the database's log for inserts into a table.
    Tail,
    /// By following the database's log for messages.
    Messages,
}

/// What a source is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It was not read yet.
    Starting,
    /// This server reads it.
    Reading,
    /// Another server reads it.
    Elsewhere,
    /// It cannot be read.
    Trouble,
    /// The configuration does not have it any more, and the store still knows it.
    Removed,
}

/// Why a source is not read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SourceTrouble {
    /// In a word: `unavailable`, `wrong`, `backlog_full`, `store`, `elsewhere`, `stopped`, `parked_full` or
    /// `removed`.
    pub code: String,
    /// What is wrong.
    pub problem: String,
    /// What to run or to change.
    pub fix: Option<String>,
    /// Since when; nothing for a source that the configuration does not have.
    pub since: Option<Time>,
}

/// A replication slot.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReplicationSlot")]
pub struct SlotView {
    /// How many bytes of its log the database keeps for it.
    pub retained_bytes: u64,
    /// How many more it may keep before the slot is lost; `null` if there is no bound.
    pub safe_bytes: Option<u64>,
    /// Whether it is lost.
    pub lost: bool,
}

/// What was found about one condition of a source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SourceFinding")]
pub struct FindingView {
    /// Which condition, in a word.
    pub condition: String,
    /// How it is.
    pub verdict: FindingVerdict,
    /// What was found.
    pub found: String,
    /// What to run or to change.
    pub fix: Option<String>,
}

/// Whether a condition is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// The condition is met.
    Good,
    /// The source works, at a price.
    Warning,
    /// The source does not work.
    Bad,
}

/// What was found about a source.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "SourceCheck")]
pub(crate) struct CheckView {
    /// Whether no condition is bad.
    good: bool,
    /// Every condition. Those that cannot be checked because another one is bad are left out.
    findings: Vec<FindingView>,
}

/// The name of a source in a path.
#[derive(Clone, Debug)]
pub(crate) struct SourceParam(pub(crate) SourceName);

impl FromStr for SourceParam {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        text.parse().map(Self)
    }
}

impl JsonSchema for SourceParam {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SourceName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[a-z0-9][a-z0-9_-]*$",
            "maxLength": SOURCE_NAME_LEN_MAX,
        })
    }
}

async fn list(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<ListPage<SourceView>>, Problem> {
    let mut items = ctx.app.running_sources.status();
    for source in &mut items {
        locate(&ctx, source).await?;
    }
    for name in removed(&ctx).await? {
        items.push(SourceView::removed(&ctx, &name).await?);
    }
    Ok(Json(ListPage { items, next: None }))
}

/// The sources that the store knows and the configuration does not have.
async fn removed(ctx: &Ctx) -> Result<Vec<SourceName>, Problem> {
    let configured = ctx.app.running_sources.status();
    let is_configured =
        |name: &SourceName| configured.iter().any(|source| source.name == name.as_str());
    let known = ctx.app.store.known_sources().await?.into_iter();
    Ok(known.filter(|name| !is_configured(name)).collect())
}

async fn show(
    ctx: Ctx,
    path: OfSource,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<SourceView>, Problem> {
    let name = &path.source.0;
    let mut sources = ctx.app.running_sources.status().into_iter();
    let Some(mut source) = sources.find(|source| source.name == name.as_str()) else {
        find_removed(&ctx, name).await?;
        return Ok(Json(SourceView::removed(&ctx, name).await?));
    };
    locate(&ctx, &mut source).await?;
    Ok(Json(source))
}

/// Refuses a source that the store does not know either.
async fn find_removed(ctx: &Ctx, name: &SourceName) -> Result<(), Problem> {
    if removed(ctx).await?.contains(name) { Ok(()) } else { Err(unknown(name)) }
}

/// Adds how far the source was read.
async fn locate(ctx: &Ctx, source: &mut SourceView) -> Result<(), Problem> {
    let position = ctx.app.store.source_position(&source.name.parse()?).await?;
    source.position = position.map(|SourcePosition { number, .. }| match source.mode {
        Some(SourceMode::Tail | SourceMode::Messages) => {
            format!("{:X}/{:X}", number >> 32, number as u32)
        }
        Some(SourceMode::Poll) | None => number.to_string(),
    });
    Ok(())
}

async fn check(
    ctx: Ctx,
    path: OfSource,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<CheckView>, Problem> {
    let name = &path.source.0;
    let findings = match ctx.app.running_sources.check(name).await {
        Some(mut findings) => {
            if let Some(tenant) = ctx.app.running_sources.tenant(name) {
                let exists = ctx.app.store.tenant(&tenant).await?.is_some();
                findings.push(FindingView::tenant(&tenant, exists));
            }
            findings
        }
        None => {
            find_removed(&ctx, name).await?;
            vec![FindingView::removed(name)]
        }
    };
    let good = findings.iter().all(|finding| finding.verdict != FindingVerdict::Bad);
    if good {
        // What was wrong may have been fixed this moment.
        ctx.app.running_sources.wake();
    }
    ctx.remember(Json(CheckView { good, findings })).await
}

/// Refuses a source that neither the configuration nor the store knows.
async fn find(ctx: &Ctx, name: &SourceName) -> Result<(), Problem> {
    let configured = ctx.app.running_sources.status();
    if configured.iter().any(|source| source.name == name.as_str())
        || ctx.app.store.known_sources().await?.contains(name)
    {
        return Ok(());
    }
    Err(unknown(name))
}

fn unknown(name: &SourceName) -> Problem {
    Problem::not_found("source", name)
}

/// What is wrong with a source that the configuration does not have.
const REMOVED: &str = "the configuration does not have it, and the store still knows it";

fn removed_fix(name: &SourceName) -> String {
    format!(
        "put its section back, retry or discard its parked rows, stop the server: railpost outbox drop {name}"
    )
}

impl FindingView {
    /// Rows of a tenant that does not exist are parked.
    fn tenant(tenant: &TenantId, exists: bool) -> Self {
        let (verdict, found, fix) = match exists {
            true => (FindingVerdict::Good, format!("tenant {tenant} exists"), None),
            false => {
                let fix = format!("railpost tenants create {tenant}");
                (FindingVerdict::Bad, format!("there is no tenant {tenant}"), Some(fix))
            }
        };
        Self { condition: "tenant".to_owned(), verdict, found, fix }
    }

    fn removed(name: &SourceName) -> Self {
        Self {
            condition: "configuration".to_owned(),
            verdict: FindingVerdict::Bad,
            found: REMOVED.to_owned(),
            fix: Some(removed_fix(name)),
        }
    }
}

impl SourceView {
    /// A source that the configuration does not have.
    async fn removed(ctx: &Ctx, name: &SourceName) -> Result<Self, Problem> {
        let parked = ctx.app.store.parked_holds(name).await?.summary;
        let trouble = SourceTrouble {
            code: "removed".to_owned(),
            problem: REMOVED.to_owned(),
            fix: Some(removed_fix(name)),
            since: None,
        };
        Ok(Self {
            name: name.to_string(),
            mode: None,
            url: None,
            state: SourceState::Removed,
            trouble: Some(trouble),
            relayed: 0,
            duplicates: 0,
            refused: 0,
            parked_rows: parked.rows,
            parked_bytes: parked.bytes,
            pending: 0,
            lag_ms: 0,
            last_row_at: None,
            position: None,
            wakes_by_poll: 0,
            wakes_by_notify: 0,
            slot: None,
        })
    }

    /// The source as the metrics have it.
    pub(crate) fn sample(self) -> SourceSample {
        let slot = |slot: SlotView| SlotSample {
            retained_bytes: slot.retained_bytes,
            safe_bytes: slot.safe_bytes,
            lost: slot.lost,
        };
        SourceSample {
            up: matches!(self.state, SourceState::Reading | SourceState::Elsewhere),
            leader: self.state == SourceState::Reading,
            relayed: self.relayed,
            duplicates: self.duplicates,
            refused: self.refused,
            parked: self.parked_rows,
            pending: self.pending,
            lag_seconds: self.lag_ms as f64 / 1000.0,
            wakes_by_poll: self.wakes_by_poll,
            wakes_by_notify: self.wakes_by_notify,
            slot: self.slot.map(slot),
            source: self.name,
        }
    }
}
