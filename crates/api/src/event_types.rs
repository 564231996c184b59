//! Event types: what a tenant's events are called, and what their payloads look like.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Method;
use railpost_schema::{EventTypes, Rejection, SchemaError};
use railpost_store::{Event, EventTypeRecord, StoreError, Validation, Write, is_reserved_type};
use railpost_wire::{EventType, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Json, NoContent};
use super::audit::{Action, Changes};
use super::auth::Needs;
use super::body::{JsonBody, NoBody};
use super::call::{AuditAction, Ctx};
use super::path::{OfEventType, OfTenant};
use super::problem::{Code, Problem};
use super::query::{ListPage, NoFilter, NoQuery, PagedQuery};
use super::route::Route;
use super::tenants;
use crate::app::App;
use crate::limits::{EVENT_TYPES_PER_TENANT_MAX, SCHEMAS_PER_TENANT_LEN_MAX};

const ALL: &str = "/v1/tenants/{tenant}/event-types";
const ONE: &str = "/v1/tenants/{tenant}/event-types/{name}";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, ALL, Needs::Read, "List event types", list),
        Route::new(Method::GET, ONE, Needs::Read, "Show an event type", show),
        Route::new(Method::PUT, ONE, Needs::Manage, "Create or change an event type", put),
        Route::new(
            Method::DELETE,
            ONE,
            Needs::Manage,
            "Delete an event type; its events stay",
            remove,
        ),
    ]
}

/// What happens to an event that does not match its type's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Validation")]
pub(crate) enum ValidationView {
    /// It is not validated.
    Off,
    /// It is accepted, and the receipt has warnings.
    #[default]
    Warn,
    /// It is rejected.
    Reject,
}

impl From<Validation> for ValidationView {
    fn from(validation: Validation) -> Self {
        match validation {
            Validation::Off => ValidationView::Off,
            Validation::Warn => ValidationView::Warn,
            Validation::Reject => ValidationView::Reject,
        }
    }
}

impl From<ValidationView> for Validation {
    fn from(validation: ValidationView) -> Self {
        match validation {
            ValidationView::Off => Validation::Off,
            ValidationView::Warn => Validation::Warn,
            ValidationView::Reject => Validation::Reject,
        }
    }
}

/// An event type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "EventTypeDescription")]
pub(crate) struct EventTypeView {
    /// Its name, such as `order.created`.
    pub(crate) name: EventType,
    /// A description.
    pub(crate) description: String,
    /// What happens to an event that does not match.
    pub(crate) validation: ValidationView,
    /// JSON Schemas of its payload, by version.
    pub(crate) schemas: BTreeMap<u32, Value>,
}

impl From<EventTypeRecord> for EventTypeView {
    fn from(record: EventTypeRecord) -> Self {
        let EventTypeRecord { tenant: _, name, description, schemas, validation } = record;
        Self { name, description, validation: validation.into(), schemas }
    }
}

/// An event type. It replaces the stored one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(example = example())]
pub(crate) struct EventTypeBody {
    /// A description.
    #[schemars(schema_with = "crate::bounds::text")]
    pub(crate) description: String,
    /// What happens to an event that does not match; `warn` if not given.
    pub(crate) validation: ValidationView,
    /// JSON Schemas of its payload, by version: 1, 2, 3 … An event without a version is
    /// validated with the newest. References must stay inside the schema.
    #[schemars(schema_with = "crate::bounds::schemas_by_version")]
    pub(crate) schemas: BTreeMap<u32, Value>,
}

fn example() -> Value {
    json!({
        "description": "A customer placed an order",
        "validation": "reject",
        "schemas": { "1": { "type": "object", "required": ["order"] } },
    })
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<EventTypeView>>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let listing = ctx.app.store.event_types(&path.tenant, query.page).await?;
    Ok(Json(ListPage::of(listing, EventTypeView::from)))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfEventType,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<EventTypeView>, Problem> {
    Ok(Json(find(&ctx, &path).await?.into()))
}

pub(crate) async fn put(
    ctx: Ctx,
    path: OfEventType,
    _: NoQuery,
    JsonBody(body): JsonBody<EventTypeBody>,
) -> Result<Json<EventTypeView>, Problem> {
    refuse_reserved(&path)?;
    tenants::find(&ctx, &path.tenant).await?;
    let schemas = check_schemas(&ctx, &path, body.schemas).await?;
    let record = EventTypeRecord {
        tenant: path.tenant.clone(),
        name: path.name.clone(),
        description: body.description,
        schemas,
        validation: body.validation.into(),
    };
    check_room(&ctx, &record).await?;
    let before = ctx.app.store.event_type(&path.tenant, &path.name).await?;
    let changes = changes(before.as_ref(), &record);
    let audit_action = audit_action(Action::EventTypePut, &path).with_changes(changes);
    let answer = Json(EventTypeView::from(record.clone()));
    let answer = ctx.commit(vec![Write::PutEventType(record)], audit_action, answer).await?;
    ctx.app.catalogue.forget(&path.tenant);
    Ok(answer)
}

pub(crate) async fn remove(
    ctx: Ctx,
    path: OfEventType,
    _: NoQuery,
    _: NoBody,
) -> Result<NoContent, Problem> {
    refuse_reserved(&path)?;
    find(&ctx, &path).await?;
    let writes = vec![Write::RemoveEventType(path.tenant.clone(), path.name.clone())];
    let done = ctx.commit(writes, audit_action(Action::EventTypeRemove, &path), NoContent).await?;
    ctx.app.catalogue.forget(&path.tenant);
    Ok(done)
}

impl App {
    /// Holds events against the schemas of their types: of each its warnings, or why it is refused. Costs nothing for
    /// a tenant that describes no types.
    pub async fn check_events(
        &self,
        tenant: &TenantId,
        events: &[Event],
    ) -> Result<Vec<Result<Vec<String>, Rejection>>, StoreError> {
        let types = self.catalogue.types(&*self.store, self.source.now(), tenant).await?;
        Ok(types.check(&self.validation, tenant, events).await)
    }
}

/// The warnings of an event that is to be published, unless it is refused.
pub(crate) async fn check(
    ctx: &Ctx,
    tenant: &TenantId,
    event: &Event,
) -> Result<Vec<String>, Problem> {
    check_reserved(tenant, event)?;
    let said = ctx.app.check_events(tenant, std::slice::from_ref(event)).await?;
    Ok(said.into_iter().next().unwrap_or_else(|| Ok(Vec::new()))?)
}

/// Refuses what only the server publishes.
fn check_reserved(tenant: &TenantId, event: &Event) -> Result<(), Problem> {
    tenants::refuse_reserved(tenant, "takes no other events")?;
    let Some(reason) = reserved_type(&event.event_type) else { return Ok(()) };
    Err(Problem { field: Some("type".to_owned()), ..Problem::new(Code::Reserved, reason) })
}

/// The same for events that are published together; the first one that is refused is named by its place.
pub(crate) async fn check_batch(
    ctx: &Ctx,
    tenant: &TenantId,
    events: &[Event],
) -> Result<Vec<Vec<String>>, Problem> {
    for (index, event) in events.iter().enumerate() {
        check_reserved(tenant, event)
            .map_err(|problem| problem.within(&format!("events[{index}]")))?;
    }
    let said = ctx.app.check_events(tenant, events).await?.into_iter().enumerate();
    let within = |index, rejection| Problem::from(rejection).within(&format!("events[{index}]"));
    said.map(|(index, said)| said.map_err(|rejection| within(index, rejection))).collect()
}

async fn types(ctx: &Ctx, tenant: &TenantId) -> Result<Arc<EventTypes>, Problem> {
    Ok(ctx.app.catalogue.types(&*ctx.app.store, ctx.now(), tenant).await?)
}

async fn find(ctx: &Ctx, path: &OfEventType) -> Result<EventTypeRecord, Problem> {
    let found = ctx.app.store.event_type(&path.tenant, &path.name).await?;
    found.ok_or_else(|| Problem::not_found("event type", &path.name))
}

/// Refuses to describe what only the server publishes.
fn refuse_reserved(path: &OfEventType) -> Result<(), Problem> {
    tenants::refuse_reserved(&path.tenant, "describes its event types itself")?;
    match reserved_type(&path.name) {
        Some(reason) => Err(Problem::new(Code::Reserved, reason)),
        None => Ok(()),
    }
}

/// Why a producer cannot publish events of this type, if that is so.
pub fn reserved_type(event_type: &EventType) -> Option<String> {
    is_reserved_type(event_type).then(|| {
        format!("`{event_type}` is reserved: types that begin with `railpost.` are the server's own notices")
    })
}

/// Refuses what is no schema, or could cost more than it may. To find that out takes its time too.
async fn check_schemas(
    ctx: &Ctx,
    path: &OfEventType,
    schemas: BTreeMap<u32, Value>,
) -> Result<BTreeMap<u32, Value>, Problem> {
    let check = move || {
        let checked =
            schemas.iter().try_for_each(|(version, schema)| check_schema(*version, schema));
        checked.map(|()| schemas)
    };
    ctx.app.validation.run(&path.tenant, check).await?
}

fn check_schema(version: u32, schema: &Value) -> Result<(), Problem> {
    let field = format!("schemas.{version}");
    if version == 0 {
        return Err(Problem::field(field, "expected a version from 1 on"));
    }
    railpost_schema::compile(schema).map(drop).map_err(|unusable| {
        let code = match unusable {
            SchemaError::Invalid(_) => Code::InvalidField,
            SchemaError::TooCostly(_) => Code::SchemaBudget,
        };
        Problem { field: Some(field), ..Problem::new(code, unusable.to_string()) }
    })
}

/// Refuses one event type, or one schema, too many: all of a tenant's types are held in memory.
async fn check_room(ctx: &Ctx, record: &EventTypeRecord) -> Result<(), Problem> {
    let types = types(ctx, &record.tenant).await?;
    if !types.describes(&record.name) && types.count() >= EVENT_TYPES_PER_TENANT_MAX {
        let max = EVENT_TYPES_PER_TENANT_MAX;
        let detail = format!("a tenant may have {max} event types: delete one first");
        return Err(Problem::new(Code::LimitReached, detail));
    }
    let others = types.schemas_len() - types.schemas_len_of(&record.name);
    let (all, max) = (others + railpost_schema::schemas_len(record), SCHEMAS_PER_TENANT_LEN_MAX);
    if all > max {
        let detail = format!("the schemas of a tenant may have {max} bytes; they would have {all}");
        return Err(Problem::new(Code::LimitReached, detail));
    }
    Ok(())
}

/// What is said of an event type that was not said before. A schema is one thing.
fn changes(before: Option<&EventTypeRecord>, after: &EventTypeRecord) -> Changes {
    let told = |record: &EventTypeRecord| {
        let EventTypeRecord { tenant: _, name: _, description, schemas, validation } = record;
        let schema = |(version, schema): (&u32, &Value)| (version.to_string(), schema.to_string());
        let schemas: BTreeMap<String, String> = schemas.iter().map(schema).collect();
        let validation = ValidationView::from(*validation);
        json!({ "description": description, "validation": validation, "schemas": schemas })
    };
    let unsaid = EventTypeBody::default();
    let unsaid = json!({ "description": "", "validation": unsaid.validation, "schemas": {} });
    Changes::between(&before.map_or(unsaid, told), &told(after))
}

fn audit_action(action: Action, path: &OfEventType) -> AuditAction {
    let (tenant, target) = (Some(path.tenant.clone()), path.name.to_string());
    AuditAction { action, tenant, target, detail: json!({}) }
}
