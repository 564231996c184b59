//! What is kept of sources: tables and logs of other databases that events are relayed from.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::{Span, Timestamp};
use railpost_wire::TenantId;
use serde::{Deserialize, Serialize};

use crate::limits::SOURCE_NAME_LEN_MAX;
use crate::{AuditEntry, Epoch, Listing, PageRequest, Result, StoreError};

/// Who reads a source, how far the reader came, and the rows that were refused.
///
/// Rows that share a [`Hold`] stay in the order in which they were parked. The first of them is the
/// head: it was refused, and the others wait behind it. People command ([`Sources::command_parked`]);
/// the reader of the source carries out what they released ([`Sources::released_rows`],
/// [`Sources::end_release`]).
#[async_trait]
pub trait Sources: Send + Sync {
    /// Takes the lease of a source for `holder`, or renews it, for `length` by the store's clock. A
    /// holder that takes it over from another one, or after it ended, has a higher epoch than all
    /// before.
    async fn lease_source(
        &self,
        source: &SourceName,
        holder: &str,
        length: Span,
    ) -> Result<SourceLease>;

    /// Ends a lease before its time. A lease that somebody else has stays theirs.
    async fn release_source(&self, source: &SourceName, epoch: Epoch) -> Result<()>;

    /// How far the source was read.
    async fn source_position(&self, source: &SourceName) -> Result<Option<SourcePosition>>;

    /// Notes how far the source was read. Durable when it answers. Refused
    /// ([`lease_lost`]) if `epoch` is not the lease's.
    async fn save_source_position(
        &self,
        source: &SourceName,
        epoch: Epoch,
        position: SourcePosition,
    ) -> Result<()>;

    /// Parks rows in the order given, all or none. Durable when it answers. A row that is parked
    /// already, with all that it holds, stays where it is. Refused ([`lease_lost`]) if the batch's epoch
    /// is not the lease's.
    async fn park(&self, batch: ParkBatch) -> Result<ParkOutcome>;

    /// What is held of a source.
    async fn parked_holds(&self, source: &SourceName) -> Result<ParkedHolds>;

    /// Parked rows, the earliest first.
    async fn parked_rows(&self, query: ParkedQuery) -> Result<Listing<ParkedRow>>;

    /// A parked row; nothing if there is no such row.
    async fn parked_row(&self, source: &SourceName, number: u64) -> Result<Option<ParkedRow>>;

    /// The payload of a parked row; nothing if there is no such row or it has none.
    async fn parked_payload(&self, source: &SourceName, number: u64) -> Result<Option<Bytes>>;

    /// Does what a person asked for, with its audit entry in the same commit. Answers how many rows it
    /// was about. A row that is not parked, or that is no head, is refused.
    async fn command_parked(&self, command: ParkedCommand) -> Result<u64>;

    /// The next rows to hand over again: one that waits alone, or the first ones of a hold, up to
    /// `limit` and [`BATCH_BYTES_MAX`](crate::limits::BATCH_BYTES_MAX). Empty if nobody asked for any.
    async fn released_rows(&self, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>>;

    /// Notes what became of released rows. Durable when it answers. Refused ([`lease_lost`]) if the
    /// step's epoch is not the lease's.
    async fn end_release(&self, step: ReleaseStep) -> Result<()>;

    /// Forgets a source's position and lease. Refused while rows of it are parked.
    async fn forget_source(&self, source: &SourceName) -> Result<()>;

    /// The sources that something is kept of, by name.
    async fn known_sources(&self) -> Result<Vec<SourceName>>;

    /// Lets a role of the store's database call `railpost_emit` for a tenant, in place of any other
    /// tenant. Only a PostgreSQL store has that function.
    ///
    /// The audit entry is in the same commit.
    async fn grant_emit(
        &self,
        role: &str,
        tenant: &TenantId,
        audit: Option<AuditEntry>,
    ) -> Result<()>;

    /// Takes that back, with the audit entry in the same commit. A role that never had it is no error.
    async fn revoke_emit(&self, role: &str, audit: Option<AuditEntry>) -> Result<()>;

    /// Which roles may, each with its tenant, by name.
    async fn emit_grants(&self) -> Result<Vec<(String, TenantId)>>;
}

/// What is said to a reader whose lease somebody else has.
pub fn lease_lost(source: &SourceName) -> StoreError {
    StoreError::Conflict {
        field: LEASE_FIELD.to_owned(),
        problem: format!("another reader has taken the lease of source `{source}`"),
    }
}

/// Whether a call was refused because somebody else has the lease.
pub fn is_lease_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict { field, .. } if field == LEASE_FIELD)
}

const LEASE_FIELD: &str = "epoch";

/// The name of a source: 1 to 32 characters, a lowercase letter or digit, then lowercase letters,
/// digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SourceName(Arc<str>);

impl SourceName {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SourceName {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self> {
        let first = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let begins = text.bytes().next().is_some_and(first);
        let goes_on = text.bytes().all(|c| first(c) || matches!(c, b'_' | b'-'));
        if begins && goes_on && text.len() <= SOURCE_NAME_LEN_MAX {
            return Ok(Self(text.into()));
        }
        let problem = format!(
            "expected 1 to {SOURCE_NAME_LEN_MAX} characters: a lowercase letter or digit, then lowercase letters, \
             digits, `_` and `-`; got {text:?}"
        );
        Err(StoreError::invalid("name", problem))
    }
}

impl TryFrom<String> for SourceName {
    type Error = StoreError;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<SourceName> for String {
    fn from(name: SourceName) -> String {
        name.0.as_ref().to_owned()
    }
}

/// Who reads a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceLease {
    /// The caller.
    Held {
        /// The number of its lease.
        epoch: Epoch,
        /// What is parked of the source.
        parked: ParkedSummary,
    },
    /// Somebody else.
    Elsewhere {
        /// Who.
        holder: String,
    },
}

/// How much is parked of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedSummary {
    /// Counts the commands of people. Holds that were read at an earlier version are out of date.
    pub version: u64,
    /// How many rows.
    pub rows: u64,
    /// How many bytes they have.
    pub bytes: u64,
}

/// How far a source was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePosition {
    /// Which database it was: numbers of another one mean nothing.
    pub system: String,
    /// The position in its log, or the number of the last row.
    pub number: u64,
}

/// What rows wait behind each other for: a tenant and a key, digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hold(pub [u8; 16]);

/// A row of a source, as it was read: nothing of it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFields {
    /// The event's id.
    pub id: Option<String>,
    /// Whose it is.
    pub tenant: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The content type of its payload.
    pub content_type: Option<String>,
    /// The version of its type's schema.
    pub schema_version: Option<i64>,
    /// When it happened, in milliseconds since 1970.
    pub time: Option<i64>,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
}

/// Why a row was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRefusal {
    /// What is wrong, in a word: the field, or `schema`, `conflict`.
    pub code: String,
    /// What is wrong with it and what is allowed.
    pub reason: String,
}

/// Rows to park.
#[derive(Clone, Debug)]
pub struct ParkBatch {
    /// Of which source.
    pub source: SourceName,
    /// The lease of who parks them.
    pub epoch: Epoch,
    /// The version of the holds that they were judged by.
    pub version: u64,
    /// In order.
    pub rows: Vec<RowToPark>,
}

/// A row to park.
#[derive(Clone, Debug)]
pub struct RowToPark {
    /// What it waits behind, or makes others wait for; nothing for a row that waits alone.
    pub hold: Option<Hold>,
    /// Why it was refused; nothing if it only waits behind another one.
    pub refusal: Option<RowRefusal>,
    /// The row.
    pub fields: SourceFields,
    /// Its payload.
    pub payload: Option<Bytes>,
}

impl RowToPark {
    /// How many bytes it counts for: its payload, and its other fields as they are kept.
    pub fn bytes(&self) -> usize {
        crate::backend::check::parked_len(self) as usize
    }
}

/// Whether rows were parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkOutcome {
    /// They are.
    Parked,
    /// They are not: people have changed what is held since. Look at it again.
    Changed,
    /// They are not: the source has as many as it may have.
    Full(ParkedSummary),
}

/// What is held of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedHolds {
    /// How much is parked, and the version of this answer.
    pub summary: ParkedSummary,
    /// Every hold that has a parked row.
    pub holds: Vec<Hold>,
}

/// Which parked rows a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedQuery {
    /// Of which source.
    pub source: SourceName,
    /// Only those that were refused, without those that wait behind them.
    pub refused_only: bool,
    /// Only those that were refused with this code.
    pub code: Option<String>,
    /// Only those whose row has this tenant.
    pub tenant: Option<String>,
    /// Which part.
    pub page: PageRequest,
}

impl ParkedQuery {
    /// All rows of a source.
    pub fn of(source: SourceName, page: PageRequest) -> Self {
        Self { source, refused_only: false, code: None, tenant: None, page }
    }

    /// Whether the list shows a row of its source.
    pub(crate) fn matches(&self, row: &ParkedRow) -> bool {
        let code = row.refusal.as_ref().map(|refusal| &refusal.code);
        (code.is_some() || !self.refused_only)
            && self.code.as_ref().is_none_or(|wanted| code == Some(wanted))
            && self.tenant.as_ref().is_none_or(|tenant| row.fields.tenant.as_ref() == Some(tenant))
    }
}

/// A parked row, without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedRow {
    /// Its number, unique in the store. Later rows have higher ones.
    pub number: u64,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// What it waits behind, or makes others wait for.
    pub hold: Option<Hold>,
    /// Why it was refused; nothing if it only waits behind another one.
    pub refusal: Option<RowRefusal>,
    /// Whether it is to be handed over again.
    pub released: bool,
    /// The row.
    pub fields: SourceFields,
    /// How many bytes it has.
    pub bytes: u64,
}

/// A row to hand over again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedRow {
    /// The row.
    pub row: ParkedRow,
    /// Its payload.
    pub payload: Option<Bytes>,
}

/// What a person asks for.
#[derive(Clone, Debug)]
pub struct ParkedCommand {
    /// Of which source.
    pub source: SourceName,
    /// What.
    pub action: ParkedAction,
    /// Of which rows.
    pub target: ParkedTarget,
    /// Who asked for it.
    pub audit: Option<AuditEntry>,
}

/// What can be done with parked rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkedAction {
    /// Hand the head over again, and the rows behind it.
    Retry,
    /// Drop the head, and hand the rows behind it over.
    Skip,
    /// Drop the head and the rows behind it.
    Discard,
}

/// Which parked rows a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedTarget {
    /// The head with this number.
    Head(u64),
    /// The first heads of the source, at most
    /// [`PARKED_COMMAND_HEADS_MAX`](crate::limits::PARKED_COMMAND_HEADS_MAX): call it until it answers
    /// 0. Heads that are being handed over already are left out.
    AllHeads,
}

/// What became of released rows.
#[derive(Clone, Debug)]
pub struct ReleaseStep {
    /// Of which source.
    pub source: SourceName,
    /// The lease of who handed them over.
    pub epoch: Epoch,
    /// Those that were accepted: they are parked no more. What waits behind them is released next.
    pub accepted: Vec<u64>,
    /// The one that was refused again: it is the head of what waits behind it.
    pub refused: Option<(u64, RowRefusal)>,
}
