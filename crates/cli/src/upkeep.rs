//! `railpost backup`, `prune`, `store verify` and `lines renew`: keeping the store in shape, over the API.

use serde_json::json;

use super::Session;
use super::confirm::Confirmation;
use super::failure::{Failure, Outcome};
use super::out::{Out, field};

/// The arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct BackupArguments {
    /// A new file in the folder `backups/` of the server's data folder
    path: String,
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

pub(super) fn backup(arguments: &BackupArguments, session: &Session) -> Outcome {
    let out = session.out;
    out.progress("writing the backup …");
    let answer = session
        .client
        .post(&session.client.of_server(&["backup"]), &json!({ "path": arguments.path }));
    out.progress_done();
    let answer = answer?;
    out.done(
        &answer,
        &format!("wrote {} bytes to {}", field(&answer, "size_bytes"), field(&answer, "path")),
    )
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
