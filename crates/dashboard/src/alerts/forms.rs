//! Silences, and tests of who is reached.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::PageResult;
use crate::form::{Field, button, form};
use crate::shown::{counted, items, number, text, time, words};
use crate::table::table;
use crate::visit::{ApiRefusal, PageVisit};

/// How long a silence may last, as the API reads it and as people do.
const LENGTHS: [(&str, &str); 5] =
    [("1h", "1 hour"), ("4h", "4 hours"), ("1d", "1 day"), ("7d", "7 days"), ("30d", "30 days")];

/// Where the silences are on the page.
const PAGE: &str = "/alerts";

/// Silences one alert, and later ones of its rule about the same thing.
pub(super) fn silence_form(visit: &PageVisit, alert: &Value) -> Markup {
    let action = visit.path(&format!("/alerts/{}/silence", text(alert, "id")));
    let body = html! {
        div.inline {
            label { "For " select name="for" { @for (value, label) in LENGTHS { option value=(value) { (label) } } } }
            label.grows { "Reason " input name="reason" type="text" required placeholder="Why, for those who wonder"; }
            button type="submit" { "Silence this alert" }
        }
    };
    html! { details { summary { "Silence…" } (form(visit, &action, &body)) } }
}

pub(crate) async fn silence(visit: PageVisit) -> PageResult {
    let alert = visit.get(&format!("/alerts/{}", visit.param("id"))).await?;
    let body = json!({
        "rule": alert["rule"],
        "tenant": alert["tenant"],
        "subject": alert["subject"],
        "for": visit.field("for"),
        "reason": visit.field("reason"),
    });
    create(&visit, &body).await
}

/// Silences what the form of the page names.
pub(crate) async fn silence_some(visit: PageVisit) -> PageResult {
    let mut body = json!({ "for": visit.field("for"), "reason": visit.field("reason") });
    for name in ["rule", "tenant"] {
        if !visit.field(name).is_empty() {
            body[name] = visit.field(name).into();
        }
    }
    create(&visit, &body).await
}

async fn create(visit: &PageVisit, body: &Value) -> PageResult {
    let answered = visit.post("/silences", Some(body)).await;
    Ok(match visit.or_redirect(PAGE, answered)? {
        Ok(made) => visit.redirect(PAGE, format!("Silenced until {}.", text(&made, "until"))),
        Err(back) => back,
    })
}

pub(super) fn silence_some_section(visit: &PageVisit, rules: &[Value]) -> Markup {
    let rule = Field { name: "rule", path: "rule", label: "Rule", hint: "Alerts of this rule." };
    let tenant = Field {
        name: "tenant",
        path: "tenant",
        label: "Tenant",
        hint: "Alerts of this tenant; empty for all.",
    };
    let length = Field { name: "for", path: "for", label: "For", hint: "Then people are told." };
    let reason =
        Field { name: "reason", path: "reason", label: "Reason", hint: "For those who wonder." };
    let options = options(rules, "every rule");
    let options: Vec<(&str, &str)> =
        options.iter().map(|(value, label)| (value.as_str(), label.as_str())).collect();
    let body = html! {
        (rule.choice("", &options, None))
        (tenant.text("", None))
        (length.choice("1h", &LENGTHS, None))
        (reason.text("", None))
        button type="submit" { "Silence" }
    };
    html! {
        section id="silence" {
            h2 { "Silence alerts" }
            p.hint { "Silenced alerts are recorded and shown here, and nobody is told." }
            div.stack { (form(visit, &visit.path("/alerts/silence"), &body)) }
        }
    }
}

/// The silences that have not ended.
pub(super) async fn silences(visit: &PageVisit) -> Result<Markup, ApiRefusal> {
    let page = visit.get("/silences").await?;
    let rows: Vec<_> = items(&page).iter().map(|silence| silence_row(visit, silence)).collect();
    let columns = ["Rule", "Tenant", "About", "Ends", "Reason", "Actions"];
    Ok(html! {
        @if !rows.is_empty() {
            section id="silences" { h2 { "Silences" } (table("Silences", &columns, &rows)) }
        }
    })
}

fn silence_row(visit: &PageVisit, silence: &Value) -> Vec<Markup> {
    let end = visit.path(&format!("/alerts/silences/{}/end", text(silence, "id")));
    let or_every = |name: &str| match silence[name].as_str() {
        Some("") | None => html! { span.muted { "every" } },
        Some(value) => html! { code { (value) } },
    };
    vec![
        html! {
            @match silence["rule"].as_str() {
                Some(rule) => { (words(rule)) }
                None => { span.muted { "every" } }
            }
        },
        or_every("tenant"),
        or_every("subject"),
        time(&silence["until"]),
        html! { (text(silence, "reason")) },
        button(visit, &end, "End it", "quiet"),
    ]
}

pub(crate) async fn end_silence(visit: PageVisit) -> PageResult {
    let answered = visit.post(&format!("/silences/{}/end", visit.param("id")), None).await;
    Ok(match visit.or_redirect(PAGE, answered)? {
        Ok(_) => visit.redirect(PAGE, "The silence has ended. Open alerts are published."),
        Err(back) => back,
    })
}

pub(super) fn test_section(visit: &PageVisit, rules: &[Value]) -> Markup {
    let options = options(rules, "a plain test");
    let body = html! {
        div.inline {
            label {
                "Notices of "
                select name="rule" { @for (value, label) in &options { option value=(value) { (label) } } }
            }
            button type="submit" { "Send a test" }
        }
    };
    html! {
        section id="test" {
            h2 { "Are people reached?" }
            p.hint { "A test is a notice that fires and one that resolves it, both marked as a test." }
            (form(visit, &visit.path("/alerts/test"), &body))
        }
    }
}

pub(crate) async fn test(visit: PageVisit) -> PageResult {
    let rule = Some(visit.field("rule")).filter(|rule| !rule.is_empty());
    let answered = visit.post("/alerts/test", Some(&json!({ "rule": rule }))).await;
    let test = match visit.or_redirect(PAGE, answered)? {
        Ok(test) => test,
        Err(back) => return Ok(back),
    };
    let (fired, endpoints) = (&test["fired"], number(&test["fired"], "endpoints"));
    if endpoints == 0 {
        let problem = "The test was published, and reaches nobody: add a section `[[notices]]` to the configuration, or \
                       an endpoint of tenant `railpost`.";
        return Ok(visit.redirect_with_problem(PAGE, problem));
    }
    let reached = counted(endpoints, "endpoint", "endpoints");
    let event = text(fired, "event");
    Ok(visit.redirect(
        PAGE,
        format!(
            "The test goes to {reached}. `{event}` of tenant `railpost` tells whether it arrived."
        ),
    ))
}

/// The rules to choose from, after what stands for none.
fn options(rules: &[Value], none: &str) -> Vec<(String, String)> {
    let of_rules = rules.iter().map(|rule| {
        let name = text(rule, "name");
        (name.to_owned(), words(name))
    });
    [(String::new(), none.to_owned())].into_iter().chain(of_rules).collect()
}
