//! `railpost alerts`: what holds or held, who is told of it, and silences.

use serde_json::{Value, json};
use url::Url;

use super::Session;
use super::confirm::{Confirmation, count};
use super::failure::Outcome;
use super::instant::instant;
use super::list::{self, Paging};
use super::out::{Column, Out, age, cut_column, facts, field, full_column, time};

/// What can be done with alerts.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// List them, the latest first: with an admin key all of them, else those of the key's tenant
    List {
        /// Only those that are open
        #[arg(long, conflicts_with = "resolved")]
        open: bool,
        /// Only those that are over
        #[arg(long)]
        resolved: bool,
        /// Only those of this rule, such as `breaker_open`
        #[arg(long, value_name = "RULE")]
        rule: Option<String>,
        /// Only those of this tenant
        #[arg(long, value_name = "TENANT")]
        of_tenant: Option<String>,
        /// Only those that were open at this time or later: `2h` (ago), `2026-01-31` or `2026-01-31T12:00:00Z`
        #[arg(long, value_name = "TIME", value_parser = instant)]
        since: Option<String>,
        /// Only those that fired before this time
        #[arg(long, value_name = "TIME", value_parser = instant)]
        until: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one, with the events that told of it
    Show {
        /// The alert
        id: String,
    },
    /// Publish nothing of alerts for a time; they are still recorded and shown
    #[command(
        override_usage = "railpost alerts silence [OPTIONS] --for <TIME> --reason <WHY> <ALERT|--rule RULE|…>"
    )]
    Silence(NewSilence),
    /// End a silence before its time
    Unsilence {
        /// The silence: `railpost alerts silences` lists them
        id: String,
    },
    /// List the silences that have not ended
    Silences,
    /// List the rules with their thresholds, and which of them hold
    Rules,
    /// Publish a notice that fires and one that resolves it, to see that people are reached
    Test {
        /// The rule whose notices are sent, as a test [default: notices of type `railpost.alert.test`]
        rule: Option<String>,
    },
}

/// Which alerts are silenced, and for how long.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub struct NewSilence {
    /// This alert, and later ones of its rule about the same thing
    #[arg(group = "which", conflicts_with_all = ["rule", "of_tenant", "subject", "everything"])]
    alert: Option<String>,
    /// Alerts of this rule
    #[arg(long, value_name = "RULE", group = "which")]
    rule: Option<String>,
    /// Alerts of this tenant
    #[arg(long, value_name = "TENANT", group = "which")]
    of_tenant: Option<String>,
    /// Alerts about this, such as an endpoint's id
    #[arg(long, value_name = "SUBJECT", group = "which")]
    subject: Option<String>,
    /// All alerts
    #[arg(long, group = "which", conflicts_with_all = ["rule", "of_tenant", "subject"])]
    everything: bool,
    /// How long, such as `2h`: 30 days at most
    #[arg(long = "for", value_name = "TIME")]
    lasts: String,
    /// Why, for those who wonder
    #[arg(long, value_name = "WHY")]
    reason: String,
    #[command(flatten)]
    confirmation: Confirmation,
}

const ALERTS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    full_column("severity", |item| field(item, "severity")),
    full_column("rule", |item| field(item, "rule")),
    cut_column("tenant", |item| field(item, "tenant")),
    full_column("state", state),
];

const SILENCES: [Column; 6] = [
    full_column("id", |item| field(item, "id")),
    full_column("rule", |item| or_all(item, "rule")),
    full_column("tenant", |item| or_all(item, "tenant")),
    full_column("subject", |item| or_all(item, "subject")),
    full_column("ends", |item| age(item, "until")),
    cut_column("reason", |item| field(item, "reason")),
];

const RULES: [Column; 4] = [
    full_column("rule", |item| field(item, "name")),
    full_column("severity", |item| field(item, "severity")),
    full_column("state", |item| match (&item["enabled"], item["open"].as_u64()) {
        (Value::Bool(false), _) => "switched off".to_owned(),
        (_, Some(open)) if open > 0 => count(open, "open alert", "open alerts"),
        _ => "quiet".to_owned(),
    }),
    full_column("holds when", |item| field(item, "holds_when")),
];

/// Whether an alert is open, and since when; whether anything of it is published.
fn state(alert: &Value) -> String {
    if alert["open"] != true {
        return format!("resolved {}", age(alert, "resolved_at"));
    }
    let since = age(alert, "fired_at");
    match alert["silenced_until"].is_null() {
        true => format!("open, fired {since}"),
        false => format!("open, fired {since}, silence ends {}", age(alert, "silenced_until")),
    }
}

fn or_all(silence: &Value, name: &str) -> String {
    if silence[name].is_null() { "all".to_owned() } else { field(silence, name) }
}

pub(super) fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match action {
        Action::List { open, resolved, rule, of_tenant, since, until, paging } => {
            let open = (open || resolved).then(|| open.to_string());
            let fields = [
                ("open", &open),
                ("rule", &rule),
                ("tenant", &of_tenant),
                ("from", &since),
                ("before", &until),
            ];
            let url = list::with_query(alerts(session, &[])?, &fields);
            let summary = |alert: &Value| vec![field(alert, "summary")];
            list::show_with_lines(session, &url, &paging, &ALERTS, summary)
        }
        Action::Show { id } => show(out, &client.get(&alerts(session, &[&id])?)?),
        Action::Silence(new) => silence(&new, session),
        Action::Unsilence { id } => {
            let ended = client.act(&client.of_server(&["silences", &id, "end"]))?;
            out.done(&ended, &format!("ended {id}"))?;
            out.hint("Alerts that it covered and that are open are published.");
            Ok(())
        }
        Action::Silences => {
            let answer = client.get(&client.of_server(&["silences"]))?;
            list::show_items(session, &answer, &SILENCES)?;
            hint_if_empty(out, &answer, "Nothing is silenced.");
            Ok(())
        }
        Action::Rules => {
            let answer = client.get(&client.of_server(&["alert-rules"]))?;
            list::show_items(session, &answer, &RULES)
        }
        Action::Test { rule } => test(session, rule.as_deref()),
    }
}

/// Alerts of all, or of the tenant if the key is a tenant's.
fn alerts(session: &Session, rest: &[&str]) -> Outcome<Url> {
    let client = &session.client;
    let segments = [&["alerts"], rest].concat();
    let whoami = client.get(&client.of_server(&["whoami"]))?;
    let is_admin = whoami["key"]["scope"] == "admin";
    Ok(if is_admin { client.of_server(&segments) } else { client.of_tenant(&segments) })
}

fn hint_if_empty(out: Out, answer: &Value, hint: &str) {
    if !out.json && answer["items"].as_array().is_none_or(Vec::is_empty) {
        out.hint(hint);
    }
}

/// Shows an alert: what it says first, and the events that told of it last.
fn show(out: Out, alert: &Value) -> Outcome {
    if out.json {
        return out.value(alert);
    }
    let mut shown =
        vec![("summary".to_owned(), field(alert, "summary")), ("state".to_owned(), state(alert))];
    shown.extend(facts(alert, &["summary", "open", "notices", "silenced_until"]));
    out.facts(&shown)?;
    let notices = alert["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
    for notice in notices {
        let (event, tenant) = (field(notice, "event"), field(notice, "tenant"));
        out.line(&format!(
            "published {}: railpost events story {event} --tenant {tenant}",
            time(notice, "accepted_at")
        ))?;
    }
    if notices.is_empty() {
        out.hint("Nothing of it was published, or its events are past their retention.");
    }
    Ok(())
}

fn silence(new: &NewSilence, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let mut body = json!({ "for": new.lasts, "reason": new.reason });
    if let Some(alert) = &new.alert {
        let alert = client.get(&client.of_server(&["alerts", alert]))?;
        for name in ["rule", "tenant", "subject"] {
            body[name] = alert[name].clone();
        }
    }
    for (name, value) in
        [("rule", &new.rule), ("tenant", &new.of_tenant), ("subject", &new.subject)]
    {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    if new.everything {
        let effect = format!("This silences all alerts for {}: nobody is told.", new.lasts);
        new.confirmation.ask(out, &effect)?;
    }
    let made = client.post(&client.of_server(&["silences"]), &body)?;
    let id = field(&made, "id");
    out.done(&made, &format!("silenced until {}: {id}", time(&made, "until")))?;
    out.hint(&format!("To end it: railpost alerts unsilence {id}"));
    Ok(())
}

fn test(session: &Session, rule: Option<&str>) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let test = client.post(&client.of_server(&["alerts", "test"]), &json!({ "rule": rule }))?;
    if out.json {
        return out.value(&test);
    }
    let tenant = field(&test, "tenant");
    for name in ["fired", "resolved"] {
        let (notice, endpoints) = (&test[name], test[name]["endpoints"].as_u64().unwrap_or(0));
        let event = field(notice, "event");
        out.line(&format!("{name:8}  {event}  to {}", count(endpoints, "endpoint", "endpoints")))?;
    }
    if test["fired"]["endpoints"] == 0 {
        out.hint(
            "Nobody is reached: add a section [[notices]] to the configuration, or an endpoint of tenant `railpost`.",
        );
    } else {
        let event = field(&test["fired"], "event");
        out.hint(&format!(
            "See whether it arrived: railpost events story {event} --tenant {tenant}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_says_whether_it_is_open_and_whether_anybody_is_told() {
        let now = railpost_engine::Time(crate::system::now()).to_string();
        for (alert, word) in [
            (json!({ "open": true, "fired_at": now }), "open, fired 0s ago"),
            (json!({ "open": true, "fired_at": now, "silenced_until": now }), "silence ends"),
            (json!({ "open": false, "fired_at": now, "resolved_at": now }), "resolved "),
        ] {
            assert!(state(&alert).contains(word), "{}", state(&alert));
        }
    }
}
