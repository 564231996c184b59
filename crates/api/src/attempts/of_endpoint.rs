//! The latest attempts of an endpoint.

use railpost_engine::{DeliveryStage, Time};
use railpost_store::{DeliveryFilter, DeliveryQuery, DeliveryView as Delivery, PageRequest};
use railpost_wire::{DeliveryId, EventId, Key};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AttemptView, overrides_of};
use crate::answer::Json;
use crate::body::NoBody;
use crate::call::Ctx;
use crate::limits::{ATTEMPTS_SHOWN_DEFAULT, ATTEMPTS_SHOWN_MAX};
use crate::path::OfEndpoint;
use crate::problem::Problem;
use crate::query::Query;

/// How many attempts are shown.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latest {
    /// Most attempts: 1 to 100. 20 if not given.
    #[schemars(range(min = 1, max = ATTEMPTS_SHOWN_MAX))]
    pub(crate) limit: Option<u32>,
}

/// The latest attempts of an endpoint, the latest first. They are those of its latest deliveries, of its
/// deliveries that wait for a retry, and of its dead letters, so many of each as are asked for. Retries of older
/// deliveries that were delivered in the end are left out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LatestAttempts {
    /// The attempts.
    pub(crate) items: Vec<EndpointAttempt>,
}

/// An attempt, and whose it is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EndpointAttempt {
    /// The attempt.
    #[serde(flatten)]
    pub(crate) attempt: AttemptView,
    /// Its delivery.
    pub(crate) delivery: DeliveryId,
    /// The event.
    pub(crate) event: EventId,
    /// The event's key.
    pub(crate) key: Option<Key>,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfEndpoint,
    query: Query<Latest>,
    _: NoBody,
) -> Result<Json<LatestAttempts>, Problem> {
    let limit = query.0.limit.unwrap_or(ATTEMPTS_SHOWN_DEFAULT);
    if !(1..=ATTEMPTS_SHOWN_MAX).contains(&limit) {
        let detail = format!("expected 1 to {ATTEMPTS_SHOWN_MAX}; got {limit}");
        return Err(Problem::parameter("limit", detail));
    }
    let endpoint = ctx.app.store.endpoint(path.endpoint).await?;
    if endpoint.is_none_or(|endpoint| endpoint.tenant != path.tenant) {
        return Err(Problem::not_found("endpoint", path.endpoint));
    }
    Ok(Json(LatestAttempts { items: latest(&ctx, &path, limit).await? }))
}

/// No attempt among the latest is of a delivery whose last attempt is not among the latest, so as many
/// deliveries as attempts are looked at.
async fn latest(ctx: &Ctx, path: &OfEndpoint, limit: u32) -> Result<Vec<EndpointAttempt>, Problem> {
    let deliveries = candidates(ctx, path).await?;
    let ids = deliveries.keys().copied().collect();
    let mut last = ctx.app.store.last_attempts(ids).await?;
    last.sort_unstable_by_key(|(_, last)| std::cmp::Reverse(last.started_at));
    last.truncate(limit as usize);
    let overrides = overrides_of(ctx, path.endpoint).await?;
    let mut attempts = Vec::new();
    for (id, last) in last {
        // The last so many attempts of the delivery: attempts are counted from 1.
        let skipped = i64::from(last.number.saturating_sub(limit));
        for attempt in ctx.app.store.attempts(id, attempts_after(limit, skipped)).await?.items {
            let Delivery { event, key, .. } = &deliveries[&id];
            attempts.push(EndpointAttempt {
                attempt: AttemptView::of(attempt, &overrides),
                delivery: id,
                event: event.clone(),
                key: key.clone(),
            });
        }
    }
    attempts.sort_by_key(|shown| {
        let Time(started_at) = shown.attempt.started_at;
        std::cmp::Reverse((started_at, shown.attempt.number))
    });
    attempts.truncate(limit as usize);
    Ok(attempts)
}

/// The page of a delivery's attempts behind number `skipped`.
fn attempts_after(limit: u32, skipped: i64) -> PageRequest {
    match skipped {
        0 => PageRequest::first(limit),
        _ => PageRequest::after(limit, railpost_store::Cursor::after_attempt(skipped)),
    }
}

/// The newest deliveries, and the newest of those that were tried and did not arrive: more than are shown, because
/// what was made first may be tried last.
async fn candidates(
    ctx: &Ctx,
    path: &OfEndpoint,
) -> Result<FxHashMap<DeliveryId, Delivery>, Problem> {
    let mut found = FxHashMap::default();
    for stage in [None, Some(DeliveryStage::Waiting), Some(DeliveryStage::Dead)] {
        let endpoint = Some(path.endpoint);
        let filter = DeliveryFilter { stage, endpoint, ..DeliveryFilter::default() };
        let page = PageRequest::first(ATTEMPTS_SHOWN_MAX);
        let query = DeliveryQuery { tenant: path.tenant.clone(), filter, page };
        let listed = ctx.app.store.deliveries(query).await?.items;
        found.extend(listed.into_iter().map(|view| (view.delivery.id, view)));
    }
    Ok(found)
}
