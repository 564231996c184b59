//! Every configuration field, with its type and bounds.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use railpost_alerts::BurnWindows;
use railpost_alerts::limits::{BURN_WINDOWS_MAX, WINDOW_MAX};
use railpost_api::KEY_PREFIX;
use railpost_api::limits::{API_KEY_CHOSEN_LEN_MIN, API_KEY_LEN_MAX};
use railpost_dispatch::NamedNetwork;
use railpost_engine::Span;
use railpost_telemetry::OtlpHeaders;
use toml::Value;

use crate::limits::{TOKEN_LEN_MAX, TOKEN_LEN_MIN};

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
    /// A share within bounds, in parts per 100,000.
    Share(u32, u32),
    /// Yes or no.
    Truth,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Any of these.
    Choices(&'static [&'static str]),
    /// Networks.
    Networks,
    /// A program and its arguments.
    Command,
    /// Addresses.
    Addresses,
    /// Empty, or a bearer token.
    Token,
    /// Pairs of windows of a burn-rate rule.
    BurnWindows,
    /// Headers of requests to a collector; their values are secret.
    SecretHeaders,
}

const fn field(path: &'static str, kind: Kind) -> Field {
    Field { path, kind }
}

/// How many parts of [`Kind::Share`] are the whole.
const SHARE_PARTS: f64 = 100_000.0;

const DAYS_3650: Span = Span::from_days(3650);
const MINUTE: Span = Span::from_mins(1);
const SEVERITIES: [&str; 4] = ["info", "warning", "error", "critical"];
const TENANTS: [&str; 2] = ["together", "each"];

/// Every field, in the order of `default.toml`.
pub const FIELDS: &[Field] = &[
    field("server.listen", Kind::Address),
    field("server.public_url", Kind::Url),
    field("server.data_dir", Kind::Text),
    field("server.admin_key", Kind::AdminKey),
    field("server.drain_timeout", Kind::Time(Span::ZERO, Span::from_hours(1))),
    field("server.tls_certificate", Kind::Text),
    field("server.tls_key", Kind::Text),
    field("server.trusted_proxies", Kind::Networks),
    field("server.instance", Kind::Text),
    field("server.runbook_url", Kind::Url),
    field("server.allow_api", Kind::Networks),
    field("server.allow_dashboard", Kind::Networks),
    field("server.allow_metrics", Kind::Networks),
    field("server.metrics_token", Kind::Token),
    field("store.url", Kind::StoreUrl),
    field("store.master_key_file", Kind::Text),
    field("store.master_key_command", Kind::Command),
    field("delivery.in_flight_max", Kind::Number(1, 1_000_000)),
    field("delivery.allow_networks", Kind::Networks),
    field("delivery.allow_loopback", Kind::Choice(&["auto", "always", "never"])),
    field("delivery.allow_public", Kind::Truth),
    field("delivery.https_only", Kind::Truth),
    field("delivery.thin_url_ttl", Kind::Time(Span::from_mins(1), Span::from_days(30))),
    field("delivery.bind", Kind::Addresses),
    field("delivery.egress", Kind::Networks),
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
    field("retention.alerts", Kind::Time(Span::from_hours(1), DAYS_3650)),
    field("retention.idempotency", Kind::Time(Span::from_mins(1), Span::from_days(30))),
    field("retention.prune_every", Kind::Time(Span::from_secs(1), Span::from_days(1))),
    field("objective.within", Kind::Time(Span::from_secs(1), Span::from_days(1))),
    field("objective.share", Kind::Share(50_000, 99_999)),
    field("objective.period", Kind::Time(Span::from_days(1), Span::from_days(40))),
    field("alerts.look_every", Kind::Time(Span::from_secs(1), MINUTE)),
    field("alerts.resolve_after", Kind::Time(Span::ZERO, Span::from_hours(1))),
    field("alerts.retries_exhausted.enabled", Kind::Truth),
    field("alerts.retries_exhausted.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.retries_exhausted.tenants", Kind::Choice(&TENANTS)),
    field("alerts.retries_exhausted.percent", Kind::Number(1, 100)),
    field("alerts.retries_exhausted.window", Kind::Time(MINUTE, Span::from_hours(6))),
    field("alerts.retries_exhausted.dispatched_min", Kind::Number(1, 1_000_000_000)),
    field("alerts.dead_letters.enabled", Kind::Truth),
    field("alerts.dead_letters.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.dead_letters.count", Kind::Number(0, 1_000_000_000)),
    field("alerts.slow_attempts.enabled", Kind::Truth),
    field("alerts.slow_attempts.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.slow_attempts.tenants", Kind::Choice(&TENANTS)),
    field("alerts.slow_attempts.p95", Kind::Time(Span::from_millis(1), Span::from_mins(10))),
    field("alerts.slow_attempts.interval", Kind::Time(MINUTE, Span::from_mins(30))),
    field("alerts.slow_attempts.intervals", Kind::Number(1, 12)),
    field("alerts.slow_attempts.attempts_min", Kind::Number(1, 1_000_000_000)),
    field("alerts.slo_burn_fast.enabled", Kind::Truth),
    field("alerts.slo_burn_fast.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.slo_burn_fast.tenants", Kind::Choice(&TENANTS)),
    field("alerts.slo_burn_fast.windows", Kind::BurnWindows),
    field("alerts.slo_burn_fast.judged_min", Kind::Number(1, 1_000_000_000)),
    field("alerts.slo_burn_slow.enabled", Kind::Truth),
    field("alerts.slo_burn_slow.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.slo_burn_slow.tenants", Kind::Choice(&TENANTS)),
    field("alerts.slo_burn_slow.windows", Kind::BurnWindows),
    field("alerts.slo_burn_slow.judged_min", Kind::Number(1, 1_000_000_000)),
    field("alerts.oldest_open.enabled", Kind::Truth),
    field("alerts.oldest_open.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.oldest_open.age", Kind::Time(MINUTE, WINDOW_MAX)),
    field("alerts.breakers_open.enabled", Kind::Truth),
    field("alerts.breakers_open.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.breakers_open.count", Kind::Number(1, 1_000_000)),
    field("alerts.store_trouble.enabled", Kind::Truth),
    field("alerts.store_trouble.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.store_trouble.after", Kind::Time(Span::ZERO, Span::from_hours(1))),
    field("alerts.disk.enabled", Kind::Truth),
    field("alerts.disk.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.disk.free_percent", Kind::Number(0, 99)),
    field("alerts.disk.free_bytes", Kind::Number(0, i64::MAX)),
    field("alerts.breaker_open.enabled", Kind::Truth),
    field("alerts.breaker_open.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.endpoint_failing.enabled", Kind::Truth),
    field("alerts.endpoint_failing.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.endpoint_failing.after", Kind::Time(Span::ZERO, WINDOW_MAX)),
    field("alerts.switch_off_soon.enabled", Kind::Truth),
    field("alerts.switch_off_soon.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.switch_off_soon.ahead", Kind::Time(MINUTE, WINDOW_MAX)),
    field("alerts.endpoint_off.enabled", Kind::Truth),
    field("alerts.endpoint_off.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.endpoint_blocked.enabled", Kind::Truth),
    field("alerts.endpoint_blocked.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.lane_held.enabled", Kind::Truth),
    field("alerts.lane_held.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.source_trouble.enabled", Kind::Truth),
    field("alerts.source_trouble.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.source_trouble.after", Kind::Time(Span::ZERO, Span::from_hours(1))),
    field("alerts.secret_expiring.enabled", Kind::Truth),
    field("alerts.secret_expiring.severity", Kind::Choice(&SEVERITIES)),
    field("alerts.secret_expiring.ahead", Kind::Time(MINUTE, WINDOW_MAX)),
    field("log.format", Kind::Choice(&["auto", "text", "json"])),
    field("log.level", Kind::Choice(&["debug", "info", "warn", "error"])),
    field("telemetry.otlp_url", Kind::Url),
    field("telemetry.otlp_headers", Kind::SecretHeaders),
    field("telemetry.labels", Kind::Choices(&["tenant", "endpoint", "event_type"])),
    field("telemetry.label_values_max", Kind::Number(1, 100_000)),
];

impl Field {
    /// The variable that sets it, such as `RAILPOST_LIMITS_BODY_BYTES_MAX`.
    pub fn variable(&self) -> String {
        format!("RAILPOST_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// Whether its value is not to be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::AdminKey | Kind::SecretHeaders | Kind::Token)
    }
}

impl Kind {
    /// The value that a text stands for, as the environment and flags give it.
    pub(super) fn of_text(self, text: &str) -> Value {
        let as_it_is = || Value::String(text.to_owned());
        match self {
            Kind::Number(..) => text.parse().map_or_else(|_| as_it_is(), Value::Integer),
            Kind::Truth => text.parse().map_or_else(|_| as_it_is(), Value::Boolean),
            Kind::Share(..) => text.parse().map_or_else(|_| as_it_is(), Value::Float),
            Kind::Networks | Kind::Addresses | Kind::Choices(_) | Kind::BurnWindows => {
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
            (Kind::Share(min, max), Value::Float(share)) => {
                (f64::from(min)..=f64::from(max)).contains(&(share * SHARE_PARTS))
            }
            (Kind::Truth, Value::Boolean(_)) => true,
            (Kind::Choices(names), Value::Array(chosen)) => {
                chosen.iter().all(|name| name.as_str().is_some_and(|name| names.contains(&name)))
            }
            (Kind::Networks, Value::Array(networks)) => networks.iter().all(is_network),
            (Kind::Command, Value::Array(parts)) => parts.iter().all(Value::is_str),
            (Kind::Addresses, Value::Array(addresses)) => addresses.iter().all(is_ip_address),
            (Kind::BurnWindows, Value::Array(pairs)) => {
                (1..=BURN_WINDOWS_MAX).contains(&pairs.len()) && pairs.iter().all(is_burn_windows)
            }
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
            Kind::Token => text.is_empty() || is_token(text),
            Kind::Time(min, max) => text.parse().is_ok_and(|span| (min..=max).contains(&span)),
            Kind::Choice(names) => names.contains(&text),
            Kind::SecretHeaders => text.parse::<OtlpHeaders>().is_ok(),
            Kind::Number(..)
            | Kind::Share(..)
            | Kind::Truth
            | Kind::Networks
            | Kind::Command
            | Kind::Addresses
            | Kind::BurnWindows
            | Kind::Choices(_) => false,
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

fn is_ip_address(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<IpAddr>().is_ok())
}

/// Whether a text can stand behind `Authorization: Bearer`.
fn is_token(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._~+/=".contains(&c);
    (TOKEN_LEN_MIN..=TOKEN_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

fn is_burn_windows(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<BurnWindows>().is_ok())
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
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
            Kind::Share(min, max) => {
                let share = |parts: &u32| f64::from(*parts) / SHARE_PARTS;
                write!(f, "a share from {} to {}", share(min), share(max))
            }
            Kind::Choice(names) => write!(f, "one of {}", quoted(names)),
            Kind::Choices(names) => write!(f, "a list of any of {}", quoted(names)),
            Kind::SecretHeaders => {
                f.write_str("headers such as \"authorization=Bearer%20TOKEN,x-team=orders\"")
            }
            Kind::Command => f.write_str("a list of a program and its arguments"),
            Kind::Addresses => f.write_str("a list of addresses, such as [\"203.0.113.7\"]"),
            Kind::Token => write!(
                f,
                "{TOKEN_LEN_MIN} to {TOKEN_LEN_MAX} letters, digits, `-`, `.`, `_`, `~`, `+`, `/` or `=`, or nothing"
            ),
            Kind::Networks => f.write_str("a list of networks, such as [\"10.1.0.0/16\"]"),
            Kind::BurnWindows => write!(
                f,
                "a list of 1 to {BURN_WINDOWS_MAX} pairs of windows from 1m to {WINDOW_MAX}, each with a factor, such as \
                 [\"1h 5m 14.4\"]"
            ),
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
            ("delivery.bind", "203.0.113.7, 2001:db8::7", "203.0.113.0/24"),
            ("server.metrics_token", "0123456789abcdef", "too short"),
            ("limits.body_bytes_max", "67108864", "67108865"),
            ("limits.request_timeout", "1s", "999ms"),
            ("alerts.look_every", "1s", "61s"),
            ("alerts.disk.free_percent", "99", "100"),
            ("alerts.slo_burn_fast.windows", "1h 5m 14.4,6h 30m 6", "5m 1h 14.4"),
            ("alerts.lane_held.severity", "critical", "fatal"),
            ("retention.closed", "3650d", "3651d"),
            ("retention.lanes", "1h", "59m"),
            ("objective.within", "10m", "25h"),
            ("objective.share", "0.99999", "1.0"),
            ("objective.share", "0.5", "99.9"),
            ("objective.period", "40d", "41d"),
            ("log.level", "warn", "loud"),
            ("telemetry.labels", "tenant, event_type", "tenant, key"),
            ("telemetry.label_values_max", "100000", "0"),
            ("telemetry.otlp_headers", "authorization=Bearer%20abc", "authorization"),
        ] {
            assert!(allows(path, good), "{path} = {good}");
            assert!(!allows(path, bad), "{path} = {bad}");
        }
    }
}
