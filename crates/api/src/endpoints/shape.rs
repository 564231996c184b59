//! Endpoints as the API writes and reads them.

use std::collections::BTreeMap;

use railpost_engine::{EndpointStatus, Policy, PolicyFields, Span, Time};
use railpost_store::{Endpoint, EndpointPrivate, EndpointSettings};
use railpost_wire::{EndpointId, Envelope, EventTypeFilter, HeaderNames, Secret, TenantId};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::merge;
use crate::secrets::{SecretCreated, SecretText};

/// An endpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Endpoint")]
pub(crate) struct EndpointView {
    /// Its id.
    pub(crate) id: EndpointId,
    /// Whose it is.
    pub(crate) tenant: TenantId,
    /// Where attempts go.
    pub(crate) url: String,
    /// What it is for.
    pub(crate) description: String,
    /// Which event types it wants: names, `order.*` for all below, `*` for everything.
    pub(crate) types: Vec<EventTypeFilter>,
    /// How it is delivered to.
    pub(crate) policy: Policy,
    /// What a request's body holds.
    pub(crate) envelope: Envelope,
    /// Payloads of more bytes than this are delivered as a reference, in the thin envelope; nothing means
    /// that all are delivered as `envelope` says.
    pub(crate) thin_above: Option<u32>,
    /// Headers that have another name here: `{"x_key": "X-Order"}`.
    pub(crate) renamed_headers: HeaderNames,
    /// The oldest TLS version that is spoken.
    pub(crate) tls_min: TlsVersion,
    /// Certificates of authorities to trust beside the public ones, in PEM.
    pub(crate) authorities_pem: Option<String>,
    /// The longest that one attempt may take; nothing means the server's default.
    pub(crate) timeout: Option<Span>,
    /// The names of the static headers that every attempt carries. Their values are not shown.
    pub(crate) headers: Vec<String>,
    /// Whether attempts show a client certificate. It is not shown.
    pub(crate) client_certificate: bool,
    /// Whether it is switched on, and if not, why.
    pub(crate) status: EndpointStatus,
    /// Why nothing can be sent to it, such as a missing secret. Nothing if it can; answers to
    /// changes leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<String>,
    /// Since when nothing but failures came back.
    pub(crate) failing_since: Option<Time>,
    /// How often its settings were written: 1, 2, 3 …
    pub(crate) revision: u64,
    /// When it was created.
    pub(crate) created_at: Time,
    /// When it last changed.
    pub(crate) updated_at: Time,
}

impl From<Endpoint> for EndpointView {
    fn from(endpoint: Endpoint) -> Self {
        let EndpointSettings {
            url,
            description,
            filters,
            policy,
            envelope,
            thin_above,
            header_names,
            tls_min,
            authorities_pem,
            timeout,
        } = endpoint.settings;
        // What cannot be read is not shown; `blocked` says so.
        let private = endpoint.private.unwrap_or_default();
        Self {
            id: endpoint.id,
            tenant: endpoint.tenant,
            url,
            description,
            types: filters,
            policy,
            envelope,
            thin_above,
            renamed_headers: header_names,
            tls_min: tls_min.into(),
            authorities_pem,
            timeout,
            client_certificate: private.client_identity.is_some(),
            headers: private.headers.into_keys().collect(),
            status: endpoint.status,
            blocked: None,
            failing_since: endpoint.failing_since.map(Time::from),
            revision: endpoint.revision,
            created_at: endpoint.created_at.into(),
            updated_at: endpoint.updated_at.into(),
        }
    }
}

/// An endpoint that was removed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointRemoved {
    /// Its id.
    pub(crate) id: EndpointId,
    /// How many of its deliveries were open. They are discarded, with the reason `endpoint_removed`.
    pub(crate) open_deliveries: u64,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "1.3")]
    V13,
}

impl From<railpost_store::TlsVersion> for TlsVersion {
    fn from(version: railpost_store::TlsVersion) -> Self {
        match version {
            railpost_store::TlsVersion::V12 => TlsVersion::V12,
            railpost_store::TlsVersion::V13 => TlsVersion::V13,
        }
    }
}

impl From<TlsVersion> for railpost_store::TlsVersion {
    fn from(version: TlsVersion) -> Self {
        match version {
            TlsVersion::V12 => railpost_store::TlsVersion::V12,
            TlsVersion::V13 => railpost_store::TlsVersion::V13,
        }
    }
}

/// An endpoint that was created, and the secret that signs its attempts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointCreated {
    #[serde(flatten)]
    pub(crate) endpoint: EndpointView,
    /// Its secret. The value is shown here and not again, unless someone asks for it by name.
    pub(crate) secret: SecretCreated,
}

/// A client certificate and its private key.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientIdentity {
    /// The certificate chain in PEM, the client's own first.
    #[schemars(schema_with = "crate::bounds::pem")]
    pub(crate) certificate_pem: String,
    /// The private key in PEM.
    #[schemars(schema_with = "crate::bounds::pem")]
    pub(crate) key_pem: String,
}

impl From<railpost_store::ClientIdentity> for ClientIdentity {
    fn from(stored: railpost_store::ClientIdentity) -> Self {
        let railpost_store::ClientIdentity { certificate_pem, key_pem } = stored;
        Self { certificate_pem, key_pem }
    }
}

/// An endpoint that is to be created.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = example_endpoint())]
pub(crate) struct NewEndpoint {
    /// Where attempts go: `https://…` or `http://…`.
    #[schemars(schema_with = "crate::bounds::url")]
    url: String,
    /// What it is for.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::text")]
    description: String,
    /// Which event types it wants: names, `order.*` for all below, `*` for everything. Everything if
    /// not given.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_event_type_filters")]
    types: Option<Vec<EventTypeFilter>>,
    /// How it is delivered to. Fields that are left out have their defaults.
    #[serde(default)]
    policy: PolicyFields,
    /// What a request's body holds.
    #[serde(default)]
    envelope: Envelope,
    /// Deliver payloads of more bytes than this as a reference, in the thin envelope, whatever `envelope`
    /// says: 0 to 1048576.
    #[serde(default)]
    #[schemars(range(max = 1_048_576))]
    thin_above: Option<u32>,
    /// Headers that shall have another name here: `{"x_key": "X-Order"}`.
    #[serde(default)]
    renamed_headers: HeaderNames,
    /// The oldest TLS version to speak; 1.2 if not given.
    #[serde(default)]
    tls_min: Option<TlsVersion>,
    /// Certificates of authorities to trust beside the public ones, in PEM.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_pem")]
    authorities_pem: Option<String>,
    /// The longest that one attempt may take.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::timeout")]
    timeout: Option<Span>,
    /// Static headers of every attempt. Their values are encrypted and not shown again.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::headers")]
    headers: BTreeMap<String, String>,
    /// The client certificate of attempts. It is encrypted and not shown again.
    #[serde(default)]
    client_identity: Option<ClientIdentity>,
    /// The secret to sign with, `whsec_…`; one is made if none is given.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::shared_secret")]
    secret: Option<SecretText<Secret>>,
}

fn example_endpoint() -> serde_json::Value {
    serde_json::json!({
        "url": "https://example.com/webhooks",
        "description": "Orders for the warehouse",
        "types": ["order.*"],
        "policy": { "retry": { "max_attempts": 10 }, "in_flight_max": 8 },
        "headers": { "X-Api-Token": "t0ken" },
    })
}

impl NewEndpoint {
    /// Its settings, and the secret that was chosen.
    pub(super) fn into_fields(self) -> (EndpointFields, Option<Secret>) {
        let fields = EndpointFields {
            url: self.url,
            description: self.description,
            types: self.types.unwrap_or_else(all_types),
            policy: self.policy,
            envelope: self.envelope,
            thin_above: self.thin_above,
            renamed_headers: self.renamed_headers,
            tls_min: self.tls_min.unwrap_or_default(),
            authorities_pem: self.authorities_pem,
            timeout: self.timeout,
            headers: self.headers,
            client_identity: self.client_identity,
        };
        (fields, self.secret.map(|secret| secret.0))
    }
}

/// What can be chosen about an endpoint.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointFields {
    /// Where attempts go.
    #[schemars(schema_with = "crate::bounds::url")]
    pub(super) url: String,
    /// What it is for.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::text")]
    pub(super) description: String,
    /// Which event types it wants.
    #[serde(default = "all_types")]
    #[schemars(schema_with = "crate::bounds::event_type_filters")]
    pub(super) types: Vec<EventTypeFilter>,
    /// How it is delivered to.
    #[serde(default)]
    pub(super) policy: PolicyFields,
    /// What a request's body holds.
    #[serde(default)]
    pub(super) envelope: Envelope,
    /// Deliver payloads of more bytes than this as a reference, in the thin envelope, whatever `envelope`
    /// says: 0 to 1048576.
    #[serde(default)]
    #[schemars(range(max = 1_048_576))]
    pub(super) thin_above: Option<u32>,
    /// Headers that shall have another name here.
    #[serde(default)]
    pub(super) renamed_headers: HeaderNames,
    /// The oldest TLS version to speak.
    #[serde(default)]
    pub(super) tls_min: TlsVersion,
    /// Certificates of authorities to trust beside the public ones, in PEM.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_pem")]
    pub(super) authorities_pem: Option<String>,
    /// The longest that one attempt may take.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::timeout")]
    pub(super) timeout: Option<Span>,
    /// Static headers of every attempt.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::headers")]
    pub(super) headers: BTreeMap<String, String>,
    /// The client certificate of attempts.
    #[serde(default)]
    pub(super) client_identity: Option<ClientIdentity>,
}

fn all_types() -> Vec<EventTypeFilter> {
    EndpointSettings::all_events("").filters
}

impl EndpointFields {
    /// What is chosen about an endpoint.
    pub(super) fn of(settings: EndpointSettings, private: EndpointPrivate) -> Self {
        let EndpointSettings {
            url,
            description,
            filters,
            policy,
            envelope,
            thin_above,
            header_names,
            tls_min,
            authorities_pem,
            timeout,
        } = settings;
        Self {
            url,
            description,
            types: filters,
            policy: policy.into_fields(),
            envelope,
            thin_above,
            renamed_headers: header_names,
            tls_min: tls_min.into(),
            authorities_pem,
            timeout,
            headers: private.headers,
            client_identity: private.client_identity.map(ClientIdentity::from),
        }
    }
}

impl merge::Settings for EndpointFields {
    const CHANGE: (&'static str, &'static str) = (
        "EndpointChange",
        "What is to change about an endpoint: a JSON merge patch. What is left out stays, at every depth; \
         `null` takes away what may be absent, and sets anything else back to its default. Another `strategy` \
         of `backoff` begins with nothing of the one before.",
    );

    fn beside(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        let mut revision = schemas.subschema_for::<Option<u64>>();
        let about =
            "The revision that the change is based on. If it is not the latest, the answer is 409.";
        revision.insert("description".to_owned(), about.into());
        vec![("revision", revision)]
    }

    fn example() -> serde_json::Value {
        serde_json::json!({ "description": "Orders", "policy": { "retry": { "max_attempts": 20 } }, "revision": 3 })
    }
}
