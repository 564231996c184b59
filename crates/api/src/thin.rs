//! The event behind a thin envelope, for every client that has the signed URL.

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::answer::{Payload, RawResponse};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::events::payload_response;
use super::path::OfThinEvent;
use super::problem::{Code, Problem};
use super::query::Query;
use super::route::Route;
use crate::thin_links::BadLink;

pub(super) fn routes() -> Vec<Route> {
    let route = Route::new(
        Method::GET,
        "/v1/thin/{tenant}/{endpoint}/{event}",
        Needs::Nothing,
        "Fetch the event behind a thin envelope: the signed URL is the credential",
        fetch,
    );
    vec![route.also_refuses(&[StatusCode::GONE])]
}

/// What makes the URL a credential.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SignedQuery {
    /// Until when it opens the event, in seconds since 1970.
    pub(crate) expires: u64,
    /// The signature over tenant, endpoint, event and expiry.
    pub(crate) signature: String,
}

/// A link that is not ours, an endpoint that was removed and an event that is gone look alike: nobody
/// learns from it what exists.
pub(crate) async fn fetch(
    ctx: Ctx,
    path: OfThinEvent,
    Query(signed): Query<SignedQuery>,
    _: NoBody,
) -> Result<RawResponse<Payload>, Problem> {
    let gone = || Problem::not_found("event", &path.event);
    let parts = (&path.tenant, path.endpoint, &path.event);
    let checked = ctx.app.thin.check(parts, signed.expires, &signed.signature, ctx.now());
    checked.map_err(|bad| match bad {
        BadLink::Forged => gone(),
        BadLink::Expired => {
            let detail = "the link has expired: replay or redeliver the event";
            Problem::new(Code::LinkExpired, detail)
        }
    })?;
    let endpoint = ctx.app.store.endpoint(path.endpoint).await?.ok_or_else(gone)?;
    if endpoint.removed_at.is_some() || endpoint.tenant != path.tenant {
        return Err(gone());
    }
    let stored = ctx.app.store.event(&path.tenant, &path.event).await?.ok_or_else(gone)?;
    Ok(RawResponse::new(payload_response(stored.event)))
}
