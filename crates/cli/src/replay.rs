//! `railpost replay`: sends again, skips or discards many deliveries, as a job of the server.

use serde_json::{Map, Value, json};

use super::Session;
use super::client::pause;
use super::confirm::{Confirmation, count};
use super::deliveries::STATES;
use super::failure::{Failure, Outcome};
use super::health;
use super::list::{self, DeliveryFilter, Paging};
use super::out::{Column, Out, age, cut_column, facts, field, full_column};

/// The arguments of `replay`. Without a subcommand it starts a job.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    new: NewReplay,
}

/// What can be done with jobs that were started.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List jobs, the newest first
    List(Paging),
    /// Show a job
    Show { id: String },
    /// Cancel a job; its finished work stays
    Cancel { id: String },
}

/// A job that is to be started.
#[derive(Debug, clap::Args)]
struct NewReplay {
    /// What to do: replay, skip, discard, or redeliver (with --to)
    #[arg(long, default_value = "replay", value_parser = ["replay", "skip", "discard", "redeliver"], hide_possible_values = true)]
    action: String,
    /// Only deliveries in this state
    #[arg(long, default_value = "dead", value_parser = STATES, hide_possible_values = true)]
    state: String,
    #[command(flatten)]
    filter: DeliveryFilter,
    /// Send to this endpoint instead, as new deliveries
    #[arg(long, value_name = "ENDPOINT")]
    to: Option<String>,
    /// At most this many deliveries a second
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<u32>,
    /// Only count the deliveries, and show the first ones in order
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    confirmation: Confirmation,
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
}

/// A field of a filter as JSON: a status is a number.
fn filter_value(name: &str, text: &str) -> Value {
    let number = (name == "status").then(|| text.parse::<u64>().ok()).flatten();
    number.map_or_else(|| json!(text), Value::from)
}

impl NewReplay {
    fn action(&self) -> &str {
        if self.to.is_some() { "redeliver" } else { &self.action }
    }

    fn to_json(&self, dry_run: bool) -> Value {
        let mut filter = Map::new();
        filter.insert("state".to_owned(), json!(self.state));
        for (name, value) in self.filter.fields() {
            if let Some(value) = value {
                filter.insert(name.to_owned(), filter_value(name, value));
            }
        }
        let mut body = json!({ "action": self.action(), "filter": filter, "dry_run": dry_run });
        if let Some(to) = &self.to {
            body["to"] = json!(to);
        }
        if let Some(rate) = self.rate {
            body["rate_per_s"] = json!(rate);
        }
        body
    }
}

const COLUMNS: [Column; 6] = [
    full_column("id", |item| field(item, "id")),
    full_column("action", |item| field(item, "action")),
    full_column("state", |item| field(item, "state")),
    cut_column("result", progress),
    full_column("refused", |item| field(item, "refused")),
    full_column("started", |item| age(item, "created_at")),
];

/// What a job has done: a replay hands deliveries over to be sent, which is not yet their arrival.
fn progress(job: &Value) -> String {
    let (done, matched) = (field(job, "done"), field(job, "matched"));
    let (did, would_be) = match job["action"].as_str() {
        Some("skip") => ("skipped", "skipped"),
        Some("discard") => ("discarded", "discarded"),
        Some("redeliver") => ("handed over", "redelivered"),
        _ => ("handed over", "replayed"),
    };
    match job["dry_run"] == true {
        true => format!("dry run: {matched} would be {would_be}"),
        false => format!("{did} {done} of {matched}"),
    }
}

/// Endpoints to which nothing is sent just now, so that what was handed over waits.
fn waits_for(job: &Value) -> Vec<String> {
    let waits = job["waits_for"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |wait: &Value| {
        let next = health::next(&wait["health"]).map(|next| format!(". {next}"));
        format!(
            "waits for {}: {}{}",
            field(wait, "endpoint"),
            health::cell(wait),
            next.unwrap_or_default()
        )
    };
    waits.iter().map(line).collect()
}

pub(super) fn run(arguments: Arguments, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match arguments.action {
        Some(Action::List(paging)) => {
            let url = client.of_tenant(&["replays"]);
            list::show_with_lines(session, &url, &paging, &COLUMNS, waits_for)
        }
        Some(Action::Show { id }) => show(out, &client.get(&client.of_tenant(&["replays", &id]))?),
        Some(Action::Cancel { id }) => {
            let job = client.act(&client.of_tenant(&["replays", &id, "cancel"]))?;
            out.done(&job, &summary(&job))
        }
        None => start(&arguments.new, session),
    }
}

fn start(new: &NewReplay, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let url = client.of_tenant(&["replays"]);
    if new.dry_run {
        let planned = watch(session, client.post(&url, &new.to_json(true))?)?;
        return show_plan(session, &planned);
    }
    if !new.confirmation.is_given() {
        let planned = watch(session, client.post(&url, &new.to_json(true))?)?;
        new.confirmation.ask(out, &effect(new.action(), &planned))?;
    }
    let job = client.post(&url, &new.to_json(false))?;
    let id = field(&job, "id");
    if new.no_wait {
        return out.done(&job, &format!("started {id}; see `railpost replay show {id}`"));
    }
    let job = until_interrupted(session, job)?;
    out.done(&job, &summary(&job))?;
    waits_for(&job).iter().for_each(|line| out.hint(line));
    match job["state"].as_str() {
        Some("failed") => Err(Failure::new(format!("the job failed: {}", field(&job, "problem")))),
        _ => Ok(()),
    }
}

/// What the job is about to do, and to how many.
fn effect(action: &str, planned: &Value) -> String {
    let matched = planned["matched"].as_u64().unwrap_or(0);
    let deliveries = count(matched, "delivery", "deliveries");
    match action {
        "skip" => {
            format!("This skips {deliveries}: their lanes continue, and they stay dead letters.")
        }
        "discard" => format!("This discards {deliveries}: they are not sent again."),
        "redeliver" => format!("This sends {deliveries} once more, as new ones."),
        _ => format!("This sends {deliveries} again."),
    }
}

/// Shows a job: what it has done first.
fn show(out: Out, job: &Value) -> Outcome {
    if out.json {
        return out.value(job);
    }
    let mut shown = vec![("result".to_owned(), progress(job))];
    let waits = waits_for(job);
    if !waits.is_empty() {
        shown.push(("waits for".to_owned(), waits.join("\n").replace("waits for ", "")));
    }
    shown.extend(facts(job, &["waits_for", "matched", "done", "dry_run"]));
    out.facts(&shown)
}

fn show_plan(session: &Session, job: &Value) -> Outcome {
    if session.out.json {
        return session.out.value(job);
    }
    session.out.line(&format!("{} ({})", progress(job), cost(job)))?;
    let preview = job["preview"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, id) in preview.iter().enumerate() {
        session.out.line(&format!("{:>4}  {}", at + 1, id.as_str().unwrap_or_default()))?;
    }
    if (preview.len() as u64) < job["matched"].as_u64().unwrap_or(0) {
        session.out.line("   …  and so on, in this order")?;
    }
    Ok(())
}

/// What it took to find the deliveries.
fn cost(job: &Value) -> String {
    format!("{} looked at in {} ms", field(job, "looked_at"), field(job, "took_ms"))
}

fn summary(job: &Value) -> String {
    let of = |name| field(job, name);
    format!("{} {}: {}, {} refused", of("id"), of("state"), progress(job), of("refused"))
}

/// Watches a job until it ends; an interrupt leaves it running, and says so.
fn until_interrupted(session: &Session, job: Value) -> Outcome<Value> {
    let id = field(&job, "id");
    let watching = session.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            watched = tokio::task::spawn_blocking(move || watch(&watching, job)) => Some(watched),
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    match ended {
        Some(watched) => watched.unwrap_or_else(|error| Err(Failure::new(error))),
        None => {
            session.out.progress_done();
            session.out.hint(&format!(
                "The job goes on. See it with `railpost replay show {id}`, stop it with `railpost replay cancel {id}`."
            ));
            // The thread that watches holds nothing.
            std::process::exit(0)
        }
    }
}

fn watch(session: &Session, mut job: Value) -> Outcome<Value> {
    let url = session.client.of_tenant(&["replays", &field(&job, "id")]);
    while job["state"] == "running" {
        session.out.progress(&bar(job["done"].as_u64().unwrap_or(0), job["matched"].as_u64()));
        pause();
        job = session.client.get(&url)?;
    }
    session.out.progress_done();
    Ok(job)
}

const BAR: u64 = 30;

/// How far something has come, drawn.
pub(super) fn bar(done: u64, of: Option<u64>) -> String {
    let Some(of) = of.filter(|of| *of > 0) else { return format!("{done} done") };
    let filled = (done.min(of) * BAR / of) as usize;
    let rest = BAR as usize - filled;
    format!("[{}{}] {done}/{of}", "#".repeat(filled), ".".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_what_it_handed_over_and_a_dry_run_what_it_would() {
        for (job, shown) in [
            (json!({ "action": "replay", "done": 5, "matched": 5 }), "handed over 5 of 5"),
            (json!({ "action": "discard", "done": 1, "matched": 2 }), "discarded 1 of 2"),
            (
                json!({ "action": "replay", "dry_run": true, "done": 0, "matched": 5 }),
                "dry run: 5 would be replayed",
            ),
        ] {
            assert_eq!(progress(&job), shown);
        }
    }

    #[test]
    fn a_bar_is_as_long_as_what_is_done() {
        assert_eq!(bar(0, Some(2)), format!("[{}] 0/2", ".".repeat(30)));
        assert_eq!(bar(1, Some(2)), format!("[{}{}] 1/2", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(3, Some(2)), format!("[{}] 3/2", "#".repeat(30)));
        assert_eq!(bar(7, None), "7 done");
    }
}
