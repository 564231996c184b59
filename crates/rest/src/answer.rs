//! The successful answers of routes.

use std::marker::PhantomData;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// An answer, and what the specification says of it.
pub trait Answer: Sized + Send + 'static {
    /// Its status.
    const STATUS: StatusCode;

    /// What the specification says of it.
    fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer>;

    /// Its body, as it is stored for when the request comes again.
    fn to_bytes(&self) -> Bytes;

    /// The response with it.
    fn into_response(self) -> Response {
        response(Self::STATUS, self.to_bytes())
    }
}

/// One answer of an operation, as the specification has it.
#[derive(Clone, Debug)]
pub struct DescribedAnswer {
    /// Its status.
    pub status: StatusCode,
    /// What it means to the caller, where the operation alone does not tell.
    pub about: Option<&'static str>,
    /// Its content type and schema; nothing when it has no body.
    pub content: Option<(&'static str, Schema)>,
}

impl DescribedAnswer {
    /// One with a body of this content type.
    pub fn of(status: StatusCode, kind: &'static str, schema: Schema) -> Self {
        Self { status, about: None, content: Some((kind, schema)) }
    }

    /// One whose body is a `T` in JSON.
    pub fn json<T: JsonSchema>(schemas: &mut SchemaGenerator, status: StatusCode) -> Self {
        Self::of(status, "application/json", schemas.subschema_for::<T>())
    }
}

/// The response with this status and JSON.
pub fn response(status: StatusCode, body: Bytes) -> Response {
    // With room for what every answer carries, so that the map never grows.
    let mut headers = HeaderMap::with_capacity(2 + HEADERS.len());
    if !body.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

macro_rules! json_answers {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:ident;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug)]
            pub struct $name<T>(pub T);

            impl<T: Serialize + JsonSchema + Send + 'static> Answer for $name<T> {
                const STATUS: StatusCode = StatusCode::$status;

                fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
                    vec![DescribedAnswer::json::<T>(schemas, Self::STATUS)]
                }

                fn to_bytes(&self) -> Bytes {
                    serde_json::to_vec(&self.0).expect("what the API answers is JSON").into()
                }
            }
        )+
    };
}

json_answers! {
    /// 200 and JSON.
    Json = OK;
    /// 201 and JSON.
    Created = CREATED;
    /// 202 and JSON.
    Accepted = ACCEPTED;
}

/// 204: it is done, and there is nothing to say.
#[derive(Clone, Copy, Debug)]
pub struct NoContent;

impl Answer for NoContent {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn describe(_: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        vec![DescribedAnswer { status: Self::STATUS, about: None, content: None }]
    }

    fn to_bytes(&self) -> Bytes {
        Bytes::new()
    }
}

/// An answer that is not JSON, or whose status depends: it is given as it is and never stored. `M` says what the
/// specification says of it.
pub struct RawResponse<M> {
    response: Response,
    media: PhantomData<fn() -> M>,
}

/// What the specification says of an answer that is given as it is.
pub trait Media: Send + 'static {
    /// The answers it may be.
    fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer>;
}

impl<M> RawResponse<M> {
    /// This response.
    pub fn new(response: Response) -> Self {
        Self { response, media: PhantomData }
    }
}

impl<M: Media> Answer for RawResponse<M> {
    const STATUS: StatusCode = StatusCode::OK;

    fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        M::describe(schemas)
    }

    fn to_bytes(&self) -> Bytes {
        Bytes::new()
    }

    fn into_response(self) -> Response {
        self.response
    }
}

macro_rules! texts {
    ($($(#[doc = $doc:literal])+ $name:ident = $kind:literal;)+) => {
        $(
            $(#[doc = $doc])+
            pub struct $name;

            impl Media for $name {
                fn describe(_: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
                    let text = schemars::json_schema!({ "type": "string" });
                    vec![DescribedAnswer::of(StatusCode::OK, $kind, text)]
                }
            }
        )+
    };
}

texts! {
    /// A page for people.
    HtmlPage = "text/html";
    /// How pages look.
    Stylesheet = "text/css";
    /// Metrics.
    PrometheusText = "text/plain";
}

/// The bytes of an event, of whatever type they are.
pub struct Payload;

impl Media for Payload {
    fn describe(_: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        vec![DescribedAnswer::of(StatusCode::OK, "*/*", schemars::json_schema!({}))]
    }
}

/// Headers that every answer carries, unless a page says otherwise: nothing is cached, sniffed, framed,
/// run or referred to.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (
        http::header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (http::header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (http::header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// The answer with the headers that every answer carries.
pub fn with_security_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}
