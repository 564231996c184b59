//! Creating and editing an endpoint, with what is wrong beside the field.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::dashboard::form::{Field, form};
use crate::dashboard::layout::{self, Tab};
use crate::dashboard::shown::text;
use crate::dashboard::visit::{Refused, Visit};
use crate::dashboard::{Answered, Reply};

/// What is in the form: as it was typed, or as the endpoint is.
#[derive(Default)]
struct Draft {
    url: String,
    description: String,
    types: String,
    envelope: String,
    timeout: String,
    guarantee: String,
    ordering: String,
    on_dead_letter: String,
    base: String,
    max_delay: String,
    max_attempts: String,
    in_flight_max: String,
    revision: String,
}

pub(crate) async fn new(visit: Visit) -> Answered {
    let draft = Draft { types: "*".to_owned(), envelope: "raw".to_owned(), ..Draft::default() };
    Reply::page("New endpoint", Tab::Endpoints, page(&visit, &draft, None, None))
}

pub(crate) async fn create(visit: Visit) -> Answered {
    let draft = Draft::typed(&visit);
    let body = draft.body();
    match visit.post("/endpoints", Some(&body)).await {
        Ok(made) => {
            let page = format!("/endpoints/{}", text(&made, "id"));
            let secret = text(&made["secret"], "value");
            Ok(visit.then_reveal(
                &page,
                "The endpoint is there. This secret signs what it is sent:",
                secret,
            ))
        }
        Err(refused) => again(&visit, "New endpoint", &draft, None, refused).await,
    }
}

pub(crate) async fn edit(visit: Visit) -> Answered {
    let id = visit.param("id");
    let endpoint = visit.get(&format!("/endpoints/{id}")).await?;
    Reply::page(
        "Edit endpoint",
        Tab::Endpoints,
        page(&visit, &Draft::of(&endpoint), Some(id), None),
    )
}

pub(crate) async fn change(visit: Visit) -> Answered {
    let id = visit.param("id");
    let path = format!("/endpoints/{id}");
    let draft = Draft::typed(&visit);
    let mut body = draft.body();
    body["revision"] = draft.revision.parse().map_or(Value::Null, |revision: u64| revision.into());
    match visit.call(Method::PATCH, &visit.api_path(&path), Some(&body)).await {
        Ok(_) => Ok(visit.then(&path, "The endpoint is changed.")),
        Err(refused) => again(&visit, "Edit endpoint", &draft, Some(id), refused).await,
    }
}

/// The form again, as it was typed, with what was refused. What no field can mend is a page of its own.
async fn again(
    visit: &Visit,
    title: &str,
    draft: &Draft,
    id: Option<&str>,
    refused: Refused,
) -> Answered {
    if !matches!(refused.status, 400 | 409 | 422) {
        return Err(refused);
    }
    let body = page(visit, draft, id, Some(&refused));
    let page = layout::Page { title: title.to_owned(), tab: Tab::Endpoints, body };
    let status = http::StatusCode::UNPROCESSABLE_ENTITY;
    Ok(Reply::Raw(layout::response(status, page.drawn(visit).await)))
}

impl Draft {
    fn typed(visit: &Visit) -> Self {
        let text = |name: &str| visit.field(name).to_owned();
        Self {
            url: text("url"),
            description: text("description"),
            types: text("types"),
            envelope: text("envelope"),
            timeout: text("timeout"),
            guarantee: text("guarantee"),
            ordering: text("ordering"),
            on_dead_letter: text("on_dead_letter"),
            base: text("base"),
            max_delay: text("max_delay"),
            max_attempts: text("max_attempts"),
            in_flight_max: text("in_flight_max"),
            revision: text("revision"),
        }
    }

    fn of(endpoint: &Value) -> Self {
        let (policy, retry) = (&endpoint["policy"], &endpoint["policy"]["retry"]);
        let own = |of: &Value, field: &str| match &of[field] {
            Value::Number(number) => number.to_string(),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        let types = endpoint["types"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Self {
            url: own(endpoint, "url"),
            description: own(endpoint, "description"),
            types: types.collect::<Vec<_>>().join("\n"),
            envelope: own(endpoint, "envelope"),
            timeout: own(endpoint, "timeout"),
            guarantee: own(policy, "guarantee"),
            ordering: own(policy, "ordering"),
            on_dead_letter: own(policy, "on_dead_letter"),
            base: own(&retry["backoff"], "base"),
            max_delay: own(retry, "max_delay"),
            max_attempts: own(retry, "max_attempts"),
            in_flight_max: own(policy, "in_flight_max"),
            revision: own(endpoint, "revision"),
        }
    }

    /// What the API is sent: what was filled in. What the form does not show stays as it is.
    fn body(&self) -> Value {
        let types: Vec<&str> = self.types.split_whitespace().collect();
        json!({
            "url": self.url,
            "description": self.description,
            "types": types,
            "envelope": self.envelope,
            "timeout": Some(&self.timeout).filter(|text| !text.is_empty()),
            "policy": self.policy(),
        })
    }

    fn policy(&self) -> Value {
        let mut policy = Map::new();
        put(&mut policy, "guarantee", &self.guarantee);
        put(&mut policy, "ordering", &self.ordering);
        put(&mut policy, "on_dead_letter", &self.on_dead_letter);
        put(&mut policy, "in_flight_max", &self.in_flight_max);
        let mut retry = Map::new();
        put(&mut retry, "max_delay", &self.max_delay);
        put(&mut retry, "max_attempts", &self.max_attempts);
        if !self.base.is_empty() {
            retry.insert(
                "backoff".to_owned(),
                json!({"strategy": "exponential", "base": self.base}),
            );
        }
        if !retry.is_empty() {
            policy.insert("retry".to_owned(), retry.into());
        }
        policy.into()
    }
}

/// Sets a field that was filled in: as a number if it is one, so that the API says what is wrong if it
/// should be one and is not.
fn put(fields: &mut Map<String, Value>, name: &str, typed: &str) {
    if !typed.is_empty() {
        let value = typed.parse::<u64>().map_or_else(|_| Value::from(typed), Value::from);
        fields.insert(name.to_owned(), value);
    }
}

const GUARANTEES: [(&str, &str); 3] = [
    ("at_least_once", "at least once: retry until acknowledged"),
    ("effectively_once", "effectively once: with all a receiver needs to apply it once"),
    ("at_most_once", "at most once: sent once, never again"),
];
const ORDERINGS: [(&str, &str); 3] = [
    ("per_key", "per key: events of one key in order"),
    ("global", "global: everything in order"),
    ("none", "none: as fast as possible"),
];
const ON_DEAD_LETTER: [(&str, &str); 2] =
    [("hold", "hold the lane until someone acts"), ("advance", "let the lane move on")];
const ENVELOPES: [(&str, &str); 4] = [
    ("raw", "raw: the producer's bytes"),
    ("cloudevents-structured", "CloudEvents, structured"),
    ("cloudevents-binary", "CloudEvents, binary"),
    ("thin", "thin: a link to the event"),
];

fn page(visit: &Visit, draft: &Draft, id: Option<&str>, refused: Option<&Refused>) -> Markup {
    let action = match id {
        Some(id) => visit.path(&format!("/endpoints/{id}/edit")),
        None => visit.path("/endpoints"),
    };
    let label = if id.is_some() { "Save" } else { "Create the endpoint" };
    let body = html! {
        (fields(draft, refused))
        input type="hidden" name="revision" value=(draft.revision);
        div.actions {
            button.primary type="submit" { (label) }
            a href=(visit.path("/endpoints")) { "Cancel" }
        }
    };
    html! {
        h1 { @if id.is_some() { "Edit endpoint" } @else { "New endpoint" } }
        @if let Some(refused) = refused {
            p.flash.problem role="alert" { (refused) }
        }
        div.stack { (form(visit, &action, &body)) }
    }
}

fn fields(draft: &Draft, refused: Option<&Refused>) -> Markup {
    let field = |name, path, label, hint| Field { name, path, label, hint };
    html! {
        (field("url", "url", "URL", "Where events are sent, such as https://example.com/hooks")
            .text(&draft.url, refused))
        (field("description", "description", "Description", "For people.")
            .text(&draft.description, refused))
        (field("types", "types", "Event types", "One filter a line: order.created, order.*, or * for all.")
            .lines(&draft.types, refused))
        (field("ordering", "policy.ordering", "Ordering", "Which deliveries wait for each other.")
            .choice(&draft.ordering, &ORDERINGS, refused))
        (field("guarantee", "policy.guarantee", "Guarantee", "What is promised about duplicates and loss.")
            .choice(&draft.guarantee, &GUARANTEES, refused))
        (field("on_dead_letter", "policy.on_dead_letter", "A dead letter", "What it does to its lane.")
            .choice(&draft.on_dead_letter, &ON_DEAD_LETTER, refused))
        (field("envelope", "envelope", "Envelope", "How an event is wrapped.")
            .choice(&draft.envelope, &ENVELOPES, refused))
        details open[refused.is_some()] {
            summary { "Retries and limits" }
            (field("base", "policy.retry.backoff", "First wait", "Such as 2s; it doubles with each failure. Empty: as it is.")
                .text(&draft.base, refused))
            (field("max_delay", "policy.retry.max_delay", "Longest wait", "Such as 10m.")
                .text(&draft.max_delay, refused))
            (field("max_attempts", "policy.retry.max_attempts", "Most attempts", "Then it is a dead letter.")
                .text(&draft.max_attempts, refused))
            (field("in_flight_max", "policy.in_flight_max", "Most at once", "Attempts under way at one time.")
                .text(&draft.in_flight_max, refused))
            (field("timeout", "timeout", "Timeout", "Of one attempt, such as 15s. Empty: the default of the server.")
                .text(&draft.timeout, refused))
        }
    }
}
