//! Answers to malformed or incomplete HTTP/1 requests.

use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, StatusCode};
use railpost_api::{Code, Problem, with_security_headers};
use railpost_engine::Span;

use crate::limits::{REQUEST_HEAD_LEN_MAX, REQUEST_HEADERS_MAX};

/// Why a head was refused, by the bare answer that hyper gave to it and by what came.
pub(super) fn unreadable(bare: &[u8], head: &[u8]) -> Problem {
    let status = bare.get(9..12).and_then(|code| StatusCode::from_bytes(code).ok());
    match status {
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG) => too_large(),
        _ if names_other_version(head) => {
            let detail = "expected HTTP/1.0, HTTP/1.1 or HTTP/2";
            Problem::new(Code::UnsupportedHttpVersion, detail)
        }
        _ => Problem::new(Code::MalformedRequest, "the request is not valid HTTP"),
    }
}

/// A head that is larger than one may be.
pub(super) fn too_large() -> Problem {
    let detail = format!(
        "expected a head of at most {REQUEST_HEAD_LEN_MAX} bytes and {REQUEST_HEADERS_MAX} \
         header fields"
    );
    Problem::new(Code::HeadTooLarge, detail)
}

/// A head that did not end in time.
pub(super) fn too_slow(limit: Span) -> Problem {
    let detail = format!("the head of the request did not arrive within {limit}");
    Problem::new(Code::RequestTimeout, detail)
}

fn names_other_version(head: &[u8]) -> bool {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).find(|line| !line.is_empty());
    let version = line.and_then(|line| line.rsplit(|byte| *byte == b' ').next());
    let number = version.and_then(|version| version.strip_prefix(b"HTTP/"));
    number.is_some_and(|number| !number.is_empty() && !matches!(number, b"1.0" | b"1.1"))
}

/// A problem as the last answer of an HTTP/1 connection.
pub(super) fn last_answer(problem: Problem) -> Vec<u8> {
    use axum::response::IntoResponse;
    let body = serde_json::to_vec(&problem.view()).unwrap_or_default();
    let mut response = with_security_headers(problem.into_response());
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CONTENT_LENGTH, body.len().into());
    let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    bytes
}
