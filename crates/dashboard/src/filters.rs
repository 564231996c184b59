//! The filters of lists: each once, with its name in the API, its label and its input.

use maud::{Markup, html};
use serde_json::Value;

use super::shown::{items, text, words};
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
    /// One of the states of a delivery.
    State,
    /// One of the tenant's endpoints.
    Endpoint,
}

const STATE: Filter = Filter { name: "state", label: "State", input: FilterInput::State };
const ENDPOINT: Filter =
    Filter { name: "endpoint", label: "Endpoint", input: FilterInput::Endpoint };
const TYPE: Filter = filter("type", "Type", "order.created");
const KEY: Filter = filter("key", "Key", "order-1");
const FROM: Filter = filter("created_after", "From", "2026-01-31T12:00:00Z");
const BEFORE: Filter = filter("created_before", "Before", "2026-01-31T12:00:00Z");
const TARGET: Filter = filter("target", "Target", "ep_…");

const fn filter(name: &'static str, label: &'static str, example: &'static str) -> Filter {
    Filter { name, label, input: FilterInput::Text(example) }
}

pub(super) const OF_EVENTS: [Filter; 4] = [TYPE, KEY, FROM, BEFORE];
pub(super) const OF_DELIVERIES: [Filter; 6] = [STATE, ENDPOINT, TYPE, KEY, FROM, BEFORE];
pub(super) const OF_DEAD_LETTERS: [Filter; 5] = [ENDPOINT, TYPE, KEY, FROM, BEFORE];
pub(super) const OF_AUDIT: [Filter; 3] = [TARGET, FROM, BEFORE];

const STATES: [&str; 6] = ["pending", "in_flight", "waiting", "delivered", "dead", "discarded"];

/// The query of a page's own filters, for the API and for links: those that are set.
pub(super) fn set_filters(visit: &PageVisit, filters: &[Filter]) -> Vec<(String, String)> {
    let set = filters.iter().filter(|filter| !visit.query(filter.name).is_empty());
    set.map(|filter| (filter.name.to_owned(), visit.query(filter.name).to_owned())).collect()
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
    Ok(html! {
        form.filters method="get" action=(visit.uri.path()) role="search" aria-label="Filter" {
            @for field in fields { (field) }
            div.field.buttons {
                button type="submit" { "Filter" }
                a href=(visit.uri.path()) { "Clear" }
            }
        }
    })
}

impl Filter {
    async fn field(&self, visit: &PageVisit) -> Result<Markup, ApiRefusal> {
        let (name, value) = (self.name, visit.query(self.name));
        let input = match self.input {
            FilterInput::Text(example) => html! {
                input id={ "filter-" (name) } name=(name) value=(value) placeholder=(example) spellcheck="false";
            },
            FilterInput::State => {
                let states = STATES.map(|state| (state.to_owned(), words(state)));
                select(name, value, &states)
            }
            FilterInput::Endpoint => select(name, value, &endpoints(visit).await?),
        };
        Ok(html! { div.field { label for={ "filter-" (name) } { (self.label) } (input) } })
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
