//! The body of a request.

use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use railpost_engine::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::limits::{DISCARDED_LEN_MAX, SMALL_BODY_LEN_MAX, UNASKED_LEN_MAX};
use crate::problem::{Code, Problem};
use crate::strict::Strict;

/// How large a body may be that holds events, and how long its client may take to send one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Bytes of a body that holds events.
    pub events_len_max: usize,
    /// How long a client may take to send a body.
    pub timeout: Span,
}

/// Reads a request's body.
pub trait FromBody: Sized + Send + 'static {
    /// Whether a request with such a body can be known again when it is repeated.
    const REPEATABLE: bool = true;

    /// Reads it; the bytes come along if there is a bounded number of them, so that a repeated
    /// request can be told from another one.
    fn from_body(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> impl Future<Output = Result<(Self, Option<Bytes>), Problem>> + Send;

    /// Content types and the schema of each, for the specification.
    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)>;
}

/// No body is needed. A short one that comes is thrown away; a long one is not read, and HTTP/1 closes the
/// connection behind the answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBody;

impl FromBody for NoBody {
    async fn from_body(
        limits: BodyLimits,
        _: &Parts,
        mut body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        let is_short = body.size_hint().upper().is_some_and(|len| len <= UNASKED_LEN_MAX);
        if !body.is_end_stream() && is_short {
            let discarding = discard(&mut body);
            tokio::time::timeout(Duration::from(limits.timeout), discarding)
                .await
                .map_err(|_| too_slow(limits))?;
        }
        Ok((NoBody, Some(Bytes::new())))
    }

    fn describe(_: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        Vec::new()
    }
}

/// JSON. Errors name the field. An empty body is an empty object: a request may leave out all that
/// it may leave out.
#[derive(Clone, Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> FromBody for JsonBody<T> {
    async fn from_body(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        check_media_type(parts, &["application/json"])?;
        let bytes = read(limits, body, SMALL_BODY_LEN_MAX).await?;
        let value = parse_json(if bytes.is_empty() { b"{}" } else { &bytes })?;
        Ok((JsonBody(value), Some(bytes)))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        vec![("application/json", schemas.subschema_for::<T>())]
    }
}

/// Refuses a body that says to be of another type than these.
pub fn check_media_type(parts: &Parts, known: &[&str]) -> Result<(), Problem> {
    let got = media_type(parts);
    if got.is_empty() || known.iter().any(|kind| got.eq_ignore_ascii_case(kind)) {
        return Ok(());
    }
    Err(unsupported(parts, &known.join(" or ")))
}

/// Reads JSON; the error says which field was wrong and how. Looking for the field costs, so that is
/// done only when there is an error to explain.
pub fn parse_json<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    read_json(bytes).map_err(|error| {
        let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
        match serde_path_to_error::deserialize::<_, T>(Strict(deserializer)) {
            Err(found) => json_problem(found.path().to_string(), found.inner()),
            Ok(_) => json_problem(String::new(), &error),
        }
    })
}

/// The same for JSON that was read already.
pub fn from_value<T: DeserializeOwned>(value: &serde_json::Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(Strict(value))
        .map_err(|found| json_problem(found.path().to_string(), found.inner()))
}

fn read_json<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Strict(&mut deserializer))?;
    deserializer.end()?;
    Ok(value)
}

fn json_problem(field: String, error: &serde_json::Error) -> Problem {
    if !error.is_data() {
        return Problem::new(Code::MalformedBody, format!("expected JSON: {error}"));
    }
    let field = Some(field).filter(|field| field != "." && !field.is_empty());
    Problem { field, ..Problem::new(Code::InvalidField, error.to_string()) }
}

/// The media type that a request says its body has, without parameters; empty if it says none.
pub fn media_type(parts: &Parts) -> &str {
    let value = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// The body says to be of a type that the operation does not take.
pub fn unsupported(parts: &Parts, expected: &str) -> Problem {
    let got = media_type(parts);
    let detail = format!("expected a body of type {expected}; got `{got}`");
    Problem {
        field: Some("content-type".to_owned()),
        ..Problem::new(Code::UnsupportedMediaType, detail)
    }
}

/// Reads a body whole, within a bound of bytes and of time.
pub async fn read(limits: BodyLimits, mut body: Body, len_max: usize) -> Result<Bytes, Problem> {
    let timeout = Duration::from(limits.timeout);
    let collecting = Limited::new(&mut body, len_max).collect();
    let collected = tokio::time::timeout(timeout, collecting).await;
    let collected = collected.map_err(|_| too_slow(limits))?;
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let _ = tokio::time::timeout(timeout, discard(&mut body)).await;
            let detail = format!("expected a body of at most {len_max} bytes");
            Err(Problem::new(Code::TooLarge, detail))
        }
        Err(error) => {
            Err(Problem::new(Code::MalformedBody, format!("the body ended early: {error}")))
        }
    }
}

/// Reads on for a while: a client that is still sending when the connection is closed does not see the answer.
async fn discard(body: &mut Body) {
    let mut len = 0;
    while len < DISCARDED_LEN_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        len += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// The client took too long to send its body.
pub fn too_slow(limits: BodyLimits) -> Problem {
    let BodyLimits { timeout, .. } = limits;
    Problem::new(Code::RequestTimeout, format!("the body did not arrive within {timeout}"))
}
