//! `railpost backup`, `prune`, `store verify` and `lines renew`: keeping the store in shape.

use serde_json::json;

use super::Session;
use super::failure::{Failure, Outcome};
use super::out::{Out, field};
use super::restore::StorePlace;
use super::tenants::confirm;

/// The arguments of `backup`.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// A new file in the folder `backups/` of the server's data folder
    path: String,
}

/// What can be done with the store.
#[derive(Debug, clap::Subcommand)]
pub(super) enum StoreAction {
    /// Check all stored data for damage; this may take long
    ///
    /// Exit codes: 0 the store is whole; 1 it is damaged, or could not be checked.
    #[command(verbatim_doc_comment)]
    Verify(StoreAccess),
}

/// Whether a command asks the server or opens the store itself.
#[derive(Debug, clap::Args)]
pub(super) struct StoreAccess {
    /// Open the store itself instead of asking the server, which must be stopped
    #[arg(long)]
    pub(super) offline: bool,
    #[command(flatten)]
    pub(super) place: StorePlace,
}

/// What can be done with lines.
#[derive(Debug, clap::Subcommand)]
pub(super) enum LinesAction {
    /// Begin a new line for every lane, so that no number is used twice
    ///
    /// Run it after the store was restored by other means than `railpost restore`: with --offline
    /// before the server is started, without it if the server runs already.
    #[command(verbatim_doc_comment)]
    Renew(RenewArguments),
}

/// The arguments of `lines renew`.
#[derive(Debug, clap::Args)]
pub(super) struct RenewArguments {
    /// Do not ask
    #[arg(long, short)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) access: StoreAccess,
}

pub(super) fn verify(session: &Session) -> Outcome {
    session.out.progress("checking the store …");
    let answer = session.client.act(&session.client.of_server(&["store", "verify"]));
    session.out.progress_done();
    found(session.out, answer?["damage"].as_str())
}

/// Says whether the store is whole.
pub(super) fn found(out: Out, damage: Option<&str>) -> Outcome {
    match damage {
        None => out.done(&json!({ "whole": true }), "the store is whole"),
        Some(damage) => Err(Failure::new(format!("the store is damaged: {damage}"))
            .next("stop the server, then restore a backup: railpost restore FILE")),
    }
}

pub(super) fn renew_lines(session: &Session, yes: bool) -> Outcome {
    confirm_renewal(session.out, yes)?;
    let answer = session.client.act(&session.client.of_server(&["lines", "renew"]))?;
    session.out.done(&answer, LINES_RENEWED)
}

pub(super) const LINES_RENEWED: &str = "every lane begins a new line with its next delivery";

pub(super) fn confirm_renewal(out: Out, yes: bool) -> Outcome {
    confirm(out, "Begin a new line of every lane?", yes)
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
