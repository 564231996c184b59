//! Searching: one box for ids, keys, URLs and descriptions.

use http::Method;
use railpost_store::limits::{FIND_WORDS_LEN_MAX, LIST_LIMIT_MAX};
use railpost_store::{FindQuery, Found, FoundItem, MatchedField, ReplayAction};
use railpost_wire::{EndpointId, EventType, Key, TenantId};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::path::{NoPath, OfTenant};
use super::problem::Problem;
use super::query::Query;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/find",
            Needs::Read,
            "Find events, deliveries, endpoints, lanes and replays of a tenant by words",
            find_own,
        ),
        Route::new(
            Method::GET,
            "/v1/find",
            Needs::Admin,
            "Find things of all tenants by words",
            find_all,
        ),
    ]
}

/// What is looked for.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindWords {
    /// An id or the first 6 characters of one or more, a key or its beginning, a part of an endpoint's URL or
    /// description, or the `id` of a CloudEvent.
    #[schemars(schema_with = "crate::bounds::find_words")]
    pub(crate) q: String,
}

/// What was found: at most 20 of each kind.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct FindResults {
    /// By kind. Those that are just these words come first.
    pub(crate) items: Vec<FoundView>,
}

/// Something that was found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Found")]
pub(crate) struct FoundView {
    /// What it is.
    pub(crate) kind: FoundKind,
    /// Whose it is.
    pub(crate) tenant: TenantId,
    /// Its id; the number of a lane.
    pub(crate) id: String,
    /// What it is, in words.
    pub(crate) title: String,
    /// Which field matched.
    pub(crate) why: MatchedFieldView,
    /// The endpoint of a delivery or a lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<EndpointId>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoundKind {
    /// An event.
    Event,
    /// A delivery.
    Delivery,
    /// An endpoint.
    Endpoint,
    /// A lane.
    Lane,
    /// A replay.
    Replay,
    /// A tenant.
    Tenant,
}

/// Which field matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "MatchedField")]
pub(crate) enum MatchedFieldView {
    /// The id, or its beginning.
    Id,
    /// The key, or its beginning.
    Key,
    /// A part of the URL.
    Url,
    /// A part of the description.
    Description,
    /// The `id` of the CloudEvent that an event came as.
    CloudeventId,
}

impl From<MatchedField> for MatchedFieldView {
    fn from(field: MatchedField) -> Self {
        match field {
            MatchedField::Id => Self::Id,
            MatchedField::Key => Self::Key,
            MatchedField::Url => Self::Url,
            MatchedField::Description => Self::Description,
            MatchedField::CloudeventId => Self::CloudeventId,
        }
    }
}

pub(crate) async fn find_own(
    ctx: Ctx,
    path: OfTenant,
    query: Query<FindWords>,
    _: NoBody,
) -> Result<Json<FindResults>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    find(&ctx, Some(path.tenant), &query.0.q).await
}

pub(crate) async fn find_all(
    ctx: Ctx,
    _: NoPath,
    query: Query<FindWords>,
    _: NoBody,
) -> Result<Json<FindResults>, Problem> {
    find(&ctx, None, &query.0.q).await
}

async fn find(
    ctx: &Ctx,
    tenant: Option<TenantId>,
    words: &str,
) -> Result<Json<FindResults>, Problem> {
    let words = words.trim().to_owned();
    if !(1..=FIND_WORDS_LEN_MAX).contains(&words.len()) {
        let detail = format!("expected 1 to {FIND_WORDS_LEN_MAX} bytes; got {}", words.len());
        return Err(Problem::parameter("q", detail));
    }
    let found = ctx.app.store.find(FindQuery { tenant, words }).await?;
    let urls = urls(ctx, &found).await?;
    Ok(Json(FindResults { items: found.into_iter().map(|found| view(found, &urls)).collect() }))
}

type Urls = FxHashMap<EndpointId, String>;

/// Where the deliveries and lanes among these go, in one look-up.
async fn urls(ctx: &Ctx, found: &[Found]) -> Result<Urls, Problem> {
    let endpoint = |found: &Found| match found.item {
        FoundItem::Delivery { endpoint, .. } | FoundItem::Lane { endpoint, .. } => Some(endpoint),
        _ => None,
    };
    let mut endpoints: Vec<EndpointId> = found.iter().filter_map(endpoint).collect();
    endpoints.sort_unstable();
    endpoints.dedup();
    endpoints.truncate(LIST_LIMIT_MAX as usize);
    let settings = ctx.app.store.settings_of(endpoints).await?;
    Ok(settings.into_iter().map(|(id, settings)| (id, settings.url)).collect())
}

fn view(found: Found, urls: &Urls) -> FoundView {
    let url =
        |endpoint: &EndpointId| urls.get(endpoint).cloned().unwrap_or_else(|| endpoint.to_string());
    let (kind, id, title, endpoint) = match found.item {
        FoundItem::Event { id, event_type, key } => {
            (FoundKind::Event, id.to_string(), event_title(&event_type, key.as_ref()), None)
        }
        FoundItem::Delivery { id, event, event_type, endpoint } => {
            let title = format!("{event_type} ({event}) to {}", url(&endpoint));
            (FoundKind::Delivery, id.to_string(), title, Some(endpoint))
        }
        FoundItem::Endpoint { id, url, description } => {
            let title = if description.is_empty() { url } else { format!("{url}, {description}") };
            (FoundKind::Endpoint, id.to_string(), title, None)
        }
        FoundItem::Lane { lane, endpoint, key } => {
            let title = format!("key {key} to {}", url(&endpoint));
            (FoundKind::Lane, lane.0.to_string(), title, Some(endpoint))
        }
        FoundItem::Replay { id, action } => {
            (FoundKind::Replay, id.to_string(), replay_title(action), None)
        }
        FoundItem::Tenant => {
            let id = found.tenant.to_string();
            (FoundKind::Tenant, id.clone(), format!("tenant {id}"), None)
        }
    };
    FoundView { kind, tenant: found.tenant, id, title, why: found.why.into(), endpoint }
}

fn event_title(event_type: &EventType, key: Option<&Key>) -> String {
    match key {
        Some(key) => format!("{event_type}, key {key}"),
        None => event_type.to_string(),
    }
}

fn replay_title(action: ReplayAction) -> String {
    match action {
        ReplayAction::Replay => "replays dead letters".to_owned(),
        ReplayAction::Skip => "skips dead letters".to_owned(),
        ReplayAction::Discard => "discards deliveries".to_owned(),
        ReplayAction::Redeliver { to } => format!("redelivers events to {to}"),
    }
}
