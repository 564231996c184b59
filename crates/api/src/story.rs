//! The story of an event: all that became of it, in the order in which it happened.
//!
//! The texts are made here and nowhere else: pages and the command line show them as they are.

mod matching;
mod request_headers;
mod teller;

use http::Method;
use railpost_engine::Time;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    AttemptView as StoredAttempt, AuditEntry, DeliveryView as Delivery, Endpoint, EndpointSecret,
    EventHead, PageRequest, Replay, StoredEvent,
};
use railpost_wire::{ApiKeyId, DeliveryId, EndpointId, TenantId};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Json;
use super::attempts::AttemptView;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::events::{AcceptedByView, EventHeadView, PageDetails, find_event};
use super::path::OfEvent;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;
use crate::limits::{
    STORY_ATTEMPTS_MAX, STORY_AUDIT_MAX, STORY_DELIVERIES_MAX, STORY_ENTRIES_MAX, STORY_REPLAYS_MAX,
};
use matching::{MatchedEndpoint, UnmatchedEndpoint};
use teller::Teller;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::GET,
        "/v1/tenants/{tenant}/events/{event}/story",
        Needs::Read,
        "Tell the story of an event: who brought it, where it went, each attempt, and who did what",
        show,
    )]
}

/// All that became of an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Story {
    /// The event without its payload.
    pub(crate) event: EventHeadView,
    /// The endpoints that it went to.
    pub(crate) matched: Vec<MatchedEndpoint>,
    /// The endpoints that are there now and that it did not go to: the first 100.
    pub(crate) not_matched: Vec<UnmatchedEndpoint>,
    /// What happened, the earliest first.
    pub(crate) entries: Vec<StoryEntry>,
    /// How many entries are left off, because there are more than a story tells.
    pub(crate) left_off: u64,
}

/// Something that happened to an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoryEntry {
    /// When.
    pub(crate) at: Time,
    /// What kind of thing.
    pub(crate) kind: EntryKind,
    /// What happened, in words.
    pub(crate) text: String,
    /// Who did it; nothing if Railpost did it by itself.
    pub(crate) by: Option<AcceptedByView>,
    /// The endpoint that it is about.
    pub(crate) endpoint: Option<EndpointId>,
    /// The delivery that it is about.
    pub(crate) delivery: Option<DeliveryId>,
    /// The attempt that it is.
    pub(crate) attempt: Option<StoryAttempt>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryKind {
    /// The event was accepted.
    Accepted,
    /// An endpoint wanted it.
    Matched,
    /// A request was sent, or could not be.
    Attempt,
    /// The next attempt was planned.
    Waiting,
    /// A dead letter held its lane.
    Held,
    /// A delivery was given up on.
    Dead,
    /// A receiver acknowledged it.
    Delivered,
    /// A delivery was discarded.
    Discarded,
    /// A dead letter was skipped: its lane went on.
    Skipped,
    /// A dead letter was sent again.
    Replayed,
    /// The event was delivered once more.
    Redelivered,
    /// Somebody changed an endpoint that it goes to.
    Person,
}

impl EntryKind {
    /// Its place among entries of the same instant.
    fn rank(self) -> u8 {
        match self {
            EntryKind::Accepted => 0,
            EntryKind::Matched | EntryKind::Redelivered => 1,
            EntryKind::Replayed | EntryKind::Person => 2,
            _ => 3,
        }
    }
}

/// An attempt, with what it sent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct StoryAttempt {
    /// What came of it.
    #[serde(flatten)]
    pub(crate) attempt: AttemptView,
    /// The headers of the request, made again from the endpoint's settings of today. Signatures are
    /// shortened, and the values of the endpoint's own headers are not shown. Empty if nothing was sent.
    pub(crate) request_headers: Vec<(String, String)>,
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfEvent,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<Story>, Problem> {
    let stored = find_event(&ctx, &path.tenant, &path.event).await?;
    let details = PageDetails::of(&ctx, &path.tenant, vec![path.event]).await?;
    let event = EventHeadView::of(EventHead::from(&stored), &details);
    let facts = Facts::gather(&ctx, &path.tenant, stored).await?;
    let matched = matching::matched(&ctx, &facts).await?;
    let not_matched = matching::not_matched(&ctx, &path.tenant, &facts).await?;
    let mut entries = Teller { facts: &facts, accepted_by: event.accepted_by.clone() }.entries();
    let told = entries.len().min(STORY_ENTRIES_MAX);
    let left_off = (entries.len() - told) as u64 + facts.attempts_left_off;
    entries.truncate(told);
    Ok(Json(Story { event, matched, not_matched, entries, left_off }))
}

/// All that is known of an event.
pub(crate) struct Facts {
    event: StoredEvent,
    deliveries: Vec<Delivery>,
    /// By delivery, the first one first.
    attempts: FxHashMap<DeliveryId, Vec<StoredAttempt>>,
    attempts_left_off: u64,
    endpoints: FxHashMap<EndpointId, Endpoint>,
    secrets: FxHashMap<EndpointId, Vec<EndpointSecret>>,
    /// About the event, its deliveries and their endpoints, the earliest first.
    audit: Vec<AuditEntry>,
    /// Those that were asked for since the event was accepted.
    replays: Vec<Replay>,
    /// The names of the API keys that did something.
    key_names: FxHashMap<ApiKeyId, String>,
}

impl Facts {
    async fn gather(ctx: &Ctx, tenant: &TenantId, event: StoredEvent) -> Result<Self, Problem> {
        let mut deliveries = ctx.app.store.deliveries_of(tenant, &event.event.id).await?;
        deliveries.truncate(STORY_DELIVERIES_MAX);
        let mut facts = Self {
            event,
            deliveries,
            attempts: FxHashMap::default(),
            attempts_left_off: 0,
            endpoints: FxHashMap::default(),
            secrets: FxHashMap::default(),
            audit: Vec::new(),
            replays: Vec::new(),
            key_names: FxHashMap::default(),
        };
        facts.gather_attempts(ctx).await?;
        facts.gather_endpoints(ctx).await?;
        facts.gather_audit(ctx, tenant).await?;
        facts.gather_key_names(ctx).await?;
        Ok(facts)
    }

    async fn gather_attempts(&mut self, ctx: &Ctx) -> Result<(), Problem> {
        let mut left = STORY_ATTEMPTS_MAX;
        for Delivery { delivery, .. } in &self.deliveries {
            let attempts = delivery.progress.attempts;
            if attempts == 0 || left == 0 {
                self.attempts_left_off += u64::from(attempts);
                continue;
            }
            let page = PageRequest::first(left.min(LIST_LIMIT_MAX));
            let found = ctx.app.store.attempts(delivery.id, page).await?.items;
            let told = u32::try_from(found.len()).unwrap_or(left);
            self.attempts_left_off += u64::from(attempts.saturating_sub(told));
            left = left.saturating_sub(told);
            self.attempts.insert(delivery.id, found);
        }
        Ok(())
    }

    async fn gather_endpoints(&mut self, ctx: &Ctx) -> Result<(), Problem> {
        for Delivery { delivery, .. } in &self.deliveries {
            let id = delivery.endpoint;
            if self.endpoints.contains_key(&id) {
                continue;
            }
            if let Some(endpoint) = ctx.app.store.endpoint(id).await? {
                // Secrets that cannot be read sign nothing that could be shown.
                let secrets = ctx.app.store.secrets(id).await.unwrap_or_default();
                self.endpoints.insert(id, endpoint);
                self.secrets.insert(id, secrets);
            }
        }
        Ok(())
    }

    async fn gather_audit(&mut self, ctx: &Ctx, tenant: &TenantId) -> Result<(), Problem> {
        let since = self.event.accepted_at;
        let deliveries = self.deliveries.iter().map(|view| view.delivery.id.to_string());
        let endpoints = self.endpoints.keys().map(EndpointId::to_string);
        let mut targets = vec![self.event.event.id.to_string()];
        targets.extend(deliveries.chain(endpoints));
        for targets in targets.chunks(LIST_LIMIT_MAX as usize) {
            let (targets, most) = (targets.to_vec(), STORY_AUDIT_MAX);
            self.audit.extend(ctx.app.store.audit_about(tenant, targets, since, most).await?);
        }
        let replays = ctx.app.store.replays(tenant, PageRequest::first(STORY_REPLAYS_MAX)).await?;
        let since_then = replays.items.into_iter().filter(|replay| replay.created_at >= since);
        self.replays = since_then.filter(|replay| !replay.dry_run).collect();
        Ok(())
    }

    async fn gather_key_names(&mut self, ctx: &Ctx) -> Result<(), Problem> {
        let actors = self.audit.iter().map(|entry| &entry.actor);
        let actors = actors.chain(self.replays.iter().map(|replay| &replay.actor));
        let mut keys: Vec<ApiKeyId> = actors.filter_map(|actor| actor.parse().ok()).collect();
        keys.sort_unstable();
        keys.dedup();
        for id in keys {
            if let Some(key) = ctx.app.store.api_key(id).await? {
                self.key_names.insert(id, key.name);
            }
        }
        Ok(())
    }

    fn url(&self, endpoint: EndpointId) -> String {
        let found = self.endpoints.get(&endpoint);
        found.map_or_else(|| endpoint.to_string(), |found| found.settings.url.clone())
    }

    fn attempts_of(&self, delivery: DeliveryId) -> &[StoredAttempt] {
        self.attempts.get(&delivery).map_or(&[], Vec::as_slice)
    }

    /// Whether a person asked for the delivery after the event was accepted.
    fn is_redelivery(&self, view: &Delivery) -> bool {
        view.created_at > self.event.accepted_at
    }

    /// Who acted, as far as it is known.
    fn actor(&self, actor: &str) -> Option<AcceptedByView> {
        let id: ApiKeyId = actor.parse().ok()?;
        Some(AcceptedByView::Key { id, name: self.key_names.get(&id).cloned() })
    }
}
