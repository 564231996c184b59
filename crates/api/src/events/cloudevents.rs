//! Conversion of CloudEvents to events.
//!
//! | CloudEvents | ours |
//! |---|---|
//! | `source` and `id` | kept as they are; the event's own id is made of both, so it is unique where they are |
//! | `type` | the type |
//! | `partitionkey`, or else `subject` | the key |
//! | `time` | the time |
//! | `datacontenttype`, `data` | content type and payload, byte for byte |
//! | `schemaversion` | the schema's version, a whole number |
//! | `traceparent` | the trace |
//! | `dataschema`, extensions | kept as they are, and sent to endpoints with a CloudEvents envelope |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use railpost_engine::Timestamp;
use railpost_store::Event;
use railpost_store::limits::{
    CLOUDEVENT_EXTENSION_BYTES_MAX, CLOUDEVENT_EXTENSIONS_MAX, CLOUDEVENT_ID_LEN_MAX,
    CLOUDEVENT_URI_LEN_MAX,
};
use railpost_wire::ContentType;
use railpost_wire::cloudevents::{
    BadCloudEvent, CloudEvent, Data, Origin, PARTITION_KEY, SCHEMA_VERSION, Value,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::publish::{check_count, traceparent};
use crate::call::Ctx;
use crate::problem::Problem;

/// What identified an event that came as a CloudEvent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "CloudEventIdentity")]
pub(crate) struct IdentityView {
    /// Its `id`, unique within its source.
    pub(crate) id: String,
    /// Its `source`.
    pub(crate) source: String,
}

impl IdentityView {
    /// The identity of an event, if it came as a CloudEvent.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let Origin { id, source, .. } = event.cloudevent.as_deref()?;
        Some(Self { id: id.clone(), source: source.clone() })
    }
}

/// What an event was as a CloudEvent, beyond what every event has.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "CloudEventAttributes")]
pub(crate) struct AttributesView {
    #[serde(flatten)]
    identity: IdentityView,
    /// Its `subject`, where its `partitionkey` is the event's key instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// Its `dataschema`.
    #[serde(skip_serializing_if = "Option::is_none")]
    dataschema: Option<String>,
    /// Its extensions by name: true or false, whole numbers of 32 bits, or texts.
    #[schemars(with = "BTreeMap<String, ExtensionSchema>")]
    extensions: BTreeMap<String, Value<'static>>,
    /// Whether it had no data at all, which is not the same as empty data.
    no_data: bool,
}

/// The value of an extension.
#[derive(JsonSchema)]
#[schemars(rename = "CloudEventExtension", untagged)]
#[allow(dead_code, reason = "it is the schema of another crate's type")]
enum ExtensionSchema {
    Boolean(bool),
    Integer(i32),
    String(String),
}

impl AttributesView {
    /// The attributes of an event, if it came as a CloudEvent.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let identity = IdentityView::of(event)?;
        let origin = event.cloudevent.as_deref()?.clone();
        let Origin { subject, dataschema, extensions, no_data, .. } = origin;
        Some(Self { identity, subject, dataschema, extensions, no_data })
    }
}

/// One event in structured mode.
pub(super) fn structured(ctx: &Ctx, body: &[u8], trace: Option<&str>) -> Result<Event, Problem> {
    event(ctx, CloudEvent::from_json(body).map_err(refused)?, trace)
}

/// One event in binary mode: whatever the body is, it is the payload.
pub(super) fn binary(
    ctx: &Ctx,
    headers: &HeaderMap,
    body: &[u8],
    trace: Option<&str>,
) -> Result<Event, Problem> {
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut read = CloudEvent::from_http(pairs, body).map_err(refused)?;
    // An empty body is no data, whatever its type.
    read.data = if body.is_empty() { Data::None } else { Data::Binary(body.into()) };
    event(ctx, read, trace)
}

/// A batch of events.
pub(super) fn batch(ctx: &Ctx, body: &[u8], trace: Option<&str>) -> Result<Vec<Event>, Problem> {
    let read = CloudEvent::from_json_batch(body).map_err(refused)?;
    check_count(read.len())?;
    let numbered = read.into_iter().enumerate();
    let events = numbered.map(|(index, read)| {
        event(ctx, read, trace).map_err(|problem| problem.within(&format!("[{index}]")))
    });
    events.collect()
}

fn event(ctx: &Ctx, read: CloudEvent<'_>, trace: Option<&str>) -> Result<Event, Problem> {
    let origin = Origin::of(&read);
    check(&origin)?;
    let extension = |name: &str| read.extensions.get(name).map(ToString::to_string);
    let (key, version) = (extension(PARTITION_KEY), extension(SCHEMA_VERSION));
    let trace = traceparent(extension("traceparent"), trace)?;
    let time = read.unix_ms().map(u64::try_from).transpose();
    let time = time.map_err(|_| Problem::field("time", "expected a time from 1970 on"))?;
    let (key_field, key) = match key {
        Some(key) => (PARTITION_KEY, Some(key)),
        None => ("subject", read.subject.map(Cow::into_owned)),
    };
    Ok(Event {
        id: origin.event_id(),
        event_type: parse("type", &read.event_type)?,
        key: key.map(|text| parse(key_field, &text)).transpose()?,
        content_type: content_type(read.datacontenttype.as_deref(), &read.data)?,
        payload: payload(read.data),
        schema_version: version.map(|text| parse(SCHEMA_VERSION, &text)).transpose()?,
        time: time.map_or_else(|| ctx.now(), Timestamp::from_millis),
        traceparent: trace,
        cloudevent: Some(Box::new(origin)),
    })
}

/// Refuses what is too long or too much to be kept.
fn check(origin: &Origin) -> Result<(), Problem> {
    let (count, bytes) = (origin.extensions.len(), origin.extension_bytes());
    for (field, value, max, unit) in [
        ("id", origin.id.len(), CLOUDEVENT_ID_LEN_MAX, "bytes"),
        ("source", origin.source.len(), CLOUDEVENT_URI_LEN_MAX, "bytes"),
        ("extensions", count, CLOUDEVENT_EXTENSIONS_MAX, "of them"),
        ("extensions", bytes, CLOUDEVENT_EXTENSION_BYTES_MAX, "bytes, names and values together"),
    ] {
        if value > max {
            let detail = format!("expected at most {max} {unit}; got {value}");
            return Err(Problem::field(field, detail));
        }
    }
    Ok(())
}

/// The declared content type, or what the standard says that the data is without one.
fn content_type(declared: Option<&str>, data: &Data<'_>) -> Result<ContentType, Problem> {
    match (declared, data) {
        (Some(declared), _) => parse("datacontenttype", declared),
        (None, Data::Json(_) | Data::Text(_)) => Ok(ContentType::JSON),
        (None, Data::None | Data::Binary(_)) => {
            parse("datacontenttype", "application/octet-stream")
        }
    }
}

/// The data's bytes, in memory of their own.
fn payload(data: Data<'_>) -> Bytes {
    match data {
        Data::None => Bytes::new(),
        Data::Json(value) => Bytes::copy_from_slice(value.get().as_bytes()),
        Data::Text(text) => text.into_owned().into(),
        Data::Binary(bytes) => bytes.into_owned().into(),
    }
}

fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| Problem::field(field, error.to_string()))
}

fn refused(bad: BadCloudEvent) -> Problem {
    let problem = Problem::field(bad.attribute, bad.problem.to_string());
    match bad.index {
        Some(index) => problem.within(&format!("[{index}]")),
        None => problem,
    }
}
