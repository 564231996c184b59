//! CloudEvents as events of ours.
//!
//! | CloudEvents | ours |
//! |---|---|
//! | `id` | the id: 1 to 64 visible characters. It alone tells duplicates of a tenant apart, so two sources must not use the same one |
//! | `type` | the type |
//! | `partitionkey`, or else `subject` | the key |
//! | `time` | the time |
//! | `datacontenttype`, `data` | content type and payload, byte for byte |
//! | `schemaversion` | the schema's version, a whole number |
//! | `traceparent` | the trace |
//!
//! `source`, `dataschema` and other extensions are checked and not kept.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use bytes::Bytes;
use http::HeaderMap;
use railpost_engine::Timestamp;
use railpost_store::Event;
use railpost_wire::ContentType;
use railpost_wire::cloudevents::{BadCloudEvent, CloudEvent, Data};

use super::publish::{check_count, traceparent};
use crate::api::call::Ctx;
use crate::api::problem::Problem;

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
        id: parse("id", &read.id)?,
        event_type: parse("type", &read.event_type)?,
        key: key.map(|text| parse(key_field, &text)).transpose()?,
        content_type: content_type(read.datacontenttype.as_deref(), &read.data)?,
        payload: payload(read.data),
        schema_version: version.map(|text| parse("schemaversion", &text)).transpose()?,
        time: time.map_or_else(|| ctx.now(), Timestamp::from_millis),
        traceparent: trace,
    })
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
