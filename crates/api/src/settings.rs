//! What of the configuration the API reads. The server's configuration embeds the sections as they are.

use std::path::PathBuf;

use railpost_engine::Span;
use railpost_rest::body::BodyLimits;
use serde::{Deserialize, Serialize};

use super::limits::BODY_LEN_MAX_DEFAULT;

/// What the API reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApiSettings {
    /// What clients may ask for.
    pub limits: LimitsConfig,
    /// How long things are kept.
    pub retention: RetentionConfig,
    /// What deliveries are judged by.
    pub objective: ObjectiveConfig,
    /// The folder of the server's files: backups are written below it.
    pub data_dir: PathBuf,
    /// The networks that receivers see requests come from, as far as they are known.
    pub egress: Vec<String>,
}

/// What clients may ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// How long a client may take to send a request's head.
    pub head_timeout: Span,
    /// How long a client may take to send a request's body.
    pub request_timeout: Span,
    /// How long a client may take nothing of an answer that is ready.
    pub answer_timeout: Span,
    /// How long a connection is kept without a request.
    pub idle_timeout: Span,
    /// Requests a second of one API key, and how many of them may come at once.
    pub requests_per_second: u32,
    /// See `requests_per_second`.
    pub requests_burst: u32,
    /// Endpoints of one tenant.
    pub endpoints_per_tenant: u32,
    /// Connections at once.
    pub connections_max: u32,
}

impl LimitsConfig {
    /// Those of requests' bodies.
    pub fn of_bodies(&self) -> BodyLimits {
        BodyLimits { events_len_max: self.body_bytes_max, timeout: self.request_timeout }
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: BODY_LEN_MAX_DEFAULT,
            head_timeout: Span::from_secs(10),
            request_timeout: Span::from_secs(30),
            answer_timeout: Span::from_secs(30),
            idle_timeout: Span::from_secs(60),
            requests_per_second: 50_000,
            requests_burst: 50_000,
            endpoints_per_tenant: 1_000,
            connections_max: 10_000,
        }
    }
}

/// How long things are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Events all of whose deliveries are closed, and audit entries.
    pub closed: Span,
    /// Dead letters that hold no lane.
    pub dead: Span,
    /// Lanes with nothing open, from their last delivery on.
    pub lanes: Span,
    /// Alerts, from their end on, and silences.
    pub alerts: Span,
    /// Answers to requests that may come again.
    pub idempotency: Span,
    /// How often what is past its time is deleted.
    pub prune_every: Span,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            closed: Span::from_days(30),
            dead: Span::from_days(90),
            lanes: Span::from_days(90),
            alerts: Span::from_days(400),
            idempotency: Span::from_hours(48),
            prune_every: Span::from_mins(10),
        }
    }
}

/// What deliveries are judged by: a share of them is acknowledged within a time, over a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ObjectiveConfig {
    /// A delivery that is acknowledged within this is on time.
    pub within: Span,
    /// The share of deliveries that are to be on time.
    pub share: f64,
    /// The period over which the share is counted.
    pub period: Span,
}

impl Default for ObjectiveConfig {
    fn default() -> Self {
        Self { within: Span::from_mins(10), share: 0.999, period: Span::from_days(30) }
    }
}
