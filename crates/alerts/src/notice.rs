//! What is published of an alert: one JSON shape for all notices. Every byte of it comes from the alert's
//! record and the server's settings, so that a notice that is published again is the same event.

use railpost_engine::{Time, Timestamp};
use railpost_store::{Alert, Severity};
use railpost_wire::{AlertId, EndpointId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::DEDUP_KEY_LEN_MAX;
use crate::{Rule, summary};

/// The tenant whose events notices are.
pub const RESERVED_TENANT: &str = "railpost";

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeStatus {
    /// A condition holds.
    Fired,
    /// It is over.
    Resolved,
    /// Something happened, and that is all.
    Told,
}

impl NoticeStatus {
    /// Its name: the last part of the event's id.
    pub const fn as_str(self) -> &'static str {
        match self {
            NoticeStatus::Fired => "fired",
            NoticeStatus::Resolved => "resolved",
            NoticeStatus::Told => "told",
        }
    }
}

/// The payload of a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What it is about: the rule's name, such as `breaker_open`.
    pub notice: String,
    /// Whether it fired or is over.
    pub status: NoticeStatus,
    /// How bad it is.
    pub severity: Severity,
    /// What happened, why, what happens next and what to do.
    pub summary: String,
    /// The same for all notices of one thing.
    pub dedup_key: String,
    /// The alert, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertId>,
    /// Whose it is; nothing for what concerns the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The thing; empty if the rule says it all.
    pub subject: String,
    /// The endpoint that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<NoticeEndpoint>,
    /// Since when the condition holds or held.
    pub since: Time,
    /// When it fired or was over.
    pub at: Time,
    /// Figures and names.
    pub details: Value,
    /// Where to look.
    pub links: Vec<NoticeLink>,
    /// Whether it is a test.
    pub test: bool,
}

/// An endpoint that a notice is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeEndpoint {
    /// Its id.
    pub id: EndpointId,
    /// Where it is.
    pub url: String,
}

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeLink {
    /// The URL.
    pub href: String,
    /// What it is called.
    pub text: String,
}

/// What notices need to know of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeContext {
    /// What this server is called among others.
    pub instance: String,
    /// The URL of this server.
    pub public_url: String,
    /// Where the runbooks are; empty if nobody said.
    pub runbook_url: String,
}

/// The notice of an alert; nothing if its rule is not known here.
pub fn notice(alert: &Alert, status: NoticeStatus, context: &NoticeContext) -> Option<Notice> {
    let rule: Rule = alert.rule.parse().ok()?;
    let end = alert.resolved_at.filter(|_| status == NoticeStatus::Resolved);
    let summary = match end {
        Some(end) => summary::resolved(&alert.summary, end.since(alert.fired_at)),
        None => alert.summary.clone(),
    };
    Some(Notice {
        notice: alert.rule.clone(),
        status,
        severity: alert.severity,
        summary,
        dedup_key: dedup_key(context, rule.name(), alert.tenant.as_ref(), &alert.subject),
        alert: Some(alert.id),
        tenant: alert.tenant.clone(),
        subject: alert.subject.clone(),
        endpoint: serde_json::from_value(alert.details["endpoint"].clone()).ok(),
        since: Time(alert.fired_at),
        at: Time(notice_time(alert, status)),
        details: alert.details.clone(),
        links: links(alert, rule, context),
        test: false,
    })
}

/// The type of the event that a notice is; nothing if its rule is not known here.
pub fn notice_type(alert: &Alert, status: NoticeStatus) -> Option<&'static str> {
    let (fired, resolved) = alert.rule.parse::<Rule>().ok()?.notice_types();
    match status {
        NoticeStatus::Fired => Some(fired),
        NoticeStatus::Resolved => Some(resolved),
        NoticeStatus::Told => None,
    }
}

/// The instant of a notice, for the event's time.
pub fn notice_time(alert: &Alert, status: NoticeStatus) -> Timestamp {
    let end = alert.resolved_at.filter(|_| status == NoticeStatus::Resolved);
    end.unwrap_or(alert.fired_at)
}

/// The key of the event that a notice is: the thing. What is said of one thing arrives in order.
pub fn notice_key(alert: &Alert) -> &str {
    if alert.subject.is_empty() { &alert.rule } else { &alert.subject }
}

/// What tools tell by that two notices are of one alert: at most [`DEDUP_KEY_LEN_MAX`] bytes.
pub fn dedup_key(
    context: &NoticeContext,
    rule: &str,
    tenant: Option<&TenantId>,
    subject: &str,
) -> String {
    let tenant = tenant.map_or("-", TenantId::as_str);
    let subject = if subject.is_empty() { "-" } else { subject };
    let mut key = format!("railpost/{}/{rule}/{tenant}/{subject}", context.instance);
    if key.len() > DEDUP_KEY_LEN_MAX {
        let hash = format!("#{:016x}", fnv_1a(key.as_bytes()));
        let room = DEDUP_KEY_LEN_MAX - hash.len();
        let end = (0..=room).rev().find(|end| key.is_char_boundary(*end)).unwrap_or_default();
        key.truncate(end);
        key.push_str(&hash);
    }
    key
}

/// The FNV-1a hash: keys that differ only in what was cut are told apart. Stable.
fn fnv_1a(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

fn links(alert: &Alert, rule: Rule, context: &NoticeContext) -> Vec<NoticeLink> {
    let dashboard = format!("{}/dashboard/alerts/{}", context.public_url, alert.id);
    let mut links = vec![NoticeLink { href: dashboard, text: "Open".to_owned() }];
    if !context.runbook_url.is_empty() {
        let href = format!("{}/{}", context.runbook_url.trim_end_matches('/'), rule.runbook());
        links.push(NoticeLink { href, text: "Runbook".to_owned() });
    }
    links
}
