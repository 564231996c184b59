//! `railpost replay`: sends again, skips or discards many deliveries, as a job of the server.

use serde_json::{Map, Value, json};

use super::Session;
use super::client::pause;
use super::deliveries::STATES;
use super::failure::{Failure, Outcome};
use super::list::{self, Filter, Paging};
use super::out::{Column, age, field, full_column};
use super::tenants::confirm;

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
    /// Only of this endpoint
    #[arg(long)]
    endpoint: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Send to this endpoint instead, as new deliveries
    #[arg(long, value_name = "ENDPOINT")]
    to: Option<String>,
    /// At most this many deliveries a second
    #[arg(long, value_name = "PER SECOND")]
    rate: Option<u32>,
    /// Only count the deliveries, and show the first ones in order
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
}

impl NewReplay {
    fn to_json(&self, dry_run: bool) -> Value {
        let mut filter = Map::new();
        filter.insert("state".to_owned(), json!(self.state));
        let fields = self.filter.fields().into_iter().chain([("endpoint", &self.endpoint)]);
        for (name, value) in fields {
            if let Some(value) = value {
                filter.insert(name.to_owned(), json!(value));
            }
        }
        let action = if self.to.is_some() { "redeliver" } else { &self.action };
        let mut body = json!({ "action": action, "filter": filter, "dry_run": dry_run });
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
    full_column("done", |item| format!("{}/{}", field(item, "done"), field(item, "matched"))),
    full_column("refused", |item| field(item, "refused")),
    full_column("started", |item| age(item, "created_at")),
];

pub(super) fn run(arguments: Arguments, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    match arguments.action {
        Some(Action::List(paging)) => {
            list::show(session, &client.of_tenant(&["replays"]), &paging, &COLUMNS)
        }
        Some(Action::Show { id }) => out.record(&client.get(&client.of_tenant(&["replays", &id]))?),
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
    if !new.yes {
        let planned = watch(session, client.post(&url, &new.to_json(true))?)?;
        confirm(session.out, &question(new, &planned), false)?;
    }
    let job = client.post(&url, &new.to_json(false))?;
    let id = field(&job, "id");
    if new.no_wait {
        return out.done(&job, &format!("started {id}; see `railpost replay show {id}`"));
    }
    let job = until_interrupted(session, job)?;
    out.done(&job, &summary(&job))?;
    match job["state"].as_str() {
        Some("failed") => Err(Failure::new(format!("the job failed: {}", field(&job, "problem")))),
        _ => Ok(()),
    }
}

fn question(new: &NewReplay, planned: &Value) -> String {
    let action = if new.to.is_some() { "redeliver" } else { &new.action };
    format!("{action} {} deliveries?", field(planned, "matched"))
}

fn show_plan(session: &Session, job: &Value) -> Outcome {
    if session.out.json {
        return session.out.value(job);
    }
    session.out.line(&format!("{} deliveries match ({})", field(job, "matched"), cost(job)))?;
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
    format!(
        "{} {}: {} of {} done, {} refused",
        of("id"),
        of("state"),
        of("done"),
        of("matched"),
        of("refused")
    )
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
    fn a_bar_is_as_long_as_what_is_done() {
        assert_eq!(bar(0, Some(2)), format!("[{}] 0/2", ".".repeat(30)));
        assert_eq!(bar(1, Some(2)), format!("[{}{}] 1/2", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(3, Some(2)), format!("[{}] 3/2", "#".repeat(30)));
        assert_eq!(bar(7, None), "7 done");
    }
}
