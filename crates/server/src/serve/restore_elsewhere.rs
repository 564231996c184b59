//! A restore that touches nothing: a backup is restored beside the store, checked and counted.

use std::fs::{File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railpost_engine::Time;
use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_sqlite::SqliteStore;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    Counts, EventQuery, Listing, PageRequest, Setup, Source, Store, SystemSource,
};
use railpost_wire::TenantId;
use serde::Serialize;
use tempfile::TempDir;

use super::offline::{check_backup, not_restored};
use super::opening::existing_setup;
use super::{StartError, failed};
use crate::config::{Config, is_postgres_url};

/// What a backup holds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RestoredContents {
    pub(crate) tenants: u64,
    /// Those that are removed are not counted.
    pub(crate) endpoints: u64,
    /// Secrets of these endpoints. Each was decrypted.
    pub(crate) secrets: u64,
    pub(crate) events: u64,
    /// When the newest event was accepted.
    pub(crate) newest_event_at: Option<Time>,
    pub(crate) open_deliveries: u64,
    pub(crate) dead_letters: u64,
}

/// Restores a backup into a temporary folder, or into the empty PostgreSQL database at `scratch`, and checks the
/// restored store. An error says why the backup cannot be restored.
pub(crate) async fn restore_elsewhere(
    config: &Config,
    backup: &Path,
    scratch: Option<&str>,
) -> Result<RestoredContents, StartError> {
    check_backup(backup, None)?;
    let setup = existing_setup(config, &(Arc::new(SystemSource) as Arc<dyn Source>))?;
    if is_postgres_backup(backup) || scratch.is_some_and(is_postgres_url) {
        let url = scratch.filter(|url| is_postgres_url(url)).ok_or_else(|| {
            let problem = "a backup of PostgreSQL: name an empty database to restore it into";
            failed(&backup.display().to_string(), format!("{problem}: --scratch postgres://…"))
        })?;
        let restored = PostgresStore::restore(&PostgresAddress::from(url), backup, setup).await;
        let store = restored.map_err(|error| not_restored("--scratch", backup, &error))?;
        return contents(&store, backup).await;
    }
    let folder = temporary_folder(scratch)?;
    let store = restore_sqlite(folder.path(), backup, setup)
        .map_err(|error| not_restored("the copy", backup, &error))?;
    contents(&store, backup).await
}

fn is_postgres_backup(backup: &Path) -> bool {
    let mut mark = [0; PostgresStore::BACKUP_MARK.len()];
    let read = File::open(backup).and_then(|mut file| file.read_exact(&mut mark));
    read.is_ok() && mark == *PostgresStore::BACKUP_MARK
}

/// Only its owner may look into it. It is deleted when it is dropped.
fn temporary_folder(parent: Option<&str>) -> Result<TempDir, StartError> {
    let parent = parent.map_or_else(std::env::temp_dir, PathBuf::from);
    let owner_only = Permissions::from_mode(0o700);
    let made =
        tempfile::Builder::new().prefix("railpost-").permissions(owner_only).tempdir_in(&parent);
    made.map_err(|error| {
        let problem = format!("cannot make a folder in {}: {error}", parent.display());
        failed("--scratch", problem)
    })
}

fn restore_sqlite(
    folder: &Path,
    backup: &Path,
    setup: Setup,
) -> railpost_store::Result<SqliteStore> {
    let path = folder.join("railpost.db");
    SqliteStore::restore(&path, backup, &setup)?;
    SqliteStore::open(&path, setup)
}

/// Checks a restored store, and reads what is in it.
async fn contents(store: &dyn Store, backup: &Path) -> Result<RestoredContents, StartError> {
    let read = async {
        store.verify().await?;
        count(store).await
    };
    read.await.map_err(|error| not_restored("the copy", backup, &error))
}

async fn count(store: &dyn Store) -> railpost_store::Result<RestoredContents> {
    let mut contents = RestoredContents::default();
    let mut page = first_page();
    while let Some(request) = page {
        let tenants = store.tenants(request).await?;
        for tenant in &tenants.items {
            count_events(store, &tenant.id, &mut contents).await?;
        }
        contents.tenants += tenants.items.len() as u64;
        page = page_after(tenants);
    }
    let mut page = first_page();
    while let Some(request) = page {
        let endpoints = store.endpoints(None, request).await?;
        for endpoint in &endpoints.items {
            contents.secrets += store.secrets(endpoint.id).await?.len() as u64;
        }
        contents.endpoints += endpoints.items.len() as u64;
        page = page_after(endpoints);
    }
    let Counts { pending, in_flight, waiting, held, dead, .. } = store.totals(None).await?;
    contents.open_deliveries = pending + in_flight + waiting;
    contents.dead_letters = held + dead;
    Ok(contents)
}

async fn count_events(
    store: &dyn Store,
    tenant: &TenantId,
    contents: &mut RestoredContents,
) -> railpost_store::Result<()> {
    let mut page = first_page();
    while let Some(request) = page {
        let events = store.events(EventQuery::of(tenant.clone(), request)).await?;
        contents.events += events.items.len() as u64;
        let newest = events.items.iter().map(|event| Time::from(event.accepted_at)).max();
        contents.newest_event_at = contents.newest_event_at.max(newest);
        page = page_after(events);
    }
    Ok(())
}

fn first_page() -> Option<PageRequest> {
    Some(PageRequest::first(LIST_LIMIT_MAX))
}

fn page_after<T>(listing: Listing<T>) -> Option<PageRequest> {
    listing.next.map(|cursor| PageRequest::after(LIST_LIMIT_MAX, cursor))
}
