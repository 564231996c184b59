//! A section `[[notices]]` with its variables and files read: the settings of an endpoint.

use std::collections::BTreeMap;

use railpost_alerts::AlertSettings;
use railpost_engine::{OnDeadLetter, Policy, PolicyFields, RateLimit, RetryPolicy, Span};
use railpost_store::{EndpointPrivate, EndpointSettings, Severity};
use railpost_wire::{Envelope, EventTypeFilter};

use super::types;
use crate::config::NoticeSection;
use crate::limits::{NOTICE_RETRY_DELAY_MAX, NOTICE_TTL, NOTICE_VALUE_LEN_MAX};

/// A section, ready to become an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSection {
    /// Its place in the file, such as `notices[0]`.
    pub(super) place: String,
    pub(super) settings: EndpointSettings,
    pub(super) private: EndpointPrivate,
}

/// Reads the variables and files that sections name. An error names the field.
pub(crate) fn resolve(
    sections: &[NoticeSection],
    alerts: &AlertSettings,
) -> Result<Vec<ResolvedSection>, String> {
    let numbered = sections.iter().enumerate();
    let place = |index| format!("notices[{index}]");
    numbered.map(|(index, section)| resolved(place(index), section, alerts)).collect()
}

fn resolved(
    place: String,
    section: &NoticeSection,
    alerts: &AlertSettings,
) -> Result<ResolvedSection, String> {
    let value = |field: &str, text: &str| {
        value(text).map_err(|problem| format!("{place}.{field}: {problem}"))
    };
    let optional = |field: &str, text: &Option<String>| {
        text.as_ref().map(|text| value(field, text)).transpose()
    };
    let mut headers = BTreeMap::new();
    for (name, text) in &section.headers {
        headers.insert(name.clone(), value(&format!("headers.{name}"), text)?);
    }
    let settings = EndpointSettings {
        description: format!("Notices: the section `{}` of the configuration", section.name),
        filters: filters(section, alerts),
        policy: policy(section.envelope),
        envelope: section.envelope,
        template: optional("template", &section.template)?,
        managed_by: Some(format!("notices.{}", section.name)),
        ..EndpointSettings::all_events(&value("url", &section.url)?)
    };
    let routing_key = optional("routing_key", &section.routing_key)?;
    let private = EndpointPrivate { headers, routing_key, ..EndpointPrivate::default() };
    Ok(ResolvedSection { place, settings, private })
}

/// The types that are wanted. PagerDuty does not hear of what nobody has to do anything about.
fn filters(section: &NoticeSection, alerts: &AlertSettings) -> Vec<EventTypeFilter> {
    if !section.types.is_empty() {
        return section.types.clone();
    }
    let pages = section.envelope == Envelope::Pagerduty;
    let wanted = types::of_severity(alerts, section.severity.unwrap_or(Severity::Info));
    let wanted = wanted.filter(|notice| !(pages && notice.is_told));
    wanted.map(|notice| notice.name.parse().expect("a type is a filter")).collect()
}

/// A page that is refused does not hold the next one, and nothing switches the endpoint off.
fn policy(envelope: Envelope) -> Policy {
    // Slack takes one message a second.
    let one_a_second = RateLimit { count: 1, per: Span::from_secs(1), burst: 1 };
    let fields = PolicyFields {
        on_dead_letter: OnDeadLetter::Advance,
        signed: false,
        retry: RetryPolicy {
            max_delay: NOTICE_RETRY_DELAY_MAX,
            max_attempts: railpost_engine::limits::ATTEMPTS_MAX,
            ttl: NOTICE_TTL,
            ..RetryPolicy::default()
        },
        rate_limit: (envelope == Envelope::Slack).then_some(one_a_second),
        breaker: None,
        quarantine_after: None,
        disable_after: None,
        ..PolicyFields::default()
    };
    Policy::new(fields).expect("it is a policy")
}

/// The value that a text stands for: itself, a variable, or a file without the white space around it.
fn value(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        return std::env::var(name).map_err(|_| format!("the variable {name} is not set"));
    }
    let Some(path) = text.strip_prefix("file:") else { return Ok(text.to_owned()) };
    let size = std::fs::metadata(path).map_err(|error| format!("{path}: {error}"))?.len();
    if size > NOTICE_VALUE_LEN_MAX {
        return Err(format!("{path}: expected at most {NOTICE_VALUE_LEN_MAX} bytes; got {size}"));
    }
    let content = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(content.trim().to_owned())
}
