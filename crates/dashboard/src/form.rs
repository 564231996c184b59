//! Forms and their fields. Every form carries the session's token.

use maud::{Markup, html};

use super::visit::{ApiRefusal, CSRF, PageVisit};

/// A form that changes something.
pub(super) fn form(visit: &PageVisit, action: &str, body: &Markup) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name=(CSRF) value=(visit.session.csrf);
            (body)
        }
    }
}

/// A form that is a single button.
pub(super) fn button(visit: &PageVisit, action: &str, label: &str, class: &str) -> Markup {
    form(visit, action, &html! { button type="submit" class=(class) { (label) } })
}

/// A field of a form, with what is wrong with it beside it.
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) label: &'a str,
    pub(super) hint: &'a str,
    /// Its path in the API, by which a refusal names it.
    pub(super) path: &'a str,
}

impl Field<'_> {
    /// One line of text.
    pub(super) fn text(&self, value: &str, refused: Option<&ApiRefusal>) -> Markup {
        let (problem, described) = self.problem(refused);
        html! {
            div.field {
                label for=(self.name) { (self.label) }
                input id=(self.name) name=(self.name) value=(value) type="text" spellcheck="false"
                    aria-invalid=(problem.is_some()) aria-describedby=(described);
                (self.below(problem))
            }
        }
    }

    /// A few lines of text.
    pub(super) fn lines(&self, value: &str, refused: Option<&ApiRefusal>) -> Markup {
        let (problem, described) = self.problem(refused);
        html! {
            div.field {
                label for=(self.name) { (self.label) }
                textarea id=(self.name) name=(self.name) rows="3" spellcheck="false"
                    aria-invalid=(problem.is_some()) aria-describedby=(described) {
                    // Browsers leave out the first end of a line.
                    "\n" (value)
                }
                (self.below(problem))
            }
        }
    }

    /// One of a few: their values and labels. An unknown value is one more of them: it must not
    /// become another because a form was looked at.
    pub(super) fn choice(
        &self,
        value: &str,
        options: &[(&str, &str)],
        refused: Option<&ApiRefusal>,
    ) -> Markup {
        let (problem, described) = self.problem(refused);
        html! {
            div.field {
                label for=(self.name) { (self.label) }
                select id=(self.name) name=(self.name) aria-invalid=(problem.is_some())
                    aria-describedby=(described) {
                    @for (option, label) in options {
                        option value=(option) selected[*option == value] { (label) }
                    }
                    @if !value.is_empty() && options.iter().all(|(option, _)| *option != value) {
                        option value=(value) selected { (value) }
                    }
                }
                (self.below(problem))
            }
        }
    }

    fn problem<'r>(&self, refused: Option<&'r ApiRefusal>) -> (Option<&'r ApiRefusal>, String) {
        let about = |refused: &&ApiRefusal| {
            let field = refused.field.as_deref().unwrap_or_default();
            let inner = field.strip_prefix(self.path);
            inner.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let problem = refused.filter(about);
        let hint = format!("{}-hint", self.name);
        let described =
            if problem.is_some() { format!("{}-problem {hint}", self.name) } else { hint };
        (problem, described)
    }

    fn below(&self, problem: Option<&ApiRefusal>) -> Markup {
        html! {
            @if let Some(problem) = problem {
                p.problem id={ (self.name) "-problem" } { "✕ " (problem.detail) }
            }
            p.hint id={ (self.name) "-hint" } { (self.hint) }
        }
    }
}
