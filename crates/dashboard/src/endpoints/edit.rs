//! Creating and editing an endpoint, with errors beside their fields.

use http::Method;
use maud::{Markup, html};
use serde_json::Value;

use super::draft::Draft;
use super::settings::{LIMITS, MAIN, OF_STRATEGIES, STRATEGY, Setting};
use crate::form::form;
use crate::layout::{self, Tab};
use crate::shown::{number, text};
use crate::visit::{ApiRefusal, PageVisit};
use crate::{PageResult, Reply};

pub(crate) async fn new(visit: PageVisit) -> PageResult {
    let form = EndpointForm { draft: &Draft::new(), id: None, revision: "", refused: None };
    Reply::page("New endpoint", Tab::Endpoints, form.render(&visit))
}

pub(crate) async fn create(visit: PageVisit) -> PageResult {
    let draft = Draft::typed(&visit);
    let body = Value::from(draft.changes(&Draft::new()));
    match visit.post("/endpoints", Some(&body)).await {
        Ok(made) => {
            let page = format!("/endpoints/{}", text(&made, "id"));
            let said = "The endpoint is created. This secret signs its requests:";
            Ok(visit.redirect_with_secret(&page, said, text(&made["secret"], "value")))
        }
        Err(refused) => form_with_refusal(&visit, &draft, None, refused).await,
    }
}

pub(crate) async fn edit(visit: PageVisit) -> PageResult {
    let id = visit.param("id");
    let endpoint = visit.get(&format!("/endpoints/{id}")).await?;
    let revision = &number(&endpoint, "revision").to_string();
    let form = EndpointForm { draft: &Draft::of(&endpoint), id: Some(id), revision, refused: None };
    Reply::page("Edit endpoint", Tab::Endpoints, form.render(&visit))
}

/// Changes what differs from the endpoint as it is, and nothing if nothing does.
pub(crate) async fn change(visit: PageVisit) -> PageResult {
    let id = visit.param("id");
    let path = format!("/endpoints/{id}");
    let endpoint = visit.get(&path).await?;
    let draft = Draft::typed(&visit);
    let mut body = draft.changes(&Draft::of(&endpoint));
    if body.is_empty() {
        return Ok(visit.redirect(&path, "Nothing was changed."));
    }
    let revision = visit.field("revision").parse::<u64>().map_or(Value::Null, Value::from);
    body.insert("revision".to_owned(), revision);
    match visit.call(Method::PATCH, &visit.api_path(&path), Some(&body.into())).await {
        Ok(_) => Ok(visit.redirect(&path, "The endpoint is changed.")),
        Err(refused) => form_with_refusal(&visit, &draft, Some(id), refused).await,
    }
}

/// The form again, as it was typed, with what was refused. What no field can put right is a page of its
/// own.
async fn form_with_refusal(
    visit: &PageVisit,
    draft: &Draft,
    id: Option<&str>,
    refused: ApiRefusal,
) -> PageResult {
    if !matches!(refused.status, 400 | 409 | 422) {
        return Err(refused);
    }
    let form =
        EndpointForm { draft, id, revision: visit.field("revision"), refused: Some(&refused) };
    let (title, body) = (form.title().to_owned(), form.render(visit));
    let page = layout::PageContent { title, tab: Tab::Endpoints, body };
    let status = http::StatusCode::UNPROCESSABLE_ENTITY;
    Ok(Reply::Raw(layout::response(status, page.render(visit).await)))
}

/// The form of an endpoint that is new or, if it has an id, edited.
struct EndpointForm<'a> {
    draft: &'a Draft,
    id: Option<&'a str>,
    /// The revision that is edited.
    revision: &'a str,
    refused: Option<&'a ApiRefusal>,
}

impl EndpointForm<'_> {
    fn title(&self) -> &'static str {
        if self.id.is_some() { "Edit endpoint" } else { "New endpoint" }
    }

    fn render(&self, visit: &PageVisit) -> Markup {
        let action = match self.id {
            Some(id) => visit.path(&format!("/endpoints/{id}/edit")),
            None => visit.path("/endpoints"),
        };
        let label = if self.id.is_some() { "Save" } else { "Create the endpoint" };
        let body = html! {
            (self.fields(MAIN))
            details open[self.refused.is_some()] {
                summary { "Retries and limits" }
                (self.backoff())
                (self.fields(LIMITS))
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

    fn fields(&self, settings: &[Setting]) -> Markup {
        html! { @for setting in settings { (setting.field(self.draft.get(setting), self.refused)) } }
    }

    /// The fields of all strategies. The style sheet shows those of the one that is chosen.
    fn backoff(&self) -> Markup {
        html! {
            (self.fields(&[STRATEGY]))
            @for (strategy, settings) in OF_STRATEGIES {
                div class={ "of-" (strategy) } { (self.fields(settings)) }
            }
        }
    }
}
