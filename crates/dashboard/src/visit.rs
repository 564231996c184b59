//! One request of a signed-in user, and its calls of the API.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use railpost_api::{App, Caller, ClientAddress, Needs, Problem, hash_of, read_body};
use railpost_engine::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::session::{Flash, Session, Undo};
use super::{Dashboard, Reply, layout};
use crate::limits::FORM_LEN_MAX;

/// The cookie's name.
pub(super) const COOKIE: &str = "railpost_session";
/// The form field that proves that a form is one of ours.
pub(super) const CSRF: &str = "csrf";

/// One request: its session, path, query and form.
#[derive(Clone, Debug)]
pub(super) struct PageVisit {
    pub(super) context: Dashboard,
    pub(super) session: Session,
    /// The tenant of the path, if it has one.
    pub(super) tenant: Option<String>,
    /// When it came.
    pub(super) now: Timestamp,
    /// Its path, and its query as it is.
    pub(super) uri: http::Uri,
    /// Where it came from.
    pub(super) client: ClientAddress,
    token: String,
    params: Vec<(String, String)>,
    query: Fields,
    form: Fields,
}

type Fields = Vec<(String, String)>;

/// What the API refused, in its own words.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ApiRefusal {
    pub(super) status: u16,
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) field: Option<String>,
}

impl PageVisit {
    /// Lets a request in; otherwise the response is what its sender gets.
    pub(super) async fn begin(context: Dashboard, request: Request) -> Result<Self, Box<Response>> {
        let (mut parts, body) = request.into_parts();
        let refusal = |refused: ApiRefusal| Box::new(layout::refusal_without_session(&refused));
        let token = cookie(&parts.headers).unwrap_or_default();
        let session = context.sessions.find(&context.app, &token).await;
        let session = session.map_err(|problem| refusal(ApiRefusal::from(problem)))?;
        let Some(session) = session else {
            return Err(Box::new(to_sign_in(&parts)));
        };
        let form = form(&context.app, &parts, body).await.map_err(refusal)?;
        let params = params(&mut parts).await;
        let visit = Self {
            session,
            tenant: value(&params, "tenant").map(str::to_owned),
            now: context.app.source.now(),
            client: client(&parts),
            query: pairs(parts.uri.query().unwrap_or_default().as_bytes()),
            uri: parts.uri.clone(),
            context,
            token,
            params,
            form,
        };
        if parts.method == Method::POST && !visit.is_own_wish(&parts.headers) {
            let refused = layout::refusal(&visit, &ApiRefusal::forged()).await;
            return Err(Box::new(refused));
        }
        Ok(visit)
    }

    fn is_own_wish(&self, headers: &HeaderMap) -> bool {
        // By their hashes, so that the time it takes says nothing about the token.
        let is_ours = hash_of(self.field(CSRF)) == hash_of(&self.session.csrf);
        is_ours && same_site(headers)
    }

    /// A parameter of the path; empty if the route has none of that name.
    pub(super) fn param(&self, name: &str) -> &str {
        value(&self.params, name).unwrap_or_default()
    }

    /// A parameter of the query; empty if it is not there.
    pub(super) fn query(&self, name: &str) -> &str {
        value(&self.query, name).unwrap_or_default().trim()
    }

    /// A field of the form; empty if it is not there.
    pub(super) fn field(&self, name: &str) -> &str {
        self.field_as_typed(name).trim()
    }

    /// The same with the spaces around it.
    pub(super) fn field_as_typed(&self, name: &str) -> &str {
        value(&self.form, name).unwrap_or_default()
    }

    /// Every value of a field that may come more than once.
    pub(super) fn fields(&self, name: &str) -> Vec<&str> {
        self.form.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The whole form.
    pub(super) fn all_fields(&self) -> &[(String, String)] {
        &self.form
    }

    /// Whether the signed-in user meets these needs.
    pub(super) fn may(&self, needs: Needs) -> bool {
        self.caller().may(needs, None)
    }

    fn caller(&self) -> Caller {
        Caller { key: Some(self.session.key.clone()), address: Some(self.client.0) }
    }

    /// The dashboard's path to something of this tenant, or of the operator on a page without a tenant.
    pub(super) fn path(&self, rest: &str) -> String {
        match &self.tenant {
            Some(tenant) => format!("/dashboard/t/{tenant}{rest}"),
            None => format!("/dashboard{rest}"),
        }
    }

    /// What the API says at this path of the tenant, or of the operator.
    pub(super) async fn get(&self, rest: &str) -> Result<Value, ApiRefusal> {
        self.call(Method::GET, &self.api_path(rest), None).await
    }

    /// Has the API do something at this path of the tenant, or of the operator.
    pub(super) async fn post(&self, rest: &str, body: Option<&Value>) -> Result<Value, ApiRefusal> {
        self.call(Method::POST, &self.api_path(rest), body).await
    }

    /// The API's path to something of this tenant, or of the operator on a page without a tenant.
    pub(super) fn api_path(&self, rest: &str) -> String {
        match &self.tenant {
            Some(tenant) => format!("/v1/tenants/{tenant}{rest}"),
            None => format!("/v1{rest}"),
        }
    }

    /// One call of the API, in this process, with the key of the signed-in user.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiRefusal> {
        let mut request = http::Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request = request.body(body).map_err(|error| ApiRefusal::path(path, &error))?;
        request.extensions_mut().insert(self.caller());
        let response = self.context.api.call(request, self.client).await;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        read(status, &bytes.unwrap_or_default())
    }

    /// Goes to another page, which says this.
    pub(super) fn redirect(&self, rest: &str, text: impl Into<String>) -> Reply {
        self.set_flash(Flash { text: text.into(), secret: None, undo: None, is_problem: false });
        Reply::Goto(self.path(rest))
    }

    /// The same with a button that undoes what was done.
    pub(super) fn redirect_with_undo(
        &self,
        rest: &str,
        text: impl Into<String>,
        undo: Undo,
    ) -> Reply {
        let text = text.into();
        self.set_flash(Flash { text, secret: None, undo: Some(undo), is_problem: false });
        Reply::Goto(self.path(rest))
    }

    /// Goes to another page, which says what is wrong.
    pub(super) fn redirect_with_problem(&self, rest: &str, text: impl Into<String>) -> Reply {
        self.set_flash(Flash { text: text.into(), secret: None, undo: None, is_problem: true });
        Reply::Goto(self.path(rest))
    }

    /// Goes to another page of the tenant, which shows a secret once.
    pub(super) fn redirect_with_secret(&self, rest: &str, text: &str, secret: &str) -> Reply {
        let (text, secret) = (text.to_owned(), Some(secret.to_owned()));
        self.set_flash(Flash { text, secret, undo: None, is_problem: false });
        Reply::Goto(self.path(rest))
    }

    /// Goes to another page, which says what was refused.
    pub(super) fn or_redirect<T>(
        &self,
        rest: &str,
        answered: Result<T, ApiRefusal>,
    ) -> Result<Result<T, Reply>, ApiRefusal> {
        match answered {
            Ok(value) => Ok(Ok(value)),
            Err(refused) if refused.is_answerable() => {
                Ok(Err(self.redirect_with_problem(rest, refused.to_string())))
            }
            Err(refused) => Err(refused),
        }
    }

    fn set_flash(&self, flash: Flash) {
        self.context.sessions.set_flash(&self.token, flash);
    }

    /// The word that the last change left, once.
    pub(super) fn take_flash(&self) -> Option<Flash> {
        self.context.sessions.take_flash(&self.token)
    }

    /// The same visit a moment later, if its session lasts; an error if that cannot be said just now.
    pub(super) async fn refreshed(&self) -> Result<Option<Self>, Problem> {
        let app = &self.context.app;
        let session = self.context.sessions.find(app, &self.token).await?;
        let now = app.source.now();
        Ok(session.map(|session| Self { session, now, ..self.clone() }))
    }

    /// Ends the session.
    pub(super) fn end(&self) {
        self.context.sessions.end(&self.token);
    }

    /// The path of the page that was asked for, or to which a live part belongs.
    pub(super) fn page_path(&self) -> String {
        self.uri.path().replacen("/live/", "/", 1)
    }
}

impl ApiRefusal {
    fn forged() -> Self {
        Self::new(403, "Invalid form", "the page is too old: go back, reload it and try again")
    }

    fn path(path: &str, error: &http::Error) -> Self {
        Self::new(404, "Not found", &format!("invalid path `{path}`: {error}"))
    }

    /// Whether the page that asked says it best. What is forbidden or missing is a page of its own.
    pub(super) fn is_answerable(&self) -> bool {
        matches!(self.status, 400 | 409 | 422 | 429)
    }

    /// Whether the same request may be granted a moment later.
    pub(super) fn is_temporary(&self) -> bool {
        self.status == 429 || self.status >= 500
    }

    pub(super) fn new(status: u16, title: &str, detail: &str) -> Self {
        Self { status, title: title.to_owned(), detail: detail.to_owned(), field: None }
    }
}

impl From<Problem> for ApiRefusal {
    fn from(problem: Problem) -> Self {
        let Problem { code, detail, field, .. } = problem;
        let (status, title) = (code.status().as_u16(), code.title().to_owned());
        Self { status, title, detail, field }
    }
}

impl fmt::Display for ApiRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}: {field}: {}", self.title, self.detail),
            None => write!(f, "{}: {}", self.title, self.detail),
        }
    }
}

fn read(status: StatusCode, bytes: &[u8]) -> Result<Value, ApiRefusal> {
    if status.is_success() {
        return Ok(serde_json::from_slice(bytes).unwrap_or(Value::Null));
    }
    let unread = |_| ApiRefusal::new(status.as_u16(), "Request failed", "the API gave no reason");
    Err(serde_json::from_slice(bytes).unwrap_or_else(unread))
}

/// The session's token among the cookies.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let cookies =
        headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == COOKIE).map(|(_, value)| value.trim().to_owned())
}

/// Whether a browser says that the request came from one of our own pages, or from the user. Browsers
/// that say nothing are judged by the form's token alone.
pub(super) fn same_site(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-site")
        .is_none_or(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

/// Redirects a user who has not signed in to the form, and back here afterwards.
fn to_sign_in(parts: &Parts) -> Response {
    let wanted = parts.uri.path_and_query().map_or("/dashboard", |path| path.as_str());
    if parts.method != Method::GET || wanted.contains("/live/") {
        let refused = ApiRefusal::new(401, "You are signed out", "sign in and try again");
        return layout::refusal_without_session(&refused);
    }
    let query = serde_urlencoded::to_string([("next", wanted)]).unwrap_or_default();
    Redirect::to(&format!("/dashboard/sign-in?{query}")).into_response()
}

/// The address that a request came from.
pub(super) fn client(parts: &Parts) -> ClientAddress {
    const NOBODY: ClientAddress = ClientAddress(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    parts.extensions.get().copied().unwrap_or(NOBODY)
}

async fn params(parts: &mut Parts) -> Fields {
    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => {
            params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// The fields of a form, within bounds of bytes and of time.
pub(super) async fn form(app: &App, parts: &Parts, body: Body) -> Result<Fields, ApiRefusal> {
    if parts.method != Method::POST {
        return Ok(Vec::new());
    }
    let bytes = read_body(app.settings.limits.of_bodies(), body, FORM_LEN_MAX).await;
    Ok(pairs(&bytes.map_err(ApiRefusal::from)?))
}

fn pairs(bytes: &[u8]) -> Fields {
    serde_urlencoded::from_bytes(bytes).unwrap_or_default()
}

pub(super) fn value<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
