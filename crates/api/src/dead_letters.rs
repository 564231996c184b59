//! Dead letters: deliveries that failed for good.

use http::Method;
use railpost_engine::{Command, DeliveryStage};
use railpost_store::{DeliveryQuery, DeliveryView as Stored};
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Json;
use super::attempts::PageDetails;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::commands::carry_out;
use super::deliveries::{DeliveryFilter, DeliveryView, details_of, find_of};
use super::path::{OfDelivery, OfTenant};
use super::problem::Problem;
use super::query::{ListPage, NoQuery, PagedQuery};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    let acting = |command| move |ctx, path, _: NoQuery, _: NoBody| act(ctx, path, command);
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/dead-letters",
            Needs::Read,
            "List dead letters, the latest first",
            list,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/dead-letters/{delivery}",
            Needs::Read,
            "Show a dead letter",
            show,
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/dead-letters/{delivery}/replay",
            Needs::Manage,
            "Replay a dead letter",
            acting(Command::Replay),
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/dead-letters/{delivery}/skip",
            Needs::Manage,
            "Skip a dead letter: its lane continues, and the dead letter stays",
            acting(Command::Skip),
        ),
        Route::new(
            Method::POST,
            "/v1/tenants/{tenant}/dead-letters/{delivery}/discard",
            Needs::Manage,
            "Discard a dead letter",
            acting(Command::Discard),
        ),
    ]
}

/// A delivery that failed for good.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DeadLetter {
    /// The delivery.
    #[serde(flatten)]
    pub(crate) delivery: DeliveryView,
    /// The headers of the last response, as far as they are kept.
    pub(crate) response_headers: Vec<(String, String)>,
}

/// A dead letter by itself. A list leaves out what only the payload tells: it would read every payload of
/// its page.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct DeadLetterDetail {
    /// What a list shows of it too.
    #[serde(flatten)]
    pub(crate) letter: DeadLetter,
    /// The SHA-256 of the event's payload, in hex; `null` when the event is gone.
    pub(crate) body_sha256: Option<String>,
}

pub(crate) async fn list(
    ctx: Ctx,
    path: OfTenant,
    query: PagedQuery<DeliveryFilter>,
    _: NoBody,
) -> Result<Json<ListPage<DeadLetter>>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    let filter = query.filter.of_dead_letters().ok_or_else(|| {
        Problem::parameter("state", "expected `dead` or no value: the list has dead letters only")
    })?;
    let query = DeliveryQuery { tenant: path.tenant, filter: filter.into(), page: query.page };
    let listing = ctx.app.store.deliveries(query).await?;
    let mut details = details_of(&ctx, &listing.items).await?;
    Ok(Json(ListPage::of(listing, |stored| view(stored, &mut details))))
}

pub(crate) async fn show(
    ctx: Ctx,
    path: OfDelivery,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<DeadLetterDetail>, Problem> {
    let stored = find_of(&ctx, &path.tenant, path.delivery).await?;
    if stored.delivery.state.stage() != DeliveryStage::Dead {
        return Err(Problem::not_found("dead letter", path.delivery));
    }
    let mut details = details_of(&ctx, std::slice::from_ref(&stored)).await?;
    let event = ctx.app.store.event(&stored.tenant, &stored.event).await?;
    let body_sha256 = event.map(|stored| sha256_hex(&stored.event.payload));
    Ok(Json(DeadLetterDetail { letter: view(stored, &mut details), body_sha256 }))
}

/// Acts on a delivery that should be a dead letter; whether its state allows it, the engine says.
pub(crate) async fn act(
    ctx: Ctx,
    path: OfDelivery,
    command: Command,
) -> Result<Json<DeliveryView>, Problem> {
    let stored = find_of(&ctx, &path.tenant, path.delivery).await?;
    carry_out(&ctx, command, stored, Json).await
}

fn view(stored: Stored, details: &mut PageDetails) -> DeadLetter {
    let response_headers = details.take_headers(stored.delivery.id);
    DeadLetter { delivery: DeliveryView::of(stored, details), response_headers }
}

fn sha256_hex(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
