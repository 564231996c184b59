//! Endpoints: where events go, and how.

mod shape;
mod settings;
mod actions;
mod health;
mod probe;
mod changes;

use http::Method;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Endpoint, EndpointPrivate, NewSecret, PageRequest, SecretValue, Write};
use railpost_wire::{EndpointId, Secret, SecretId, TenantId};
use serde_json::json;

use super::answer::{Created, Json};
use super::audit::Action;
use super::auth::Needs;
use super::body::NoBody;
use super::call::{AuditAction, Ctx};
use super::members::ObjectBody;
use super::merge::MergePatch;
use super::path::{OfEndpoint, OfTenant};
use super::problem::{Code, Problem};
use super::query::{ListPage, NoFilter, NoQuery, PagedQuery};
use super::route::Route;
use super::secrets::{self, SecretCreated};
use super::tenants;

pub use settings::check as check_endpoint;
pub(crate) use shape::{
    EndpointCreated, EndpointFields, EndpointInput, EndpointRemoved, EndpointView, NewEndpoint,
};

const ALL: &str = "/v1/tenants/{tenant}/endpoints";
const ONE: &str = "/v1/tenants/{tenant}/endpoints/{endpoint}";

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(Method::GET, ALL, Needs::Read, "List endpoints", list),
        Route::new(Method::POST, ALL, Needs::Manage, "Create an endpoint", create),
        Route::new(Method::GET, ONE, Needs::Read, "Show an endpoint", show),
        Route::new(Method::PATCH, ONE, Needs::Manage, "Change an endpoint", change),
        Route::new(Method::DELETE, ONE, Needs::Manage, "Remove an endpoint", remove),
    ];
    [own, actions::routes(), probe::routes(), health::routes()].concat()
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<EndpointView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let listing = ctx.app.store.endpoints(Some(&path.tenant), query.page).await?;
    let ids: Vec<EndpointId> = listing.items.iter().map(|endpoint| endpoint.id).collect();
    let mut served = ctx.app.dispatcher.health_of(&ids).await?.into_iter();
    Ok(Json(ListPage::of(listing, |endpoint| {
        EndpointView::with_health(endpoint, served.next().flatten())
    })))
}

/// Creates an endpoint with one shared secret, which is shown in the answer and not again.
pub(crate) async fn create(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    ObjectBody(new): ObjectBody<NewEndpoint>,
) -> Result<Created<EndpointCreated>, Problem> {
    let (settings, private) = settings::checked(&ctx.app, new.input)?;
    let secret = new.secret.map(|secret| secret.0);
    let secret = secret.unwrap_or_else(|| Secret::generate(&ctx.app.random()));
    tenants::find(&ctx, &path.tenant).await?;
    check_count(&ctx, &path.tenant).await?;
    let now = ctx.now();
    let rotates_at = settings.secret_age_max().map(|age_max| now + age_max);
    let endpoint = Endpoint {
        id: EndpointId::generate(now.as_millis(), ctx.app.random()),
        tenant: path.tenant,
        settings,
        private: Ok(private.clone()),
        status: Default::default(),
        status_since: None,
        failing_since: None,
        revision: 1,
        created_at: now,
        updated_at: now,
        removed_at: None,
        rotates_at,
    };
    let secret = NewSecret {
        id: SecretId::generate(now.as_millis(), ctx.app.random()),
        endpoint: endpoint.id,
        value: SecretValue::Shared(secret),
        expires_at: None,
    };
    let writes = vec![
        Write::CreateEndpoint(railpost_store::NewEndpoint {
            id: endpoint.id,
            tenant: endpoint.tenant.clone(),
            settings: endpoint.settings.clone(),
            private,
        }),
        Write::CreateSecret(secret.clone()),
    ];
    let audit_action = audit_action(Action::EndpointCreate, &endpoint)
        .with_changes(changes::since_nothing(&endpoint));
    let secret = SecretCreated::of(&secret, now);
    let answer = Created(EndpointCreated { endpoint: endpoint.into(), secret });
    ctx.commit(writes, audit_action, answer).await
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EndpointView>, Problem> {
    let endpoint = find(&ctx, &path).await?;
    let served = ctx.app.dispatcher.health(endpoint.id).await?;
    Ok(Json(EndpointView::with_health(endpoint, served)))
}

pub(crate) async fn change(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    mut change: MergePatch<EndpointInput>,
) -> Result<Json<EndpointView>, Problem> {
    let expected: Option<u64> = change.take("revision")?;
    let before = find_served(&ctx, &path).await?;
    refuse_managed(&before)?;
    let mut endpoint = before.clone();
    let revision = endpoint.revision;
    if let Some(expected) = expected.filter(|expected| *expected != revision) {
        let detail = format!("the current revision is {revision}, got {expected}: read it again");
        let problem = Problem::new(Code::RevisionMismatch, detail);
        return Err(Problem { field: Some("revision".to_owned()), ..problem });
    }
    let was_signed = endpoint.settings.policy.signed;
    let private = private_to_change(&endpoint, &change)?;
    let before_change = EndpointInput { fields: endpoint.settings.into(), private };
    let (settings, private) = settings::checked(&ctx.app, change.apply(&before_change)?)?;
    endpoint.settings = settings;
    let mut _lock = None;
    if endpoint.settings.policy.signed && !was_signed {
        _lock = Some(ctx.app.secret_changes.lock().await);
        secrets::require_lasting(&ctx, endpoint.id).await?;
    }
    endpoint.revision += 1;
    endpoint.updated_at = ctx.now();
    let write = Write::UpdateEndpoint {
        id: endpoint.id,
        settings: endpoint.settings.clone(),
        private: private.clone(),
        revision: Some(revision),
    };
    endpoint.private = Ok(private);
    if endpoint.settings.secret_age_max() != before.settings.secret_age_max() {
        let held = ctx.app.store.secrets(endpoint.id).await?;
        endpoint.rotates_at = secrets::next_rotation(&endpoint.settings, &held);
    }
    let answer = commit_change(&ctx, write, Action::EndpointChange, &before, endpoint).await;
    ctx.app.secret_schedules.notify_one();
    answer
}

/// What is encrypted of the endpoint. If it cannot be read, the change must replace all of it.
fn private_to_change(
    endpoint: &Endpoint,
    change: &MergePatch<EndpointInput>,
) -> Result<EndpointPrivate, Problem> {
    match &endpoint.private {
        Ok(private) => Ok(private.clone()),
        Err(_) if change.names("headers") && change.names("client_identity") => {
            Ok(EndpointPrivate::default())
        }
        Err(error) => Err(error.clone().into()),
    }
}

pub(crate) async fn remove(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EndpointRemoved>, Problem> {
    let endpoint = find(&ctx, &path).await?;
    refuse_managed(&endpoint)?;
    let open_deliveries = ctx.app.store.counts(endpoint.id).await?.open();
    let mut audit_action = audit_action(Action::EndpointRemove, &endpoint);
    audit_action.detail["url"] = json!(endpoint.settings.url);
    audit_action.detail["open_deliveries"] = json!(open_deliveries);
    let answer = Json(EndpointRemoved { id: endpoint.id, open_deliveries });
    let removed = ctx.commit(vec![Write::RemoveEndpoint(endpoint.id)], audit_action, answer).await;
    // Even if the answer was lost: it may have been removed all the same.
    ctx.app.removals.notify_one();
    removed
}

/// Commits a change to an endpoint, and answers with the endpoint.
async fn commit_change(
    ctx: &Ctx,
    write: Write,
    action: Action,
    before: &Endpoint,
    after: Endpoint,
) -> Result<Json<EndpointView>, Problem> {
    let changes = changes::between(before, &after);
    let audit_action = audit_action(action, &after).with_changes(changes);
    ctx.commit(vec![write], audit_action, Json(after.into())).await
}

/// The endpoint, if it is this tenant's and was not removed.
pub(crate) async fn find(ctx: &Ctx, path: &OfEndpoint) -> Result<Endpoint, Problem> {
    let found = ctx.app.store.endpoint(path.endpoint).await?;
    let own = found.filter(|found| found.tenant == path.tenant && found.removed_at.is_none());
    own.ok_or_else(|| Problem::not_found("endpoint", path.endpoint))
}

/// The same, with failures as the engine knows them: the store has only those that lasted.
async fn find_served(ctx: &Ctx, path: &OfEndpoint) -> Result<Endpoint, Problem> {
    let endpoint = find(ctx, path).await?;
    let served = ctx.app.dispatcher.health(endpoint.id).await?;
    let failing_since = served.map_or(endpoint.failing_since, |served| served.health.failing_since);
    Ok(Endpoint { failing_since, ..endpoint })
}

/// Refuses an endpoint that the configuration file makes.
fn refuse_managed(endpoint: &Endpoint) -> Result<(), Problem> {
    let Some(section) = &endpoint.settings.managed_by else { return Ok(()) };
    let detail = format!(
        "it is configured in the section `{section}` of the configuration file: change or remove it there, and \
         start the server again"
    );
    Err(Problem::new(Code::Configured, detail))
}

/// Refuses one endpoint too many. Two requests at once may both be the last one: the bound is there to
/// keep a runaway script from filling the store, not to be exact.
async fn check_count(ctx: &Ctx, tenant: &TenantId) -> Result<(), Problem> {
    let max = ctx.app.settings.limits.endpoints_per_tenant as usize;
    let mut page = PageRequest::first(LIST_LIMIT_MAX);
    let mut count = 0;
    while count < max {
        let listing = ctx.app.store.endpoints(Some(tenant), page.clone()).await?;
        count += listing.items.len();
        match listing.next {
            Some(next) => page.after = Some(next),
            None if count < max => return Ok(()),
            None => break,
        }
    }
    let detail = format!("a tenant may have {max} endpoints: remove one that is no longer needed");
    Err(Problem::new(Code::LimitReached, detail))
}

pub(super) fn audit_action(action: Action, endpoint: &Endpoint) -> AuditAction {
    AuditAction {
        action,
        tenant: Some(endpoint.tenant.clone()),
        target: endpoint.id.to_string(),
        detail: json!({ "revision": endpoint.revision }),
    }
}
