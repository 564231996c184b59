//! What a route answers when all went well.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

/// An answer, and what the specification says of it.
pub(crate) trait Answer: Sized + Send + 'static {
    const STATUS: StatusCode;

    /// Its content type and schema; nothing when it has no body.
    fn describe(schemas: &mut SchemaGenerator) -> Option<(&'static str, Schema)>;

    /// Its body, as it is stored for when the request comes again.
    fn to_bytes(&self) -> Bytes;

    fn into_response(self) -> Response {
        response(Self::STATUS, self.to_bytes())
    }
}

/// The response with this status and JSON.
pub(crate) fn response(status: StatusCode, body: Bytes) -> Response {
    // With room for what every answer carries, so that the map never grows.
    let mut headers = HeaderMap::with_capacity(2 + super::HEADERS.len());
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
            pub(crate) struct $name<T>(pub(crate) T);

            impl<T: Serialize + JsonSchema + Send + 'static> Answer for $name<T> {
                const STATUS: StatusCode = StatusCode::$status;

                fn describe(schemas: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
                    Some(("application/json", schemas.subschema_for::<T>()))
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
pub(crate) struct Done;

impl Answer for Done {
    const STATUS: StatusCode = StatusCode::NO_CONTENT;

    fn describe(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }

    fn to_bytes(&self) -> Bytes {
        Bytes::new()
    }
}

/// An answer that is not JSON, or whose status depends: it is given as it is and never stored.
pub(crate) struct Plain(pub(crate) Response);

impl Answer for Plain {
    const STATUS: StatusCode = StatusCode::OK;

    fn describe(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("*/*", schemars::json_schema!({})))
    }

    fn to_bytes(&self) -> Bytes {
        Bytes::new()
    }

    fn into_response(self) -> Response {
        self.0
    }
}
