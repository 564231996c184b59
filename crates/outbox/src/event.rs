//! An event before it is written: checked by the rules of `wire`, so that it is refused where it was made.

use railpost_wire::limits::PAYLOAD_LEN_MAX;
use railpost_wire::{ContentType, EventId, EventType, Key, TenantId, TraceParent};
use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// First millisecond of the year 10000: later times have no RFC 3339 form.
const UNIX_MS_END: u64 = 253_402_300_800_000;

/// An event that Railpost accepts, but for what only the server knows: whether the tenant exists and
/// whether the payload fits the schema of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    event_type: EventType,
    payload: Payload,
    key: Option<Key>,
    /// The text of an [`EventId`].
    id: Option<String>,
    tenant: Option<TenantId>,
    content_type: ContentType,
    schema_version: Option<u32>,
    unix_ms: Option<i64>,
    traceparent: Option<String>,
    strict: bool,
}

/// A payload, by the column of PostgreSQL that can hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Payload {
    /// UTF-8 without NUL.
    Text(String),
    Bytes(Vec<u8>),
}

impl Event {
    /// Begins an event of this type with this payload, which receivers get byte for byte. It is JSON unless
    /// [`EventBuilder::content_type`] says otherwise.
    #[allow(clippy::new_ret_no_self, reason = "an event is finished by `EventBuilder::build`")]
    pub fn new(event_type: impl Into<String>, payload: impl Into<Vec<u8>>) -> EventBuilder {
        EventBuilder {
            event_type: event_type.into(),
            payload: payload.into(),
            key: None,
            id: None,
            tenant: None,
            content_type: None,
            schema_version: None,
            time: None,
            traceparent: None,
            strict: false,
        }
    }

    /// What the statements of [`crate::sql`] take as parameters.
    pub fn parameters(&self) -> Parameters<'_> {
        let (payload, payload_bytes) = match &self.payload {
            Payload::Text(text) => (Some(text.as_str()), None),
            Payload::Bytes(bytes) => (None, Some(bytes.as_slice())),
        };
        Parameters {
            event_type: self.event_type.as_str(),
            payload,
            key: self.key.as_ref().map(Key::as_str),
            id: self.id.as_deref(),
            tenant: self.tenant.as_ref().map(TenantId::as_str),
            content_type: self.content_type.as_str(),
            schema_version: self.schema_version.map(i64::from),
            unix_ms: self.unix_ms,
            traceparent: self.traceparent.as_deref(),
            payload_bytes,
            strict: self.strict,
        }
    }
}

/// The parameters of [`crate::sql::POSTGRES_EMIT`], in their order. [`crate::sql::POSTGRES_INSERT`] takes
/// all but the last; [`crate::sql::SQLITE_INSERT`] all but the last two, and either payload as its second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'a> {
    /// `$1`.
    pub event_type: &'a str,
    /// `$2`, if it is UTF-8 without NUL.
    pub payload: Option<&'a str>,
    /// `$3`.
    pub key: Option<&'a str>,
    /// `$4`. The database makes one if there is none.
    pub id: Option<&'a str>,
    /// `$5`. Only where the source takes the tenant from a column.
    pub tenant: Option<&'a str>,
    /// `$6`.
    pub content_type: &'a str,
    /// `$7`.
    pub schema_version: Option<i64>,
    /// `$8`: when it happened, in milliseconds since 1970. The database's clock if there is none.
    pub unix_ms: Option<i64>,
    /// `$9`.
    pub traceparent: Option<&'a str>,
    /// `$10`, if it is no text.
    pub payload_bytes: Option<&'a [u8]>,
    /// `$11`.
    pub strict: bool,
}

/// An event that is not checked yet.
#[derive(Clone, Debug)]
#[must_use = "an event is made by `build`"]
pub struct EventBuilder {
    event_type: String,
    payload: Vec<u8>,
    key: Option<String>,
    id: Option<String>,
    tenant: Option<String>,
    content_type: Option<String>,
    schema_version: Option<u32>,
    time: Option<SystemTime>,
    traceparent: Option<String>,
    strict: bool,
}

impl EventBuilder {
    /// What orders it: events with the same key arrive one after the other. 1 to 256 bytes, no NUL.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Its id, by which duplicates are known: 1 to 64 letters, digits, `_`, `-` and `:`. The database makes
    /// one if this is not called.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// Whose event it is. Only where the source's configuration takes the tenant from the column.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The media type of its payload, at most 256 characters; `application/json` if this is not called.
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: Some(content_type.into()), ..self }
    }

    /// The version of its type's schema.
    pub fn schema_version(self, version: u32) -> Self {
        Self { schema_version: Some(version), ..self }
    }

    /// When it happened, from 1970 to 9999. Finer than a millisecond is cut off. The database's clock if
    /// this is not called.
    pub fn time(self, time: SystemTime) -> Self {
        Self { time: Some(time), ..self }
    }

    /// The trace it belongs to, as W3C Trace Context writes it: at most 128 characters.
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }

    /// Makes strict events of the same key wait for each other's commit, so that their order is that of the
    /// commits even where the event is not written last. PostgreSQL only; SQLite has one writer anyway.
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Checks all fields. The error names the first that is invalid, what it has and what it may have.
    pub fn build(self) -> Result<Event, InvalidEvent> {
        check_id(self.id.as_deref())?;
        check_traceparent(self.traceparent.as_deref())?;
        Ok(Event {
            event_type: parse("type", &self.event_type)?,
            payload: payload(self.payload)?,
            key: self.key.as_deref().map(key).transpose()?,
            id: self.id,
            tenant: self.tenant.as_deref().map(|text| parse("tenant", text)).transpose()?,
            content_type: match &self.content_type {
                Some(text) => parse("content_type", text)?,
                None => ContentType::JSON,
            },
            schema_version: self.schema_version,
            unix_ms: self.time.map(unix_ms).transpose()?,
            traceparent: self.traceparent,
            strict: self.strict,
        })
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(
    field: &'static str,
    text: &str,
) -> Result<T, InvalidEvent> {
    text.parse().map_err(|problem: T::Err| InvalidEvent { field, problem: problem.to_string() })
}

fn check_id(id: Option<&str>) -> Result<(), InvalidEvent> {
    id.map_or(Ok(()), |id| parse::<EventId>("id", id).map(|_| ()))
}

fn check_traceparent(traceparent: Option<&str>) -> Result<(), InvalidEvent> {
    traceparent.map_or(Ok(()), |text| parse::<TraceParent>("traceparent", text).map(|_| ()))
}

/// A NUL is fine on the wire, but no text of PostgreSQL can hold one.
fn key(text: &str) -> Result<Key, InvalidEvent> {
    if text.contains('\0') {
        let problem = "expected a key without NUL, which PostgreSQL cannot hold".to_owned();
        return Err(InvalidEvent { field: "key", problem });
    }
    parse("key", text)
}

fn payload(bytes: Vec<u8>) -> Result<Payload, InvalidEvent> {
    if bytes.len() > PAYLOAD_LEN_MAX {
        let problem = format!("expected at most {PAYLOAD_LEN_MAX} bytes; got {}", bytes.len());
        return Err(InvalidEvent { field: "payload", problem });
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Payload::Text(text),
        Ok(text) => Payload::Bytes(text.into_bytes()),
        Err(no_text) => Payload::Bytes(no_text.into_bytes()),
    })
}

fn unix_ms(time: SystemTime) -> Result<i64, InvalidEvent> {
    let since_1970 = time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_millis());
    let in_range = since_1970.filter(|&ms| ms < u128::from(UNIX_MS_END));
    in_range.and_then(|ms| i64::try_from(ms).ok()).ok_or_else(|| {
        let problem = "expected a time from 1970 to 9999".to_owned();
        InvalidEvent { field: "time", problem }
    })
}

/// An event that Railpost would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEvent {
    field: &'static str,
    problem: String,
}

impl InvalidEvent {
    /// The field that is invalid, by its column's name.
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for InvalidEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid field `{}`: {}", self.field, self.problem)
    }
}

impl std::error::Error for InvalidEvent {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_error_names_the_field_and_its_bound() {
        let event = || Event::new("order.paid", "{}");
        let before_1970 = UNIX_EPOCH - Duration::from_secs(1);
        for (built, expected) in [
            (
                Event::new("order paid", "{}").build(),
                "invalid field `type`: expected an event type",
            ),
            (
                Event::new("a", vec![b'x'; PAYLOAD_LEN_MAX + 1]).build(),
                "invalid field `payload`: expected at most 1048576 bytes; got 1048577",
            ),
            (event().key("").build(), "invalid field `key`: expected a key of 1 to 256 bytes"),
            (event().key("a\0").build(), "invalid field `key`: expected a key without NUL"),
            (event().id("a.b").build(), "invalid field `id`: expected an event id of 1 to 64"),
            (event().tenant("Acme").build(), "invalid field `tenant`: expected a tenant id of 1"),
            (
                event().content_type("json").build(),
                "invalid field `content_type`: expected a media",
            ),
            (event().time(before_1970).build(), "invalid field `time`: expected a time from 1970"),
            (event().traceparent("00-1").build(), "invalid field `traceparent`: expected a trace"),
        ] {
            let message = built.unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_payload_goes_to_the_column_that_can_hold_it() {
        for (payload, is_text) in [(&b"{}"[..], true), (b"a\0", false), (b"\xff", false)] {
            let event = Event::new("a", payload).build().unwrap();
            let parameters = event.parameters();
            assert_eq!(parameters.payload.map(str::as_bytes), is_text.then_some(payload));
            assert_eq!(parameters.payload_bytes, (!is_text).then_some(payload));
        }
    }

    #[test]
    fn a_time_is_cut_to_milliseconds() {
        for (time, expected) in [
            (UNIX_EPOCH, Some(0)),
            (UNIX_EPOCH + Duration::from_micros(1_999), Some(1)),
            (UNIX_EPOCH + Duration::from_millis(UNIX_MS_END - 1), Some(253_402_300_799_999)),
            (UNIX_EPOCH + Duration::from_millis(UNIX_MS_END), None),
        ] {
            let event = Event::new("a", "1").time(time).build().ok();
            assert_eq!(event.and_then(|event| event.parameters().unix_ms), expected);
        }
    }
}
