//! Which endpoints an event went to, and why it did not go to others.

use railpost_engine::{DeliveryStage, DeliveryState, HealthState, Time};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Endpoint, PageRequest, is_test_type, wants};
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use schemars::JsonSchema;
use serde::Serialize;

use super::Facts;
use crate::call::Ctx;
use crate::endpoint_health::HealthView;
use crate::limits::STORY_UNMATCHED_MAX;
use crate::problem::Problem;

/// An endpoint that an event went to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct MatchedEndpoint {
    /// Its id.
    pub(crate) endpoint: EndpointId,
    /// Its URL.
    pub(crate) url: String,
    /// The delivery to it. An endpoint that got the event again has several.
    pub(crate) delivery: DeliveryId,
    /// The state of the delivery.
    pub(crate) state: DeliveryStage,
    /// Where the delivery is, in words, and what it waits for.
    pub(crate) now: String,
}

/// An endpoint that an event did not go to.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UnmatchedEndpoint {
    /// Its id.
    pub(crate) endpoint: EndpointId,
    /// Its URL.
    pub(crate) url: String,
    /// Why not, in words.
    pub(crate) why: String,
}

pub(super) async fn matched(ctx: &Ctx, facts: &Facts) -> Result<Vec<MatchedEndpoint>, Problem> {
    let endpoints: Vec<EndpointId> =
        facts.deliveries.iter().map(|view| view.delivery.endpoint).collect();
    let health = ctx.app.dispatcher.health_of(&endpoints).await?;
    let matched = facts.deliveries.iter().zip(health).map(|(view, health)| MatchedEndpoint {
        endpoint: view.delivery.endpoint,
        url: facts.url(view.delivery.endpoint),
        delivery: view.delivery.id,
        state: view.delivery.state.stage(),
        now: whereabouts(view.delivery.state, health.as_ref().map(HealthView::served).as_ref()),
    });
    Ok(matched.collect())
}

/// Where a delivery is, and what it waits for.
fn whereabouts(state: DeliveryState, health: Option<&HealthView>) -> String {
    let closed_gate = health.filter(|health| health.state != HealthState::Active);
    let open = match state {
        DeliveryState::Pending => "waits for its turn".to_owned(),
        DeliveryState::InFlight => return "is being sent".to_owned(),
        DeliveryState::Waiting { until } => {
            format!("waits for its next attempt, not before {}", Time::from(until))
        }
        DeliveryState::Delivered => return "delivered".to_owned(),
        DeliveryState::Dead { holds: true, .. } => {
            return "a dead letter that holds its lane".to_owned();
        }
        DeliveryState::Dead { .. } => return "a dead letter".to_owned(),
        DeliveryState::Discarded { .. } => return "discarded".to_owned(),
    };
    match closed_gate {
        Some(health) => format!("{open}, and for its endpoint: {}", health.next),
        None => open,
    }
}

/// Of the tenant's first endpoints, those that have no delivery of the event.
pub(super) async fn not_matched(
    ctx: &Ctx,
    tenant: &TenantId,
    facts: &Facts,
) -> Result<Vec<UnmatchedEndpoint>, Problem> {
    let page = PageRequest::first(LIST_LIMIT_MAX);
    let all = ctx.app.store.endpoints(Some(tenant), page).await?.items.into_iter();
    let others = all.filter(|endpoint| !facts.endpoints.contains_key(&endpoint.id));
    let unmatched = others.map(|endpoint| UnmatchedEndpoint {
        endpoint: endpoint.id,
        why: why_not(&endpoint, facts),
        url: endpoint.settings.url,
    });
    Ok(unmatched.take(STORY_UNMATCHED_MAX).collect())
}

/// Whether an endpoint is switched off does not matter: its deliveries wait.
fn why_not(endpoint: &Endpoint, facts: &Facts) -> String {
    let event_type = &facts.event.event.event_type;
    if is_test_type(event_type) {
        return "a test event goes to the endpoint that is tested and to no other".to_owned();
    }
    if endpoint.created_at > facts.event.accepted_at {
        let made = Time::from(endpoint.created_at);
        return format!("it was made at {made}, after the event was accepted");
    }
    let filters = &endpoint.settings.filters;
    if !wants(filters, event_type) {
        let types: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let types = if types.is_empty() { "none".to_owned() } else { types.join(", ") };
        if filters.iter().any(|filter| filter.matches(event_type)) {
            return format!(
                "its types are {types}, which does not name `railpost.` types; this event is {event_type}"
            );
        }
        return format!("its types are {types}; this event is {event_type}");
    }
    let changed = Time::from(endpoint.updated_at);
    format!(
        "it wants {event_type} today, and did not when the event was accepted; it changed at {changed}"
    )
}
