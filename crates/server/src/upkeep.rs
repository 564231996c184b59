//! Background jobs on the store: retention, closing open deliveries of removed endpoints, erasing tenants, and
//! writing figures.

use std::sync::Arc;
use std::time::Duration;

use railpost_api::{AUDIT_TENANT_ERASED, App, prune};
use railpost_engine::Time;
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{AUDIT_ACTOR_SELF, AuditEntry, ErasingTenant, StoreError};
use railpost_telemetry::{Level, Value};
use railpost_wire::AuditId;
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::limits::{FIGURES_EVERY, UPKEEP_RETRY};

/// Prunes now and then, until the server stops.
pub(crate) async fn prune_regularly(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    let every = Duration::from(app.settings.retention.prune_every);
    while !stops_within(every, &mut stopping).await {
        if let Err(problem) = prune(&app).await {
            app.telemetry.note_stopped(&problem);
            let fields = [("problem", Value::Display(&problem))];
            app.telemetry.log.line(Level::Warn, "prune_failed", &fields);
        }
    }
}

/// Closes the open deliveries of removed endpoints, in small steps: after the start, after every removal,
/// and now and then. What is interrupted goes on with the next start.
pub(crate) async fn close_removed(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    loop {
        let done = close_all_removed(&app, &stopping).await;
        let rest = rest_after(&app, done, "close_removed_failed");
        if stops_before_next(rest, &app.removals, &mut stopping).await {
            return;
        }
    }
}

/// How long to wait after a round. A failed round is logged and retried soon.
fn rest_after(app: &App, done: Result<(), StoreError>, failed: &'static str) -> Duration {
    let Err(problem) = done else { return Duration::from(app.settings.retention.prune_every) };
    app.telemetry.note_stopped(&problem);
    app.telemetry.log.line(Level::Warn, failed, &[("problem", Value::Display(&problem))]);
    Duration::from(UPKEEP_RETRY)
}

/// Rests, or less if there is something new to do. Says whether the server stops.
pub(crate) async fn stops_before_next(
    rest: Duration,
    new: &Notify,
    stopping: &mut watch::Receiver<bool>,
) -> bool {
    tokio::select! {
        stops = stops_within(rest, stopping) => stops,
        () = new.notified() => false,
    }
}

async fn close_all_removed(app: &App, stopping: &watch::Receiver<bool>) -> Result<(), StoreError> {
    let mut closed = 0;
    loop {
        let step = app.store.close_removed(UPKEEP_STEP_MAX).await?;
        closed += step;
        if step == 0 || *stopping.borrow() {
            break;
        }
    }
    if closed > 0 {
        let fields = [("deliveries", Value::Number(closed))];
        app.telemetry.log.line(Level::Info, "removed_closed", &fields);
    }
    Ok(())
}

/// Erases the tenants that are marked for it, in small steps: after the start, and after every mark. What is
/// interrupted goes on with the next start.
pub(crate) async fn erase_tenants(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    loop {
        let done = erase_all_marked(&app, &stopping).await;
        let rest = rest_after(&app, done, "erase_failed");
        if stops_before_next(rest, &app.erasures, &mut stopping).await {
            return;
        }
    }
}

async fn erase_all_marked(app: &App, stopping: &watch::Receiver<bool>) -> Result<(), StoreError> {
    while !*stopping.borrow() && erase_some_of_each(app).await? {}
    Ok(())
}

/// One step of each marked tenant, so that none waits for a large one, or for one that cannot be erased. Says
/// whether there was any.
async fn erase_some_of_each(app: &App) -> Result<bool, StoreError> {
    let (marked, mut trouble) = (app.store.erasing_tenants().await?, None);
    for tenant in &marked {
        match app.store.erase_tenant(&tenant.id, &erased(app, tenant)).await {
            Ok(false) => {}
            Ok(true) => {
                let fields = [("tenant", Value::Text(tenant.id.as_str()))];
                app.telemetry.log.line(Level::Info, "tenant_erased", &fields);
            }
            Err(problem) => trouble = Some(problem),
        }
    }
    trouble.map_or(Ok(!marked.is_empty()), Err)
}

/// The audit entry that tells of the end. It stays: it is in no tenant's realm.
fn erased(app: &App, tenant: &ErasingTenant) -> AuditEntry {
    let at = app.source.now();
    AuditEntry {
        id: AuditId::generate(at.as_millis(), app.random()),
        at,
        tenant: None,
        actor: AUDIT_ACTOR_SELF.to_owned(),
        address: None,
        action: AUDIT_TENANT_ERASED.to_owned(),
        target: tenant.id.to_string(),
        detail: json!({ "since": Time::from(tenant.since) }),
    }
}

/// Writes figures now and then, until the server stops.
pub(crate) async fn write_figures_regularly(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    while !stops_within(Duration::from(FIGURES_EVERY), &mut stopping).await {
        app.telemetry.write_figures(&*app.store).await;
    }
}

pub(crate) async fn stops_within(span: Duration, stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::time::timeout(span, stopping.wait_for(|stop| *stop)).await.is_ok()
}
