//! Dead letters: filter, look, and replay or discard one, some or all that match.

use maud::{Markup, html};
use railpost_api::Needs;
use serde_json::{Value, json};

use super::filters::{OF_DEAD_LETTERS, filter_form, set_filters};
use super::form::form;
use super::lanes::done;
use super::layout::Tab;
use super::shown::{self, badge, items, number, text, words};
use super::table::{empty, page_query, pager, table};
use super::visit::PageVisit;
use super::{PageResult, Reply};
use crate::limits::TABLE_ROWS_MAX;

pub(super) async fn list(visit: PageVisit) -> PageResult {
    let set = set_filters(&visit, &OF_DEAD_LETTERS);
    let page =
        visit.get(&format!("/dead-letters?{}", page_query(&visit, &set, TABLE_ROWS_MAX))).await?;
    let manages = visit.may(Needs::Manage);
    let letters = items(&page);
    let body = html! {
        h1 { "Dead letters" }
        p.lead { "Deliveries that failed for good. A dead letter that holds its lane keeps later deliveries waiting." }
        (filter_form(&visit, &OF_DEAD_LETTERS).await?)
        @if letters.is_empty() && set.is_empty() {
            (empty("No dead letter: everything that was sent has landed or is still being tried.", None))
        } @else if letters.is_empty() {
            (empty("No dead letter matches. Clear a filter to see more.", None))
        } @else if manages {
            (form(&visit, &visit.path("/dead-letters"), &html! { (letters_table(&visit, letters, true)) (on_chosen()) }))
            (on_all(&visit, &set))
        } @else {
            (letters_table(&visit, letters, false))
        }
        (pager(&visit, &set, &page))
    };
    Reply::page("Dead letters", Tab::DeadLetters, body)
}

fn letters_table(visit: &PageVisit, letters: &[Value], choosable: bool) -> Markup {
    let row = |letter: &Value| {
        let id = text(letter, "id");
        let mut cells = vec![
            html! { a href=(visit.path(&format!("/deliveries/{id}"))) { (shown::id(id)) } },
            html! { code { (text(letter, "type")) } },
            html! { (shown::key(&letter["key"])) @if letter["holds_lane"] == true { " " (badge("held")) } },
            why(letter),
            html! { (number(letter, "attempts")) },
            visit.ago(&letter["changed_at"]),
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
    let columns = ["Choose", "Delivery", "Type", "Key", "Why", "Attempts", "Since"];
    table("Dead letters", if choosable { &columns } else { &columns[1..] }, &rows)
}

fn why(letter: &Value) -> Markup {
    html! {
        (shown::reason(text(letter, "reason")))
        @if let Some(status) = letter["last_status"].as_u64() { ", HTTP " (status) }
        @if let Some(failure) = letter["last_failure"].as_str() { ", " (words(failure)) }
    }
}

fn on_chosen() -> Markup {
    html! {
        div.actions {
            span { "Chosen: " }
            button.primary type="submit" name="action" value="replay" { "Replay" }
            button type="submit" name="action" value="skip" { "Skip" }
            button.danger type="submit" name="action" value="discard" { "Discard" }
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
    if chosen.is_empty() {
        return Ok(visit.redirect_with_problem("/dead-letters", "Choose at least one dead letter."));
    }
    let (mut count, mut refusals) = (0, Vec::new());
    for delivery in chosen {
        let answered = visit.post(&format!("/dead-letters/{delivery}/{action}"), None).await;
        match answered {
            Ok(_) => count += 1,
            Err(refused) if refused.is_answerable() => refusals.push(refused),
            Err(refused) => return Err(refused),
        }
    }
    let said = match count {
        0 => String::new(),
        1 => format!("Done: {}. ", done(action)),
        count => format!("Done for {count} dead letters: {action}. "),
    };
    Ok(match refusals.first() {
        None => visit.redirect("/dead-letters", said),
        Some(first) => {
            let said = format!("{said}Refused for {}. {first}", refusals.len());
            visit.redirect_with_problem("/dead-letters", said)
        }
    })
}

/// The filter of a replay, from a form's fields.
pub(super) fn filter_of(visit: &PageVisit) -> Value {
    let mut filter = json!({ "state": "dead" });
    for name in OF_DEAD_LETTERS.map(|filter| filter.name) {
        if !visit.field(name).is_empty() {
            filter[name] = visit.field(name).into();
        }
    }
    filter
}
