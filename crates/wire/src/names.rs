//! What producers name: event types, filters over them, ordering keys, and content types.

use crate::limits::{CONTENT_TYPE_LEN_MAX, EVENT_TYPE_LEN_MAX, KEY_LEN_MAX};
use crate::percent;
use crate::text::{Unexpected, shared_text};
use std::fmt;
use std::{str::FromStr, sync::Arc};

/// The type of an event, such as `order.paid`: 1 to 128 characters, segments of ASCII letters, digits,
/// `_` and `-` with dots between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

shared_text!(EventType, {
    "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$",
    "maxLength": EVENT_TYPE_LEN_MAX,
    "description": "The type of an event, such as `order.paid`: segments of letters, digits, `_` and `-`, with dots \
                    between them."
});

impl FromStr for EventType {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if is_event_type(text) {
            return Ok(Self(text.into()));
        }
        let expected = "an event type of 1 to 128 characters such as `order.paid`: letters, digits, \
                        `_` and `-`, in segments with dots between them";
        Err(Unexpected::new(expected, text))
    }
}

fn is_event_type(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
    let is_segment = |segment: &str| !segment.is_empty() && segment.bytes().all(allowed);
    text.len() <= EVENT_TYPE_LEN_MAX && text.split('.').all(is_segment)
}

/// Which event types an endpoint wants: one exactly (`order.paid`), all below a prefix (`order.*`),
/// or all (`*`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTypeFilter(Arc<str>);

shared_text!(EventTypeFilter, {
    "pattern": r"^(\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?)$",
    "maxLength": EVENT_TYPE_LEN_MAX + ".*".len(),
    "anyOf": [{ "maxLength": EVENT_TYPE_LEN_MAX }, { "pattern": r"\.\*$" }],
    "description": "Event types: one, such as `order.paid`, all below a prefix, such as `order.*`, or `*` for all."
});

impl EventTypeFilter {
    /// Whether it lets `event_type` through. `order.*` takes `order.paid` and `order.item.added`,
    /// but not `order` and not `orders.paid`.
    pub fn matches(&self, event_type: &EventType) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => event_type.0.starts_with(prefix),
            None => self.0 == event_type.0,
        }
    }
}

impl FromStr for EventTypeFilter {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if text == "*" || is_event_type(text.strip_suffix(".*").unwrap_or(text)) {
            return Ok(Self(text.into()));
        }
        let expected = "an event type such as `order.paid`, a prefix such as `order.*`, or `*`";
        Err(Unexpected::new(expected, text))
    }
}

/// What orders events: those with the same key reach an endpoint one after the other.
///
/// Any UTF-8 of 1 to 256 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

shared_text!(Key, {
    "minLength": 1,
    "maxLength": KEY_LEN_MAX,
    "description": "The key of events, which orders them: 1 to 256 bytes of UTF-8."
});

impl Key {
    /// The key as it stands in the `X-Key` header: visible ASCII but `%` and `"` as it is, each
    /// other byte of its UTF-8 as `%XX`. `café 1` is written `caf%C3%A9%201`.
    pub fn to_header(&self) -> String {
        percent::encode(&self.0)
    }

    /// The same, piece by piece.
    pub(crate) fn header_parts(&self) -> impl Iterator<Item = &str> {
        percent::parts(&self.0)
    }

    /// Reads an `X-Key` header. Needless escapes and lower-case hex are taken too; what the encoding
    /// never leaves bare (a space, a quote, a `%` without two hex digits) is refused.
    pub fn from_header(value: &[u8]) -> Result<Self, Unexpected> {
        if value.iter().any(|&c| matches!(c, b' ' | b'"')) {
            return Err(Unexpected::bytes(
                "a percent-encoded key, without spaces or quotes",
                value,
            ));
        }
        percent::decode(value)?.parse()
    }
}

impl FromStr for Key {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if (1..=KEY_LEN_MAX).contains(&text.len()) {
            return Ok(Self(text.into()));
        }
        Err(Unexpected::new("a key of 1 to 256 bytes of UTF-8", text))
    }
}

/// The media type of a payload, such as `application/json; charset=utf-8`: safe as a header value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContentType(MediaType);

/// Nearly all payloads are plain JSON, and need no memory to say so. It has no other form than this one.
#[derive(Clone, PartialEq, Eq, Hash)]
enum MediaType {
    Json,
    Other(Arc<str>),
}

impl std::ops::Deref for MediaType {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Json => JSON,
            Self::Other(text) => text,
        }
    }
}

const JSON: &str = "application/json";

shared_text!(ContentType, {
    "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+ *(;[ -~]*)?$",
    "maxLength": CONTENT_TYPE_LEN_MAX,
    "description": "The media type of a payload."
});

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ContentType").field(&self.as_str()).finish()
    }
}

impl ContentType {
    /// Plain JSON: `application/json`.
    pub const JSON: Self = Self(MediaType::Json);

    /// Whether it declares JSON: its subtype is `json` or ends in `+json`, whatever its parameters.
    pub fn is_json(&self) -> bool {
        is_json(&self.0)
    }
}

impl FromStr for ContentType {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        if text == JSON {
            return Ok(Self::JSON);
        }
        if is_content_type(text) {
            return Ok(Self(MediaType::Other(text.into())));
        }
        Err(Unexpected::new(CONTENT_TYPE_EXPECTED, text))
    }
}

pub(crate) const CONTENT_TYPE_EXPECTED: &str =
    "a media type of at most 256 visible ASCII characters such as `application/json`";

/// Type and subtype by the letter; of parameters only that they cannot break a header.
pub(crate) fn is_content_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_essence = essence
        .trim_end_matches(' ')
        .split_once('/')
        .is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    let printable = parameters.bytes().all(|c| c.is_ascii_graphic() || c == b' ');
    is_essence && printable && text.len() <= CONTENT_TYPE_LEN_MAX
}

pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim_ascii();
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype).to_ascii_lowercase();
    subtype == "json" || subtype.ends_with("+json")
}

/// Whether `text` is a token of RFC 9110: what header names and media types are made of.
pub(crate) fn is_token(text: &str) -> bool {
    let is_tchar = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !text.is_empty() && text.bytes().all(is_tchar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_is_shown_as_it_was_written_and_plain_json_has_one_form() {
        for (text, is_plain) in [
            ("application/json", true),
            ("Application/JSON", false),
            ("application/json; charset=utf-8", false),
            ("text/plain", false),
        ] {
            let content_type: ContentType = text.parse().unwrap();
            assert_eq!(content_type.as_str(), text);
            assert_eq!(content_type == ContentType::JSON, is_plain, "{text}");
        }
    }
}
