//! Tenants, endpoints, secrets, event types and replays.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use railpost_engine::{EndpointStatus, Policy, RateLimit, Rotation, Span, Timestamp};
use railpost_wire::{
    ApiKeyId, EndpointId, Envelope, EventType, EventTypeFilter, HeaderNames, ReplayId, Secret,
    SecretId, SigningKey, TenantId,
};
use serde::{Deserialize, Serialize};

use crate::backend::encryption::separate_unreadable;
use crate::limits::ROTATE_OVERLAP_DEFAULT;
use crate::{ApiKey, AuditEntry, IdempotencyRecord, Listing, PageRequest, Replay, Result};

/// What is configured, and how it is changed.
#[async_trait]
pub trait Registry: Send + Sync {
    /// Makes a change whole or not at all, with its audit entry and its idempotency record. When it
    /// answers, all of that is durable, and every accept that is answered later goes by it.
    async fn commit(&self, change: Change) -> Result<()>;

    /// One tenant.
    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>>;

    /// All tenants, by id.
    async fn tenants(&self, page: PageRequest) -> Result<Listing<Tenant>>;

    /// A tenant that is being erased. To all else it is unknown.
    async fn erasing_tenant(&self, id: &TenantId) -> Result<Option<ErasingTenant>>;

    /// The tenants that are being erased, the longest first: what to go on with after a start. At most
    /// [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) of them.
    async fn erasing_tenants(&self) -> Result<Vec<ErasingTenant>>;

    /// One endpoint; a removed one is still found while anything of it is stored.
    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>>;

    /// The endpoints of one tenant, or of all, without those removed, the earliest first.
    async fn endpoints(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<Endpoint>>;

    /// The settings of these endpoints, removed ones too, in any order; unknown ones are left out. At most
    /// [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) endpoints: those of a page.
    async fn settings_of(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, EndpointSettings)>>;

    /// All secrets of an endpoint, expired ones too, the earliest first.
    async fn secrets(&self, endpoint: EndpointId) -> Result<Vec<EndpointSecret>>;

    /// The same for each of these endpoints, in their order. If the secrets of one cannot be opened, that is the
    /// error of this one alone.
    async fn secrets_of(
        &self,
        endpoints: &[EndpointId],
    ) -> Result<Vec<Result<Vec<EndpointSecret>>>> {
        let mut all = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            all.push(separate_unreadable(self.secrets(*endpoint).await)?);
        }
        Ok(all)
    }

    /// Endpoints whose secrets are due to be rotated by `now`, the longest due first. At most
    /// [`LIST_LIMIT_MAX`](crate::limits::LIST_LIMIT_MAX) of them, those after `after`.
    async fn due_rotations(
        &self,
        now: Timestamp,
        after: Option<DueRotation>,
        limit: u32,
    ) -> Result<Vec<DueRotation>>;

    /// One event type of a tenant.
    async fn event_type(
        &self,
        tenant: &TenantId,
        name: &EventType,
    ) -> Result<Option<EventTypeRecord>>;

    /// The event types of a tenant, by name.
    async fn event_types(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Listing<EventTypeRecord>>;

    /// One replay.
    async fn replay(&self, id: ReplayId) -> Result<Option<Replay>>;

    /// The replays of a tenant, the latest first.
    async fn replays(&self, tenant: &TenantId, page: PageRequest) -> Result<Listing<Replay>>;

    /// All replays that run, the earliest first: what to go on with after a start. There are about
    /// [`REPLAYS_RUNNING_MAX`](crate::limits::REPLAYS_RUNNING_MAX) at most.
    async fn running_replays(&self) -> Result<Vec<Replay>>;
}

/// Writes that belong together.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// What to write, in order.
    pub writes: Vec<Write>,
    /// Who did it.
    pub audit: Option<AuditEntry>,
    /// What to answer when the request comes again.
    pub idempotency: Option<Box<IdempotencyRecord>>,
}

impl Change {
    /// Whether it can change the result of later accepts. Progress of a replay cannot: it is written often, and
    /// caches that accepts use stay valid.
    pub fn concerns_accepts(&self) -> bool {
        self.writes.iter().any(|write| !matches!(write, Write::PutReplay(_)))
    }
}

impl From<Write> for Change {
    fn from(write: Write) -> Self {
        Self { writes: vec![write], ..Self::default() }
    }
}

/// One write. What is created must not exist yet; what is changed must exist.
#[derive(Clone, Debug)]
pub enum Write {
    /// A tenant appears.
    CreateTenant(TenantId, TenantSettings),
    /// A tenant's settings are these from here on.
    UpdateTenant(TenantId, TenantSettings),
    /// A tenant is to be erased: from here on it is unknown, its keys and secrets are deleted, its
    /// endpoints get no more events, and its id is taken until
    /// [`erase_tenant`](crate::Upkeep::erase_tenant) has deleted the rest.
    EraseTenant(TenantId),
    /// An endpoint appears, switched on.
    CreateEndpoint(NewEndpoint),
    /// An endpoint's settings are these from here on. If a revision is given, it must be the stored
    /// one: no change in between is lost.
    UpdateEndpoint {
        /// Which.
        id: EndpointId,
        /// What anyone may see.
        settings: EndpointSettings,
        /// What is encrypted.
        private: EndpointPrivate,
        /// The revision that the change was made from.
        revision: Option<u64>,
    },
    /// A person switched an endpoint on or off. Switching it on forgets its failures.
    SetEndpointStatus(EndpointId, EndpointStatus),
    /// An endpoint is removed: it gets no more events, its secrets are deleted, its open deliveries are
    /// forgotten.
    RemoveEndpoint(EndpointId),
    /// An endpoint gets another secret.
    CreateSecret(NewSecret),
    /// A secret signs until then, and not after.
    ExpireSecret {
        /// Whose.
        endpoint: EndpointId,
        /// Which.
        id: SecretId,
        /// Until when.
        at: Timestamp,
    },
    /// A secret goes.
    RemoveSecret {
        /// Whose.
        endpoint: EndpointId,
        /// Which.
        id: SecretId,
    },
    /// An event type is this from here on, whether it existed or not.
    PutEventType(EventTypeRecord),
    /// An event type goes. Events of that type stay.
    RemoveEventType(TenantId, EventType),
    /// An API key appears.
    CreateApiKey(ApiKey),
    /// An API key is worth nothing from then on. An admin key that is valid can only be revoked while another one is
    /// valid without an end.
    RevokeApiKey(ApiKeyId, Timestamp),
    /// An API key is called this from here on.
    RenameApiKey(ApiKeyId, String),
    /// An API key was used.
    TouchApiKey(ApiKeyId, Timestamp),
    /// A replay is this from here on, whether it existed or not. One that has finished cannot be
    /// changed: the job that writes progress learns that it was cancelled meanwhile.
    PutReplay(Box<Replay>),
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// What it may choose.
    pub settings: TenantSettings,
    /// When it appeared.
    pub created_at: Timestamp,
    /// When its settings last changed.
    pub updated_at: Timestamp,
}

/// A tenant that is being erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErasingTenant {
    /// Its id.
    pub id: TenantId,
    /// When it appeared.
    pub created_at: Timestamp,
    /// Since when it is being erased.
    pub since: Timestamp,
    /// How many events, lanes and other entries are erased so far.
    pub erased: u64,
}

/// What a tenant may choose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSettings {
    /// Its name, for people.
    pub name: String,
    /// Most attempts per period over all its endpoints.
    pub rate_limit: Option<RateLimit>,
    /// Most open deliveries; nothing means the store's own bound.
    pub backlog_max: Option<u64>,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What anyone may see.
    pub settings: EndpointSettings,
    /// What is encrypted; an error if it cannot be decrypted, which is no other endpoint's trouble.
    pub private: Result<EndpointPrivate>,
    /// Whether it is switched on.
    pub status: EndpointStatus,
    /// When its status last changed; nothing if it never did, or before that was written down.
    pub status_since: Option<Timestamp>,
    /// Since when nothing but failures came back.
    pub failing_since: Option<Timestamp>,
    /// How often its settings were written: 1, 2, 3 …
    pub revision: u64,
    /// When it appeared.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was removed, if it was.
    pub removed_at: Option<Timestamp>,
    /// When the server rotates its secrets next, if it does.
    pub rotates_at: Option<Timestamp>,
}

impl Endpoint {
    /// The endpoint as the engine needs to know it. Secrets that cannot be read count as none.
    pub fn for_engine(&self, secrets: &[EndpointSecret]) -> railpost_engine::Endpoint {
        railpost_engine::Endpoint {
            id: self.id,
            tenant: self.tenant.clone(),
            policy: self.settings.policy.clone(),
            status: self.status,
            status_since: self.status_since,
            failing_since: self.failing_since,
            rotation: self.rotation(secrets),
        }
    }

    /// The latest rotation of what it signs with: the first secret comes with the endpoint, any later one replaces
    /// another.
    fn rotation(&self, secrets: &[EndpointSecret]) -> Option<Rotation> {
        let added = secrets.iter().map(|secret| secret.created_at);
        let later = added.filter(|at| *at > self.created_at && self.settings.policy.signed);
        let began_at = later.max()?;
        let old = secrets.iter().filter(|secret| secret.created_at < began_at);
        let ends_at = old.filter_map(|secret| secret.expires_at).max();
        Some(Rotation { began_at, ends_at: ends_at.map_or(began_at, |at| at.max(began_at)) })
    }
}

/// An endpoint that is to appear.
#[derive(Clone, Debug)]
pub struct NewEndpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What anyone may see.
    pub settings: EndpointSettings,
    /// What is encrypted.
    pub private: EndpointPrivate,
}

/// What an endpoint's owner may choose, and anyone of the tenant may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSettings {
    /// Where attempts go.
    pub url: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Which event types it wants.
    pub filters: Vec<EventTypeFilter>,
    /// How it is delivered to.
    #[serde(default)]
    pub policy: Policy,
    /// What a request's body holds.
    #[serde(default)]
    pub envelope: Envelope,
    /// Payloads of more bytes than this are delivered as a reference, whatever the envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thin_above: Option<u32>,
    /// The body of the envelope `template`: a [`Template`](railpost_wire::Template).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What headers are called.
    #[serde(default)]
    pub header_names: HeaderNames,
    /// The TLS that it requires.
    #[serde(default)]
    pub tls_min: TlsVersion,
    /// Certificates of authorities to trust beside the public ones, in PEM.
    #[serde(default)]
    pub authorities_pem: Option<String>,
    /// The longest that one attempt may take; nothing means the server's default.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// How old its newest secret may become before the server adds another; nothing means that people rotate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_every: Option<Span>,
    /// How long the secrets before it still sign then; nothing means the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_overlap: Option<Span>,
    /// The section of the configuration that it is made of, such as `notices.oncall`. Only a start of the server
    /// changes such an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

impl EndpointSettings {
    /// An endpoint that wants everything, with the defaults.
    pub fn all_events(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            description: String::new(),
            filters: vec!["*".parse().expect("`*` is a filter")],
            policy: Policy::default(),
            envelope: Envelope::default(),
            thin_above: None,
            template: None,
            header_names: HeaderNames::default(),
            tls_min: TlsVersion::default(),
            authorities_pem: None,
            timeout: None,
            rotate_every: None,
            rotate_overlap: None,
            managed_by: None,
        }
    }

    /// How old its newest secret may become. What signs nothing is not rotated.
    pub fn secret_age_max(&self) -> Option<Span> {
        self.rotate_every.filter(|_| self.policy.signed)
    }

    /// How long secrets still sign after the server has added another: as chosen, or for the default, which is
    /// half of `rotate_every` if that is shorter.
    pub fn rotation_overlap(&self) -> Span {
        let half = self.rotate_every.map(|every| Span::from_millis(every.as_millis() / 2));
        let default = half.map_or(ROTATE_OVERLAP_DEFAULT, |half| half.min(ROTATE_OVERLAP_DEFAULT));
        self.rotate_overlap.unwrap_or(default)
    }
}

/// An endpoint whose secrets are due to be rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueRotation {
    /// Which.
    pub endpoint: EndpointId,
    /// Since when.
    pub at: Timestamp,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

/// What of an endpoint is encrypted at rest and not shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EndpointPrivate {
    /// Static headers of every attempt. Their values are encrypted and not shown again.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::headers"))]
    pub headers: BTreeMap<String, String>,
    /// The client certificate of attempts. It is encrypted and not shown again.
    pub client_identity: Option<ClientIdentity>,
    /// Which PagerDuty service the envelope `pagerduty` is for. It is encrypted and not shown again.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::routing_key"))]
    pub routing_key: Option<String>,
}

impl fmt::Debug for EndpointPrivate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EndpointPrivate(…)")
    }
}

/// A client certificate and its private key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClientIdentity {
    /// The certificate chain in PEM, the client's own first.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::pem"))]
    pub certificate_pem: String,
    /// The private key in PEM.
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::schema::pem"))]
    pub key_pem: String,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity(…)")
    }
}

/// A secret that is to appear.
#[derive(Clone, Debug)]
pub struct NewSecret {
    /// Its id.
    pub id: SecretId,
    /// Whose attempts it signs.
    pub endpoint: EndpointId,
    /// The secret itself.
    pub value: SecretValue,
    /// When it expires and does not sign any more.
    pub expires_at: Option<Timestamp>,
}

/// A secret of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointSecret {
    /// Its id.
    pub id: SecretId,
    /// Whose attempts it signs.
    pub endpoint: EndpointId,
    /// The secret itself.
    pub value: SecretValue,
    /// When it appeared.
    pub created_at: Timestamp,
    /// When it expires and does not sign any more.
    pub expires_at: Option<Timestamp>,
}

/// What an attempt is signed with.
#[derive(Clone, Debug)]
pub enum SecretValue {
    /// A secret that both sides share.
    Shared(Secret),
    /// A private key.
    Signing(SigningKey),
}

/// An event type that a tenant has described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTypeRecord {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: EventType,
    /// What it means, for people.
    pub description: String,
    /// Its schemas, by version: 1, 2, 3 …
    pub schemas: BTreeMap<u32, serde_json::Value>,
    /// What happens to an event that does not fit.
    #[serde(default)]
    pub validation: Validation,
}

/// What happens to an event that does not fit its type's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validation {
    /// The schema is not checked.
    Off,
    /// It is accepted, and its producer is told.
    #[default]
    Warn,
    /// It is refused.
    Reject,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_were_stored_without_a_field_have_its_default() {
        let stored = r#"{"url": "https://example.com", "filters": ["*"]}"#;
        let settings: EndpointSettings = serde_json::from_str(stored).unwrap();
        assert_eq!(settings, EndpointSettings::all_events("https://example.com"));
        assert_eq!(settings.thin_above, None);
    }
}
