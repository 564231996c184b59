//! The dashboard: HTML pages, rendered on the server.
//!
//! Every figure and every change is a call of the API's own routes, in this process, with the key of the
//! signed-in user (`PageVisit::get`). So permissions, checks and the audit trail are the API's. The pages work
//! without script; `assets/script.js` adds live updates and countdowns. Pages load nothing from other hosts,
//! and the content security policy enforces that.
//!
//! It must not reach past the API, and must not know the configuration file or how connections are taken.
//!
//! Start with the table of routes in `routes`, then `visit.rs`: the way of every request.

pub mod limits;

mod session;
mod visit;
mod sign_in;
mod sign_in_trail;
mod shown;
mod table;
mod form;
mod filters;
mod chart;
mod layout;
mod live;
mod confirm;

mod health;
mod attempts;
mod overview;
mod lanes;
mod endpoints;
mod story;
mod events;
mod deliveries;
mod dead_letters;
mod replays;
mod report;
mod keys;
mod outbox;
mod alerts;
mod audit_detail;
mod audit;
mod find;
mod help;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use http::{HeaderValue, header};
use maud::Markup;
use railpost_api::{Api, App, not_found};

use session::SessionStore;
use visit::{ApiRefusal, PageVisit};

/// The dashboard of one server: what its routes have at hand. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dashboard {
    app: Arc<App>,
    api: Api,
    sessions: Arc<SessionStore>,
    secure_cookies: bool,
}

/// What a page's handler answers.
enum Reply {
    /// A page.
    Page(layout::PageContent),
    /// Go there: a change was made.
    Goto(String),
    /// Anything else.
    Raw(Response),
}

type PageResult = Result<Reply, ApiRefusal>;

impl Dashboard {
    /// A dashboard over this API. Browsers send secure cookies by TLS alone.
    pub fn new(app: Arc<App>, secure_cookies: bool) -> Self {
        let api = Api::new(&app);
        Self { app, api, sessions: Arc::default(), secure_cookies }
    }

    /// Its pages. Unknown paths get 404.
    pub fn router(&self) -> Router {
        router(self.clone())
    }

    /// The path of a link that signs in to the dashboard once, within a few minutes, for the user of the terminal
    /// on which it is printed. The caller appends it to the server's URL.
    pub fn one_time_link(&self) -> String {
        format!("/dashboard/sign-in?token={}", self.sessions.make_link(&self.app))
    }

    /// Ends the live pages, which would never end by themselves: the server is about to stop.
    pub fn close(&self) {
        self.sessions.close();
    }
}

fn router(context: Dashboard) -> Router {
    routes()
        .router
        .route("/", get(async || Redirect::to("/dashboard")))
        .route("/dashboard/style.css", asset("text/css", include_str!("assets/style.css")))
        .route("/dashboard/script.js", asset("text/javascript", include_str!("assets/script.js")))
        .route("/dashboard/icon.svg", asset("image/svg+xml", include_str!("assets/icon.svg")))
        .route("/dashboard/t/{tenant}/{*rest}", page(layout::not_found_page))
        .route("/dashboard/{*rest}", page(layout::not_found_page))
        .layer(axum::middleware::map_response(async |response: Response| {
            with_security_headers(response)
        }))
        .fallback(async |request: Request| not_found(request.uri().path()))
        .with_state(context)
}

/// The paths of all pages, with `{…}` for what differs from one to the next. Live parts and ways to
/// other pages are among them.
pub fn page_paths() -> Vec<String> {
    routes().pages
}

/// The paths of all forms that change something, likewise.
pub fn form_paths() -> Vec<String> {
    routes().forms
}

fn routes() -> Routes {
    let mut routes = Routes::default();
    routes.shows("/dashboard", overview::start);
    routes.shows("/dashboard/all", overview::of_all);
    routes.shows("/dashboard/audit", audit::of_all);
    routes.shows("/dashboard/switch", overview::switch);
    routes.live("/dashboard/live/all", overview::live_of_all);
    routes.shows("/dashboard/find", find::page);
    routes.shows("/dashboard/help", help::page);
    routes.shows("/dashboard/report", report::page);
    routes.shows("/dashboard/outbox", outbox::list);
    routes.shows("/dashboard/outbox/{source}", outbox::detail);
    routes.shows("/dashboard/outbox/{source}/check", outbox::check_by_address);
    routes.does("/dashboard/outbox/{source}/check", outbox::check);
    routes.shows("/dashboard/outbox/{source}/parked/{number}", outbox::parked_row);
    routes.does_each("/dashboard/outbox/{source}/parked/{number}", &outbox::ACTIONS, outbox::act);
    routes.does("/dashboard/outbox/{source}/parked/retry-all", outbox::retry_all);
    routes.shows("/dashboard/alerts", alerts::page);
    routes.live("/dashboard/live/alerts", alerts::live);
    routes.does("/dashboard/alerts/test", alerts::test);
    routes.does("/dashboard/alerts/silence", alerts::silence_some);
    routes.does("/dashboard/alerts/silences/{id}/end", alerts::end_silence);
    routes.shows("/dashboard/alerts/{id}", alerts::detail);
    routes.does("/dashboard/alerts/{id}/silence", alerts::silence);
    routes.shows_anyone("/dashboard/sign-in", sign_in::show);
    routes.does_for_anyone("/dashboard/sign-in", sign_in::sign_in);
    routes.does("/dashboard/sign-out", sign_in::sign_out);
    let mut routes = routes.of_tenant();
    routes.shows("", overview::of_tenant);
    routes.live("/live/overview", overview::live_of_tenant);
    routes.shows("/find", find::page);
    routes.shows("/help", help::page);
    routes.shows("/report", report::page);
    routes.shows("/lanes", lanes::page);
    routes.does_each("/lanes/{id}", &lanes::ACTIONS, lanes::act);
    routes.live("/live/lanes", lanes::live);
    routes.shows("/endpoints", endpoints::list);
    routes.live("/live/endpoints", endpoints::live_list);
    routes.does("/endpoints", endpoints::create);
    routes.shows("/endpoints/new", endpoints::new);
    routes.shows("/endpoints/{id}", endpoints::detail);
    routes.live("/live/endpoints/{id}", endpoints::live_detail);
    routes.does("/endpoints/{id}/probe", endpoints::probe);
    routes.shows("/endpoints/{id}/probe", endpoints::probe_by_address);
    routes.shows("/endpoints/{id}/edit", endpoints::edit);
    routes.does("/endpoints/{id}/edit", endpoints::change);
    routes.does_each("/endpoints/{id}", &endpoints::ACTIONS, endpoints::act);
    routes.does("/endpoints/{id}/secrets/{secret}/reveal", endpoints::reveal_secret);
    routes.does("/endpoints/{id}/secrets/{secret}/delete", endpoints::delete_secret);
    routes.shows("/events", events::list);
    routes.live("/live/events", events::live_list);
    routes.shows("/events/{id}", events::detail);
    routes.live("/live/events/{id}", events::live_detail);
    routes.does("/events/{id}/redeliver", events::redeliver);
    routes.shows("/deliveries", deliveries::list);
    routes.live("/live/deliveries", deliveries::live_list);
    routes.shows("/deliveries/{id}", deliveries::detail);
    routes.live("/live/deliveries/{id}", deliveries::live_detail);
    routes.does("/deliveries/{id}/discard", deliveries::discard);
    routes.shows("/dead-letters", dead_letters::list);
    routes.live("/live/dead-letters", dead_letters::live);
    routes.does("/dead-letters", dead_letters::act);
    routes.shows("/replays", replays::list);
    routes.live("/live/replays", replays::live_list);
    routes.does("/replays", replays::start);
    routes.shows("/replays/{id}", replays::detail);
    routes.does("/replays/{id}/cancel", replays::cancel);
    routes.live("/live/replays/{id}", replays::live);
    routes.shows("/keys", keys::list);
    routes.does("/keys", keys::create);
    routes.does("/keys/{id}/revoke", keys::revoke);
    routes.shows("/alerts", alerts::page);
    routes.live("/live/alerts", alerts::live);
    routes.shows("/alerts/{id}", alerts::detail);
    routes.shows("/audit", audit::list);
    routes
}

/// A table of routes that knows which paths it has.
#[derive(Default)]
struct Routes {
    router: Router<Dashboard>,
    pages: Vec<String>,
    forms: Vec<String>,
    /// What the paths of further routes begin with.
    base: &'static str,
}

impl Routes {
    /// The same table; what is added from here on is a tenant's.
    fn of_tenant(self) -> Self {
        Self { base: "/dashboard/t/{tenant}", ..self }
    }

    /// A page for people who have signed in.
    fn shows<F, R>(&mut self, path: &str, handler: F)
    where
        F: Fn(PageVisit) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add_page(path, page(handler));
    }

    /// The part of a page that changes, for as long as someone watches it.
    fn live<F, R>(&mut self, path: &str, part: F)
    where
        F: Fn(PageVisit) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<Markup, ApiRefusal>> + Send + 'static,
    {
        self.shows(path, move |visit| std::future::ready(live::updates(visit, part.clone())));
    }

    /// A form by which people who have signed in change something.
    fn does<F, R>(&mut self, path: &str, handler: F)
    where
        F: Fn(PageVisit) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        self.add_form(
            path,
            post(async move |State(context), request| answer(context, request, handler).await),
        );
    }

    /// Forms with one handler, which is told by the last part of the path what to do.
    fn does_each<F, R>(&mut self, path: &str, actions: &[&'static str], handler: F)
    where
        F: Fn(PageVisit, &'static str) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = PageResult> + Send + 'static,
    {
        for &action in actions {
            let handler = handler.clone();
            self.does(&format!("{path}/{action}"), move |visit| handler(visit, action));
        }
    }

    /// A page for those who have not signed in, too.
    fn shows_anyone<F, R>(&mut self, path: &str, handler: F)
    where
        F: Fn(Dashboard, Request) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response> + Send + 'static,
    {
        self.add_page(
            path,
            get(async move |State(context), request| handler(context, request).await),
        );
    }

    /// A form for those who have not signed in, too.
    fn does_for_anyone<F, R>(&mut self, path: &str, handler: F)
    where
        F: Fn(Dashboard, Request) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Response> + Send + 'static,
    {
        self.add_form(
            path,
            post(async move |State(context), request| handler(context, request).await),
        );
    }

    fn add_page(&mut self, path: &str, methods: MethodRouter<Dashboard>) {
        let path = format!("{}{path}", self.base);
        self.router = std::mem::take(&mut self.router).route(&path, methods);
        self.pages.push(path);
    }

    fn add_form(&mut self, path: &str, methods: MethodRouter<Dashboard>) {
        let path = format!("{}{path}", self.base);
        self.router = std::mem::take(&mut self.router).route(&path, methods);
        self.forms.push(path);
    }
}

/// The route of a page for people who have signed in.
fn page<F, R>(handler: F) -> MethodRouter<Dashboard>
where
    F: Fn(PageVisit) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = PageResult> + Send + 'static,
{
    get(async move |State(context), request| answer(context, request, handler).await)
}

/// The steps of every request: find the session, check the form's token, render the page.
async fn answer<F, R>(context: Dashboard, request: Request, handler: F) -> Response
where
    F: Fn(PageVisit) -> R,
    R: Future<Output = PageResult>,
{
    let visit = match PageVisit::begin(context, request).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    match handler(visit.clone()).await {
        Ok(Reply::Page(page)) => layout::response(http::StatusCode::OK, page.render(&visit).await),
        Ok(Reply::Goto(path)) => Redirect::to(&path).into_response(),
        Ok(Reply::Raw(response)) => response,
        Err(refused) => layout::refusal(&visit, &refused).await,
    }
}

fn asset(content_type: &'static str, text: &'static str) -> MethodRouter<Dashboard> {
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

fn with_security_headers(response: Response) -> Response {
    let mut response = railpost_api::with_security_headers(response);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

impl Reply {
    fn page(title: &str, tab: layout::Tab, body: Markup) -> PageResult {
        Ok(Self::Page(layout::PageContent { title: title.to_owned(), tab, body }))
    }
}
