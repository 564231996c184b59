//! The errors of the API: the one place with their codes, titles and HTTP statuses.

use std::fmt;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use railpost_dispatch::{ProbeRefused, Stopped};
use railpost_engine::{IgnoredReason, PolicyError, Span};
use railpost_schema::{Rejection, ThreadError};
use railpost_store::StoreError;
use schemars::JsonSchema;
use serde::Serialize;

use crate::limits::RETRY_AFTER_DEFAULT;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $status:ident, $title:literal;)+) => {
        /// Why a request was refused or failed. Stable: clients act on it, and
        /// `docs/reference/errors.md` has a section for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Code] = &[$(Code::$name,)+];

            /// Its text in answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)+ }
            }

            /// The HTTP status that goes with it.
            pub fn status(self) -> StatusCode {
                match self { $(Code::$name => StatusCode::$status,)+ }
            }

            /// A line for people.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedBody = "malformed_body", BAD_REQUEST, "Malformed body";
    /// A field is missing, unknown, of the wrong type or out of bounds.
    InvalidField = "invalid_field", UNPROCESSABLE_ENTITY, "Invalid field";
    /// A parameter of the query or the path.
    InvalidParameter = "invalid_parameter", BAD_REQUEST, "Invalid parameter";
    /// A header.
    InvalidHeader = "invalid_header", BAD_REQUEST, "Invalid header";
    /// An event does not fit its type's schema.
    SchemaMismatch = "schema_mismatch", UNPROCESSABLE_ENTITY, "Payload does not match its schema";
    /// Validation could take more time or memory than is allowed.
    SchemaBudget = "schema_budget", UNPROCESSABLE_ENTITY, "Schema budget exceeded";
    /// The tenant publishes expensive payloads faster than they can be validated.
    ValidationBusy = "validation_busy", TOO_MANY_REQUESTS, "Too many validations";
    /// The API key is missing, unknown, expired or revoked.
    Unauthorized = "unauthorized", UNAUTHORIZED, "Unauthorized";
    /// The key's scope is too small.
    Forbidden = "forbidden", FORBIDDEN, "Forbidden";
    /// The tenant, or the name of the type, is the server's own.
    Reserved = "reserved", FORBIDDEN, "Reserved";
    /// The object is made of a section of the configuration file.
    Configured = "configured", CONFLICT, "Configured in the file";
    /// The object does not exist, or belongs to another tenant.
    NotFound = "not_found", NOT_FOUND, "Not found";
    /// The path is known, the method is not.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "Method not allowed";
    /// An object of that id exists, or the request contradicts it.
    Conflict = "conflict", CONFLICT, "Conflict";
    /// The object was changed in between.
    RevisionMismatch = "revision_mismatch", CONFLICT, "Revision mismatch";
    /// The state of the delivery, lane or job does not allow the action.
    WrongState = "wrong_state", CONFLICT, "Not allowed in this state";
    /// The idempotency key was used for another request.
    IdempotencyKeyReused = "idempotency_key_reused", CONFLICT, "Idempotency key reused";
    /// The first request with that idempotency key is still being worked on.
    IdempotencyInProgress = "idempotency_in_progress", CONFLICT, "Request in progress";
    /// A signed URL has expired.
    LinkExpired = "link_expired", GONE, "Link expired";
    /// The body is larger than allowed.
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "Request too large";
    /// The operation does not support the content type.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "Unsupported media type";
    /// The endpoint must sign, and no other secret of it stays valid.
    LastSecret = "last_secret", CONFLICT, "Last valid secret";
    /// No other admin key stays valid.
    LastAdminKey = "last_admin_key", CONFLICT, "Last admin key";
    /// A limit on the number or size of objects is reached.
    LimitReached = "limit_reached", UNPROCESSABLE_ENTITY, "Limit reached";
    /// The key exceeds its request rate, or its address sends too many unknown keys.
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests";
    /// The tenant has reached its limit of open deliveries.
    BacklogFull = "backlog_full", TOO_MANY_REQUESTS, "Backlog full";
    /// The request is not valid HTTP.
    MalformedRequest = "malformed_request", BAD_REQUEST, "Malformed request";
    /// The head of the request is too large.
    HeadTooLarge = "head_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE, "Request head too large";
    /// The request speaks a version of HTTP that this server does not.
    UnsupportedHttpVersion = "unsupported_http_version", HTTP_VERSION_NOT_SUPPORTED, "Unsupported HTTP version";
    /// The client took too long to send its request.
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT, "Request timeout";
    /// The store cannot be read or written at the moment.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "Store unavailable";
    /// One stored value could not be read.
    UnreadableValue = "unreadable_value", INTERNAL_SERVER_ERROR, "Stored value could not be read";
    /// The store has stopped for good: the process ends, and the next one recovers.
    StoreStopped = "store_stopped", SERVICE_UNAVAILABLE, "Store stopped";
    /// The server is about to stop.
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE, "Server is shutting down";
    /// A defect of Railpost.
    Internal = "internal", INTERNAL_SERVER_ERROR, "Internal error";
}

/// Why a request failed, as problem details of RFC 9457.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What kind of problem it is.
    pub code: Code,
    /// What was wrong, with the value, and what is allowed.
    pub detail: String,
    /// Which field, parameter or header, by its path.
    pub field: Option<String>,
    /// When asking again may help.
    pub retry_after: Option<Span>,
}

/// An error: problem details of RFC 9457.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemView<'a> {
    /// Where the documentation of its code is.
    #[serde(rename = "type")]
    kind: String,
    /// The kind of problem, in words.
    title: &'a str,
    /// The HTTP status.
    status: u16,
    /// The kind of problem. Stable.
    code: &'a str,
    /// The cause, with the value and the bound.
    detail: &'a str,
    /// The path of the field, parameter or header.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None }
    }

    /// An invalid field of the body.
    pub fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(Code::InvalidField, detail) }
    }

    /// An invalid parameter of the query or the path.
    pub fn parameter(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(name.into()), ..Self::new(Code::InvalidParameter, detail) }
    }

    /// An invalid header.
    pub fn header(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: Some(name.into()), ..Self::new(Code::InvalidHeader, detail) }
    }

    /// The object does not exist, or the caller may not know of it.
    pub fn not_found(what: &str, id: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("no such {what}: `{id}`"))
    }

    /// The same, about something inside what it was about: `events[3]` and `type` give
    /// `events[3].type`.
    #[must_use]
    pub fn within(self, prefix: &str) -> Self {
        let field = match self.field {
            Some(field) if field.starts_with('[') => format!("{prefix}{field}"),
            Some(field) => format!("{prefix}.{field}"),
            None => prefix.to_owned(),
        };
        Self { field: Some(field), ..self }
    }

    /// The same, with a word on when to come back.
    #[must_use]
    pub fn retry_after(self, span: Span) -> Self {
        Self { retry_after: Some(span), ..self }
    }

    /// Its form in JSON.
    pub fn view(&self) -> ProblemView<'_> {
        ProblemView {
            kind: format!("/docs/errors#{}", self.code.as_str()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            code: self.code.as_str(),
            detail: &self.detail,
            field: self.field.as_deref(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

impl std::error::Error for Problem {}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.view()).unwrap_or_default();
        let mut response = (self.code.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(span) = self.retry_after {
            let seconds = span.as_millis().div_ceil(1000).max(1);
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::Conflict { field, problem } => {
                let code = match field.as_str() {
                    "revision" => Code::RevisionMismatch,
                    _ => Code::Conflict,
                };
                Self { field: Some(field), ..Self::new(code, problem) }
            }
            StoreError::Invalid { field, problem } if field == "cursor" => {
                Self::parameter(field, problem)
            }
            StoreError::Invalid { field, problem } => out_of_bounds(&field, problem),
            StoreError::NotFound(_) => Self::new(Code::NotFound, text),
            StoreError::LastAdminKey => Self::new(Code::LastAdminKey, text),
            StoreError::BacklogFull { .. } => {
                Self::new(Code::BacklogFull, text).retry_after(RETRY_AFTER_DEFAULT)
            }
            StoreError::Repeated => {
                Self::new(Code::IdempotencyInProgress, text).retry_after(RETRY_AFTER_DEFAULT)
            }
            StoreError::Unavailable(_)
            | StoreError::Full(_)
            | StoreError::ReadOnly(_)
            | StoreError::Locked(_)
            | StoreError::Fenced { .. } => {
                Self::new(Code::StoreUnavailable, text).retry_after(RETRY_AFTER_DEFAULT)
            }
            StoreError::Corrupt(problem) => {
                let detail = format!("{problem}; check the store with `railpost store verify`");
                Self::new(Code::UnreadableValue, detail)
            }
            StoreError::Stopped(_) => {
                Self::new(Code::StoreStopped, text).retry_after(RETRY_AFTER_DEFAULT)
            }
            StoreError::NewerSchema { .. }
            | StoreError::WrongMasterKey
            | StoreError::BothMasterKeysNeeded => Self::new(Code::StoreUnavailable, text),
        }
    }
}

/// The store names what it counts behind the field, such as `description (bytes)`: here that belongs
/// to the detail.
fn out_of_bounds(field: &str, problem: String) -> Problem {
    match field.split_once(" (") {
        Some((counted @ "running replays", unit)) => {
            Problem::new(Code::LimitReached, format!("{counted}: {problem} ({unit}"))
        }
        Some((field, unit)) => Problem::field(field, format!("{problem} ({unit}")),
        None => Problem::field(field, problem),
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        Self::field(error.field, error.problem)
    }
}

impl From<Stopped> for Problem {
    fn from(_: Stopped) -> Self {
        let detail = "the server is stopping; ask again in a moment";
        Self::new(Code::ShuttingDown, detail).retry_after(RETRY_AFTER_DEFAULT)
    }
}

impl From<ProbeRefused> for Problem {
    fn from(refused: ProbeRefused) -> Self {
        let code = match refused {
            ProbeRefused::InFlight | ProbeRefused::Unserved => Code::Conflict,
            ProbeRefused::TooMany => Code::RateLimited,
            ProbeRefused::Stopped => return Stopped.into(),
        };
        Self::new(code, refused.to_string()).retry_after(RETRY_AFTER_DEFAULT)
    }
}

impl From<IgnoredReason> for Problem {
    fn from(because: IgnoredReason) -> Self {
        let problem = Self::new(Code::WrongState, because.to_string());
        match because {
            IgnoredReason::NotLoaded => problem.retry_after(RETRY_AFTER_DEFAULT),
            _ => problem,
        }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let problem = match rejection {
            Rejection::Mismatch(_) => Problem::new(Code::SchemaMismatch, ""),
            Rejection::TooCostly(_) => Problem::new(Code::SchemaBudget, ""),
            Rejection::NotValidated(error) => error.into(),
        };
        let (field, detail) = rejection.into_parts();
        Problem { field: Some(field), detail, ..problem }
    }
}

impl From<ThreadError> for Problem {
    fn from(error: ThreadError) -> Self {
        let problem = |code| Problem::new(code, error.to_string());
        match error {
            ThreadError::Busy => problem(Code::ValidationBusy).retry_after(RETRY_AFTER_DEFAULT),
            ThreadError::Overran => problem(Code::SchemaBudget),
            ThreadError::Panicked => problem(Code::Internal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_read_is_named_and_nobody_is_told_to_restore() {
        let error = StoreError::Corrupt("delivery dlv_1: a seq: 0".to_owned());
        for text in [error.to_string(), Problem::from(error).detail] {
            assert!(text.contains("delivery dlv_1: a seq: 0"), "{text}");
            assert!(!text.contains("restore") && !text.contains("damaged"), "{text}");
        }
        let problem = Problem::from(StoreError::Corrupt(String::new()));
        assert_eq!(problem.code, Code::UnreadableValue);
        assert!(problem.detail.contains("railpost store verify"), "{problem}");
    }
}
