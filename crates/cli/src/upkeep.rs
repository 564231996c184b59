//! `railpost backup`, `prune`, `store verify` and `lines renew`: keeping the store in shape, over the API.

use std::time::{Duration, Instant};

use railpost_engine::Span;
use serde_json::json;

use super::Session;
use super::confirm::Confirmation;
use super::failure::{Failure, Outcome};
use super::out::{Out, field};
use crate::limits::{BACKUP_EVERY_MIN, BACKUP_RETRY_DELAY, BACKUPS_KEPT_MAX};

/// The arguments of `backup`: a name, or a series.
#[derive(Debug, clap::Args)]
pub struct BackupArguments {
    /// A new file in the folder `backups/` of the server's data folder
    #[arg(required_unless_present = "keep", conflicts_with = "keep")]
    name: Option<String>,
    /// Write the next backup of the series in `backups/scheduled/`, and delete its oldest past N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(BACKUPS_KEPT_MAX)))]
    keep: Option<u32>,
    /// Go on until stopped: a backup of the series at once, and then one every DURATION, such as 6h
    #[arg(long, value_name = "DURATION", requires = "keep", value_parser = interval)]
    every: Option<Span>,
}

fn interval(text: &str) -> Result<Span, String> {
    let span = text.parse().ok().filter(|span| *span >= BACKUP_EVERY_MIN);
    span.ok_or_else(|| format!("expected a duration of at least {BACKUP_EVERY_MIN}, such as 6h"))
}

/// Has the server look through its store.
pub fn verify(session: &Session) -> Outcome {
    session.out.progress("checking the store …");
    let answer = session.client.act(&session.client.of_server(&["store", "verify"]));
    session.out.progress_done();
    print_verification(session.out, answer?["damage"].as_str())
}

/// Says whether the store is whole.
pub fn print_verification(out: Out, damage: Option<&str>) -> Outcome {
    match damage {
        None => out.done(&json!({ "whole": true }), "the store is whole"),
        Some(damage) => Err(Failure::new(format!("the store is damaged: {damage}"))
            .next("stop the server, then restore a backup: railpost restore FILE")),
    }
}

/// Has the server begin a new line of every lane.
pub fn renew_lines(session: &Session, confirmation: Confirmation) -> Outcome {
    confirm_renewal(session.out, confirmation)?;
    let answer = session.client.act(&session.client.of_server(&["lines", "renew"]))?;
    session.out.done(&answer, LINES_RENEWED)
}

/// What is said when lines are renewed.
pub const LINES_RENEWED: &str = "every lane begins a new line with its next delivery";

/// Asks whether lines are to be renewed.
pub fn confirm_renewal(out: Out, confirmation: Confirmation) -> Outcome {
    let effect = "This begins a new line of every lane: receivers take the numbers that follow for new ones. It \
                  cannot be undone.";
    confirmation.ask(out, effect)
}

/// Has the server write a backup, or one after the other. If the first of them fails, no other is tried: the server or
/// the key is likely to be wrong. Later failures are reported and tried again.
pub fn backup(arguments: &BackupArguments, session: &Session) -> Outcome {
    let mut begun = Instant::now();
    write_backup(arguments, session)?;
    let Some(every) = arguments.every else { return Ok(()) };
    let mut wait = every;
    loop {
        std::thread::sleep(Duration::from(wait).saturating_sub(begun.elapsed()));
        begun = Instant::now();
        wait = match write_backup(arguments, session) {
            Ok(()) => every,
            Err(failure) if failure.is_closed_pipe() => return Err(failure),
            Err(failure) => {
                failure.report(session.out.json);
                every.min(BACKUP_RETRY_DELAY)
            }
        };
    }
}

fn write_backup(arguments: &BackupArguments, session: &Session) -> Outcome {
    let out = session.out;
    let new = match arguments.keep {
        Some(keep) => json!({ "keep": keep }),
        None => json!({ "path": arguments.name }),
    };
    out.progress("writing the backup …");
    let answer = session.client.post(&session.client.of_server(&["backup"]), &new);
    out.progress_done();
    let answer = answer?;
    let deleted = match answer["deleted"].as_array().map_or(0, Vec::len) {
        0 => String::new(),
        count => format!("; deleted the oldest {count}"),
    };
    let (size, path) = (field(&answer, "size_bytes"), field(&answer, "path"));
    out.done(&answer, &format!("wrote {size} bytes to {path}{deleted}"))
}

pub(super) fn prune(session: &Session) -> Outcome {
    let out = session.out;
    out.progress("deleting data past its retention …");
    let answer = session.client.act(&session.client.of_server(&["prune"]));
    out.progress_done();
    let answer = answer?;
    let counts = format!(
        "{} events, {} deliveries, {} lanes, {} others",
        field(&answer, "events"),
        field(&answer, "deliveries"),
        field(&answer, "lanes"),
        field(&answer, "others")
    );
    out.done(&answer, &format!("deleted {counts}"))
}
