//! Signing in with an API key or a link, and signing out.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{Markup, html};
use railpost_api::{App, ClientAddress};
use railpost_engine::Span;
use railpost_store::{ApiKey, Scope};
use railpost_telemetry::{Level, Value};

use super::session::SignInAttempt;
use super::visit::{ApiRefusal, COOKIE, PageVisit, client, form, same_site, value};
use super::{Dashboard, PageResult, Reply, layout, shown, sign_in_trail};

/// What the form holds: a link's token, or nothing yet; where to go then; and what went wrong.
#[derive(Default)]
struct SignInForm {
    token: String,
    next: String,
    problem: Option<String>,
}

pub(super) async fn show(_: Dashboard, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let fields: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
    let text = |name| value(&fields, name).unwrap_or_default().to_owned();
    page(StatusCode::OK, &SignInForm { token: text("token"), next: text("next"), problem: None })
}

pub(super) async fn sign_in(context: Dashboard, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let fields = match form(&context.app, &parts, body).await {
        Ok(fields) if same_site(&parts.headers) => fields,
        Ok(_) => {
            return layout::refusal_without_session(&ApiRefusal::new(
                403,
                "Sign in here",
                "the form came from elsewhere",
            ));
        }
        Err(refused) => return layout::refusal_without_session(&refused),
    };
    let text = |name| value(&fields, name).unwrap_or_default().trim().to_owned();
    let next = text("next");
    let client = client(&parts);
    let who = SignInAttempt::new(client, &text("key"));
    if let Some(wait) = context.sessions.sign_in_delay(&context.app, &who) {
        return form_with_problem(StatusCode::TOO_MANY_REQUESTS, next, too_often(wait));
    }
    match key_of(&context, &text("token"), &text("key"), client).await {
        Ok((key, by_link)) => {
            match sign_in_trail::signed_in(&context.app, &key, by_link, client.0).await {
                Ok(()) => begun(&context, key, by_link, &next),
                Err(problem) => layout::refusal_without_session(&ApiRefusal::from(problem)),
            }
        }
        Err((StatusCode::UNAUTHORIZED, problem)) => {
            tell_failed(&context.app, client);
            sign_in_trail::failed(&context, client.0).await;
            context.sessions.failed(&context.app, who);
            form_with_problem(StatusCode::UNAUTHORIZED, next, problem)
        }
        Err((status, problem)) => form_with_problem(status, next, problem),
    }
}

/// The form once more, with what went wrong.
fn form_with_problem(status: StatusCode, next: String, problem: String) -> Response {
    page(status, &SignInForm { next, problem: Some(problem), ..SignInForm::default() })
}

fn tell_failed(app: &App, client: ClientAddress) {
    app.telemetry.log.line(
        Level::Info,
        "sign_in_failed",
        &[("address", Value::Display(&client.0))],
    );
}

/// The key that a link or an API key's text stands for.
async fn key_of(
    context: &Dashboard,
    token: &str,
    text: &str,
    client: ClientAddress,
) -> Result<(Arc<ApiKey>, bool), (StatusCode, String)> {
    let refused = |problem: &str| (StatusCode::UNAUTHORIZED, problem.to_owned());
    if !token.is_empty() {
        let key = context.sessions.use_link(&context.app, token);
        return key.map(|key| (key, true)).ok_or_else(|| {
            refused(
                "This link was used already, or is too old. Sign in with an API key, or start the \
                 server again for a new link.",
            )
        });
    }
    let key = context.app.keys.find(&context.app, text, client).await;
    let key = key.map_err(|problem| (problem.code.status(), capital(&problem.detail)))?;
    match key.scope {
        Scope::PublishOnly => {
            Err(refused("This API key may only publish events: it sees nothing here."))
        }
        _ => Ok((key, false)),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}

fn too_often(wait: Span) -> String {
    format!("Too many sign-ins with such a key failed. Try again in {}.", shown::span(wait))
}

fn begun(context: &Dashboard, key: Arc<ApiKey>, by_link: bool, next: &str) -> Response {
    let token = context.sessions.begin(&context.app, key, by_link);
    // Only a path of our own: a link must not lead from the form to elsewhere.
    let is_own = next.starts_with("/dashboard") && !next.contains("sign-");
    let mut response = Redirect::to(if is_own { next } else { "/dashboard" }).into_response();
    set_cookie(context, &mut response, &token, "");
    response
}

fn set_cookie(context: &Dashboard, response: &mut Response, token: &str, rest: &str) {
    let secure = if context.secure_cookies { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE}={token}; Path=/dashboard; HttpOnly; SameSite=Strict{secure}{rest}");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

pub(super) async fn sign_out(visit: PageVisit) -> PageResult {
    visit.end();
    // The session is over, whether it can be written down or not.
    let (app, key) = (&visit.context.app, &visit.session.key);
    let _ = sign_in_trail::signed_out(app, key, visit.client.0).await;
    let mut response = Redirect::to("/dashboard/sign-in").into_response();
    set_cookie(&visit.context, &mut response, "", "; Max-Age=0");
    Ok(Reply::Raw(response))
}

fn page(status: StatusCode, form: &SignInForm) -> Response {
    layout::response(status, layout::plain("Sign in", &body(form)))
}

fn body(form: &SignInForm) -> Markup {
    html! {
        h1 { "Sign in" }
        @if let Some(problem) = &form.problem {
            p.flash.problem role="alert" id="key-problem" { (problem) }
        }
        @if form.token.is_empty() { (key_form(form)) } @else { (link_form(form)) }
    }
}

fn key_form(form: &SignInForm) -> Markup {
    let described = form.problem.is_some().then_some("key-problem");
    html! {
        form.stack method="post" action="/dashboard/sign-in" {
            input type="hidden" name="next" value=(form.next);
            label for="key" { "API key" }
            input id="key" name="key" type="password" required autocomplete="current-password" autofocus
                placeholder="rp_…" aria-invalid=(form.problem.is_some()) aria-describedby=[described];
            button.primary type="submit" { "Sign in" }
        }
        p.hint {
            "The first start of the server prints an admin key. With one at hand, make another: "
            code { "railpost keys create dashboard --scope read-only" }
        }
    }
}

/// A link is used up by a press of the button, which the script does: a program that only looks at
/// links does not use it up.
fn link_form(form: &SignInForm) -> Markup {
    html! {
        form.stack method="post" action="/dashboard/sign-in" data-submit-now {
            input type="hidden" name="token" value=(form.token);
            input type="hidden" name="next" value=(form.next);
            p { "This link opens the dashboard once." }
            button.primary type="submit" { "Open the dashboard" }
        }
    }
}
