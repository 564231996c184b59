//! Which endpoints an event went to, and why it did not go to others.

use railpost_engine::Time;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Endpoint, PageRequest, is_test_type};
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use schemars::JsonSchema;
use serde::Serialize;

use super::Facts;
use crate::call::Ctx;
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

pub(super) fn matched(facts: &Facts) -> Vec<MatchedEndpoint> {
    let matched = facts.deliveries.iter().map(|view| MatchedEndpoint {
        endpoint: view.delivery.endpoint,
        url: facts.url(view.delivery.endpoint),
        delivery: view.delivery.id,
    });
    matched.collect()
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
    if !filters.iter().any(|filter| filter.matches(event_type)) {
        let types: Vec<String> = filters.iter().map(ToString::to_string).collect();
        let types = if types.is_empty() { "none".to_owned() } else { types.join(", ") };
        return format!("its types are {types}; this event is {event_type}");
    }
    let changed = Time::from(endpoint.updated_at);
    format!(
        "it wants {event_type} today, and did not when the event was accepted; it changed at {changed}"
    )
}
