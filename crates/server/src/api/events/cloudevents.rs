//! CloudEvents as events of ours.
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
//!
//! `dataschema` and other extensions are checked and not kept.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use railpost_engine::Timestamp;
use railpost_store::limits::{CLOUDEVENT_ID_LEN_MAX, CLOUDEVENT_SOURCE_LEN_MAX};
use railpost_store::{CloudEventIdentity, Event};
use railpost_wire::cloudevents::{BadCloudEvent, CloudEvent, Data};
use railpost_wire::{ContentType, EventId};
use ring::digest::{Context, SHA256};
use schemars::JsonSchema;
use serde::Serialize;

use super::publish::{check_count, traceparent};
use crate::api::call::Ctx;
use crate::api::problem::Problem;

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
        let CloudEventIdentity { id, source } = event.cloudevent.as_deref()?.clone();
        Some(Self { id, source })
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
    read.data = Data::None;
    Ok(Event { payload: Bytes::copy_from_slice(body), ..event(ctx, read, trace)? })
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

fn event(ctx: &Ctx, mut read: CloudEvent<'_>, trace: Option<&str>) -> Result<Event, Problem> {
    let identity = identity(&read)?;
    let mut extension = |name: &str| read.extensions.remove(name).map(|value| value.to_string());
    let (key, version) = (extension("partitionkey"), extension("schemaversion"));
    let trace = traceparent(extension("traceparent"), trace)?;
    let time = read.unix_ms().map(u64::try_from).transpose();
    let time = time.map_err(|_| Problem::field("time", "expected a time from 1970 on"))?;
    let (key_field, key) = match key {
        Some(key) => ("partitionkey", Some(key)),
        None => ("subject", read.subject.map(Cow::into_owned)),
    };
    Ok(Event {
        id: event_id(&identity),
        event_type: parse("type", &read.event_type)?,
        key: key.map(|text| parse(key_field, &text)).transpose()?,
        content_type: content_type(read.datacontenttype.as_deref(), &read.data)?,
        payload: payload(read.data),
        schema_version: version.map(|text| parse("schemaversion", &text)).transpose()?,
        time: time.map_or_else(|| ctx.now(), Timestamp::from_millis),
        traceparent: trace,
        cloudevent: Some(Box::new(identity)),
    })
}

/// What identifies the event, if it is not too long.
fn identity(read: &CloudEvent<'_>) -> Result<CloudEventIdentity, Problem> {
    for (field, text, max) in [
        ("id", &read.id, CLOUDEVENT_ID_LEN_MAX),
        ("source", &read.source, CLOUDEVENT_SOURCE_LEN_MAX),
    ] {
        if text.len() > max {
            let detail = format!("expected at most {max} bytes, got {}", text.len());
            return Err(Problem::field(field, detail));
        }
    }
    Ok(CloudEventIdentity { id: read.id.to_string(), source: read.source.to_string() })
}

/// The event's own id: the same for the same source and id, and for no other. Stable: receivers know
/// duplicates by it.
fn event_id(identity: &CloudEventIdentity) -> EventId {
    let mut context = Context::new(&SHA256);
    // With its length, so that no other source and id make the same bytes.
    context.update(&(identity.source.len() as u64).to_be_bytes());
    context.update(identity.source.as_bytes());
    context.update(identity.id.as_bytes());
    let digest = context.finish();
    let hex: String = digest.as_ref()[..24].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("ce_{hex}").parse().expect("letters, digits and `_` are an event id")
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn id_of(source: &str, id: &str) -> String {
        event_id(&CloudEventIdentity { id: id.to_owned(), source: source.to_owned() }).to_string()
    }

    #[test]
    fn an_event_id_is_made_of_source_and_id_and_stays_as_it_is() {
        let stable = "ce_cee1e2e6e41ad231d7c5e299a68fb49a87a783dd9008507f";
        assert_eq!(id_of("/shop", "order-1"), stable);
        for (source, id) in [("/shop", "order-2"), ("/other", "order-1"), ("/shopo", "rder-1")] {
            assert_ne!(id_of(source, id), stable, "{source} {id}");
        }
    }
}
