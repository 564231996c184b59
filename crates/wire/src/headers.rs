//! The names of the headers that Railpost sends, and how an endpoint may change them.

use crate::limits::HEADER_NAME_LEN_MAX;
use crate::names::is_token;
use crate::text::Unexpected;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// A header that Railpost sends with every attempt, by what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Header {
    /// The event id, as Standard Webhooks has it.
    WebhookId,
    /// When this attempt was made, in seconds since 1970.
    WebhookTimestamp,
    /// Signatures over `id.timestamp.body`.
    WebhookSignature,
    /// A timestamp and signatures over `timestamp.body`.
    XWebhookSignature,
    /// The event id again, for receivers that deduplicate by this name.
    IdempotencyKey,
    /// The event's type.
    XEventType,
    /// When the event happened, by RFC 3339 in UTC. Absent beyond the year 9999.
    XEventTime,
    /// The version of its type's schema, where the event has one.
    XSchemaVersion,
    /// The event's key, percent-encoded.
    XKey,
    /// The id of the line that the number belongs to.
    XLane,
    /// The delivery's number in its line.
    XSeq,
    /// The number that must have been applied before this one, where that is not the one before.
    XAfter,
    /// The attempt's number, from 1.
    XAttempt,
    /// `true` when a person asked for this one.
    XReplay,
    /// `true` when the body says where to fetch the event instead of holding it.
    XThin,
}

impl Header {
    /// All of them, in the order in which they are sent.
    pub const ALL: [Header; 15] = [
        Header::WebhookId,
        Header::WebhookTimestamp,
        Header::WebhookSignature,
        Header::XWebhookSignature,
        Header::IdempotencyKey,
        Header::XEventType,
        Header::XEventTime,
        Header::XSchemaVersion,
        Header::XKey,
        Header::XLane,
        Header::XSeq,
        Header::XAfter,
        Header::XAttempt,
        Header::XReplay,
        Header::XThin,
    ];

    /// Its default name.
    pub const fn default_name(self) -> &'static str {
        match self {
            Header::WebhookId => "webhook-id",
            Header::WebhookTimestamp => "webhook-timestamp",
            Header::WebhookSignature => "webhook-signature",
            Header::XWebhookSignature => "X-Webhook-Signature",
            Header::IdempotencyKey => "Idempotency-Key",
            Header::XEventType => "X-Event-Type",
            Header::XEventTime => "X-Event-Time",
            Header::XSchemaVersion => "X-Schema-Version",
            Header::XKey => "X-Key",
            Header::XLane => "X-Lane",
            Header::XSeq => "X-Seq",
            Header::XAfter => "X-After",
            Header::XAttempt => "X-Attempt",
            Header::XReplay => "X-Replay",
            Header::XThin => "X-Thin",
        }
    }
}

/// The header names of one endpoint. All are tokens, none is reserved, no two are the same.
///
/// In serde a map from a header to its name, such as `{"x_key": "X-Order"}`; what it leaves out keeps
/// its default, and it is written with the changed ones alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Header, String>", into = "BTreeMap<Header, String>")]
pub struct HeaderNames([Cow<'static, str>; Header::ALL.len()]);

/// What header names are made of: a token of RFC 9110.
#[cfg(feature = "schema")]
pub const HEADER_NAME_PATTERN: &str = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";

#[cfg(feature = "schema")]
impl schemars::JsonSchema for HeaderNames {
    fn schema_name() -> Cow<'static, str> {
        "HeaderNames".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let property = |header: Header| {
            let about = format!("What `{}` is called.", header.default_name());
            let schema = serde_json::json!({
                "type": "string",
                "pattern": HEADER_NAME_PATTERN,
                "maxLength": HEADER_NAME_LEN_MAX,
                "description": about,
            });
            let name = serde_json::to_value(header).unwrap_or_default();
            (name.as_str().unwrap_or_default().to_owned(), schema)
        };
        let properties: serde_json::Map<_, _> = Header::ALL.into_iter().map(property).collect();
        schemars::json_schema!({
            "type": "object",
            "description": "Headers that have another name: `{\"x_key\": \"X-Order\"}`.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

impl HeaderNames {
    /// The default names, but for these.
    pub fn renamed(
        names: impl IntoIterator<Item = (Header, String)>,
    ) -> Result<Self, BadHeaderName> {
        let mut all = Self::default();
        for (header, name) in names {
            check(&name).map_err(|problem| BadHeaderName { header, problem })?;
            all.0[header as usize] = name.into();
        }
        all.check_distinct()?;
        Ok(all)
    }

    /// What `header` is called here. Names are compared without regard to case.
    pub fn name(&self, header: Header) -> &str {
        &self.0[header as usize]
    }

    fn check_distinct(&self) -> Result<(), BadHeaderName> {
        let same = |a: Header, b: Header| self.name(a).eq_ignore_ascii_case(self.name(b));
        let twin = |&header: &Header| {
            Header::ALL.into_iter().any(|other| other < header && same(other, header))
        };
        let Some(header) = Header::ALL.into_iter().find(twin) else { return Ok(()) };
        let problem = Unexpected::new("a name that no other header has", self.name(header));
        Err(BadHeaderName { header, problem })
    }
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self(Header::ALL.map(|header| Cow::Borrowed(header.default_name())))
    }
}

impl TryFrom<BTreeMap<Header, String>> for HeaderNames {
    type Error = BadHeaderName;

    fn try_from(names: BTreeMap<Header, String>) -> Result<Self, BadHeaderName> {
        Self::renamed(names)
    }
}

impl From<HeaderNames> for BTreeMap<Header, String> {
    fn from(names: HeaderNames) -> Self {
        let changed = |&header: &Header| names.name(header) != header.default_name();
        let entry = |header: Header| (header, names.name(header).to_owned());
        Header::ALL.into_iter().filter(changed).map(entry).collect()
    }
}

/// A header was given a name that it cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHeaderName {
    /// Whose name it would be.
    pub header: Header,
    /// What is wrong with it.
    pub problem: Unexpected,
}

impl fmt::Display for BadHeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name of `{}`: {}", self.header.default_name(), self.problem)
    }
}

impl std::error::Error for BadHeaderName {}

/// Names that HTTP, tracing or the request itself needs: one more of them would change the request's
/// framing, its target, or what an intermediary does with it.
const RESERVED: [&str; 19] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
];

/// Families of such names: those of proxies, and the attributes of a CloudEvent.
const RESERVED_PREFIXES: [&str; 2] = ["proxy-", "ce-"];

fn check(name: &str) -> Result<(), Unexpected> {
    if !is_token(name) || name.len() > HEADER_NAME_LEN_MAX {
        let expected = "a header name of 1 to 64 letters, digits, `-` and the like";
        return Err(Unexpected::new(expected, name));
    }
    let lower = name.to_ascii_lowercase();
    let in_family = RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if in_family || RESERVED.contains(&lower.as_str()) {
        return Err(Unexpected::new("a header name that the request does not need itself", name));
    }
    Ok(())
}
