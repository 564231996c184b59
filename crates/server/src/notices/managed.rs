//! The reserved tenant, its event types, and the endpoints that the sections `[[notices]]` make.
//!
//! A managed endpoint is known by `managed_by`. Each start makes, changes and removes them, so that they are what the
//! file says. What people made in the reserved tenant stays as it is.

use std::collections::BTreeMap;

use railpost_api::{Action, App, check_endpoint};
use railpost_dispatch::{Target, TargetError};
use railpost_engine::EndpointStatus;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    AuditEntry, Change, Endpoint, NewEndpoint, PageRequest, RESERVED_TENANT, StoreError,
    TenantSettings, Write,
};
use railpost_wire::{AuditId, EndpointId, EventTypeFilter, TenantId};
use serde_json::json;

use super::section::ResolvedSection;
use super::types;

/// The actor in the audit trail.
const ACTOR: &str = "configuration";

/// An endpoint that a section makes.
#[derive(Clone, Debug)]
pub(crate) struct ManagedEndpoint {
    pub(crate) id: EndpointId,
    /// The section, such as `notices.oncall`.
    pub(crate) section: String,
    /// The types that it wants.
    pub(crate) filters: Vec<EventTypeFilter>,
}

/// The tenant of notices.
pub(super) fn reserved_tenant() -> TenantId {
    RESERVED_TENANT.parse().expect("it is a tenant id")
}

/// Makes the tenant, its event types and the endpoints what they should be. Answers the endpoints, and what an
/// operator should know. An error names the field.
pub(crate) async fn prepare(
    app: &App,
    sections: &[ResolvedSection],
) -> Result<(Vec<ManagedEndpoint>, Vec<String>), String> {
    let mut warnings = Vec::new();
    for section in sections {
        warnings.extend(check(app, section)?);
    }
    let failed = |error: StoreError| format!("store: {error}");
    warnings.extend(prepare_tenant(app).await.map_err(failed)?);
    let endpoints = reconcile(app, sections).await.map_err(failed)?;
    Ok((endpoints, warnings))
}

/// Checks a section as the API checks an endpoint. An address that the guard blocks is only a warning: what may be
/// reached can change while the server runs.
fn check(app: &App, section: &ResolvedSection) -> Result<Option<String>, String> {
    let place = &section.place;
    let blocked = match Target::parse(&section.settings.url, &app.guard) {
        Err(problem @ (TargetError::Blocked(_) | TargetError::Loopback { .. })) => {
            Some(format!("{place}.url: nothing can be sent there: {problem}"))
        }
        _ => None,
    };
    match check_endpoint(app, &section.settings, &section.private) {
        Err(problem) if blocked.is_none() => {
            let field = problem.field.unwrap_or_default();
            Err(format!("{place}.{field}: {}", problem.detail))
        }
        _ => Ok(blocked),
    }
}

/// Makes the tenant and its event types. A tenant of that name may have been somebody's.
async fn prepare_tenant(app: &App) -> Result<Option<String>, StoreError> {
    let tenant = reserved_tenant();
    let mut writes = Vec::new();
    let exists = app.store.tenant(&tenant).await?.is_some();
    if !exists {
        let settings = TenantSettings { name: "Notices".to_owned(), ..TenantSettings::default() };
        writes.push(Write::CreateTenant(tenant.clone(), settings));
    }
    let stored = app.store.event_types(&tenant, PageRequest::first(LIST_LIMIT_MAX)).await?.items;
    let is_ours = stored.iter().any(|record| record.name.as_str() == types::REPLAY_FINISHED);
    let changed = types::records(&tenant).into_iter().filter(|record| !stored.contains(record));
    writes.extend(changed.map(Write::PutEventType));
    if !writes.is_empty() {
        app.dispatcher.commit(Change { writes, ..Change::default() }).await?;
    }
    Ok((exists && !is_ours).then(|| {
        format!(
            "the tenant `{tenant}` existed already; it is reserved for the server's notices from here on, and what \
             it has stays: nothing else can be published to it"
        )
    }))
}

async fn reconcile(
    app: &App,
    sections: &[ResolvedSection],
) -> Result<Vec<ManagedEndpoint>, StoreError> {
    let mut stored = managed(app).await?;
    let mut endpoints = Vec::new();
    for section in sections {
        let name = section.settings.managed_by.clone().unwrap_or_default();
        let id = match stored.remove(&name) {
            Some(endpoint) => update(app, &endpoint, section).await?,
            None => create(app, section).await?,
        };
        let filters = section.settings.filters.clone();
        endpoints.push(ManagedEndpoint { id, section: name, filters });
    }
    for endpoint in stored.into_values() {
        let writes = vec![Write::RemoveEndpoint(endpoint.id)];
        commit(app, writes, Action::EndpointRemove, endpoint.id).await?;
        app.removals.notify_one();
    }
    Ok(endpoints)
}

/// The managed endpoints of an earlier start, by their sections.
async fn managed(app: &App) -> Result<BTreeMap<String, Endpoint>, StoreError> {
    let (mut found, mut page) = (BTreeMap::new(), PageRequest::first(LIST_LIMIT_MAX));
    loop {
        let listing = app.store.endpoints(Some(&reserved_tenant()), page.clone()).await?;
        for endpoint in listing.items {
            if let Some(section) = endpoint.settings.managed_by.clone() {
                found.insert(section, endpoint);
            }
        }
        match listing.next {
            Some(next) => page.after = Some(next),
            None => return Ok(found),
        }
    }
}

async fn create(app: &App, section: &ResolvedSection) -> Result<EndpointId, StoreError> {
    let id = EndpointId::generate(app.source.now().as_millis(), app.random());
    let ResolvedSection { settings, private, .. } = section.clone();
    let new = NewEndpoint { id, tenant: reserved_tenant(), settings, private };
    commit(app, vec![Write::CreateEndpoint(new)], Action::EndpointCreate, id).await?;
    Ok(id)
}

/// Makes it what the file says. If the engine switched it off, it is switched on: the file wants it.
async fn update(
    app: &App,
    endpoint: &Endpoint,
    section: &ResolvedSection,
) -> Result<EndpointId, StoreError> {
    let (id, mut writes) = (endpoint.id, Vec::new());
    let ResolvedSection { settings, private, .. } = section.clone();
    if endpoint.settings != settings || endpoint.private.as_ref() != Ok(&private) {
        writes.push(Write::UpdateEndpoint { id, settings, private, revision: None });
    }
    if !matches!(endpoint.status, EndpointStatus::Active | EndpointStatus::Paused) {
        writes.push(Write::SetEndpointStatus(id, EndpointStatus::Active));
    }
    if !writes.is_empty() {
        commit(app, writes, Action::EndpointChange, id).await?;
    }
    Ok(id)
}

async fn commit(
    app: &App,
    writes: Vec<Write>,
    action: Action,
    target: EndpointId,
) -> Result<(), StoreError> {
    let at = app.source.now();
    let audit = AuditEntry {
        id: AuditId::generate(at.as_millis(), app.random()),
        at,
        tenant: Some(reserved_tenant()),
        actor: ACTOR.to_owned(),
        address: None,
        action: action.name().to_owned(),
        target: target.to_string(),
        detail: json!({}),
    };
    app.dispatcher.commit(Change { writes, audit: Some(audit), idempotency: None }).await
}
