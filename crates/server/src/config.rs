//! The configuration and its sources: defaults, a TOML file, the environment and flags, in rising order.
//!
//! [`fields`] is the table of all fields with their bounds; `default.toml` documents them.

mod fields;
mod kubernetes;
mod load;
mod notices;
mod outbox;
mod sections;
mod show;

pub(crate) use fields::is_postgres_url;
pub use fields::{FIELDS, Field, Kind};
pub use load::{ConfigError, ConfigErrors, ConfigInputs, LoadedConfig, ValueSource};
pub use notices::NoticeSection;
pub(crate) use show::show_url;
pub use show::{DEFAULT_TOML, show};

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use railpost_alerts::AlertSettings;
use railpost_api::{ApiSettings, LimitsConfig, ObjectiveConfig, RetentionConfig};
use railpost_engine::Span;
use railpost_relay::SourceSection;
use railpost_telemetry::limits::LABEL_VALUES_MAX_DEFAULT;
use railpost_telemetry::{Label, LabelSettings, Level};
use serde::{Deserialize, Serialize};

/// Everything that can be configured. `default.toml` is the same in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where it listens and keeps its files.
    pub server: ServerConfig,
    /// Where everything is written.
    pub store: StoreConfig,
    /// How attempts leave.
    pub delivery: DeliveryConfig,
    /// What clients may ask for.
    pub limits: LimitsConfig,
    /// How long things are kept.
    pub retention: RetentionConfig,
    /// What deliveries are judged by.
    pub objective: ObjectiveConfig,
    /// Rules that alert.
    pub alerts: AlertSettings,
    /// Log lines.
    pub log: LogConfig,
    /// Traces, and the labels of metrics.
    pub telemetry: TelemetryConfig,
    /// Sources that events are relayed from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outbox: Vec<SourceSection>,
    /// Who is told what people should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NoticeSection>,
}

impl Config {
    /// What the API reads of it.
    pub fn api_settings(&self) -> ApiSettings {
        ApiSettings {
            limits: self.limits.clone(),
            retention: self.retention.clone(),
            objective: self.objective.clone(),
            data_dir: self.server.data_dir.clone(),
            egress: self.delivery.egress(),
        }
    }
}

/// Where the server listens and keeps its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// The address of API and dashboard.
    pub listen: SocketAddr,
    /// The URL by which receivers and people reach this server; empty for the address it listens on.
    pub public_url: String,
    /// The folder of database and master key.
    pub data_dir: PathBuf,
    /// An admin key of the operator's choosing; empty for one that is made on the first start.
    pub admin_key: String,
    /// How long requests and attempts in flight may take to end when the server stops.
    pub drain_timeout: Span,
    /// The file of the certificate chain in PEM, to listen with TLS; empty to listen without.
    pub tls_certificate: String,
    /// The file of its private key in PEM.
    pub tls_key: String,
    /// Networks of proxies that are believed when they say for whom they ask.
    pub trusted_proxies: Vec<String>,
    /// What this server is called in notices; empty for the host of its public URL.
    pub instance: String,
    /// Where the runbooks are that notices link to; empty for no links.
    pub runbook_url: String,
    /// Networks whose clients may use the API; none for all.
    pub allow_api: Vec<String>,
    /// Networks whose clients may use the dashboard; none for all.
    pub allow_dashboard: Vec<String>,
    /// Networks whose clients may read the metrics; none for all.
    pub allow_metrics: Vec<String>,
    /// The bearer token that reading the metrics needs; empty for none.
    pub metrics_token: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8087)),
            public_url: String::new(),
            data_dir: "./railpost-data".into(),
            admin_key: String::new(),
            drain_timeout: Span::from_secs(20),
            tls_certificate: String::new(),
            tls_key: String::new(),
            trusted_proxies: Vec::new(),
            instance: String::new(),
            runbook_url: String::new(),
            allow_api: Vec::new(),
            allow_dashboard: Vec::new(),
            allow_metrics: Vec::new(),
            metrics_token: String::new(),
        }
    }
}

/// Where everything is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `sqlite:PATH`, `postgres://…` or `memory:`; empty for SQLite in the data folder.
    pub url: String,
    /// The file of the master key; empty for `master.key` in the data folder.
    pub master_key_file: String,
    /// A command that prints the master key, with its arguments; empty for the file.
    pub master_key_command: Vec<String>,
}

/// Whether receivers on this machine's loopback may be sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllowLoopback {
    /// While the API itself listens on loopback alone, has no public URL, no proxy in front and one
    /// tenant at most: everybody who can create an endpoint is on this machine already.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How attempts leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryConfig {
    /// Most attempts in flight, over all endpoints.
    pub in_flight_max: u32,
    /// Networks that may be sent to although they are private or special.
    pub allow_networks: Vec<String>,
    /// Receivers on this machine's loopback.
    pub allow_loopback: AllowLoopback,
    /// Receivers at public addresses.
    pub allow_public: bool,
    /// Refuse endpoints with `http` URLs.
    pub https_only: bool,
    /// How long the URL in a thin envelope opens its event.
    pub thin_url_ttl: Span,
    /// Addresses of this machine that requests leave from; none for the system's choice.
    pub bind: Vec<IpAddr>,
    /// The networks that receivers see requests come from; none for those of `bind`.
    pub egress: Vec<String>,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            in_flight_max: 4_096,
            allow_networks: Vec::new(),
            allow_loopback: AllowLoopback::default(),
            allow_public: true,
            https_only: false,
            thin_url_ttl: Span::from_hours(72),
            bind: Vec::new(),
            egress: Vec::new(),
        }
    }
}

impl DeliveryConfig {
    /// The networks that receivers see requests come from, as far as they are known.
    fn egress(&self) -> Vec<String> {
        if !self.egress.is_empty() {
            return self.egress.clone();
        }
        let network = |address: &IpAddr| match address {
            IpAddr::V4(address) => format!("{address}/32"),
            IpAddr::V6(address) => format!("{address}/128"),
        };
        self.bind.iter().map(network).collect()
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How they look.
    pub format: LogFormat,
    /// The lowest level that is logged.
    pub level: Level,
}

/// Traces, and the labels of metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Where traces go, such as `http://127.0.0.1:4318`; empty for nowhere.
    pub otlp_url: String,
    /// Headers of every request there, as `name=value,name=value`.
    pub otlp_headers: String,
    /// What metrics are labelled by, beside what they always are.
    pub labels: Vec<Label>,
    /// Most values of each of these labels.
    pub label_values_max: usize,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_url: String::new(),
            otlp_headers: String::new(),
            labels: Vec::new(),
            label_values_max: LABEL_VALUES_MAX_DEFAULT,
        }
    }
}

impl TelemetryConfig {
    /// Which labels metrics have by choice.
    pub fn label_settings(&self) -> LabelSettings {
        LabelSettings { labels: self.labels.clone(), values_max: self.label_values_max }
    }
}
