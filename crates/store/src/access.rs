//! Who may do what, who did what, and what was answered.

use std::net::IpAddr;

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::{EndpointRecord, EndpointStatus, Timestamp};
use railpost_wire::{ApiKeyId, AuditId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::backend::codes::endpoint_status_code;
use crate::{Listing, PageRequest, Period, Result};

/// API keys, audit and idempotency. They are written by [`Registry::commit`](crate::Registry::commit),
/// [`Intake`](crate::Intake) and [`Ledger::record`](crate::Ledger::record), with the work they belong to.
#[async_trait]
pub trait Access: Send + Sync {
    /// One API key.
    async fn api_key(&self, id: ApiKeyId) -> Result<Option<ApiKey>>;

    /// The API key with this hash.
    async fn api_key_by_hash(&self, hash: &Digest) -> Result<Option<ApiKey>>;

    /// API keys, revoked ones too, the earliest first: a tenant's, or all.
    async fn api_keys(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<ApiKey>>;

    /// Who did what, the latest first.
    async fn audit(&self, query: AuditQuery) -> Result<Listing<AuditEntry>>;

    /// A tenant's entries about any of these targets since then, the earliest first, up to `limit` of each. At most
    /// [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) targets. It costs as much as it finds.
    async fn audit_about(
        &self,
        tenant: &TenantId,
        targets: Vec<String>,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditEntry>>;

    /// Whether a request was answered before. Ask before the work; the commit of the work asks
    /// again, so that of two requests at once only one does it.
    async fn lookup_idempotency(
        &self,
        key: &IdempotencyKey,
        fingerprint: &Digest,
    ) -> Result<IdempotencyLookup>;
}

/// A SHA-256.
pub type Digest = [u8; 32];

/// An API key. The key itself is nowhere: only its hash is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// The tenant it belongs to; nothing for a key of the whole server.
    pub tenant: Option<TenantId>,
    /// What people call it.
    pub name: String,
    /// What it opens.
    pub scope: Scope,
    /// The hash of the key.
    pub hash: Digest,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires, if ever.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, roughly.
    pub last_used_at: Option<Timestamp>,
}

/// The scope of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Everything.
    Admin,
    /// Everything of one tenant.
    Tenant,
    /// Publishing events of one tenant.
    PublishOnly,
    /// Reading everything of one tenant, except its keys and its audit trail.
    ReadOnly,
}

/// Who did what to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Its id.
    pub id: AuditId,
    /// When.
    pub at: Timestamp,
    /// In whose realm; nothing when it concerns no tenant.
    pub tenant: Option<TenantId>,
    /// Who: an API key's id, or Railpost itself.
    pub actor: String,
    /// From which address, if it came over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Did what, such as `endpoint.pause`.
    pub action: String,
    /// To what, by its id.
    pub target: String,
    /// What else is worth knowing. No secrets, no payloads.
    pub detail: serde_json::Value,
}

/// Who Railpost itself is, in the audit trail.
pub const AUDIT_ACTOR_SELF: &str = "railpost";

/// What Railpost does by itself when it switches an endpoint off.
pub const AUDIT_SWITCH_OFF: &str = "endpoint.switch_off";

impl AuditEntry {
    /// The entry of an endpoint that the engine switches off, if that is what `record` says. The same
    /// record gives the same id, so that one that is written again is one entry.
    pub fn of_switch_off(record: &EndpointRecord, tenant: Option<TenantId>) -> Option<Self> {
        use EndpointStatus::{Failing, Gone, Quarantined};
        if record.status == record.was || !matches!(record.status, Quarantined | Gone | Failing) {
            return None;
        }
        let mut unique = [0; 10];
        unique.copy_from_slice(&record.endpoint.to_bytes()[6..]);
        unique[0] ^= endpoint_status_code(record.status) as u8;
        Some(Self {
            id: AuditId::generate(record.at.as_millis(), unique),
            at: record.at,
            tenant,
            actor: AUDIT_ACTOR_SELF.to_owned(),
            address: None,
            action: AUDIT_SWITCH_OFF.to_owned(),
            target: record.endpoint.to_string(),
            detail: json!({ "changes": { "status": { "from": record.was, "to": record.status } } }),
        })
    }
}

/// Which audit entries a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditQuery {
    /// In this tenant's realm only.
    pub tenant: Option<TenantId>,
    /// About this target only.
    pub target: Option<String>,
    /// From then only.
    pub at: Period,
    /// Which part.
    pub page: PageRequest,
}

impl AuditQuery {
    /// Whether the list shows `entry`.
    pub fn wants(&self, entry: &AuditEntry) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| entry.tenant.as_ref() == Some(tenant))
            && self.target.as_ref().is_none_or(|target| entry.target == *target)
            && self.at.contains(entry.at)
    }
}

/// What names a request that may come again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// Who sent it: one owner's keys never meet another's.
    pub owner: String,
    /// Where to.
    pub route: String,
    /// What the sender called it.
    pub key: String,
}

/// What to answer when a request comes again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// Which request.
    pub key: IdempotencyKey,
    /// A hash of all that makes it the same request.
    pub fingerprint: Digest,
    /// The response.
    pub response: StoredResponse,
    /// Whose data the response shows, if anyone's: it is erased with the tenant.
    pub tenant: Option<TenantId>,
    /// Until when it is remembered.
    pub expires_at: Timestamp,
}

/// A response to give again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
}

/// Whether a request was answered before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdempotencyLookup {
    /// It was not: do the work.
    Absent,
    /// It was, with this.
    Match(StoredResponse),
    /// The key was used for another request.
    Mismatch,
}
