//! Creating and editing an endpoint, with errors beside their fields.

use http::Method;
use maud::{Markup, html};
use serde_json::Value;

use super::draft::Draft;
use crate::form::{Field, form};
use crate::layout::{self, Tab};
use crate::shown::{number, text};
use crate::visit::{ApiRefusal, PageVisit};
use crate::{PageResult, Reply};

pub(crate) async fn new(visit: PageVisit) -> PageResult {
    let form = Form { draft: &Draft::new(), id: None, revision: "", refused: None };
    Reply::page("New endpoint", Tab::Endpoints, form.drawn(&visit))
}

pub(crate) async fn create(visit: PageVisit) -> PageResult {
    let draft = Draft::typed(&visit);
    let body = Value::from(draft.changes(&Draft::new()));
    match visit.post("/endpoints", Some(&body)).await {
        Ok(made) => {
            let page = format!("/endpoints/{}", text(&made, "id"));
            let said = "The endpoint is created. This secret signs its requests:";
            Ok(visit.then_reveal(&page, said, text(&made["secret"], "value")))
        }
        Err(refused) => again(&visit, &draft, None, refused).await,
    }
}

pub(crate) async fn edit(visit: PageVisit) -> PageResult {
    let id = visit.param("id");
    let endpoint = visit.get(&format!("/endpoints/{id}")).await?;
    let revision = &number(&endpoint, "revision").to_string();
    let form = Form { draft: &Draft::of(&endpoint), id: Some(id), revision, refused: None };
    Reply::page("Edit endpoint", Tab::Endpoints, form.drawn(&visit))
}

/// Changes what differs from the endpoint as it is, and nothing if nothing does.
pub(crate) async fn change(visit: PageVisit) -> PageResult {
    let id = visit.param("id");
    let path = format!("/endpoints/{id}");
    let endpoint = visit.get(&path).await?;
    let draft = Draft::typed(&visit);
    let mut body = draft.changes(&Draft::of(&endpoint));
    if body.is_empty() {
        return Ok(visit.then(&path, "Nothing was changed."));
    }
    let revision = visit.field("revision").parse::<u64>().map_or(Value::Null, Value::from);
    body.insert("revision".to_owned(), revision);
    match visit.call(Method::PATCH, &visit.api_path(&path), Some(&body.into())).await {
        Ok(_) => Ok(visit.then(&path, "The endpoint is changed.")),
        Err(refused) => again(&visit, &draft, Some(id), refused).await,
    }
}

/// The form again, as it was typed, with what was refused. What no field can put right is a page of its
/// own.
async fn again(
    visit: &PageVisit,
    draft: &Draft,
    id: Option<&str>,
    refused: ApiRefusal,
) -> PageResult {
    if !matches!(refused.status, 400 | 409 | 422) {
        return Err(refused);
    }
    let form = Form { draft, id, revision: visit.field("revision"), refused: Some(&refused) };
    let (title, body) = (form.title().to_owned(), form.drawn(visit));
    let page = layout::PageContent { title, tab: Tab::Endpoints, body };
    let status = http::StatusCode::UNPROCESSABLE_ENTITY;
    Ok(Reply::Raw(layout::response(status, page.drawn(visit).await)))
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
const ENVELOPES: [(&str, &str); 5] = [
    ("raw", "raw: the producer's bytes"),
    ("cloudevents-structured", "CloudEvents, structured"),
    ("cloudevents-binary", "CloudEvents, binary"),
    ("event", "event: id, type, time, version and data in one object"),
    ("thin", "thin: a link to the event"),
];

const STRATEGIES: [(&str, &str); 3] = [
    ("exponential", "exponential: the wait doubles with each failure"),
    ("fixed", "fixed: the same wait every time"),
    ("schedule", "schedule: the waits that are written down"),
];
const JITTERS: [(&str, &str); 4] = [
    ("full", "full: anything up to the wait"),
    ("equal", "equal: half of the wait, and anything up to the other half"),
    ("decorrelated", "decorrelated: anything up to three times the wait before"),
    ("none", "none: the wait as it is"),
];
const REPEAT_LAST: [(&str, &str); 2] =
    [("false", "give up"), ("true", "repeat the last wait until there are no attempts left")];

/// The form of an endpoint that is new or, if it has an id, edited.
struct Form<'a> {
    draft: &'a Draft,
    id: Option<&'a str>,
    /// The revision that is edited.
    revision: &'a str,
    refused: Option<&'a ApiRefusal>,
}

impl Form<'_> {
    fn title(&self) -> &'static str {
        if self.id.is_some() { "Edit endpoint" } else { "New endpoint" }
    }

    fn drawn(&self, visit: &PageVisit) -> Markup {
        let action = match self.id {
            Some(id) => visit.path(&format!("/endpoints/{id}/edit")),
            None => visit.path("/endpoints"),
        };
        let label = if self.id.is_some() { "Save" } else { "Create the endpoint" };
        let body = html! {
            (self.fields())
            details open[self.refused.is_some()] {
                summary { "Retries and limits" }
                (self.backoff())
                (self.limits())
            }
            input type="hidden" name="revision" value=(self.revision);
            div.actions {
                button.primary type="submit" { (label) }
                a href=(visit.path("/endpoints")) { "Cancel" }
            }
        };
        html! {
            h1 { (self.title()) }
            @if let Some(refused) = self.refused { p.flash.problem role="alert" { (refused) } }
            div.stack { (form(visit, &action, &body)) }
        }
    }

    fn fields(&self) -> Markup {
        let Self { draft, refused, .. } = *self;
        html! {
            (field("url", "url", "URL", "Where events are sent, such as https://example.com/hooks")
                .text(&draft.url, refused))
            (field("description", "description", "Description", "For people.")
                .lines(&draft.description, refused))
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
            (field("thin_above", "thin_above", "Reference above", "Payloads of more bytes than this are sent as a link. Empty: never.")
                .text(&draft.thin_above, refused))
        }
    }

    /// The fields of all strategies. The style sheet shows those of the one that is chosen.
    fn backoff(&self) -> Markup {
        let (draft, refused) = (&self.draft.backoff, self.refused);
        html! {
            (field("strategy", "policy.retry.backoff.strategy", "Strategy", "How the wait between two attempts grows.")
                .choice(&draft.strategy, &STRATEGIES, refused))
            div.of-exponential {
                (field("base", "policy.retry.backoff.base", "First wait", "Such as 2s.")
                    .text(&draft.base, refused))
                (field("jitter", "policy.retry.backoff.jitter", "Jitter", "How chance spreads the waits.")
                    .choice(&draft.jitter, &JITTERS, refused))
            }
            div.of-fixed {
                (field("delay", "policy.retry.backoff.delay", "Wait", "Such as 30s.")
                    .text(&draft.delay, refused))
            }
            div.of-schedule {
                (field("delays", "policy.retry.backoff.delays", "Waits", "With spaces between them: 5s 1m 10m 1h.")
                    .text(&draft.delays, refused))
                (field("repeat_last", "policy.retry.backoff.repeat_last", "After the last one", "What follows when all waits are over.")
                    .choice(&draft.repeat_last, &REPEAT_LAST, refused))
            }
        }
    }

    fn limits(&self) -> Markup {
        let Self { draft, refused, .. } = *self;
        html! {
            (field("max_delay", "policy.retry.max_delay", "Longest wait", "Such as 10m.")
                .text(&draft.max_delay, refused))
            (field("max_attempts", "policy.retry.max_attempts", "Most attempts", "Then it is a dead letter.")
                .text(&draft.max_attempts, refused))
            (field("in_flight_max", "policy.in_flight_max", "Most at once", "Attempts in flight at the same time.")
                .text(&draft.in_flight_max, refused))
            (field("timeout", "timeout", "Timeout", "Of one attempt, such as 15s. Empty: the server's own.")
                .text(&draft.timeout, refused))
        }
    }
}

fn field(
    name: &'static str,
    path: &'static str,
    label: &'static str,
    hint: &'static str,
) -> Field<'static> {
    Field { name, path, label, hint }
}
