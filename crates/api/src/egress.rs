//! Where deliveries come from, for the allow lists of receivers.

use http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::path::NoPath;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::GET,
        "/v1/egress",
        Needs::Nothing,
        "The networks that deliveries come from",
        egress,
    )]
}

/// The networks that deliveries come from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Egress {
    /// The networks, such as `203.0.113.7/32`. Empty: the operator has not fixed them, and deliveries may come from
    /// any address.
    networks: Vec<String>,
}

async fn egress(ctx: Ctx, _: NoPath, _: NoQuery, _: NoBody) -> Result<Json<Egress>, Problem> {
    Ok(Json(Egress { networks: ctx.app.settings.egress.clone() }))
}
