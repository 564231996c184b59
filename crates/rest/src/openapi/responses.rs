//! The responses of operations: success and errors.

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, StatusCode};
use schemars::Schema;
use serde_json::{Map, Value, json};

use crate::needs::Needs;
use crate::operation::{HandlerTypes, Operation};
use crate::problem::Code;

/// What is said of an answer whose meaning is missing. A test finds it.
pub const UNSAID: &str = "Success.";

/// The answers of one operation.
pub(super) fn responses(operation: &Operation, handler: &HandlerTypes) -> Value {
    let mut responses = Map::new();
    for answer in &handler.answers {
        let about = answer.about.or(operation.meaning);
        let mut response = json!({ "description": about.unwrap_or(UNSAID) });
        if let Some((kind, schema)) = &answer.content {
            response["content"] = json!({ *kind: { "schema": schema } });
        }
        if handler.repeatable && operation.method != Method::GET {
            response["headers"] = json!({ "Idempotency-Replayed": REPLAYED.to_json() });
        }
        responses.insert(answer.status.as_str().to_owned(), response);
    }
    for status in refusals(operation, handler) {
        let name = component(status);
        let refusal = json!({ "$ref": format!("#/components/responses/{name}") });
        responses.entry(status.as_str()).or_insert(refusal);
    }
    responses.into()
}

/// With which statuses an operation refuses or fails.
fn refusals(operation: &Operation, handler: &HandlerTypes) -> BTreeSet<StatusCode> {
    let keyed = operation.needs != Needs::Nothing;
    let scoped = keyed && operation.needs != Needs::AnyKey;
    let (mutates, reads) = (operation.method != Method::GET, !handler.body.is_empty());
    let possible = [
        (true, StatusCode::BAD_REQUEST),
        (true, StatusCode::INTERNAL_SERVER_ERROR),
        (true, StatusCode::SERVICE_UNAVAILABLE),
        (keyed, StatusCode::UNAUTHORIZED),
        (keyed, StatusCode::TOO_MANY_REQUESTS),
        (scoped, StatusCode::FORBIDDEN),
        (operation.path.contains('{'), StatusCode::NOT_FOUND),
        (mutates, StatusCode::CONFLICT),
        (mutates, StatusCode::REQUEST_TIMEOUT),
        (mutates, StatusCode::PAYLOAD_TOO_LARGE),
        (reads, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (reads, StatusCode::UNPROCESSABLE_ENTITY),
    ];
    let general = possible.into_iter().filter(|(possible, _)| *possible).map(|(_, status)| status);
    general.chain(operation.refusals.iter().copied()).collect()
}

/// The answers that refuse or fail, by name: each with the codes that have its status.
pub(super) fn problems(problem: &Schema) -> Value {
    let mut by_status: BTreeMap<StatusCode, Vec<Code>> = BTreeMap::new();
    for code in Code::ALL {
        by_status.entry(code.status()).or_default().push(*code);
    }
    let one = |(status, codes): (StatusCode, Vec<Code>)| {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{}`", code.as_str())).collect();
        let mut response = json!({
            "description": format!("{} Code: {}.", cause(status), codes.join(", ")),
            "content": { "application/problem+json": { "schema": problem } },
        });
        let headers: Map<String, Value> = headers(status)
            .iter()
            .map(|header| (header.name.to_owned(), header.to_json()))
            .collect();
        if !headers.is_empty() {
            response["headers"] = headers.into();
        }
        (component(status), response)
    };
    by_status.into_iter().map(one).collect()
}

/// Why a request gets this status, and what became of it.
fn cause(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => {
            "The body is not JSON, or a parameter or a header is invalid. Nothing was done."
        }
        StatusCode::UNAUTHORIZED => "The API key is missing, unknown, expired or revoked.",
        StatusCode::FORBIDDEN => "The scope of the API key does not allow this operation.",
        StatusCode::NOT_FOUND => {
            "The path or the object does not exist, or it belongs to another tenant."
        }
        StatusCode::METHOD_NOT_ALLOWED => "The path does not have this method.",
        StatusCode::REQUEST_TIMEOUT => {
            "The client took too long to send the request. Nothing was done; send it again."
        }
        StatusCode::CONFLICT => {
            "The request contradicts what is stored, or another request with the same `Idempotency-Key`. \
             Nothing was done. If the answer has `Retry-After`, a retry may succeed."
        }
        StatusCode::GONE => "The signed URL has expired. A new attempt carries a new one.",
        StatusCode::PAYLOAD_TOO_LARGE => {
            "The body has more bytes than this operation allows. Nothing was done."
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "This operation does not take this `Content-Type`. Nothing was done."
        }
        StatusCode::UNPROCESSABLE_ENTITY => {
            "A field of the body is invalid, or a limit is reached. Nothing was done."
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "There were too many requests, or too much waits already. Nothing was done; send the request again \
             after `Retry-After`."
        }
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "The head of the request is too large.",
        StatusCode::INTERNAL_SERVER_ERROR => {
            "A stored value could not be read, or Railpost has a defect. `detail` says which."
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "The store cannot be read or written at the moment, or the server is stopping. The change may have been \
             made: send the same request again after `Retry-After`, with the same event id or `Idempotency-Key`."
        }
        StatusCode::HTTP_VERSION_NOT_SUPPORTED => "The server does not speak this version of HTTP.",
        other => reason(other),
    }
}

/// A status in HTTP's own words.
fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or_default()
}

/// The name of the answer with this status: `NotFound`.
fn component(status: StatusCode) -> String {
    reason(status).replace(' ', "")
}

/// A header of an answer.
struct AnswerHeader {
    name: &'static str,
    about: &'static str,
    required: bool,
    pattern: &'static str,
}

impl AnswerHeader {
    fn to_json(&self) -> Value {
        json!({
            "description": self.about,
            "required": self.required,
            "schema": { "type": "string", "pattern": self.pattern },
        })
    }
}

const REPLAYED: AnswerHeader = AnswerHeader {
    name: "Idempotency-Replayed",
    about: "`true` if this answer was given before, to the first request with the same `Idempotency-Key`.",
    required: false,
    pattern: "^true$",
};

const RETRY_AFTER: AnswerHeader = AnswerHeader {
    name: "Retry-After",
    about: "Seconds to wait before a retry.",
    required: false,
    pattern: "^[1-9][0-9]*$",
};

const WWW_AUTHENTICATE: AnswerHeader = AnswerHeader {
    name: "WWW-Authenticate",
    about: "How to send an API key.",
    required: true,
    pattern: "^Bearer$",
};

const ALLOW: AnswerHeader = AnswerHeader {
    name: "Allow",
    about: "The methods that the path has.",
    required: true,
    pattern: "^[A-Z]+(, [A-Z]+)*$",
};

/// The headers of answers that refuse or fail.
fn headers(status: StatusCode) -> &'static [AnswerHeader] {
    match status {
        StatusCode::UNAUTHORIZED => &[WWW_AUTHENTICATE],
        StatusCode::METHOD_NOT_ALLOWED => &[ALLOW],
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            &[RETRY_AFTER]
        }
        _ => &[],
    }
}
