//! Attempts: one HTTP request for one delivery each.

use http::Method;
use railpost_engine::{
    AttemptResult, DeliveryStage, Failure, Outcome, Overrides, Time, classify_past,
};
use railpost_store::limits::RESPONSE_BODY_LEN_MAX;
use railpost_store::{AttemptView as Stored, LastAttempt, Timing};
use railpost_wire::{DeliveryId, EndpointId, NodeId};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::deliveries::find_of;
use super::path::OfDelivery;
use super::problem::Problem;
use super::query::{ListPage, NoFilter, PagedQuery};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::GET,
        "/v1/tenants/{tenant}/deliveries/{delivery}/attempts",
        Needs::Read,
        "List the attempts of a delivery, the first one first",
        list,
    )]
}

/// One HTTP request for one delivery.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Attempt")]
pub(crate) struct AttemptView {
    /// Which attempt of its delivery, from 1.
    pub(crate) number: u32,
    /// When it started.
    pub(crate) started_at: Time,
    /// Its outcome by the endpoint's current policy.
    pub(crate) outcome: Outcome,
    /// The response's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    /// How long a pause the receiver asked for, with `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_s: Option<u64>,
    /// How long its parts took.
    pub(crate) timing: TimingView,
    /// The response's headers, as far as they are kept.
    pub(crate) response_headers: Vec<(String, String)>,
    /// The beginning of the response's body; bytes that are no text are shown as `�`.
    pub(crate) response_body: String,
    /// Whether as much of the body is shown as is kept: there may have been more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) response_body_truncated: Option<bool>,
    /// Where it left the delivery.
    pub(crate) led_to: DeliveryStage,
    /// When the next one was planned for.
    pub(crate) next_at: Option<Time>,
    /// Which node made it.
    pub(crate) node: Option<NodeId>,
}

/// How long the parts of an attempt took, in microseconds. A part that did not happen has none.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Timing")]
pub(crate) struct TimingView {
    /// Finding the address.
    pub(crate) dns_us: Option<u32>,
    /// Connecting.
    pub(crate) connect_us: Option<u32>,
    /// The TLS handshake.
    pub(crate) tls_us: Option<u32>,
    /// From the request's start to the first byte of the answer.
    pub(crate) first_byte_us: Option<u32>,
    /// All of it.
    pub(crate) total_us: u32,
}

impl From<Timing> for TimingView {
    fn from(timing: Timing) -> Self {
        let Timing { dns_us, connect_us, tls_us, first_byte_us, total_us } = timing;
        Self { dns_us, connect_us, tls_us, first_byte_us, total_us }
    }
}

impl AttemptView {
    fn of(stored: Stored, overrides: &Overrides) -> Self {
        let Stored { detail, led_to, next_at } = stored;
        let (status, retry_after, failure) = match detail.result {
            AttemptResult::Response { status, retry_after } => (Some(status), retry_after, None),
            AttemptResult::Failed(failure) => (None, None, Some(failure)),
        };
        let full = detail.response_body.len() >= RESPONSE_BODY_LEN_MAX;
        Self {
            number: detail.number,
            started_at: detail.started_at.into(),
            outcome: classify_past(detail.result, led_to, overrides),
            status,
            failure,
            message: detail.message,
            retry_after_s: retry_after.map(|span| span.as_millis().div_ceil(1000)),
            timing: detail.timing.into(),
            response_headers: detail.response_headers,
            response_body: String::from_utf8_lossy(&detail.response_body).into_owned(),
            response_body_truncated: full.then_some(true),
            led_to,
            next_at: next_at.map(Time::from),
            node: detail.node,
        }
    }
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfDelivery,
    query: PagedQuery<NoFilter>,
    _: NoBody,
) -> Result<Json<ListPage<AttemptView>>, Problem> {
    let delivery = find_of(&ctx, &path.tenant, path.delivery).await?.delivery;
    let overrides = overrides_of(&ctx, delivery.endpoint).await?;
    let listing = ctx.app.store.attempts(delivery.id, query.page).await?;
    Ok(Json(ListPage::of(listing, |stored| AttemptView::of(stored, &overrides))))
}

/// The last attempts of the deliveries of a page, in one look-up.
pub(super) async fn last_of(
    ctx: &Ctx,
    deliveries: impl Iterator<Item = DeliveryId>,
) -> Result<LastAttempts, Problem> {
    let found = ctx.app.store.last_attempts(deliveries.collect()).await?;
    Ok(LastAttempts(found.into_iter().collect()))
}

/// The last attempts of the deliveries of a page.
pub(super) struct LastAttempts(FxHashMap<DeliveryId, LastAttempt>);

impl LastAttempts {
    /// The last attempt of a delivery, if there was one.
    pub(super) fn take(&mut self, delivery: DeliveryId) -> Option<LastAttempt> {
        self.0.remove(&delivery)
    }
}

/// The status of the last response, and why there was none.
pub(super) fn status_and_failure(attempt: Option<&LastAttempt>) -> (Option<u16>, Option<Failure>) {
    match attempt.map(|attempt| attempt.result) {
        Some(AttemptResult::Response { status, .. }) => (Some(status), None),
        Some(AttemptResult::Failed(failure)) => (None, Some(failure)),
        None => (None, None),
    }
}

async fn overrides_of(ctx: &Ctx, endpoint: EndpointId) -> Result<Overrides, Problem> {
    let endpoint = ctx.app.store.endpoint(endpoint).await?;
    Ok(endpoint.map(|found| found.settings.policy.outcomes.clone()).unwrap_or_default())
}
