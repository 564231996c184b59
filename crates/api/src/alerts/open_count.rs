//! How many alerts are open: what every page of the dashboard shows, so it is looked up once for all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use railpost_store::{Alert, Severity};
use railpost_wire::TenantId;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::answer::Json;
use crate::app::App;
use crate::auth::Needs;
use crate::body::NoBody;
use crate::call::Ctx;
use crate::limits::OPEN_ALERTS_BELIEVED_FOR;
use crate::path::{NoPath, OfTenant};
use crate::problem::Problem;
use crate::query::NoQuery;
use crate::route::Route;
use crate::tenants;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/alerts/open-count",
            Needs::Read,
            "Count the open alerts of a tenant",
            of_tenant,
        ),
        Route::new(
            Method::GET,
            "/v1/alerts/open-count",
            Needs::Admin,
            "Count all open alerts",
            of_all,
        ),
    ]
}

/// How many alerts are open. At most a second old.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct OpenAlertCount {
    /// All of them.
    total: u64,
    /// Those of severity `info`.
    info: u64,
    /// Those of severity `warning`.
    warning: u64,
    /// Those of severity `error`.
    error: u64,
    /// Those of severity `critical`.
    critical: u64,
}

type OpenAlerts = Arc<Vec<(Option<TenantId>, Severity)>>;

/// The open alerts as they were lately, and when.
#[derive(Debug, Default)]
pub(crate) struct OpenAlertsCache(Mutex<Option<(Instant, OpenAlerts)>>);

impl OpenAlertsCache {
    /// Readers that come together wait for one look-up.
    async fn get(&self, app: &App) -> Result<OpenAlerts, Problem> {
        let mut known = self.0.lock().await;
        match &*known {
            Some((at, open)) if at.elapsed() < Duration::from(OPEN_ALERTS_BELIEVED_FOR) => {
                Ok(open.clone())
            }
            _ => {
                let alerts = app.store.open_alerts().await?.into_iter();
                let open = alerts.filter(Alert::is_open);
                let open: OpenAlerts =
                    Arc::new(open.map(|alert| (alert.tenant, alert.severity)).collect());
                *known = Some((Instant::now(), open.clone()));
                Ok(open)
            }
        }
    }
}

async fn of_tenant(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<OpenAlertCount>, Problem> {
    tenants::find(&ctx, &path.tenant).await?;
    let open = ctx.app.open_alerts.get(&ctx.app).await?;
    let own = open.iter().filter(|(tenant, _)| tenant.as_ref() == Some(&path.tenant));
    Ok(Json(count(own.map(|(_, severity)| *severity))))
}

async fn of_all(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Json<OpenAlertCount>, Problem> {
    let open = ctx.app.open_alerts.get(&ctx.app).await?;
    Ok(Json(count(open.iter().map(|(_, severity)| *severity))))
}

fn count(severities: impl Iterator<Item = Severity>) -> OpenAlertCount {
    let mut count = OpenAlertCount::default();
    for severity in severities {
        count.total += 1;
        *match severity {
            Severity::Info => &mut count.info,
            Severity::Warning => &mut count.warning,
            Severity::Error => &mut count.error,
            Severity::Critical => &mut count.critical,
        } += 1;
    }
    count
}
