//! CloudEvents 1.0: the event, its rules, and its three modes over HTTP.
//!
//! `source` and `id` together identify an event; `subject` is its natural key. Every reader checks the
//! rules of the standard before it returns an event, and every writer before it writes one.

mod http;
mod json;
mod origin;
mod rules;

use crate::EventId;
use crate::limits::EXTENSIONS_MAX;
use crate::text::Unexpected;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

pub use http::Content;
pub use origin::{Origin, PARTITION_KEY, SCHEMA_VERSION};
pub use rules::Source;
pub(crate) use rules::is_string;

/// The one version of the standard that is spoken here.
pub const SPEC_VERSION: &str = "1.0";

/// The media type of one event in structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// The media type of a batch.
pub const BATCHED: &str = "application/cloudevents-batch+json";

/// An event in the words of the standard. Borrows what it was read from, where it can.
#[derive(Debug, Clone, Default)]
pub struct CloudEvent<'a> {
    /// Unique within its source. Required.
    pub id: Cow<'a, str>,
    /// Where it happened: a URI reference. Required.
    pub source: Cow<'a, str>,
    /// The attribute `type`: what happened. Required.
    pub event_type: Cow<'a, str>,
    /// What it happened to, within the source: the natural key.
    pub subject: Option<Cow<'a, str>>,
    /// When it happened, by RFC 3339.
    pub time: Option<Cow<'a, str>>,
    /// The media type of the data. Absent in structured mode, it means JSON.
    pub datacontenttype: Option<Cow<'a, str>>,
    /// The URI of a schema that the data follows.
    pub dataschema: Option<Cow<'a, str>>,
    /// Further attributes, by name.
    pub extensions: BTreeMap<Cow<'a, str>, Value<'a>>,
    /// What it tells.
    pub data: Data<'a>,
}

/// The value of an attribute. Binary mode has text alone: numbers and truths come back as [`Value::String`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value<'a> {
    /// True or false.
    Boolean(bool),
    /// A whole number of 32 bits.
    Integer(i32),
    /// A text; URIs, timestamps and binary values are written as such too.
    String(Cow<'a, str>),
}

/// The data of an event.
#[derive(Debug, Clone, Default)]
pub enum Data<'a> {
    /// None at all.
    #[default]
    None,
    /// A JSON value, byte for byte; `null` is one.
    Json(&'a RawValue),
    /// A text that is not JSON, such as XML.
    Text(Cow<'a, str>),
    /// Any bytes.
    Binary(Cow<'a, [u8]>),
}

/// How an HTTP message carries events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentMode {
    /// One event as a JSON object.
    Structured,
    /// Any number of events as a JSON array.
    Batched,
    /// The data as the body, the attributes as `ce-` headers.
    Binary,
}

impl ContentMode {
    /// The mode that a `Content-Type` announces. Event formats other than JSON are refused.
    pub fn of_content_type(value: &str) -> Result<Self, Unexpected> {
        let essence = value.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        match essence.as_str() {
            STRUCTURED => Ok(Self::Structured),
            BATCHED => Ok(Self::Batched),
            other if other.starts_with("application/cloudevents") => {
                Err(Unexpected::new("CloudEvents in JSON, alone or batched", value))
            }
            _ => Ok(Self::Binary),
        }
    }
}

impl CloudEvent<'_> {
    /// Its identity: two events with the same source and id are the same event.
    pub fn identity(&self) -> (&str, &str) {
        (&self.source, &self.id)
    }

    /// The id of the event that it becomes at Railpost, made of source and id.
    pub fn event_id(&self) -> EventId {
        origin::event_id(&self.source, &self.id)
    }

    /// When it happened, in milliseconds since 1970, if it says so.
    pub fn unix_ms(&self) -> Option<i64> {
        let time = OffsetDateTime::parse(self.time.as_deref()?, &Rfc3339).ok()?;
        i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
    }

    /// Checks it against the rules of the standard.
    pub fn check(&self) -> Result<(), BadCloudEvent> {
        for (name, value) in self.attributes() {
            rules::check_attribute(name, value)?;
        }
        if self.extensions.len() > EXTENSIONS_MAX {
            let problem = Unexpected::new("at most 64 of them", &self.extensions.len().to_string());
            return Err(BadCloudEvent::new("extensions", problem));
        }
        self.extensions.iter().try_for_each(|(name, value)| rules::check_extension(name, value))?;
        self.check_data()
    }

    fn check_data(&self) -> Result<(), BadCloudEvent> {
        let declared = self.datacontenttype.as_deref().unwrap_or(JSON);
        let expected = match (&self.data, crate::names::is_json(declared)) {
            (Data::Json(_), false) => "a JSON media type, because the data is JSON",
            (Data::Text(_), true) => "a media type other than JSON, because the data is text",
            _ => return Ok(()),
        };
        Err(BadCloudEvent::new("datacontenttype", Unexpected::new(expected, declared)))
    }

    /// The attributes that the standard names, as far as they are set, in its order.
    fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let attributes = [
            ("specversion", Some(SPEC_VERSION)),
            ("id", Some(&*self.id)),
            ("source", Some(&*self.source)),
            ("type", Some(&*self.event_type)),
            ("subject", self.subject.as_deref()),
            ("time", self.time.as_deref()),
            ("datacontenttype", self.datacontenttype.as_deref()),
            ("dataschema", self.dataschema.as_deref()),
        ];
        attributes.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

/// What data is in structured mode by default.
const JSON: &str = "application/json";

/// The attributes of a message, by name, before anybody knows whether they make an event.
struct Attributes<'a>(BTreeMap<Cow<'a, str>, Value<'a>>);

impl<'a> Attributes<'a> {
    /// Adds one; a name that came before is refused, because readers would differ on which counts.
    fn add(&mut self, name: Cow<'a, str>, value: Value<'a>) -> Result<(), BadCloudEvent> {
        if self.0.contains_key(&name) {
            return Err(BadCloudEvent::repeated(&name));
        }
        self.0.insert(name, value);
        Ok(())
    }

    fn into_event(mut self, data: Data<'a>) -> Result<CloudEvent<'a>, BadCloudEvent> {
        rules::check_attribute("specversion", &self.required("specversion")?)?;
        let event = CloudEvent {
            id: self.required("id")?,
            source: self.required("source")?,
            event_type: self.required("type")?,
            subject: self.optional("subject")?,
            time: self.optional("time")?,
            datacontenttype: self.optional("datacontenttype")?,
            dataschema: self.optional("dataschema")?,
            extensions: self.0,
            data,
        };
        event.check()?;
        Ok(event)
    }

    fn required(&mut self, name: &'static str) -> Result<Cow<'a, str>, BadCloudEvent> {
        let missing =
            || BadCloudEvent::new(name, Unexpected::missing("a value, because it is required"));
        self.optional(name)?.ok_or_else(missing)
    }

    fn optional(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, BadCloudEvent> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                Err(BadCloudEvent::new(name, Unexpected::new("a string", &other.to_string())))
            }
            None => Ok(None),
        }
    }
}

impl fmt::Display for Value<'_> {
    /// Writes the canonical text of the standard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(truth) => fmt::Display::fmt(truth, f),
            Self::Integer(number) => fmt::Display::fmt(number, f),
            Self::String(text) => f.write_str(text),
        }
    }
}

/// Something is not a CloudEvent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadCloudEvent {
    /// Which event of a batch, from 0.
    pub index: Option<usize>,
    /// Which attribute or part of it.
    pub attribute: Cow<'static, str>,
    /// What is wrong with it.
    pub problem: Unexpected,
}

impl BadCloudEvent {
    fn new(attribute: impl Into<Cow<'static, str>>, problem: Unexpected) -> Self {
        Self { index: None, attribute: attribute.into(), problem }
    }

    /// For names that are wrong themselves: they may be of any length and content.
    fn name(expected: &'static str, got: &str) -> Self {
        Self::new("attribute name", Unexpected::new(expected, got))
    }

    fn repeated(name: &str) -> Self {
        Self::name("a name that came only once", name)
    }

    fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl fmt::Display for BadCloudEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index {
            write!(f, "event {index}: ")?;
        }
        write!(f, "{}: {}", self.attribute, self.problem)
    }
}

impl std::error::Error for BadCloudEvent {}
