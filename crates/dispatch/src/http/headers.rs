//! Header fields: those an endpoint adds itself, and the names that all its requests share.

use std::fmt;

use ::http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use ::http::{HeaderName, HeaderValue};
use railpost_wire::{Header, HeaderNames};

use crate::limits::{CUSTOM_HEADERS_LEN_MAX, CUSTOM_HEADERS_MAX};

/// The static headers of one endpoint: valid, few, and none that the request needs itself.
#[derive(Clone, Debug, Default)]
pub struct CustomHeaders(Vec<(HeaderName, HeaderValue)>);

impl CustomHeaders {
    /// Checks the headers that an endpoint's owner chose, for an endpoint with these names.
    ///
    /// A name may come more than once. `User-Agent` replaces the sender's own.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (N, V)>,
        names: &HeaderNames,
    ) -> Result<Self, BadHeader> {
        let mut headers = Vec::new();
        let mut len = 0;
        for (name, value) in pairs {
            let (name, value) = (name.as_ref(), value.as_ref());
            len += name.len() + value.len();
            if headers.len() == CUSTOM_HEADERS_MAX || len > CUSTOM_HEADERS_LEN_MAX {
                return Err(BadHeader::new(
                    name,
                    "is one too many, or too long together with the others",
                ));
            }
            headers.push((custom_name(name, names)?, custom_value(name, value)?));
        }
        Ok(Self(headers))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

fn custom_name(name: &str, names: &HeaderNames) -> Result<HeaderName, BadHeader> {
    let parsed = parse_name(name)?;
    let is_ours = Header::ALL.into_iter().any(|header| parsed == *names.name(header));
    if is_ours || is_reserved(&parsed) {
        return Err(BadHeader::new(name, "is set by railpost itself"));
    }
    Ok(parsed)
}

/// It may well be a credential, so it stays out of debug output and compression tables.
fn custom_value(name: &str, value: &str) -> Result<HeaderValue, BadHeader> {
    let is_visible = value.bytes().all(|c| c.is_ascii_graphic() || c == b' ' || c == b'\t');
    let parsed = is_visible.then(|| HeaderValue::from_str(value).ok()).flatten();
    let mut value = parsed.ok_or_else(|| BadHeader::new(name, VALUE_PROBLEM))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Fields that frame the request, route it, describe its body or belong to its trace.
fn is_reserved(name: &HeaderName) -> bool {
    const STANDARD: [HeaderName; 10] = [
        CONNECTION,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_TYPE,
        EXPECT,
        HOST,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    const OTHER: [&str; 4] = ["keep-alive", "http2-settings", "traceparent", "tracestate"];
    STANDARD.contains(name)
        || OTHER.contains(&name.as_str())
        || name.as_str().starts_with("proxy-")
        || name.as_str().starts_with("ce-")
}

/// The names of the headers that Railpost sends itself, as an endpoint has them, parsed once.
#[derive(Debug)]
pub(super) struct RailpostHeaderNames([HeaderName; Header::ALL.len()]);

impl RailpostHeaderNames {
    pub(super) fn new(names: &HeaderNames) -> Self {
        Self(Header::ALL.map(|header| {
            HeaderName::from_bytes(names.name(header).as_bytes()).expect("it was checked")
        }))
    }

    pub(super) fn get(&self, header: Header) -> &HeaderName {
        &self.0[header as usize]
    }
}

pub(super) fn parse_name(name: &str) -> Result<HeaderName, BadHeader> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| BadHeader::new(name, "is no header name"))
}

/// The value of an attempt's own header.
pub(super) fn parse_value(name: &str, value: String) -> Result<HeaderValue, BadHeader> {
    HeaderValue::try_from(value).map_err(|_| BadHeader::new(name, VALUE_PROBLEM))
}

const VALUE_PROBLEM: &str = "has a value with a line break or another character no header takes";

/// A header field that no request can have. It shows no value: that may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadHeader {
    /// The name it was given.
    pub name: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl BadHeader {
    fn new(name: &str, problem: &'static str) -> Self {
        Self { name: name.into(), problem }
    }
}

impl fmt::Display for BadHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "header {:?} {}", self.name, self.problem)
    }
}

impl std::error::Error for BadHeader {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_custom_header_neither_breaks_the_request_nor_replaces_what_railpost_sets() {
        for (name, value, ok) in [
            ("Authorization", "Bearer abc", true),
            ("X-Team", "blue\tgreen", true),
            ("Cookie", "a=b", true),
            ("User-Agent", "custom/1", true),
            ("X-Empty", "", true),
            ("", "a", false),
            ("X Team", "a", false),
            ("X-Team:", "a", false),
            ("X-Team\r\nHost", "a", false),
            ("X-Täam", "a", false),
            ("X-Team", "a\r\nX-Other: b", false),
            ("X-Team", "a\nb", false),
            ("X-Team", "a\0b", false),
            ("X-Team", "\u{7f}", false),
            ("X-Team", "grün", false),
            ("Host", "internal", false),
            ("content-length", "0", false),
            ("Transfer-Encoding", "chunked", false),
            ("Connection", "close", false),
            ("Content-Type", "text/plain", false),
            ("Expect", "100-continue", false),
            ("Proxy-Authorization", "a", false),
            ("ce-id", "a", false),
            ("Traceparent", "a", false),
            ("Webhook-Signature", "v1,forged", false),
            ("x-seq", "1", false),
        ] {
            let headers = CustomHeaders::new([(name, value)], &HeaderNames::default());
            assert_eq!(headers.is_ok(), ok, "{name:?}: {value:?}");
        }
    }

    #[test]
    fn a_renamed_header_is_taken_under_its_new_name_alone() {
        let names = HeaderNames::renamed([(Header::XSeq, "X-Order".to_owned())]).unwrap();
        assert!(CustomHeaders::new([("x-order", "1")], &names).is_err());
        assert!(CustomHeaders::new([("x-seq", "1")], &names).is_ok());
    }

    #[test]
    fn custom_headers_are_few_and_short() {
        let names = HeaderNames::default();
        let many = |count| CustomHeaders::new((0..count).map(|_| ("x-a", "b")), &names);
        assert!(many(CUSTOM_HEADERS_MAX).is_ok());
        assert!(many(CUSTOM_HEADERS_MAX + 1).is_err());
        let long = "a".repeat(CUSTOM_HEADERS_LEN_MAX);
        assert!(CustomHeaders::new([("x-a", &*long)], &names).is_err());
        assert!(CustomHeaders::new([("x-a", &long[3..])], &names).is_ok());
    }
}
