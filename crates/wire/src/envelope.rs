//! Envelopes: what a receiver finds in the body of a request, by its endpoint's choice.
//!
//! Those for people's tools (`pagerduty`, `slack`, `teams`, `template`) show an event as a `notice`. They hold
//! whatever the payload is, within the bounds of the tool's format.

mod notice;
mod pagerduty;
mod slack;
mod teams;
mod template;

use crate::cloudevents::{
    CloudEvent, Content, Data, Origin, PARTITION_KEY, SCHEMA_VERSION, STRUCTURED, Source, Value,
    is_string,
};
use crate::ids::EventId;
use crate::names::{ContentType, EventType, Key};
use crate::rfc3339;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap};

use notice::Notice;

pub use template::{BadTemplate, Template};

/// How an endpoint wants its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Envelope {
    /// The producer's bytes as they are.
    #[default]
    Raw,
    /// A CloudEvent in JSON. A JSON payload becomes its `data` without a byte changed, but for white
    /// space around it; any other payload becomes `data_base64`.
    CloudeventsStructured,
    /// The producer's bytes, with the attributes of a CloudEvent as headers.
    CloudeventsBinary,
    /// A JSON object with id, type, time, schema version, key and the payload. A JSON payload becomes its
    /// `data` without a byte changed, but for white space around it; any other payload becomes
    /// `data_base64`.
    Event,
    /// Only what it is about: id, type, key, and a URL to fetch the rest from.
    Thin,
    /// A notice as PagerDuty's Events API v2 takes it: a fired one triggers an incident, a resolved one resolves
    /// it by the same `dedup_key`. Needs a `routing_key`.
    Pagerduty,
    /// A notice as a message of a Slack incoming webhook.
    Slack,
    /// A notice as a card for a workflow of Microsoft Teams.
    Teams,
    /// The endpoint's own JSON `template`, with values of the notice in it.
    Template,
}

/// What an endpoint has for its envelope.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvelopeSettings<'a> {
    /// Which PagerDuty service a notice is for.
    pub routing_key: &'a str,
    /// The body of the envelope `template`; without one, it is `{"text": "{{summary}}"}`.
    pub template: Option<&'a Template>,
}

/// An event, as far as envelopes tell of it.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its id.
    pub id: &'a EventId,
    /// Its type.
    pub event_type: &'a EventType,
    /// Its key: the `subject` of a CloudEvent, which cannot hold control characters, so a key that has
    /// some is left to the `X-Key` header.
    pub key: Option<&'a Key>,
    /// The producer's bytes; none of a CloudEvent without data.
    pub payload: &'a [u8],
    /// What kind of bytes they are.
    pub content_type: &'a ContentType,
    /// The version of its type's schema: the extension `schemaversion` of a CloudEvent.
    pub schema_version: Option<u32>,
    /// When it happened, in milliseconds since 1970. Beyond the year 9999 a CloudEvent cannot say it.
    pub unix_ms: u64,
    /// Where it comes from, if it did not come as a CloudEvent.
    pub source: &'a Source,
    /// What it was as a CloudEvent, if it came as one. Its own id is made of the CloudEvent's source and id.
    pub cloudevent: Option<&'a Origin>,
    /// Where a thin envelope says that the event can be fetched.
    pub url: &'a str,
}

impl Envelope {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Raw,
        Self::CloudeventsStructured,
        Self::CloudeventsBinary,
        Self::Event,
        Self::Thin,
        Self::Pagerduty,
        Self::Slack,
        Self::Teams,
        Self::Template,
    ];

    /// Whether it is for people: it shows an event as a notice, and not its payload.
    pub fn shows_notices(self) -> bool {
        matches!(self, Self::Pagerduty | Self::Slack | Self::Teams | Self::Template)
    }

    /// The body for `event` and the headers that belong to it.
    pub fn wrap<'a>(self, event: &Event<'a>) -> Content<'a> {
        self.wrap_with(event, &EnvelopeSettings::default())
    }

    /// The same with what the endpoint has for its envelope.
    pub fn wrap_with<'a>(self, event: &Event<'a>, settings: &EnvelopeSettings<'_>) -> Content<'a> {
        let notice = |body: Vec<u8>| Content { headers: content_type(JSON), body: body.into() };
        match self {
            Self::Raw => Content {
                headers: content_type(event.content_type.as_str()),
                body: event.payload.into(),
            },
            Self::CloudeventsStructured => Content {
                headers: content_type(STRUCTURED),
                body: event.cloud_event(event.data()).to_json_unchecked().into(),
            },
            Self::CloudeventsBinary => Content {
                headers: event.cloud_event(Data::None).http_headers(),
                body: event.payload.into(),
            },
            Self::Event => Content { headers: content_type(JSON), body: event.event().into() },
            Self::Thin => Content { headers: content_type(JSON), body: event.thin().into() },
            Self::Pagerduty => {
                notice(pagerduty::body(&Notice::of(event), settings.routing_key, event.unix_ms))
            }
            Self::Slack => notice(slack::body(&Notice::of(event))),
            Self::Teams => notice(teams::body(&Notice::of(event))),
            Self::Template => notice(match settings.template {
                Some(template) => template.body(event),
                None => Template::default().body(event),
            }),
        }
    }
}

const JSON: &str = "application/json";
const OCTET_STREAM: &str = "application/octet-stream";

fn content_type(value: &str) -> Vec<(Cow<'static, str>, String)> {
    vec![("content-type".into(), value.to_owned())]
}

impl<'a> Event<'a> {
    fn cloud_event(&self, data: Data<'a>) -> CloudEvent<'a> {
        let origin = self.cloudevent;
        CloudEvent {
            id: match origin {
                Some(origin) => origin.id.as_str().into(),
                None => self.id.to_string().into(),
            },
            source: origin.map_or(self.source.as_str(), |origin| &origin.source).into(),
            event_type: self.event_type.as_str().into(),
            subject: self.subject().map(Cow::from),
            time: rfc3339::format(self.unix_ms).map(Cow::from),
            datacontenttype: self.datacontenttype().map(Cow::from),
            dataschema: origin.and_then(|origin| origin.dataschema.as_deref()).map(Cow::from),
            extensions: self.extensions(),
            data,
        }
    }

    /// The subject that it came with, or else its key.
    fn subject(&self) -> Option<&'a str> {
        match self.cloudevent {
            Some(origin) if origin.extensions.contains_key(PARTITION_KEY) => {
                origin.subject.as_deref()
            }
            _ => self.key.map(Key::as_str).filter(|key| is_string(key)),
        }
    }

    /// Bytes of no declared kind are what nothing is without data.
    fn datacontenttype(&self) -> Option<&'a str> {
        let declared = self.content_type.as_str();
        Some(declared).filter(|declared| !self.no_data() || *declared != OCTET_STREAM)
    }

    /// The extensions that it came with, and its schema version if that is not among them.
    fn extensions(&self) -> BTreeMap<Cow<'a, str>, Value<'a>> {
        let came = self.cloudevent.into_iter().flat_map(|origin| &origin.extensions);
        let mut extensions: BTreeMap<Cow<'a, str>, _> =
            came.map(|(name, value)| (name.as_str().into(), value.borrowed())).collect();
        if let Some(version) = self.schema_version {
            let value = || Value::String(version.to_string().into());
            extensions.entry(SCHEMA_VERSION.into()).or_insert_with(value);
        }
        extensions
    }

    fn no_data(&self) -> bool {
        self.cloudevent.is_some_and(|origin| origin.no_data)
    }

    /// The payload as JSON if it says that it is and is; bytes otherwise; nothing if it came without data.
    fn data(&self) -> Data<'a> {
        if self.no_data() {
            return Data::None;
        }
        if self.content_type.is_json()
            && let Ok(value) = serde_json::from_slice(self.payload)
        {
            return Data::Json(value);
        }
        Data::Binary(self.payload.into())
    }

    fn event(&self) -> Vec<u8> {
        let (data, data_base64) = match self.data() {
            Data::None => (None, None),
            Data::Json(value) => (Some(value), None),
            other => (None, Some(STANDARD.encode(other.as_bytes()))),
        };
        let body = EventBody {
            id: self.id,
            event_type: self.event_type,
            created_at: rfc3339::format(self.unix_ms),
            version: self.schema_version,
            key: self.key,
            data,
            data_base64,
        };
        serde_json::to_vec(&body).expect("an event is a JSON object")
    }

    fn thin(&self) -> Vec<u8> {
        let thin = Thin { id: self.id, event_type: self.event_type, key: self.key, url: self.url };
        serde_json::to_vec(&thin).expect("a thin event is a JSON object")
    }
}

/// The members of the envelope `event`, in the order in which they are written.
#[derive(Serialize)]
struct EventBody<'a> {
    id: &'a EventId,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

#[derive(Serialize)]
struct Thin<'a> {
    id: &'a EventId,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a Key>,
    url: &'a str,
}
