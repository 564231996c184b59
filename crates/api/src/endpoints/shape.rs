//! Endpoints as the API writes and reads them.

use railpost_dispatch::ServedHealth;
use railpost_engine::{EndpointStatus, Policy, PolicyFields, Span, Time};
use railpost_store::{Endpoint, EndpointPrivate, EndpointSettings, TlsVersion};
use railpost_wire::{EndpointId, Envelope, EventTypeFilter, HeaderNames, Secret, TenantId};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint_health::HealthView;
use crate::members::{FromMembers, Members};
use crate::merge;
use crate::problem::Problem;
use crate::secrets::{SecretCreated, SecretText};

/// The settings of an endpoint that are shown: the one list of them for bodies and answers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointFields {
    /// Where attempts go: `https://…` or `http://…`.
    #[schemars(schema_with = "crate::bounds::url")]
    pub(super) url: String,
    /// What it is for.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::text")]
    pub(super) description: String,
    /// Which event types it wants: names, `order.*` for all below, `*` for everything. Everything if
    /// not given.
    #[serde(default = "all_types")]
    #[schemars(schema_with = "crate::bounds::event_type_filters")]
    pub(super) types: Vec<EventTypeFilter>,
    /// Its policy. Fields that are left out have their defaults.
    #[serde(default)]
    #[schemars(with = "Policy")]
    pub(super) policy: PolicyFields,
    /// What a request's body holds.
    #[serde(default)]
    pub(super) envelope: Envelope,
    /// Deliver payloads of more bytes than this as a reference, in the thin envelope, whatever `envelope`
    /// says: 0 to 1048576. `null`: all are delivered as `envelope` says.
    #[serde(default)]
    #[schemars(range(max = 1_048_576))]
    pub(super) thin_above: Option<u32>,
    /// The body of the envelope `template`: JSON with places such as `{{summary}}` or `{{details.failed}}` inside
    /// of its strings.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::template")]
    pub(super) template: Option<String>,
    /// Headers that have another name here: `{"x_key": "X-Order"}`.
    #[serde(default)]
    pub(super) renamed_headers: HeaderNames,
    /// The oldest TLS version to speak.
    #[serde(default)]
    pub(super) tls_min: TlsVersion,
    /// Certificates of authorities to trust beside the public ones, in PEM.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::optional_pem")]
    pub(super) authorities_pem: Option<String>,
    /// The longest that one attempt may take; `null` means the server's default.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::timeout")]
    pub(super) timeout: Option<Span>,
    /// How old its newest secret may become, 1 h to 366 days: then the server adds another, and the ones before it
    /// expire after `rotate_overlap`. 90 days are recommended. `null`: people rotate.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::rotate_every")]
    pub(super) rotate_every: Option<Span>,
    /// How long the secrets before it still sign then: up to 30 days, and shorter than `rotate_every`. `null`: 7 days,
    /// or half of `rotate_every` if that is shorter.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::overlap")]
    pub(super) rotate_overlap: Option<Span>,
}

fn all_types() -> Vec<EventTypeFilter> {
    EndpointSettings::all_events("").filters
}

impl From<EndpointSettings> for EndpointFields {
    fn from(settings: EndpointSettings) -> Self {
        let EndpointSettings {
            url,
            description,
            filters,
            policy,
            envelope,
            thin_above,
            template,
            header_names,
            tls_min,
            authorities_pem,
            timeout,
            rotate_every,
            rotate_overlap,
            managed_by: _,
        } = settings;
        Self {
            url,
            description,
            types: filters,
            policy: policy.into_fields(),
            envelope,
            thin_above,
            template,
            renamed_headers: header_names,
            tls_min,
            authorities_pem,
            timeout,
            rotate_every,
            rotate_overlap,
        }
    }
}

/// What a body says of an endpoint: the settings that are shown, and those that are not.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct EndpointInput {
    #[serde(flatten)]
    pub(super) fields: EndpointFields,
    #[serde(flatten)]
    pub(super) private: EndpointPrivate,
}

impl FromMembers for EndpointInput {
    fn from_members(mut members: Members) -> Result<Self, Problem> {
        let private = members.take_all(&["headers", "client_identity", "routing_key"]).parse()?;
        Ok(Self { fields: members.parse()?, private })
    }
}

impl merge::Settings for EndpointInput {
    const CHANGE: (&'static str, &'static str) = (
        "EndpointChange",
        "Changes of an endpoint: a JSON merge patch. Fields that are left out stay as they are, at every depth. \
         `null` removes an optional field, and sets any other field to its default. With another `strategy` of \
         `backoff`, the fields of the old one are dropped.",
    );

    fn beside(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        let mut revision = schemas.subschema_for::<Option<u64>>();
        let about =
            "The revision that the change is based on. If it is not the latest, the answer is 409.";
        revision.insert("description".to_owned(), about.into());
        vec![("revision", revision)]
    }

    fn example() -> Value {
        serde_json::json!({ "description": "Orders", "policy": { "retry": { "max_attempts": 20 } }, "revision": 3 })
    }
}

/// A new endpoint.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[schemars(example = example_endpoint())]
pub(crate) struct NewEndpoint {
    #[serde(flatten)]
    pub(super) input: EndpointInput,
    /// The secret to sign with, `whsec_…`; one is made if none is given.
    #[serde(default)]
    #[schemars(schema_with = "crate::bounds::shared_secret")]
    pub(super) secret: Option<SecretText<Secret>>,
}

impl FromMembers for NewEndpoint {
    fn from_members(mut members: Members) -> Result<Self, Problem> {
        let secret = members.take("secret")?;
        Ok(Self { input: EndpointInput::from_members(members)?, secret })
    }
}

fn example_endpoint() -> Value {
    serde_json::json!({
        "url": "https://example.com/webhooks",
        "description": "Orders for the warehouse",
        "types": ["order.*"],
        "policy": { "retry": { "max_attempts": 10 }, "in_flight_max": 8 },
        "headers": { "X-Api-Token": "t0ken" },
    })
}

/// An endpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Endpoint", transform = as_answer)]
pub(crate) struct EndpointView {
    /// Its id.
    pub(crate) id: EndpointId,
    /// Whose it is.
    pub(crate) tenant: TenantId,
    #[serde(flatten)]
    pub(crate) fields: EndpointFields,
    /// The names of the static headers that every attempt carries. Their values are not shown.
    pub(crate) headers: Vec<String>,
    /// Whether attempts show a client certificate. It is not shown.
    pub(crate) client_certificate: bool,
    /// Whether it has a routing key. It is not shown.
    pub(crate) routing_key_set: bool,
    /// The section of the configuration file that it is made of, such as `notices.oncall`: it is changed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
    /// Whether it is switched on, and if not, why.
    pub(crate) status: EndpointStatus,
    /// How it is doing. Answers to changes leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<HealthView>,
    /// Why nothing can be sent to it, such as a missing secret. Nothing if it can; answers to
    /// changes leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked: Option<String>,
    /// Since when nothing but failures came back.
    pub(crate) failing_since: Option<Time>,
    /// When the server rotates its secrets next. Nothing if it does not.
    pub(crate) next_rotation_at: Option<Time>,
    /// How often its settings were written: 1, 2, 3 …
    pub(crate) revision: u64,
    /// When it was created.
    pub(crate) created_at: Time,
    /// When it last changed.
    pub(crate) updated_at: Time,
}

/// The schema of an answer that has the fields of a body. A field with a default is always there, and fields may be
/// added. Texts have no bounds: what a body should look like is narrower than what was accepted and is shown again.
fn as_answer(schema: &mut Schema) {
    let mut always = Vec::new();
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, field) in fields.into_iter().flatten() {
        let Some(field) = field.as_object_mut() else { continue };
        if field.remove("default").is_some_and(|default| !default.is_null()) {
            always.push(Value::from(name.as_str()));
        }
        field.retain(|name, value| {
            !["pattern", "maxLength"].contains(&name.as_str()) && *value != "uri"
        });
    }
    schema.remove("additionalProperties");
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.extend(always);
    }
}

impl From<Endpoint> for EndpointView {
    fn from(endpoint: Endpoint) -> Self {
        // What cannot be read is not shown; `blocked` says so.
        let private = endpoint.private.unwrap_or_default();
        Self {
            id: endpoint.id,
            tenant: endpoint.tenant,
            managed_by: endpoint.settings.managed_by.clone(),
            fields: endpoint.settings.into(),
            client_certificate: private.client_identity.is_some(),
            routing_key_set: private.routing_key.is_some(),
            headers: private.headers.into_keys().collect(),
            status: endpoint.status,
            health: None,
            blocked: None,
            failing_since: endpoint.failing_since.map(Time::from),
            next_rotation_at: endpoint.rotates_at.map(Time::from),
            revision: endpoint.revision,
            created_at: endpoint.created_at.into(),
            updated_at: endpoint.updated_at.into(),
        }
    }
}

impl EndpointView {
    /// The endpoint as it is served, if it is.
    pub(crate) fn with_health(endpoint: Endpoint, served: Option<ServedHealth>) -> Self {
        let health = HealthView::of(&endpoint, served.as_ref());
        let view = Self { health: Some(health), ..Self::from(endpoint) };
        let Some(ServedHealth { health, blocked }) = served else { return view };
        let failing_since = health.failing_since.map(Time::from);
        Self { status: health.status, blocked, failing_since, ..view }
    }
}

/// An endpoint that was created, and the secret that signs its attempts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointCreated {
    #[serde(flatten)]
    pub(crate) endpoint: EndpointView,
    /// Its secret, with the value. `reveal` shows the value again.
    pub(crate) secret: SecretCreated,
}

/// An endpoint that was removed.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointRemoved {
    /// Its id.
    pub(crate) id: EndpointId,
    /// How many of its deliveries were open. They are discarded, with the reason `endpoint_removed`.
    pub(crate) open_deliveries: u64,
}
