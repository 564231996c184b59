//! PagerDuty's Events API v2.

use super::notice::{Link, Notice, Status};
use crate::rfc3339;
use serde_json::{Value, json};

/// A fired notice triggers an incident, a resolved one resolves it. What is only told triggers one too.
pub(super) fn body(notice: &Notice, routing_key: &str, unix_ms: u64) -> Vec<u8> {
    let body = match notice.status {
        Status::Resolved => json!({
            "routing_key": routing_key,
            "event_action": "resolve",
            "dedup_key": notice.dedup_key,
        }),
        Status::Fired | Status::Told => trigger(notice, routing_key, unix_ms),
    };
    body.to_string().into_bytes()
}

fn trigger(notice: &Notice, routing_key: &str, unix_ms: u64) -> Value {
    let mut body = json!({
        "routing_key": routing_key,
        "event_action": "trigger",
        "dedup_key": notice.dedup_key,
        "client": "Railpost",
        "payload": {
            "summary": notice.summary,
            "source": notice.source,
            "severity": notice.severity,
            "class": notice.name,
            "custom_details": custom_details(notice),
        },
    });
    if let Some(timestamp) = rfc3339::format(unix_ms) {
        body["payload"]["timestamp"] = timestamp.into();
    }
    if let Some((_, tenant)) = notice.facts.iter().find(|(name, _)| *name == "Tenant") {
        body["payload"]["group"] = tenant.as_str().into();
    }
    if let Some(first) = notice.links.first() {
        body["client_url"] = first.href.as_str().into();
        let link = |link: &Link| json!({ "href": link.href, "text": link.text });
        body["links"] = notice.links.iter().map(link).collect();
    }
    body
}

fn custom_details(notice: &Notice) -> Value {
    let facts = notice.facts.iter();
    let mut details: serde_json::Map<String, Value> =
        facts.map(|(name, text)| (name.to_lowercase(), text.as_str().into())).collect();
    if !notice.details.is_null() {
        details.insert("details".to_owned(), notice.details.clone());
    }
    details.into()
}
