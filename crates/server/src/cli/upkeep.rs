//! `railpost backup` and `railpost prune`: keeping the store in shape.

use serde_json::json;

use super::Session;
use super::failure::Outcome;
use super::out::field;

/// What `backup` may be told.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// A new file in the folder `backups/` of the server's data folder
    path: String,
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
    out.progress("deleting what is past its retention …");
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
