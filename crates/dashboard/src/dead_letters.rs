//! Dead letters: filter, look, and replay, skip or discard one, some or all that match.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::confirm::Question;
use super::deliveries::{redelivery, replay};
use super::filters::{OF_DEAD_LETTERS, filter_form, set_filters};
use super::form::form;
use super::layout::Tab;
use super::live::live_part;
use super::shown::{self, badge, count, endpoint_link, items, number, text, time};
use super::table::{empty, page_query, pager, table};
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let part = live(visit.clone()).await?;
    let body = html! {
        h1 { "Dead letters" }
        p.lead { "Deliveries that failed for good. A dead letter that holds its lane keeps later deliveries waiting." }
        (filter_form(&visit, &OF_DEAD_LETTERS).await?)
        (live_part(&visit, "/dead-letters", &part))
    };
    Reply::page("Dead letters", Tab::DeadLetters, body)
}

/// The part of the page that changes.
pub(super) async fn live(visit: PageVisit) -> Result<Markup, ApiRefusal> {
    let set = set_filters(&visit, &OF_DEAD_LETTERS);
    let page =
        visit.get(&format!("/dead-letters?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let letters = items(&page);
    Ok(html! {
        @if letters.is_empty() && set.is_empty() {
            (empty("No dead letter: everything that was sent has landed or is still being tried.", None))
        } @else if letters.is_empty() {
            (empty("No dead letter matches. Clear a filter to see more.", None))
        } @else if visit.may(Needs::Manage) {
            (form(&visit, &visit.path("/dead-letters"), &html! {
                (on_chosen()) (letters_table(&visit, letters, true))
            }))
            (on_all(&visit, &set))
        } @else {
            (letters_table(&visit, letters, false))
        }
        (pager(&visit, &set, &page))
    })
}

fn letters_table(visit: &PageVisit, letters: &[Value], choosable: bool) -> Markup {
    let row = |letter: &Value| {
        let id = text(letter, "id");
        let mut cells = vec![
            html! { a href=(visit.path(&format!("/deliveries/{id}"))) { (shown::id(id)) } },
            endpoint_link(visit, letter),
            shown::last_answer(&letter["last_answer"]),
            html! { code { (text(letter, "type")) } },
            html! { div { (shown::key(&letter["key"])) @if letter["holds_lane"] == true { " " (badge("held")) } } },
            html! { (shown::reason(text(letter, "reason"))) },
            html! { (number(letter, "attempts")) },
            time(&letter["changed_at"]),
        ];
        if choosable {
            cells.insert(
                0,
                html! {
                    input type="checkbox" name="delivery" value=(id) aria-label={ "Choose " (id) };
                },
            );
        }
        cells
    };
    let rows: Vec<_> = letters.iter().map(row).collect();
    let columns = [
        "Choose",
        "Delivery",
        "Endpoint",
        "Last answer",
        "Type",
        "Key",
        "Why",
        "Attempts",
        "Since",
    ];
    table("Dead letters", if choosable { &columns } else { &columns[1..] }, &rows)
}

fn on_chosen() -> Markup {
    html! {
        div.actions {
            button.choose-all.quiet type="button" { "Choose all on this page" }
            span { "Chosen" span.counted { " (" span data-chosen data-keep { "0" } ")" } ": " }
            button.primary type="submit" name="action" value="replay" { "Replay" }
            button type="submit" name="action" value="skip" { "Skip…" }
            button.danger type="submit" name="action" value="discard" { "Discard…" }
        }
    }
}

/// All that match: a preview first, then the job.
fn on_all(visit: &PageVisit, set: &[(String, String)]) -> Markup {
    let body = html! {
        @for (name, value) in set { input type="hidden" name=(name) value=(value); }
        input type="hidden" name="dry_run" value="true";
        div.actions {
            span { @if set.is_empty() { "All of them: " } @else { "All that match: " } }
            button type="submit" name="action" value="replay" { "Preview a replay" }
            button type="submit" name="action" value="discard" { "Preview a discard" }
        }
    };
    form(visit, &visit.path("/replays"), &body)
}

/// Replays, skips or discards those that were chosen. One that is refused does not keep the others back.
pub(super) async fn act(visit: PageVisit) -> PageResult {
    let action = visit.field("action");
    let chosen = visit.fields("delivery");
    let back = back(&visit);
    if chosen.is_empty() {
        return Ok(visit.redirect_with_problem(&back, "Choose at least one dead letter."));
    }
    if action != "replay" && !visit.is_confirmed() {
        return question(action, chosen.len() as u64, back).ask(&visit);
    }
    let (mut done, mut refusals) = (Vec::new(), Vec::new());
    for delivery in chosen {
        let answered = visit.post(&format!("/dead-letters/{delivery}/{action}"), None).await;
        match answered {
            Ok(letter) => done.push(letter),
            Err(refused) if refused.is_answerable() => refusals.push(refused),
            Err(refused) => return Err(refused),
        }
    }
    let said = result(action, done.len() as u64);
    Ok(match (&refusals[..], &done[..]) {
        ([], [letter]) if action == "skip" => {
            visit.redirect_with_undo(&back, said, replay(&visit, letter))
        }
        ([], [letter]) if action == "discard" => {
            visit.redirect_with_undo(&back, said, redelivery(&visit, letter))
        }
        ([], _) => visit.redirect(&back, said),
        ([first, ..], _) => {
            let said = format!("{said} Refused for {}: {first}", refusals.len());
            visit.redirect_with_problem(&back, said.trim())
        }
    })
}

/// Where a decision was made: the list, or the page of the delivery.
fn back(visit: &PageVisit) -> String {
    let back = visit.field("back");
    let is_delivery = back.strip_prefix("/deliveries/").is_some_and(|id| !id.contains('/'));
    if is_delivery { back } else { "/dead-letters" }.to_owned()
}

fn question(action: &str, letters: u64, back: String) -> Question {
    let (verb, effect, undo) = match action {
        "skip" => (
            "Skip",
            "The lanes they hold move on without them.",
            "The dead letters stay on record: each can be replayed later, out of order.",
        ),
        _ => (
            "Discard",
            "Their events do not arrive at these endpoints, and the lanes they hold move on.",
            "The events stay: each can be redelivered from its page, at the end of its lane.",
        ),
    };
    let letters = counted(letters);
    Question {
        title: format!("{verb} {letters}?"),
        effect: html! { (verb) "s " (letters) ". " (effect) },
        undo,
        label: format!("{verb} {letters}"),
        back,
        tab: Tab::DeadLetters,
    }
}

/// What was done, and to how many.
fn result(action: &str, letters: u64) -> String {
    let letters = match letters {
        0 => return String::new(),
        letters => counted(letters),
    };
    match action {
        "replay" => format!("Sent again: {letters}."),
        "skip" => format!("Skipped: {letters}. They stay on record; the lanes move on."),
        _ => format!("Discarded: {letters}."),
    }
}

fn counted(letters: u64) -> String {
    if letters == 1 {
        "1 dead letter".to_owned()
    } else {
        format!("{} dead letters", count(letters))
    }
}

/// The filter of a replay, from a form's fields.
pub(super) fn filter_of(visit: &PageVisit) -> Value {
    let mut filter = json!({ "state": "dead" });
    for name in OF_DEAD_LETTERS.map(|filter| filter.name) {
        let value = visit.field(name);
        if !value.is_empty() {
            // Statuses are the only numbers.
            filter[name] = value
                .parse::<u16>()
                .ok()
                .filter(|_| name == "status")
                .map_or(value.into(), Value::from);
        }
    }
    filter
}
