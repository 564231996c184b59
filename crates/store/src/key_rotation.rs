//! How the master key is replaced while the store is in use.

use async_trait::async_trait;
use railpost_engine::Timestamp;

use crate::{AuditEntry, MasterKey, Result};

/// Re-encrypts what is stored under a new master key, in small steps.
///
/// The caller keeps both keys where the next start finds them, from before the first call until after the last:
/// a crash in between leaves a store that opens with the two of them, and goes on. A store that is opened with
/// two keys begins by itself.
#[async_trait]
pub trait KeyRotation: Send + Sync {
    /// From here on everything is encrypted under the new key, and the old one still opens what it sealed. Durable
    /// when it answers. Beginning again with the same key changes nothing; another one is refused meanwhile.
    async fn begin_key_rotation(&self, new: &MasterKey) -> Result<()>;

    /// One small step: looks at up to `limit` sealed values from there on, and re-encrypts those under the old key.
    /// Call it with the position that it answered until there is none.
    async fn reencrypt(&self, from: SealedRows, limit: u32) -> Result<Reencrypted>;

    /// The old key opens nothing from here on. Call it when a whole pass of [`reencrypt`](Self::reencrypt) found
    /// nothing under the old key. Links that were signed under it count until `links_until`. Durable when it
    /// answers, with its audit entry. Without a rotation under way it changes nothing.
    async fn end_key_rotation(&self, links_until: Timestamp, ended: &AuditEntry) -> Result<()>;
}

/// Where a pass over everything that is sealed goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealedRows {
    /// With the secrets after this id.
    Secrets([u8; 16]),
    /// With the private parts of endpoints after this id.
    Endpoints([u8; 16]),
    /// With the stored answers after this owner, route and key.
    Answers(String, String, String),
}

impl SealedRows {
    /// Where a pass begins.
    pub const FIRST: Self = Self::Secrets([0; 16]);

    /// Where the pass goes on after a step that found these rows: behind the last one, or with what comes next if
    /// there were fewer than the step may look at.
    pub fn after_secrets(last: Option<[u8; 16]>, is_full: bool) -> Option<Self> {
        Some(last.filter(|_| is_full).map_or(Self::Endpoints([0; 16]), Self::Secrets))
    }

    /// The same for endpoints.
    pub fn after_endpoints(last: Option<[u8; 16]>, is_full: bool) -> Option<Self> {
        let answers = Self::Answers(String::new(), String::new(), String::new());
        Some(last.filter(|_| is_full).map_or(answers, Self::Endpoints))
    }

    /// The same for answers, which come last.
    pub fn after_answers(last: Option<(String, String, String)>, is_full: bool) -> Option<Self> {
        last.filter(|_| is_full).map(|(owner, route, key)| Self::Answers(owner, route, key))
    }
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reencrypted {
    /// How many values were under the old key.
    pub changed: u64,
    /// Where the next step begins; nothing when the pass is over.
    pub next: Option<SealedRows>,
}
