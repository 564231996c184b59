//! Probes: one signed request to an endpoint, whatever its state, and what came back.

use http::Method;
use railpost_dispatch::Probe;
use railpost_engine::{
    AttemptResult, ErrorCause, Failure, HealthState, Outcome, WaitReason, classify,
};
use railpost_store::{AcceptBatch, AttemptDetail, Endpoint, Event};
use railpost_wire::Envelope;
use schemars::JsonSchema;
use serde::Serialize;

use super::actions::{NewTest, test_event};
use super::{audit_action, find};
use crate::answer::Json;
use crate::attempts::TimingView;
use crate::audit::Action;
use crate::auth::Needs;
use crate::body::JsonBody;
use crate::call::Ctx;
use crate::endpoint_health::{HealthView, cause_in_words};
use crate::path::OfEndpoint;
use crate::problem::Problem;
use crate::query::NoQuery;
use crate::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::POST,
        "/v1/tenants/{tenant}/endpoints/{endpoint}/probe",
        Needs::Manage,
        "Send one test request to an endpoint, whatever its state, and show what came back",
        probe,
    )]
}

/// What came of a probe. It is no delivery: nothing of it is stored but that it was asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Probed {
    /// Whether the endpoint acknowledged it.
    pub(crate) succeeded: bool,
    /// Its outcome by the endpoint's policy.
    pub(crate) outcome: Outcome,
    /// The response's status.
    pub(crate) status: Option<u16>,
    /// Why there was no response.
    pub(crate) failure: Option<Failure>,
    /// What went wrong, in words; nothing if the endpoint acknowledged it.
    pub(crate) message: Option<String>,
    /// How long the receiver asked to be left alone. It is not obeyed: deliveries have to hear it.
    pub(crate) retry_after_s: Option<u64>,
    /// How long its parts took.
    pub(crate) timing: TimingView,
    /// The response's headers, as far as they are kept; none of an acknowledgement.
    pub(crate) response_headers: Vec<(String, String)>,
    /// The beginning of the response's body; nothing of an acknowledgement.
    pub(crate) response_body: String,
    /// How the endpoint is doing. The probe changes nothing about it.
    pub(crate) health: HealthView,
    /// What to do next; nothing if all is well.
    pub(crate) advice: Option<String>,
}

pub(crate) async fn probe(
    ctx: Ctx,
    path: OfEndpoint,
    _: NoQuery,
    JsonBody(new): JsonBody<NewTest>,
) -> Result<Json<Probed>, Problem> {
    let endpoint = find(&ctx, &path).await?;
    let event = test_event(&ctx, new)?;
    ctx.note(audit_action(Action::EndpointProbe, &endpoint)).await?;
    make_fetchable(&ctx, &endpoint, &event).await?;
    let sent = Probe { endpoint: endpoint.id, tenant: endpoint.tenant.clone(), event };
    let detail = ctx.app.dispatcher.probe(sent).await?;
    let served = ctx.app.dispatcher.health(endpoint.id).await?;
    let health = HealthView::of(&endpoint, served.as_ref());
    let outcome = classify(detail.result, &endpoint.settings.policy.outcomes);
    ctx.remember(Json(Probed::new(outcome, detail, health))).await
}

/// A thin envelope says where to fetch the event, so there must be one. Events of a test's type make no delivery.
async fn make_fetchable(ctx: &Ctx, endpoint: &Endpoint, event: &Event) -> Result<(), Problem> {
    let settings = &endpoint.settings;
    let is_above = |bound: u32| event.payload.len() > bound as usize;
    if settings.envelope == Envelope::Thin || settings.thin_above.is_some_and(is_above) {
        let (tenant, events) = (endpoint.tenant.clone(), vec![event.clone()]);
        let accepted_by = ctx.caller.accepted_by();
        let batch = AcceptBatch { tenant, events, accepted_by, idempotency: None };
        ctx.app.dispatcher.accept(batch).await?;
    }
    Ok(())
}

impl Probed {
    fn new(outcome: Outcome, detail: AttemptDetail, health: HealthView) -> Self {
        let (status, retry_after, failure) = match detail.result {
            AttemptResult::Response { status, retry_after } => (Some(status), retry_after, None),
            AttemptResult::Failed(failure) => (None, None, Some(failure)),
        };
        let succeeded = outcome == Outcome::Acknowledged;
        let cause = ErrorCause::from(detail.result);
        let in_words = || detail.message.unwrap_or_else(|| cause_in_words(cause));
        Self {
            succeeded,
            outcome,
            status,
            failure,
            message: (!succeeded).then(in_words),
            retry_after_s: retry_after.map(|span| span.as_millis().div_ceil(1000)),
            timing: detail.timing.into(),
            response_headers: detail.response_headers,
            response_body: String::from_utf8_lossy(&detail.response_body).into_owned(),
            advice: match succeeded {
                true => advice_after_success(&health),
                false => advice_after_failure(cause).map(str::to_owned),
            },
            health,
        }
    }
}

fn advice_after_success(health: &HealthView) -> Option<String> {
    let then = match (health.state, health.waits_for) {
        (HealthState::Active | HealthState::Blocked, _) => return None,
        (HealthState::Waiting, Some(WaitReason::Probe)) if health.until.is_none() => return None,
        (HealthState::Waiting, Some(WaitReason::RetryAfter)) => "sending goes on at once",
        (HealthState::Waiting, _) => {
            "one delivery goes at once, and if it is acknowledged, sending goes on"
        }
        _ => "its deliveries are sent",
    };
    Some(format!("The endpoint answers. Resume it: {then}."))
}

fn advice_after_failure(cause: ErrorCause) -> Option<&'static str> {
    Some(match cause {
        ErrorCause::Status(401 | 403) => {
            "The receiver refuses the request: compare its secret, and the headers it expects, with the endpoint's."
        }
        ErrorCause::Status(404 | 405 | 410) => {
            "Nothing takes events at this URL: compare it with the receiver's."
        }
        ErrorCause::Status(300..=399) => {
            "Redirects are not followed: change the endpoint's URL to the address it redirects to."
        }
        ErrorCause::Failure(Failure::Dns) => "Check the host name of the endpoint's URL.",
        ErrorCause::Failure(Failure::Refused | Failure::Unreachable | Failure::ConnectTimeout) => {
            "Check that the receiver runs, and the host and port of the endpoint's URL."
        }
        ErrorCause::Failure(Failure::Tls) => {
            "Check the receiver's certificate, and the authorities that the endpoint trusts."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health(state: HealthState, waits_for: Option<WaitReason>) -> HealthView {
        HealthView { waits_for, ..HealthView::in_state(state) }
    }

    #[test]
    fn a_success_offers_to_resume_unless_there_is_nothing_to_resume() {
        let advice = |state, waits_for| advice_after_success(&health(state, waits_for));
        assert_eq!(advice(HealthState::Active, None), None);
        assert_eq!(advice(HealthState::Waiting, Some(WaitReason::Probe)), None);
        for state in [HealthState::Paused, HealthState::Quarantined, HealthState::Gone] {
            assert!(advice(state, None).is_some_and(|text| text.contains("Resume it")));
        }
        let waiting = advice(HealthState::Waiting, Some(WaitReason::Breaker));
        assert!(waiting.is_some_and(|text| text.contains("one delivery goes at once")));
    }
}
