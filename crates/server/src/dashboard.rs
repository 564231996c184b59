//! The dashboard: pages for people, drawn on the server.
//!
//! It knows nothing that the API does not say: every figure and every change is a call of the API's own
//! routes, in this process, as whoever has signed in ([`visit::Visit::get`]). So permissions, checks
//! and the audit trail are the API's. The pages work without script; `assets/script.js` adds live
//! updates and countdowns. Nothing is fetched from elsewhere, and the content security policy says so.
//!
//! Start with the table of routes in [`router`].

mod session;
mod visit;
mod sign_in;
mod shown;
mod table;
mod form;
mod chart;
mod layout;
mod live;

mod overview;
mod lanes;
mod endpoints;
mod events;
mod deliveries;
mod dead_letters;
mod replays;
mod keys;
mod audit;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use http::{HeaderValue, header};
use maud::Markup;

pub(crate) use session::SessionStore;
pub use sign_in::one_time_link;

use crate::api::{self, Api};
use crate::app::App;
use visit::{Refused, Visit};

/// The address from which a request came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) std::net::IpAddr);

/// What the dashboard's routes have at hand: the server's parts, and the API.
#[derive(Clone, Debug)]
struct PageContext {
    app: Arc<App>,
    api: Api,
}

/// What a page's handler answers.
enum Reply {
    /// A page.
    Page(layout::Page),
    /// Go there: a change was made.
    Goto(String),
    /// Anything else.
    Raw(Response),
}

type Answered = Result<Reply, Refused>;

/// The dashboard. What is not its own is nobody's.
pub(crate) fn router(app: &Arc<App>, api: Api) -> Router {
    let context = PageContext { app: app.clone(), api };
    let of_tenant = [
        ("", shows(&context, overview::of_tenant)),
        ("/lanes", shows(&context, lanes::page)),
        ("/lanes/{id}/{action}", does(&context, lanes::act)),
        ("/live/lanes", shows(&context, live::lanes)),
        ("/endpoints", shows(&context, endpoints::list).merge(does(&context, endpoints::create))),
        ("/endpoints/new", shows(&context, endpoints::new)),
        ("/endpoints/{id}", shows(&context, endpoints::detail)),
        (
            "/endpoints/{id}/edit",
            shows(&context, endpoints::edit).merge(does(&context, endpoints::change)),
        ),
        ("/endpoints/{id}/{action}", does(&context, endpoints::act)),
        ("/endpoints/{id}/secrets/{secret}/{action}", does(&context, endpoints::act_on_secret)),
        ("/events", shows(&context, events::list)),
        ("/events/{id}", shows(&context, events::detail)),
        ("/events/{id}/redeliver", does(&context, events::redeliver)),
        ("/deliveries", shows(&context, deliveries::list)),
        ("/deliveries/{id}", shows(&context, deliveries::detail)),
        ("/deliveries/{id}/discard", does(&context, deliveries::discard)),
        (
            "/dead-letters",
            shows(&context, dead_letters::list).merge(does(&context, dead_letters::act)),
        ),
        ("/replays", shows(&context, replays::list).merge(does(&context, replays::start))),
        ("/replays/{id}", shows(&context, replays::detail)),
        ("/replays/{id}/cancel", does(&context, replays::cancel)),
        ("/live/replays/{id}", shows(&context, live::replay)),
        ("/keys", shows(&context, keys::list).merge(does(&context, keys::create))),
        ("/keys/{id}/revoke", does(&context, keys::revoke)),
        ("/audit", shows(&context, audit::list)),
        ("/{*rest}", shows(&context, layout::nowhere)),
    ];
    let mut router = Router::new()
        .route("/", get(async || Redirect::to("/dashboard")))
        .route("/dashboard", shows(&context, overview::start))
        .route("/dashboard/all", shows(&context, overview::of_all))
        .route("/dashboard/switch", shows(&context, overview::switch))
        .route("/dashboard/sign-out", does(&context, sign_in::sign_out))
        .route("/dashboard/sign-in", sign_in::routes(&context))
        .route(
            "/dashboard/style.css",
            asset("text/css", include_str!("dashboard/assets/style.css")),
        )
        .route(
            "/dashboard/script.js",
            asset("text/javascript", include_str!("dashboard/assets/script.js")),
        )
        .route(
            "/dashboard/icon.svg",
            asset("image/svg+xml", include_str!("dashboard/assets/icon.svg")),
        );
    for (path, methods) in of_tenant {
        router = router.route(&format!("/dashboard/t/{{tenant}}{path}"), methods);
    }
    router
        .route("/dashboard/{*rest}", shows(&context, layout::nowhere))
        .layer(axum::middleware::map_response(async |response: Response| guarded(response)))
        .fallback(async |request: Request| api::not_found(request.uri().path()))
}

/// The route that shows a page to whoever has signed in.
fn shows<F, R>(context: &PageContext, handler: F) -> MethodRouter
where
    F: Fn(Visit) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answered> + Send + 'static,
{
    let context = context.clone();
    get(async move |request: Request| answer(context, request, handler).await)
}

/// The route that changes something for whoever has signed in.
fn does<F, R>(context: &PageContext, handler: F) -> MethodRouter
where
    F: Fn(Visit) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answered> + Send + 'static,
{
    let context = context.clone();
    post(async move |request: Request| answer(context, request, handler).await)
}

/// The way of every request: who is it, was it their own wish, then the page.
async fn answer<F, R>(context: PageContext, request: Request, handler: F) -> Response
where
    F: Fn(Visit) -> R,
    R: Future<Output = Answered>,
{
    let visit = match Visit::begin(context, request).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    match handler(visit.clone()).await {
        Ok(Reply::Page(page)) => layout::response(http::StatusCode::OK, page.drawn(&visit).await),
        Ok(Reply::Goto(path)) => Redirect::to(&path).into_response(),
        Ok(Reply::Raw(response)) => response,
        Err(refused) => layout::refusal(&visit, &refused).await,
    }
}

fn asset(content_type: &'static str, text: &'static str) -> MethodRouter {
    get(async move || {
        let mut response = Response::new(Body::from(text));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    })
}

/// What a page may do: nothing but what this server itself gives it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

fn guarded(response: Response) -> Response {
    let mut response = crate::api::guarded(response);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

impl Reply {
    fn page(title: &str, tab: layout::Tab, body: Markup) -> Answered {
        Ok(Self::Page(layout::Page { title: title.to_owned(), tab, body }))
    }
}
