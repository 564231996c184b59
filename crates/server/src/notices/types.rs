//! The types of notices, each with its severity, and the one schema that all have.

use railpost_alerts::{AlertSettings, Rule, TEST_TYPES};
use railpost_store::{EventTypeRecord, Severity, Validation};
use railpost_wire::TenantId;
use serde_json::{Value, json};

/// A type of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoticeType {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// What it means, for people.
    description: &'static str,
    /// Whether nothing resolves it: it only happened.
    pub(super) is_told: bool,
}

/// The notice that a replay has ended.
pub(super) const REPLAY_FINISHED: &str = "railpost.replay.finished";

/// All types, with the severities that the configuration gives the rules.
pub(super) fn all(alerts: &AlertSettings) -> Vec<NoticeType> {
    let rules = Rule::ALL.into_iter().map(|rule| (rule.notice_types(), alerts.rule(rule).severity));
    // Everybody who is told anything is told of tests.
    let pairs = rules.chain([(TEST_TYPES, Severity::Critical)]);
    let of_pairs = pairs.flat_map(|((fired, resolved), severity)| {
        let notice = |name, description| NoticeType { name, severity, description, is_told: false };
        [notice(fired, "A condition holds."), notice(resolved, "It is over.")]
    });
    let told = NoticeType {
        name: REPLAY_FINISHED,
        severity: Severity::Info,
        description: "A replay has ended.",
        is_told: true,
    };
    of_pairs.chain([told]).collect()
}

/// The types of at least this severity.
pub(super) fn of_severity(
    alerts: &AlertSettings,
    least: Severity,
) -> impl Iterator<Item = NoticeType> {
    all(alerts).into_iter().filter(move |notice| notice.severity >= least)
}

/// The records of all types for the reserved tenant.
pub(super) fn records(tenant: &TenantId) -> Vec<EventTypeRecord> {
    let schema = schema();
    let record = |notice: NoticeType| EventTypeRecord {
        tenant: tenant.clone(),
        name: notice.name.parse().expect("it is an event type"),
        description: notice.description.to_owned(),
        schemas: [(SCHEMA_VERSION, schema.clone())].into(),
        validation: Validation::Warn,
    };
    all(&AlertSettings::default()).into_iter().map(record).collect()
}

/// The version of the schema that notices are published with.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// What every notice looks like. Fields may be added.
pub(super) fn schema() -> Value {
    let text = json!({ "type": "string" });
    let optional_text = json!({ "type": ["string", "null"] });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["notice", "status", "severity", "summary", "dedup_key", "at"],
        "properties": {
            "notice": text,
            "status": { "enum": ["fired", "resolved", "told"] },
            "severity": { "enum": ["info", "warning", "error", "critical"] },
            "summary": { "type": "string", "maxLength": 1024 },
            "dedup_key": { "type": "string", "maxLength": 255 },
            "alert": optional_text,
            "tenant": optional_text,
            "subject": optional_text,
            "endpoint": {
                "type": ["object", "null"],
                "required": ["id", "url"],
                "properties": { "id": text, "url": text },
            },
            "since": optional_text,
            "at": text,
            "details": { "type": ["object", "null"] },
            "links": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["href", "text"],
                    "properties": { "href": text, "text": text },
                },
            },
            "test": { "type": "boolean" },
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn the_schema_is_within_the_budget_and_every_type_is_reserved() {
        railpost_schema::compile(&schema()).unwrap();
        for notice in all(&AlertSettings::default()) {
            let name = notice.name.parse().unwrap();
            assert!(railpost_store::is_reserved_type(&name), "{name}");
            assert!(!railpost_store::is_test_type(&name), "{name}");
        }
    }
}
