//! What is kept of alerts, and of silences: who wants to hear nothing of which of them, and until when.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{AlertId, SilenceId, TenantId};
use serde::{Deserialize, Serialize};

use crate::{AuditEntry, Listing, PageRequest, Period, Result};

/// Alerts and silences.
///
/// An alert is a condition that held of a subject: open while it holds, then resolved. What was
/// published of it stands in its record, so that a restart publishes the rest and nothing twice.
#[async_trait]
pub trait Alerts: Send + Sync {
    /// The alerts that are not settled ([`Alert::is_settled`]), the earliest first.
    async fn open_alerts(&self) -> Result<Vec<Alert>>;

    /// Writes alerts, each in place of what is kept of it, all or none. Durable when it answers.
    /// Alerts of tenants that are not there any more are left out. At most
    /// [`ALERTS_BATCH_MAX`](crate::limits::ALERTS_BATCH_MAX) at once.
    async fn save_alerts(&self, alerts: Vec<Alert>) -> Result<()>;

    /// An alert; nothing if there is no such alert.
    async fn alert(&self, id: AlertId) -> Result<Option<Alert>>;

    /// Alerts, the latest first.
    async fn alerts(&self, query: AlertQuery) -> Result<Listing<Alert>>;

    /// The silences that have not ended, the earliest first.
    async fn silences(&self) -> Result<Vec<Silence>>;

    /// Writes a silence, with its audit entry in the same commit. At most
    /// [`SILENCES_MAX`](crate::limits::SILENCES_MAX) at a time. A tenant that does not exist is refused.
    async fn save_silence(&self, silence: Silence, audit: AuditEntry) -> Result<()>;

    /// Ends a silence at `at`, with the audit entry in the same commit. Answers it as it is then. One that
    /// does not exist or has ended is refused.
    async fn end_silence(&self, id: SilenceId, at: Timestamp, audit: AuditEntry)
    -> Result<Silence>;
}

/// A condition that held of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Its id. Its notices are the events `<id>:fired` and `<id>:resolved`.
    pub id: AlertId,
    /// The rule that it is about, such as `breaker_open`.
    pub rule: String,
    /// Whose it is; nothing for what concerns the server.
    pub tenant: Option<TenantId>,
    /// What it is about: an endpoint's id, a lane, a source. Empty if the rule says it all.
    pub subject: String,
    /// How bad it is.
    pub severity: Severity,
    /// What happened, why, what happens next and what to do.
    pub summary: String,
    /// Figures and names, as JSON.
    pub details: serde_json::Value,
    /// When the condition was first seen to hold.
    pub fired_at: Timestamp,
    /// When the condition was last seen to hold.
    pub last_held_at: Timestamp,
    /// When it was over.
    pub resolved_at: Option<Timestamp>,
    /// What was published of it.
    pub told: Told,
}

impl Alert {
    /// Whether the condition holds.
    pub fn is_open(&self) -> bool {
        self.resolved_at.is_none()
    }

    /// Whether it is resolved and nothing of it is left to publish.
    pub fn is_settled(&self) -> bool {
        self.resolved_at.is_some() && matches!(self.told, Told::Resolved | Told::Withheld)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Somebody should look at it within days.
    Warning,
    /// Somebody should look at it today.
    Error,
    /// Somebody should be woken.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Info, Self::Warning, Self::Error, Self::Critical];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Critical => "critical",
        }
    }
}

/// What was published of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// Nothing yet.
    Nothing,
    /// That it fired.
    Fired,
    /// That it fired and that it was resolved.
    Resolved,
    /// Nothing, and nothing will be: it was resolved while it was silenced, or it is about notices
    /// themselves.
    Withheld,
}

/// Which alerts a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// With a tenant: those that no tenant has as well.
    pub with_servers_own: bool,
    /// Only those of this rule.
    pub rule: Option<String>,
    /// Only open ones, or only resolved ones.
    pub open: Option<bool>,
    /// Only those that were open at some time of this period.
    pub overlapping: Period,
    /// Which part.
    pub page: PageRequest,
}

impl AlertQuery {
    /// All alerts.
    pub fn all(page: PageRequest) -> Self {
        Self {
            tenant: None,
            with_servers_own: false,
            rule: None,
            open: None,
            overlapping: Period::default(),
            page,
        }
    }

    /// Whether the list shows an alert.
    pub(crate) fn matches(&self, alert: &Alert) -> bool {
        let Period { from, before } = self.overlapping;
        let of_tenant = |tenant: &TenantId| match &alert.tenant {
            Some(other) => other == tenant,
            None => self.with_servers_own,
        };
        self.tenant.as_ref().is_none_or(of_tenant)
            && self.rule.as_ref().is_none_or(|rule| alert.rule == *rule)
            && self.open.is_none_or(|open| alert.is_open() == open)
            && before.is_none_or(|before| alert.fired_at < before)
            && from.is_none_or(|from| alert.resolved_at.is_none_or(|end| end >= from))
    }
}

/// Alerts of which nothing is published for a time. What is left out matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Its id.
    pub id: SilenceId,
    /// Only alerts of this rule.
    pub rule: Option<String>,
    /// Only alerts of this tenant.
    pub tenant: Option<TenantId>,
    /// Only alerts about this subject.
    pub subject: Option<String>,
    /// When it begins.
    pub from: Timestamp,
    /// When it ends.
    pub until: Timestamp,
    /// Who made it.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Silence {
    /// Whether nothing of `alert` is published at `now`.
    pub fn covers(&self, alert: &Alert, now: Timestamp) -> bool {
        self.from <= now
            && now < self.until
            && self.rule.as_ref().is_none_or(|rule| alert.rule == *rule)
            && self.tenant.as_ref().is_none_or(|tenant| alert.tenant.as_ref() == Some(tenant))
            && self.subject.as_ref().is_none_or(|subject| alert.subject == *subject)
    }
}
