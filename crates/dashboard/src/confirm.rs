//! The question before something that destroys: a page of its own, so that it works without script.
//!
//! The form that asks is sent once more with `confirmed`, to the same address.

use maud::{Markup, html};
use railpost_api::Needs;

use super::form::form;
use super::layout::Tab;
use super::visit::{ApiRefusal, CSRF, PageVisit};
use super::{PageResult, Reply};

/// The field by which a form says that its question was answered.
const CONFIRMED: &str = "confirmed";

/// What is asked before something is done.
pub(super) struct Question {
    /// What is about to be done, such as "Discard 3 dead letters?".
    pub(super) title: String,
    /// What it does, and to how many.
    pub(super) effect: Markup,
    /// Whether and how it can be undone.
    pub(super) undo: &'static str,
    /// What stands on the button.
    pub(super) label: String,
    /// Where one goes who changed their mind.
    pub(super) back: String,
    pub(super) tab: Tab,
}

impl Question {
    pub(super) fn ask(self, visit: &PageVisit) -> PageResult {
        if !visit.may(Needs::Manage) {
            let detail = "this key may look at everything and change nothing";
            return Err(ApiRefusal::new(403, "Forbidden", detail));
        }
        let fields = visit.all_fields().iter().filter(|(name, _)| name != CSRF);
        let body = html! {
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            input type="hidden" name=(CONFIRMED) value="true";
            div.actions {
                button.danger type="submit" { (self.label) }
                a.button href=(visit.path(&self.back)) { "Cancel" }
            }
        };
        let page = html! {
            section.question {
                h1 { (self.title) }
                p { (self.effect) }
                p.hint { (self.undo) }
                (form(visit, visit.uri.path(), &body))
            }
        };
        Reply::page(&self.title, self.tab, page)
    }
}

impl PageVisit {
    /// Whether the question about this form was answered.
    pub(super) fn is_confirmed(&self) -> bool {
        self.field(CONFIRMED) == "true"
    }
}
