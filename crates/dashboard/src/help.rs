//! The help page: shortcuts, and what the words on the pages mean.

use maud::{Markup, html};

use super::layout::{TABS, TABS_OF_ALL, Tab};
use super::table::table;
use super::visit::PageVisit;
use super::{PageResult, Reply};

/// The states of an endpoint, and what they mean.
const STATES: [(&str, &str); 10] = [
    ("active", "Deliveries are sent as they come."),
    (
        "waiting for the breaker",
        "Too much failed. Nothing is sent until then; one attempt decides whether sending goes on.",
    ),
    ("half-open", "One delivery goes alone; if it is acknowledged, sending goes on."),
    ("waiting for the answer to one attempt", "That attempt is on the wire."),
    ("left alone (Retry-After)", "The receiver asked to be left alone until then."),
    ("paused", "A person stopped it. Its backlog is kept."),
    ("blocked", "Requests cannot be signed or sent as it is set up; its page says why."),
    ("quarantined", "Too many lanes failed for good. Nothing is sent until a person resumes it."),
    ("switched off after failures", "Nothing but failures came back for days."),
    ("gone", "The receiver answered 410: it does not want any more."),
];

pub(super) async fn page(visit: PageVisit) -> PageResult {
    let body = html! {
        h1 { "Help" }
        section {
            h2 { "Keyboard shortcuts" }
            (table("Keyboard shortcuts", &["Keys", "What they do"], &shortcuts(&visit)))
        }
        section {
            h2 { "States of an endpoint" }
            dl.facts { @for (state, meaning) in STATES { dt { (state) } dd { (meaning) } } }
        }
        section {
            h2 { "Times" }
            p {
                "Times are shown in the zone of your browser; the tooltip has them in UTC. Without JavaScript all "
                "times are UTC, and pages are not live."
            }
        }
    };
    Reply::page("Help", Tab::None, body)
}

fn shortcuts(visit: &PageVisit) -> Vec<Vec<Markup>> {
    let row = |keys: &[&str], what: &str| {
        vec![html! { span { @for key in keys { kbd { (key) } " " } } }, html! { (what) }]
    };
    let mut rows = vec![
        row(&["/"], "Go to the search box"),
        row(&["?"], "Open this page"),
        row(&["←", "→", "Home", "End"], "Show the values of the chart that has the focus"),
    ];
    if visit.tenant.is_some() {
        let shown = TABS.into_iter().filter(|(.., needs, _)| visit.may(*needs));
        rows.extend(shown.map(|(_, label, .., key)| row(&["g", key], label)));
    } else {
        rows.extend(TABS_OF_ALL.map(|(_, label, _, key)| row(&["g", key], label)));
    }
    rows
}
