//! The filters of lists: each once, with its name in the API, its label and its input.

use maud::{Markup, html};
use serde_json::Value;

use super::shown::{self, items, text, words};
use super::visit::{ApiRefusal, PageVisit};

/// A filter of a list.
#[derive(Clone, Copy)]
pub(super) struct Filter {
    /// Its name in the API.
    pub(super) name: &'static str,
    label: &'static str,
    input: FilterInput,
}

#[derive(Clone, Copy)]
enum FilterInput {
    /// A text such as this one.
    Text(&'static str),
    /// The status of an answer.
    Status,
    /// One of these words of the API.
    Word(&'static [&'static str], fn(&str) -> String),
    /// One of the tenant's endpoints.
    Endpoint,
    /// An instant, picked in the reader's zone if there is script, else in UTC.
    Instant,
}

const STATES: &[&str] = &["pending", "in_flight", "waiting", "delivered", "dead", "discarded"];
const DEAD_REASONS: &[&str] =
    &["permanent", "attempts_exhausted", "expired", "single_attempt_failed", "outcome_unknown"];
const REASONS: &[&str] = &[
    "permanent",
    "attempts_exhausted",
    "expired",
    "single_attempt_failed",
    "outcome_unknown",
    "person",
    "endpoint_removed",
];
const FAILURES: &[&str] = &[
    "dns",
    "blocked_address",
    "refused",
    "unreachable",
    "connect_timeout",
    "tls",
    "reset",
    "timeout",
    "bad_response",
    "payload_missing",
    "not_sent",
];

const STATE: Filter = filter("state", "State", FilterInput::Word(STATES, words));
const ENDPOINT: Filter = filter("endpoint", "Endpoint", FilterInput::Endpoint);
const TYPE: Filter = filter("type", "Type", FilterInput::Text("order.created"));
const KEY: Filter = filter("key", "Key", FilterInput::Text("order-1"));
const REASON: Filter = filter("reason", "Reason", FilterInput::Word(REASONS, shown::reason));
const DEAD_REASON: Filter =
    filter("reason", "Reason", FilterInput::Word(DEAD_REASONS, shown::reason));
const STATUS: Filter = filter("status", "Last answer", FilterInput::Status);
const FAILURE: Filter = filter("failure", "Last failure", FilterInput::Word(FAILURES, words));
const FROM: Filter = filter("created_after", "From", FilterInput::Instant);
const BEFORE: Filter = filter("created_before", "Before", FilterInput::Instant);
const REPORT_FROM: Filter = filter("from", "From", FilterInput::Instant);
const REPORT_TO: Filter = filter("to", "To", FilterInput::Instant);
const TARGET: Filter = filter("target", "Target", FilterInput::Text("ep_…"));

const fn filter(name: &'static str, label: &'static str, input: FilterInput) -> Filter {
    Filter { name, label, input }
}

pub(super) const OF_EVENTS: [Filter; 4] = [TYPE, KEY, FROM, BEFORE];
pub(super) const OF_DELIVERIES: [Filter; 9] =
    [STATE, ENDPOINT, TYPE, KEY, REASON, STATUS, FAILURE, FROM, BEFORE];
pub(super) const OF_DEAD_LETTERS: [Filter; 8] =
    [ENDPOINT, TYPE, KEY, DEAD_REASON, STATUS, FAILURE, FROM, BEFORE];
pub(super) const OF_LANES: [Filter; 1] = [ENDPOINT];
pub(super) const OF_REPORT: [Filter; 2] = [REPORT_FROM, REPORT_TO];
pub(super) const OF_AUDIT: [Filter; 3] = [TARGET, FROM, BEFORE];

/// The query of a page's own filters, for the API and for links: those that are set.
pub(super) fn set_filters(visit: &PageVisit, filters: &[Filter]) -> Vec<(String, String)> {
    let set = filters.iter().filter(|filter| !visit.query(filter.name).is_empty());
    set.map(|filter| (filter.name.to_owned(), filter.api_value(visit.query(filter.name)))).collect()
}

/// The filters of a list: a form that works by its query, without script.
pub(super) async fn filter_form(
    visit: &PageVisit,
    filters: &[Filter],
) -> Result<Markup, ApiRefusal> {
    let mut fields = Vec::new();
    for filter in filters {
        fields.push(filter.field(visit).await?);
    }
    let path = visit.page_path();
    Ok(html! {
        form.filters method="get" action=(path) role="search" aria-label="Filter" {
            @for field in fields { (field) }
            div.field.buttons {
                button type="submit" { "Filter" }
                a href=(path) { "Clear" }
            }
        }
    })
}

impl Filter {
    /// The value as the API reads it. Pickers leave out the zone, and seconds that are zero.
    fn api_value(&self, typed: &str) -> String {
        match (self.input, typed.len()) {
            (FilterInput::Instant, 16) => format!("{typed}:00Z"),
            (FilterInput::Instant, 19) => format!("{typed}Z"),
            _ => typed.to_owned(),
        }
    }

    async fn field(&self, visit: &PageVisit) -> Result<Markup, ApiRefusal> {
        let (name, value) = (self.name, visit.query(self.name));
        let id = format!("filter-{name}");
        let input = match self.input {
            FilterInput::Text(example) => html! {
                input id=(id) name=(name) value=(value) placeholder=(example) spellcheck="false";
            },
            FilterInput::Status => html! {
                input id=(id) name=(name) value=(value) type="number" min="100" max="599" placeholder="503";
            },
            FilterInput::Word(words, shown) => {
                let options: Vec<_> =
                    words.iter().map(|word| ((*word).to_owned(), shown(word))).collect();
                select(name, value, &options)
            }
            FilterInput::Endpoint => select(name, value, &endpoints(visit).await?),
            FilterInput::Instant => html! {
                input id=(id) name=(name) type="datetime-local" step="1" value=(value.get(..19).unwrap_or(value));
            },
        };
        let zone = matches!(self.input, FilterInput::Instant);
        Ok(html! {
            div.field {
                label for=(id) { (self.label) @if zone { " (" span.zone { "UTC" } ")" } }
                (input)
            }
        })
    }
}

/// A choice among options, each a value and what is shown of it.
fn select(name: &str, chosen: &str, options: &[(String, String)]) -> Markup {
    html! {
        select id={ "filter-" (name) } name=(name) {
            option value="" { "any" }
            @for (value, shown) in options {
                option value=(value) selected[value == chosen] { (shown) }
            }
        }
    }
}

/// The tenant's endpoints to choose from, by their URLs.
async fn endpoints(visit: &PageVisit) -> Result<Vec<(String, String)>, ApiRefusal> {
    let endpoints = visit.get("/endpoints?limit=500").await?;
    let option = |it: &Value| (text(it, "id").to_owned(), text(it, "url").to_owned());
    Ok(items(&endpoints).iter().map(option).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_was_picked_is_read_as_utc() {
        for (typed, read) in [
            ("2026-01-31T12:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:05", "2026-01-31T12:00:05Z"),
            ("2026-01-31T12:00:05Z", "2026-01-31T12:00:05Z"),
        ] {
            assert_eq!(FROM.api_value(typed), read);
        }
        assert_eq!(
            KEY.api_value("2026-01-31T12:00"),
            "2026-01-31T12:00",
            "a key is not an instant"
        );
    }
}
