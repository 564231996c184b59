//! `railpost outbox`: databases that events are relayed from, and rows that were refused.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use url::Url;

use super::Session;
use super::client::pause;
use super::confirm::Confirmation;
use super::failure::{Failure, Outcome};
use super::limits::PARKED_RETRY_WAIT;
use super::list::{self, Paging};
use super::out::{Column, age, cut_column, field, full_column};

/// What can be asked of a running server about its sources.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Show how each source is, or all of one
    Status {
        /// The source [default: all of them]
        source: Option<String>,
    },
    /// Check every condition of a source at its database, with the SQL that fixes it
    ///
    /// Exit codes: 0 every source can be read; 1 a condition is not met, or could not be checked.
    #[command(verbatim_doc_comment)]
    Check {
        /// The source [default: all of them]
        source: Option<String>,
    },
    /// Rows that were refused, and those that wait behind them
    #[command(subcommand)]
    Parked(ParkedAction),
    /// Let a role of Railpost's own database call `railpost_emit` for a tenant
    Grant {
        /// The database role
        role: String,
        /// The tenant whose events it emits
        #[arg(value_name = "TENANT")]
        of_tenant: String,
    },
    /// Take that right from a role
    Revoke {
        /// The database role
        role: String,
        /// Whether it asks
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// List the roles that have it
    Grants,
}

/// What can be done with parked rows.
#[derive(Debug, clap::Subcommand)]
pub enum ParkedAction {
    /// List them, the earliest first
    List {
        /// The source
        source: String,
        /// Only those that were refused, without those that wait behind them
        #[arg(long)]
        refused: bool,
        /// Only those that were refused for this, such as `schema`
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
        /// Only rows that name this tenant
        #[arg(long, value_name = "TENANT")]
        of_tenant: Option<String>,
        /// How much of the list
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its payload
    Show(Row),
    /// Hand it over again, and the rows behind it
    #[command(override_usage = "railpost outbox parked retry [OPTIONS] <SOURCE> <NUMBER|--all>")]
    Retry {
        /// The source
        source: String,
        /// The number of the row
        #[arg(required_unless_present = "all")]
        number: Option<u64>,
        /// All rows that were refused
        #[arg(long, conflicts_with = "number")]
        all: bool,
    },
    /// Drop it, and hand the rows behind it over
    Skip {
        /// Which row
        #[command(flatten)]
        row: Row,
        /// Whether it asks
        #[command(flatten)]
        confirmation: Confirmation,
    },
    /// Drop it and all rows behind it
    Discard {
        /// Which row
        #[command(flatten)]
        row: Row,
        /// Whether it asks
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Which row.
#[derive(Debug, clap::Args)]
pub struct Row {
    /// The source
    source: String,
    /// The number of the row
    number: u64,
}

const SOURCES: [Column; 8] = [
    full_column("source", |item| field(item, "name")),
    full_column("mode", |item| field(item, "mode")),
    full_column("state", |item| field(item, "state")),
    full_column("relayed", |item| field(item, "relayed")),
    full_column("parked", |item| field(item, "parked_rows")),
    full_column("pending", |item| field(item, "pending")),
    full_column("lag", |item| lag(item["lag_ms"].as_u64().unwrap_or(0))),
    full_column("last row", |item| age(item, "last_row_at")),
];

const PARKED: [Column; 7] = [
    full_column("number", |item| field(item, "number")),
    cut_column("event", |item| field(item, "id")),
    cut_column("tenant", |item| field(item, "tenant")),
    cut_column("type", |item| field(item, "type")),
    cut_column("key", |item| field(item, "key")),
    full_column("parked", |item| age(item, "parked_at")),
    cut_column("why", |item| match (&item["released"], &item["refusal"]) {
        (Value::Bool(true), _) => "being retried".to_owned(),
        (_, Value::Null) => "waits behind another row of its key".to_owned(),
        (_, refusal) => format!("{}: {}", field(refusal, "code"), field(refusal, "reason")),
    }),
];

const GRANTS: [Column; 2] = [
    full_column("role", |item| field(item, "role")),
    full_column("tenant", |item| field(item, "tenant")),
];

/// Does what the command line says.
pub fn run(action: Action, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match action {
        Action::Status { source: Some(source) } => {
            out.record(&client.get(&of_source(session, &source, &[]))?)
        }
        Action::Status { source: None } => status(session),
        Action::Check { source } => check(session, source),
        Action::Parked(action) => parked(action, session),
        Action::Grant { role, of_tenant } => {
            let url = client.of_server(&["outbox", "grants", &role]);
            let granted = client.put(&url, &json!({ "tenant": of_tenant }))?;
            out.done(&granted, &format!("{role} may emit events of tenant {of_tenant}"))
        }
        Action::Revoke { role, confirmation } => {
            let effect =
                format!("This takes the right to emit events from {role}: its next event fails.");
            confirmation.ask(out, &effect)?;
            client.delete(&client.of_server(&["outbox", "grants", &role]))?;
            out.done(&json!({ "revoked": role }), &format!("{role} may not emit events"))?;
            out.hint(&format!("To give it back: railpost outbox grant {role} TENANT"));
            Ok(())
        }
        Action::Grants => {
            let answer = client.get(&client.of_server(&["outbox", "grants"]))?;
            list::show_items(session, &answer, &GRANTS)
        }
    }
}

fn of_source(session: &Session, source: &str, rest: &[&str]) -> Url {
    session.client.of_server(&[&["outbox", source], rest].concat())
}

/// All sources, each with what is wrong with it below.
fn status(session: &Session) -> Outcome {
    let answer = session.client.get(&session.client.of_server(&["outbox"]))?;
    let is_empty = answer["items"].as_array().is_none_or(Vec::is_empty);
    list::show_items_with_lines(session, &answer, &SOURCES, |item| {
        let trouble = &item["trouble"];
        let text = |name: &str| trouble[name].as_str().map(str::to_owned);
        let fix = text("fix").map(|fix| format!("fix: {fix}"));
        text("problem").into_iter().chain(fix).collect()
    })?;
    if is_empty {
        session.out.hint("The configuration has no section [[outbox]]: see docs/outbox.md.");
    }
    Ok(())
}

/// A length of time for a cell.
fn lag(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{:.1} s", millis as f64 / 1000.0),
        _ => format!("{} min", millis / 60_000),
    }
}

fn check(session: &Session, source: Option<String>) -> Outcome {
    let names = match source {
        Some(source) => vec![source],
        None => {
            let answer = session.client.get(&session.client.of_server(&["outbox"]))?;
            let items = answer["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|item| field(item, "name")).collect()
        }
    };
    let mut bad = Vec::new();
    let mut answers = serde_json::Map::new();
    for name in names {
        let answer = session.client.act(&of_source(session, &name, &["check"]))?;
        if answer["good"] != true {
            bad.push(name.clone());
        }
        if !session.out.json {
            tell_findings(session, &name, &answer)?;
        }
        answers.insert(name, answer);
    }
    if session.out.json {
        session.out.value(&Value::Object(answers))?;
    }
    if bad.is_empty() {
        return Ok(());
    }
    let message = format!("not ready: {}", bad.join(", "));
    Err(Failure::new(message).next("run what is printed behind `fix`, then check again"))
}

fn tell_findings(session: &Session, name: &str, answer: &Value) -> Outcome {
    let out = session.out;
    out.line(name)?;
    let findings = answer["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let widest = |finding: &Value| field(finding, "condition").chars().count();
    let width = findings.iter().map(widest).max().unwrap_or(0);
    for finding in findings {
        let (condition, found) = (field(finding, "condition"), field(finding, "found"));
        let verdict = match field(finding, "verdict").as_str() {
            "good" => "ok",
            "warning" => "warning",
            _ => "bad",
        };
        out.line(&out.painted(&format!("  {verdict:7}  {condition:width$}  {found}")))?;
        if let Some(fix) = finding["fix"].as_str() {
            for (at, line) in fix.trim_end().lines().enumerate() {
                let label = if at == 0 { "fix:" } else { "" };
                out.line(&format!("           {label:4} {line}"))?;
            }
        }
    }
    Ok(())
}

fn parked(action: ParkedAction, session: &Session) -> Outcome {
    match action {
        ParkedAction::List { source, refused, reason, of_tenant, paging } => {
            let url = of_source(session, &source, &["parked"]);
            let refused = refused.then(|| "true".to_owned());
            let fields = [("refused", &refused), ("reason", &reason), ("tenant", &of_tenant)];
            list::show(session, &list::with_query(url, &fields), &paging, &PARKED)
        }
        ParkedAction::Show(Row { source, number }) => {
            let url = of_source(session, &source, &["parked", &number.to_string()]);
            session.out.record(&session.client.get(&url)?)
        }
        ParkedAction::Retry { source, number: Some(number), .. } => retry(session, &source, number),
        ParkedAction::Retry { source, number: None, .. } => {
            act(session, &source, &["parked", "retry-all"], "released")?;
            session
                .out
                .hint("Those that are refused again stay parked: railpost outbox parked list");
            Ok(())
        }
        ParkedAction::Skip { row: Row { source, number }, confirmation } => {
            let effect = format!(
                "This drops row {number} of {source}: its event is not delivered, and the rows behind it go on."
            );
            confirmation.ask(session.out, &effect)?;
            act(session, &source, &["parked", &number.to_string(), "skip"], "dropped")
        }
        ParkedAction::Discard { row: Row { source, number }, confirmation } => {
            let effect = format!(
                "This drops row {number} of {source} and all rows behind it: their events are not delivered."
            );
            confirmation.ask(session.out, &effect)?;
            act(session, &source, &["parked", &number.to_string(), "discard"], "dropped")
        }
    }
}

/// Hands a row over again, and waits for a moment to say what became of it.
fn retry(session: &Session, source: &str, number: u64) -> Outcome {
    let (client, out, shown) = (&session.client, session.out, number.to_string());
    let answer = client.act(&of_source(session, source, &["parked", &shown, "retry"]))?;
    let row = of_source(session, source, &["parked", &shown]);
    let waited_from = Instant::now();
    while waited_from.elapsed() < Duration::from(PARKED_RETRY_WAIT) {
        let found = match client.get(&row) {
            Err(failure) if failure.is_missing("parked row") => {
                let accepted =
                    format!("row {number} was accepted, and the rows behind it are handed over");
                return out.done(&answer, &accepted);
            }
            found => found?,
        };
        if found["released"] == false {
            let refusal = &found["refusal"];
            let why = format!("{}: {}", field(refusal, "code"), field(refusal, "reason"));
            return Err(Failure::new(format!("row {number} was refused again: {why}"))
                .next("fix the cause and retry it; or skip or discard it"));
        }
        pause();
    }
    out.done(
        &answer,
        &format!("row {number} is released: it is handed over when its source is read"),
    )
}

fn act(session: &Session, source: &str, path: &[&str], done: &str) -> Outcome {
    let answer = session.client.act(&of_source(session, source, path))?;
    let rows = match answer["rows"].as_u64() {
        Some(1) => "1 row".to_owned(),
        rows => format!("{} rows", rows.unwrap_or(0)),
    };
    session.out.done(&answer, &format!("{done} {rows}"))
}
