//! What the standard demands of attributes: their names and their values.

use super::{BadCloudEvent, SPEC_VERSION, Value};
use crate::limits::{ATTRIBUTE_LEN_MAX, ATTRIBUTE_NAME_LEN_MAX};
use crate::names::{CONTENT_TYPE_EXPECTED, is_content_type};
use crate::percent::has_valid_escapes;
use crate::text::{Unexpected, shared_text};
use std::{str::FromStr, sync::Arc};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The attribute `source`: a URI reference, not empty, of at most 2048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(Arc<str>);

shared_text!(Source, {
    "minLength": 1,
    "maxLength": ATTRIBUTE_LEN_MAX,
    "format": "uri-reference"
});

impl FromStr for Source {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        check_attribute("source", text).map_err(|bad| bad.problem)?;
        Ok(Self(text.into()))
    }
}

/// What an attribute's value must be, for people and for the program.
struct Rule {
    expected: &'static str,
    holds: fn(&str) -> bool,
}

/// The rule for an attribute that the standard names.
fn rule(name: &str) -> Option<Rule> {
    let (expected, holds): (_, fn(&str) -> bool) = match name {
        "specversion" => ("`1.0`", |text| text == SPEC_VERSION),
        "id" | "type" | "subject" => {
            ("1 to 2048 bytes of text without control characters", |text| {
                is_string(text) && !text.is_empty()
            })
        }
        "source" => ("a URI reference of 1 to 2048 bytes", |text| {
            is_uri_reference(text) && !text.is_empty()
        }),
        "time" => ("a time of RFC 3339 such as `2026-01-31T12:00:00Z`", is_time),
        "datacontenttype" => (CONTENT_TYPE_EXPECTED, is_content_type),
        "dataschema" => ("an absolute URI of at most 2048 bytes", is_uri),
        _ => return None,
    };
    Some(Rule { expected, holds })
}

/// Checks one of the attributes that the standard names. Others have no rule here.
pub(super) fn check_attribute(name: &'static str, value: &str) -> Result<(), BadCloudEvent> {
    let Some(Rule { expected, holds }) = rule(name) else { return Ok(()) };
    if value.len() <= ATTRIBUTE_LEN_MAX && holds(value) {
        return Ok(());
    }
    Err(BadCloudEvent::new(name, Unexpected::new(expected, value)))
}

/// Checks the name of any attribute: the standard's own are well formed too.
pub(super) fn check_name(name: &str) -> Result<(), BadCloudEvent> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    if (1..=ATTRIBUTE_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    let expected = "an attribute name of 1 to 64 lowercase letters and digits";
    Err(BadCloudEvent::name(expected, name))
}

/// Checks an extension attribute: its name must not be one of the standard's own.
pub(super) fn check_extension(name: &str, value: &Value<'_>) -> Result<(), BadCloudEvent> {
    check_name(name)?;
    if name == "data" || rule(name).is_some() {
        return Err(BadCloudEvent::name("an extension name that the standard does not use", name));
    }
    match value {
        Value::String(text) if !is_string(text) || text.len() > ATTRIBUTE_LEN_MAX => {
            let expected = "at most 2048 bytes of text without control characters";
            Err(BadCloudEvent::new(name.to_owned(), Unexpected::new(expected, text)))
        }
        _ => Ok(()),
    }
}

/// Whether the standard lets `text` be a String: no control characters and no noncharacters.
pub(crate) fn is_string(text: &str) -> bool {
    let is_noncharacter =
        |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    !text.chars().any(|c| c.is_control() || is_noncharacter(c))
}

fn is_time(text: &str) -> bool {
    OffsetDateTime::parse(text, &Rfc3339).is_ok()
}

fn is_uri(text: &str) -> bool {
    is_uri_reference(text) && scheme(text).is_some()
}

/// RFC 3986 as far as characters and delimiters go: escapes are whole, one fragment, a scheme that is
/// one, brackets around a host alone.
fn is_uri_reference(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&c);
    let (hierarchy, fragment) = text.split_once('#').unwrap_or((text, ""));
    let path = hierarchy.split('?').next().unwrap_or_default();
    let first_segment = path.split('/').next().unwrap_or_default();
    text.bytes().all(allowed)
        && has_valid_escapes(text.as_bytes())
        && !fragment.contains('#')
        && (!first_segment.contains(':') || scheme(text).is_some())
        && !outside_authority(text).contains(['[', ']'])
}

/// What stands before the first colon, if it is a scheme.
fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"+-.".contains(&c);
    let begins = scheme.bytes().next()?.is_ascii_alphabetic();
    (begins && scheme.bytes().all(allowed)).then_some(scheme)
}

/// All of a reference but its scheme and authority.
fn outside_authority(text: &str) -> &str {
    let after_scheme = scheme(text).map_or(text, |scheme| &text[scheme.len() + 1..]);
    let Some(authority) = after_scheme.strip_prefix("//") else { return after_scheme };
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    &authority[end..]
}
