//! Every configuration field, with its type and bounds.

use std::fmt;
use std::net::SocketAddr;

use railpost_api::KEY_PREFIX;
use railpost_api::limits::{API_KEY_CHOSEN_LEN_MIN, API_KEY_LEN_MAX};
use railpost_dispatch::NamedNetwork;
use railpost_engine::Span;
use railpost_telemetry::OtlpHeaders;
use toml::Value;

/// A field, by its path.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Such as `limits.body_bytes_max`.
    pub path: &'static str,
    /// What it may be.
    pub kind: Kind,
}

/// What a field may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An address and a port.
    Address,
    /// Any text, such as a path.
    Text,
    /// Empty, or an `http` or `https` URL.
    Url,
    /// Empty, or an API key of the operator's choosing.
    AdminKey,
    /// Empty, or the URL of a store.
    StoreUrl,
    /// A length of time within bounds.
    Time(Span, Span),
    /// A whole number within bounds.
    Number(i64, i64),
    /// Yes or no.
    Truth,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Networks.
    Networks,
    /// A program and its arguments.
    Command,
    /// Headers of requests to a collector; their values are secret.
    SecretHeaders,
}

const fn field(path: &'static str, kind: Kind) -> Field {
    Field { path, kind }
}

const DAYS_3650: Span = Span::from_days(3650);

/// Every field, in the order of `default.toml`.
pub const FIELDS: [Field; 35] = [
    field("server.listen", Kind::Address),
    field("server.public_url", Kind::Url),
    field("server.data_dir", Kind::Text),
    field("server.admin_key", Kind::AdminKey),
    field("server.drain_timeout", Kind::Time(Span::ZERO, Span::from_hours(1))),
    field("server.tls_certificate", Kind::Text),
    field("server.tls_key", Kind::Text),
    field("server.trusted_proxies", Kind::Networks),
    field("store.url", Kind::StoreUrl),
    field("store.master_key_file", Kind::Text),
    field("store.master_key_command", Kind::Command),
    field("delivery.in_flight_max", Kind::Number(1, 1_000_000)),
    field("delivery.allow_networks", Kind::Networks),
    field("delivery.allow_loopback", Kind::Choice(&["auto", "always", "never"])),
    field("delivery.allow_public", Kind::Truth),
    field("delivery.https_only", Kind::Truth),
    field("delivery.thin_url_ttl", Kind::Time(Span::from_mins(1), Span::from_days(30))),
    field("limits.body_bytes_max", Kind::Number(1024, 64 * 1024 * 1024)),
    field("limits.head_timeout", Kind::Time(Span::from_secs(1), Span::from_mins(10))),
    field("limits.request_timeout", Kind::Time(Span::from_secs(1), Span::from_mins(10))),
    field("limits.answer_timeout", Kind::Time(Span::from_secs(1), Span::from_mins(10))),
    field("limits.idle_timeout", Kind::Time(Span::from_secs(1), Span::from_hours(1))),
    field("limits.requests_per_second", Kind::Number(1, 1_000_000)),
    field("limits.requests_burst", Kind::Number(1, 1_000_000)),
    field("limits.endpoints_per_tenant", Kind::Number(1, 1_000_000)),
    field("limits.connections_max", Kind::Number(1, 1_000_000)),
    field("retention.closed", Kind::Time(Span::from_hours(1), DAYS_3650)),
    field("retention.dead", Kind::Time(Span::from_hours(1), DAYS_3650)),
    field("retention.lanes", Kind::Time(Span::from_hours(1), DAYS_3650)),
    field("retention.idempotency", Kind::Time(Span::from_mins(1), Span::from_days(30))),
    field("retention.prune_every", Kind::Time(Span::from_secs(1), Span::from_days(1))),
    field("log.format", Kind::Choice(&["auto", "text", "json"])),
    field("log.level", Kind::Choice(&["debug", "info", "warn", "error"])),
    field("telemetry.otlp_url", Kind::Url),
    field("telemetry.otlp_headers", Kind::SecretHeaders),
];

impl Field {
    /// The variable that sets it, such as `RAILPOST_LIMITS_BODY_BYTES_MAX`.
    pub fn variable(&self) -> String {
        format!("RAILPOST_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Whether its value is not to be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::AdminKey | Kind::SecretHeaders)
    }
}

impl Kind {
    /// The value that a text stands for, as the environment and flags give it.
    pub(super) fn of_text(self, text: &str) -> Value {
        let as_it_is = || Value::String(text.to_owned());
        match self {
            Kind::Number(..) => text.parse().map_or_else(|_| as_it_is(), Value::Integer),
            Kind::Truth => text.parse().map_or_else(|_| as_it_is(), Value::Boolean),
            Kind::Networks => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
            }
            Kind::Command => {
                let parts = text.split_whitespace();
                Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
            }
            _ => as_it_is(),
        }
    }

    /// Whether the value is allowed.
    pub(super) fn allows(self, value: &Value) -> bool {
        match (self, value) {
            (Kind::Number(min, max), Value::Integer(number)) => (min..=max).contains(number),
            (Kind::Truth, Value::Boolean(_)) => true,
            (Kind::Networks, Value::Array(networks)) => networks.iter().all(is_network),
            (Kind::Command, Value::Array(parts)) => parts.iter().all(Value::is_str),
            (kind, Value::String(text)) => kind.allows_text(text),
            _ => false,
        }
    }

    fn allows_text(self, text: &str) -> bool {
        match self {
            Kind::Text => true,
            Kind::Address => text.parse::<SocketAddr>().is_ok(),
            Kind::Url => text.is_empty() || is_web_url(text),
            Kind::AdminKey => text.is_empty() || is_admin_key(text),
            Kind::StoreUrl => text.is_empty() || is_store_url(text),
            Kind::Time(min, max) => text.parse().is_ok_and(|span| (min..=max).contains(&span)),
            Kind::Choice(names) => names.contains(&text),
            Kind::SecretHeaders => text.parse::<OtlpHeaders>().is_ok(),
            Kind::Number(..) | Kind::Truth | Kind::Networks | Kind::Command => false,
        }
    }
}

fn is_web_url(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

fn is_store_url(text: &str) -> bool {
    let path = text.strip_prefix("sqlite:");
    text == "memory:" || path.is_some_and(|path| !path.is_empty()) || is_postgres_url(text)
}

/// Whether a store's URL names a PostgreSQL database.
pub(crate) fn is_postgres_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

fn is_admin_key(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    let chosen = text.strip_prefix(KEY_PREFIX).unwrap_or_default();
    chosen.len() >= API_KEY_CHOSEN_LEN_MIN
        && text.len() <= API_KEY_LEN_MAX
        && chosen.bytes().all(allowed)
}

fn is_network(value: &Value) -> bool {
    value.as_str().is_some_and(|text| NamedNetwork::new("network", text).is_ok())
}

/// What is allowed, in words.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Address => f.write_str("an address and a port, such as \"127.0.0.1:8087\""),
            Kind::Text => f.write_str("a text"),
            Kind::Url => f.write_str("an http or https URL, or nothing"),
            Kind::AdminKey => write!(
                f,
                "`{KEY_PREFIX}` and {API_KEY_CHOSEN_LEN_MIN} to {} letters, digits, `-` or `_`, or nothing",
                API_KEY_LEN_MAX - KEY_PREFIX.len()
            ),
            Kind::StoreUrl => {
                f.write_str("\"sqlite:PATH\", \"postgres://…\" or \"memory:\", or nothing")
            }
            Kind::Time(min, max) => write!(f, "a length of time from {min} to {max}"),
            Kind::Number(min, max) => write!(f, "a whole number from {min} to {max}"),
            Kind::Truth => f.write_str("true or false"),
            Kind::Choice(names) => {
                let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
                write!(f, "one of {}", quoted.join(", "))
            }
            Kind::SecretHeaders => {
                f.write_str("headers such as \"authorization=Bearer%20TOKEN,x-team=orders\"")
            }
            Kind::Command => f.write_str("a list of a program and its arguments"),
            Kind::Networks => f.write_str("a list of networks, such as [\"10.1.0.0/16\"]"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn allows(path: &str, text: &str) -> bool {
        let field = FIELDS.iter().find(|field| field.path == path).unwrap();
        field.kind.allows(&field.kind.of_text(text))
    }

    #[test]
    fn each_kind_knows_its_bounds() {
        for (path, good, bad) in [
            ("server.listen", "[::1]:80", "localhost"),
            ("server.public_url", "https://hooks.example.com", "ftp://example.com"),
            ("server.admin_key", "rp_0123456789abcdefghijABCDEFGHIJ-_", "rp_short"),
            ("server.drain_timeout", "1h", "61m"),
            ("store.url", "sqlite:/var/lib/railpost.db", "mysql://localhost"),
            ("store.url", "postgresql://localhost/railpost", "sqlite:"),
            ("delivery.in_flight_max", "1", "0"),
            ("delivery.allow_networks", "10.1.0.0/16, fd12::/48", "10.1.2.3/16"),
            ("delivery.allow_loopback", "never", "no"),
            ("delivery.allow_public", "false", "no"),
            ("delivery.https_only", "true", "yes"),
            ("limits.body_bytes_max", "67108864", "67108865"),
            ("limits.request_timeout", "1s", "999ms"),
            ("retention.closed", "3650d", "3651d"),
            ("retention.lanes", "1h", "59m"),
            ("log.level", "warn", "loud"),
            ("telemetry.otlp_headers", "authorization=Bearer%20abc", "authorization"),
        ] {
            assert!(allows(path, good), "{path} = {good}");
            assert!(!allows(path, bad), "{path} = {bad}");
        }
    }
}
