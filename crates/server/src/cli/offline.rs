//! `railpost restore`, `backup verify`, `store verify --offline` and `lines renew --offline`: work on a store that no
//! server has open.

use std::path::PathBuf;

use railpost_cli::{Confirmation, Failure, Out, Outcome, upkeep};
use railpost_engine::Time;
use serde_json::json;
use tokio::runtime::Runtime;

use super::config::{self, ConfigFileArgument};
use crate::config::Config;
use crate::serve::{self, RestoredContents, RestoredStore};

/// Puts a backup in the place of the store.
///
/// The store is the one that `serve` would open with the same configuration. Stop the server first and wait
/// until its process has ended: a store that is in use is refused. The master key must be the one that the
/// backup was made with. The backup is checked before anything changes, and the old SQLite store is kept
/// beside the new one. PostgreSQL is restored into an empty database.
///
/// What was accepted after the backup is gone, and what was delivered after it is sent again. Every lane
/// begins a new line, so receivers take the numbers that follow for new ones.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Arguments {
    /// The file that `railpost backup` wrote
    backup: PathBuf,
    #[command(flatten)]
    place: StoreArguments,
}

/// Without a subcommand it has the server write a backup.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct BackupCommand {
    #[command(subcommand)]
    pub(super) action: Option<BackupAction>,
    #[command(flatten)]
    pub(super) new: upkeep::BackupArguments,
}

/// What can be done with a backup.
#[derive(Debug, clap::Subcommand)]
pub(super) enum BackupAction {
    /// Restore a backup elsewhere, check it, and say what it holds; the server may run
    ///
    /// The backup is compared with its checksum, restored into a temporary folder, opened with the master key of the
    /// configuration, and checked as `railpost store verify` does. Then everything in it is counted, and every secret
    /// is decrypted. The store of the configuration is not touched.
    ///
    /// Exit codes: 0 the backup can be restored; 1 it cannot.
    #[command(verbatim_doc_comment)]
    Verify(VerifyBackupArguments),
}

/// The arguments of `backup verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyBackupArguments {
    /// The file that `railpost backup` wrote
    backup: PathBuf,
    /// Where to restore it: a folder with as much free space as the backup has [default: the system's temporary
    /// folder], or for a backup of PostgreSQL the URL of an empty database, which keeps the restored store
    #[arg(long, value_name = "DIR|URL")]
    scratch: Option<String>,
    #[command(flatten)]
    place: StoreArguments,
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
    pub(super) place: StoreArguments,
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
    #[command(flatten)]
    pub(super) confirmation: Confirmation,
    #[command(flatten)]
    pub(super) access: StoreAccess,
}

/// Which store: as `serve` would find it.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArguments {
    #[command(flatten)]
    file: ConfigFileArgument,
    /// The folder of database and master key [default: ./railpost-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Where everything is written: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArguments {
    fn config(self) -> Outcome<Config> {
        let data_dir = self.data_dir.map(|dir| dir.display().to_string());
        let given =
            [("--data-dir", "server.data_dir", data_dir), ("--store", "store.url", self.store)];
        let flags = given.into_iter().filter_map(|(flag, path, text)| Some((flag, path, text?)));
        let loaded = config::load(&self.file, flags.collect()).map_err(Failure::usage)?;
        Ok(loaded.config)
    }
}

pub(super) fn run(arguments: Arguments, out: Out) -> Outcome {
    let config = arguments.place.config()?;
    out.progress("checking the backup and putting it in place …");
    let restored = Runtime::new()?.block_on(serve::restore(&config, &arguments.backup));
    out.progress_done();
    let RestoredStore { store, old_store } = restored.map_err(Failure::new)?;
    let answer = json!({
        "restored": arguments.backup,
        "store": store,
        "old_store": old_store,
    });
    out.done(&answer, &format!("restored {} to {store}", arguments.backup.display()))?;
    if let Some(old_store) = old_store {
        out.hint(&format!("The old store is kept as {}.", old_store.display()));
    }
    out.hint("Every lane begins a new line: receivers take what follows for new.");
    Ok(())
}

pub(super) fn verify_backup(arguments: VerifyBackupArguments, out: Out) -> Outcome {
    let config = arguments.place.config()?;
    out.progress("restoring the backup elsewhere, and checking it …");
    let (backup, scratch) = (arguments.backup, arguments.scratch.as_deref());
    let restored = Runtime::new()?.block_on(serve::restore_elsewhere(&config, &backup, scratch));
    out.progress_done();
    let contents = restored.map_err(Failure::new)?;
    let RestoredContents { tenants, endpoints, secrets, events, .. } = contents;
    let RestoredContents { open_deliveries, dead_letters, newest_event_at, .. } = contents;
    let newest = newest_event_at.map_or_else(String::new, |at| format!(" (newest: {at})"));
    let line = format!(
        "{} can be restored: {tenants} tenants, {endpoints} endpoints, {secrets} secrets, \
         {events} events{newest}, {open_deliveries} open deliveries, {dead_letters} dead letters",
        backup.display()
    );
    out.done(&json!({ "backup": backup, "contents": contents }), &line)
}

pub(super) fn verify(place: StoreArguments, out: Out) -> Outcome {
    let config = place.config()?;
    out.progress("looking through the store …");
    let damage = Runtime::new()?.block_on(serve::verify(&config));
    out.progress_done();
    upkeep::print_verification(out, damage.map_err(Failure::new)?.as_deref())
}

pub(super) fn renew_lines(arguments: RenewArguments, out: Out) -> Outcome {
    let config = arguments.access.place.config()?;
    upkeep::confirm_renewal(out, arguments.confirmation)?;
    let renewed_at = Runtime::new()?.block_on(serve::renew_lines(&config)).map_err(Failure::new)?;
    out.done(&json!({ "renewed_at": Time::from(renewed_at) }), upkeep::LINES_RENEWED)
}
