//! Attempts: one HTTP request for one delivery each.

mod of_endpoint;

use http::Method;
use railpost_engine::{
    AttemptResult, DeliveryStage, Failure, Outcome, Overrides, Time, classify_past,
};
use railpost_store::limits::{LIST_LIMIT_MAX, RESPONSE_BODY_LEN_MAX};
use railpost_store::{AttemptView as Stored, EndpointSettings, LastAttempt, Timing};
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
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/deliveries/{delivery}/attempts",
            Needs::Read,
            "List the attempts of a delivery, the first one first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/attempts",
            Needs::Read,
            "List the latest attempts of an endpoint, the latest first",
            of_endpoint::list,
        ),
    ]
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
    pub(super) fn of(stored: Stored, overrides: &Overrides) -> Self {
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

/// What came of a delivery's last attempt.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LastAnswer {
    /// When the attempt started.
    pub(crate) at: Time,
    /// Which attempt of its delivery it was, from 1.
    pub(crate) attempt: u32,
    /// Its outcome by the endpoint's current policy.
    pub(crate) outcome: Outcome,
    /// The response's status.
    pub(crate) status: Option<u16>,
    /// Why there was no response.
    pub(crate) failure: Option<Failure>,
    /// The same in words.
    pub(crate) message: String,
}

impl LastAnswer {
    /// The last answer of a delivery that is in this state.
    fn of(last: &LastAttempt, state: DeliveryStage, overrides: &Overrides) -> Self {
        let (status, failure) = match last.result {
            AttemptResult::Response { status, .. } => (Some(status), None),
            AttemptResult::Failed(failure) => (None, Some(failure)),
        };
        Self {
            at: last.started_at.into(),
            attempt: last.number,
            outcome: classify_past(last.result, state, overrides),
            status,
            failure,
            message: words(last.result, last.message.as_deref()),
        }
    }
}

/// What came of an attempt, in words.
pub(super) fn words(result: AttemptResult, message: Option<&str>) -> String {
    match (result, message) {
        (_, Some(message)) => message.to_owned(),
        (AttemptResult::Response { status, .. }, None) => format!("answered {status}"),
        (AttemptResult::Failed(failure), None) => format!("no answer: {}", failure_name(failure)),
    }
}

/// A failure's name in the API.
fn failure_name(failure: Failure) -> String {
    let name = serde_json::to_value(failure).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned()
}

/// What a page of deliveries shows beside its rows: the last attempt of each and where each goes. Two look-ups
/// for all of them.
#[derive(Default)]
pub(super) struct PageDetails {
    last: FxHashMap<DeliveryId, LastAttempt>,
    settings: FxHashMap<EndpointId, EndpointSettings>,
}

impl PageDetails {
    pub(super) async fn of(
        ctx: &Ctx,
        deliveries: impl Iterator<Item = (DeliveryId, EndpointId)>,
    ) -> Result<Self, Problem> {
        let (deliveries, mut endpoints): (Vec<_>, Vec<_>) = deliveries.unzip();
        endpoints.sort_unstable();
        endpoints.dedup();
        let mut details = Self::default();
        // The deliveries of one event may be more than a page.
        for deliveries in deliveries.chunks(LIST_LIMIT_MAX as usize) {
            details.last.extend(ctx.app.store.last_attempts(deliveries.to_vec()).await?);
        }
        for endpoints in endpoints.chunks(LIST_LIMIT_MAX as usize) {
            details.settings.extend(ctx.app.store.settings_of(endpoints.to_vec()).await?);
        }
        Ok(details)
    }

    /// The URL of an endpoint; nothing if its tenant is being erased.
    pub(super) fn url(&self, endpoint: EndpointId) -> Option<String> {
        self.settings.get(&endpoint).map(|settings| settings.url.clone())
    }

    /// What came of the last attempt of a delivery to this endpoint that is in this state, if there was one.
    pub(super) fn last_answer(
        &self,
        delivery: DeliveryId,
        endpoint: EndpointId,
        state: DeliveryStage,
    ) -> Option<LastAnswer> {
        let last = self.last.get(&delivery)?;
        let none = Overrides::new();
        let settings = self.settings.get(&endpoint);
        let overrides = settings.map_or(&none, |settings| &settings.policy.outcomes);
        Some(LastAnswer::of(last, state, overrides))
    }

    /// The headers of a delivery's last response, as far as they are kept.
    pub(super) fn take_headers(&mut self, delivery: DeliveryId) -> Vec<(String, String)> {
        let last = self.last.get_mut(&delivery);
        last.map(|last| std::mem::take(&mut last.response_headers)).unwrap_or_default()
    }
}

async fn overrides_of(ctx: &Ctx, endpoint: EndpointId) -> Result<Overrides, Problem> {
    let endpoint = ctx.app.store.endpoint(endpoint).await?;
    Ok(endpoint.map(|found| found.settings.policy.outcomes.clone()).unwrap_or_default())
}
