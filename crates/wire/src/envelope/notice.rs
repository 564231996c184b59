//! An event as people's tools show it: what happened, how bad it is, and where to look.

use super::Event;
use crate::limits::{
    DEDUP_KEY_CHARS_MAX, NOTICE_DETAILS_LEN_MAX, NOTICE_FACT_CHARS_MAX, NOTICE_LINK_LEN_MAX,
    NOTICE_LINK_TEXT_CHARS_MAX, NOTICE_LINKS_MAX, SUMMARY_CHARS_MAX,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Whether something began or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Fired,
    Resolved,
    /// It happened, and nothing will end it.
    Told,
}

impl Status {
    /// The status of a notice with these fields; nothing if they are no notice's.
    fn of(fields: &Value) -> Option<Self> {
        let has = |name: &str| fields[name].as_str().is_some_and(|text| !text.is_empty());
        let is_notice = has("notice") && has("summary") && has("dedup_key");
        Self::parse(fields["status"].as_str()?).filter(|_| is_notice)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Resolved => "resolved",
            Self::Told => "told",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Fired, Self::Resolved, Self::Told].into_iter().find(|status| status.name() == text)
    }
}

/// The severities of a notice, as PagerDuty calls them.
const SEVERITIES: [&str; 4] = ["critical", "error", "warning", "info"];

/// A link of a notice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) href: String,
    pub(super) text: String,
}

/// A notice. Its texts are cut to their bounds and have no control characters.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) status: Status,
    pub(super) severity: &'static str,
    /// At most [`SUMMARY_CHARS_MAX`] characters.
    pub(super) summary: String,
    /// At most [`DEDUP_KEY_CHARS_MAX`] characters.
    pub(super) dedup_key: String,
    /// What it is a notice of, such as `breaker_open`; the event's type if the event is no notice.
    pub(super) name: String,
    /// What is affected: a URL, or the name of the server.
    pub(super) source: String,
    pub(super) links: Vec<Link>,
    /// Names and values that a person wants to see.
    pub(super) facts: Vec<(&'static str, String)>,
    /// All else, within [`NOTICE_DETAILS_LEN_MAX`].
    pub(super) details: Value,
    is_test: bool,
}

impl Notice {
    /// The event as a notice. An event that is none becomes a generic one: its type and key, of severity `info`.
    pub(super) fn of(event: &Event<'_>) -> Self {
        let fields = fields(event);
        match Status::of(&fields) {
            Some(status) => Self::of_fields(status, &fields),
            None => Self::generic(event, &fields),
        }
    }

    fn of_fields(status: Status, fields: &Value) -> Self {
        let text = |name: &str| fields[name].as_str().unwrap_or_default();
        let is_test = fields["test"] == true;
        let summary =
            if is_test { format!("Test: {}", text("summary")) } else { text("summary").into() };
        let url = fields["endpoint"]["url"].as_str();
        Self {
            status,
            severity: SEVERITIES
                .into_iter()
                .find(|name| *name == text("severity"))
                .unwrap_or("info"),
            summary: not_empty(plain(&summary, SUMMARY_CHARS_MAX), text("notice")),
            dedup_key: dedup_key(text("dedup_key")),
            name: plain(text("notice"), NOTICE_FACT_CHARS_MAX),
            source: plain(
                url.unwrap_or_else(|| instance(text("dedup_key"))),
                NOTICE_FACT_CHARS_MAX,
            ),
            links: links(&fields["links"]),
            facts: facts(fields),
            details: bounded(&fields["details"]),
            is_test,
        }
    }

    fn generic(event: &Event<'_>, fields: &Value) -> Self {
        let event_type = event.event_type.as_str();
        let summary = match event.key {
            Some(key) => format!("{event_type} of {}", key.as_str()),
            None => event_type.to_owned(),
        };
        Self {
            status: Status::Fired,
            severity: "info",
            summary: plain(&summary, SUMMARY_CHARS_MAX),
            dedup_key: dedup_key(&event.id.to_string()),
            name: event_type.to_owned(),
            source: plain(event.source.as_str(), NOTICE_FACT_CHARS_MAX),
            links: Vec::new(),
            facts: vec![("Event", event.id.to_string())],
            details: bounded(fields),
            is_test: false,
        }
    }

    /// A line that says what it is, such as `Fired (warning): breaker_open`.
    pub(super) fn heading(&self) -> String {
        let status = match (self.status, self.is_test) {
            (Status::Fired, false) => "Fired",
            (Status::Fired, true) => "Test, fired",
            (Status::Resolved, false) => "Resolved",
            (Status::Resolved, true) => "Test, resolved",
            (Status::Told, _) => "Notice",
        };
        format!("{status} ({}): {}", self.severity, self.name)
    }
}

/// The payload, if it is JSON.
pub(super) fn fields(event: &Event<'_>) -> Value {
    let json = event.content_type.is_json().then(|| serde_json::from_slice(event.payload).ok());
    json.flatten().unwrap_or_default()
}

/// The name of the server: the second part of `railpost/<instance>/…`.
fn instance(dedup_key: &str) -> &str {
    let instance = dedup_key.strip_prefix("railpost/").and_then(|rest| rest.split('/').next());
    instance.filter(|name| !name.is_empty()).unwrap_or("railpost")
}

fn facts(fields: &Value) -> Vec<(&'static str, String)> {
    let named = [
        ("Tenant", &fields["tenant"]),
        ("Endpoint", &fields["endpoint"]["url"]),
        ("Subject", &fields["subject"]),
        ("Since", &fields["since"]),
    ];
    let texts = named.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let texts = texts.map(|(name, text)| (name, plain(text, NOTICE_FACT_CHARS_MAX)));
    texts.filter(|(_, text)| !text.trim().is_empty()).collect()
}

/// Links that a browser can open: tools refuse a whole message for one that is none.
fn links(links: &Value) -> Vec<Link> {
    let links = links.as_array().into_iter().flatten().filter_map(|link| {
        let href = link["href"].as_str().filter(|href| is_web_url(href))?;
        let text = plain(link["text"].as_str().unwrap_or_default(), NOTICE_LINK_TEXT_CHARS_MAX);
        Some(Link { href: href.to_owned(), text: not_empty(text, "Open") })
    });
    links.take(NOTICE_LINKS_MAX).collect()
}

fn is_web_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |c: u8| c.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&c);
    rest.is_some_and(|rest| {
        rest.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == b'[')
    }) && text.len() <= NOTICE_LINK_LEN_MAX
        && text.bytes().all(is_plain)
}

fn bounded(details: &Value) -> Value {
    let len = details.to_string().len();
    match len <= NOTICE_DETAILS_LEN_MAX {
        true => details.clone(),
        false => json!({ "left_out": format!("{len} bytes: look at the event itself") }),
    }
}

/// The key within its bound; the end of a longer one is its hash, so that two keys stay two.
fn dedup_key(text: &str) -> String {
    if text.chars().count() <= DEDUP_KEY_CHARS_MAX {
        return text.to_owned();
    }
    let hash = digest(&SHA256, text.as_bytes());
    let hash: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let beginning: String = text.chars().take(DEDUP_KEY_CHARS_MAX - 1 - hash.len()).collect();
    format!("{beginning}#{hash}")
}

/// At most so many characters of the text, none of them a control character.
pub(super) fn plain(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut plain: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        plain.pop();
        plain.push('…');
    }
    plain
}

fn not_empty(text: String, otherwise: &str) -> String {
    if text.trim().is_empty() { plain(otherwise, SUMMARY_CHARS_MAX) } else { text }
}
