//! A route: its method, path, required scope, and a handler whose types are its specification.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Method, StatusCode};
use railpost_rest::operation::{HandlerTypes, Operation};
use railpost_telemetry::AnsweredRequest;

use super::answer::{Answer, with_security_headers};
use super::auth::{self, Needs};
use super::body::FromBody;
use super::call::Ctx;
use super::idempotency::{self, IdempotencyCheck};
use super::openapi::meaning;
use super::path::{FromPath, Params};
use super::problem::{Code, Problem};
use super::query::FromQuery;
use super::run_despite_disconnect::run_despite_disconnect;
use crate::app::App;
use crate::client_address::ClientAddress;

type Serve = Arc<dyn Fn(Arc<App>, usize, Request, ClientAddress) -> ServeFuture + Send + Sync>;
/// The answer to a request, on its way.
pub type ServeFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// One route of the API.
#[derive(Clone)]
pub struct Route {
    /// What it is, for callers.
    pub operation: Operation,
    /// Serves a request to the route with this number.
    pub(super) serve: Serve,
}

impl Route {
    /// The route that `handler` serves: what it takes from the path, the query and the body, and
    /// what it answers, its signature says.
    ///
    /// # Panics
    ///
    /// If the path's tenant and the needs do not go together: a defect that the first start shows.
    pub(crate) fn new<P, Q, B, A, F, R>(
        method: Method,
        path: &'static str,
        needs: Needs,
        summary: &'static str,
        handler: F,
    ) -> Self
    where
        P: FromPath,
        Q: FromQuery,
        B: FromBody,
        A: Answer,
        F: Fn(Ctx, P, Q, B) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<A, Problem>> + Send + 'static,
    {
        let of_tenant = matches!(needs, Needs::Publish | Needs::Read | Needs::Manage);
        assert!(
            !of_tenant || path.contains("{tenant}"),
            "{path} needs a tenant to judge {needs:?} by"
        );
        let kind = RouteInfo { path, needs, mutates: method != Method::GET };
        let serve: Serve = Arc::new(move |app, number, request, client| {
            let (mut parts, body) = request.into_parts();
            Box::pin(async move {
                let began = Instant::now();
                let traceparent = parts.headers.get("traceparent").cloned();
                let answered = serve(&app, (&mut parts, body), client, kind, handler).await;
                if let Err(problem) = &answered
                    && problem.code == Code::StoreStopped
                {
                    app.telemetry.note_store_stopped(&problem.detail);
                }
                let response = answered.unwrap_or_else(IntoResponse::into_response);
                let answered_request = AnsweredRequest {
                    number,
                    method: parts.method.as_str(),
                    route: kind.path,
                    publishes: kind.needs == Needs::Publish,
                    client: client.0,
                    traceparent: traceparent.as_ref().and_then(|value| value.to_str().ok()),
                };
                app.telemetry.request(
                    &answered_request,
                    response.status().as_u16(),
                    began.elapsed(),
                );
                with_security_headers(response)
            })
        });
        let describe = HandlerTypes::of::<P, Q, B, A>;
        let meaning = meaning(&method, path);
        let operation =
            Operation { method, path, needs, summary, meaning, refusals: &[], describe };
        Self { operation, serve }
    }

    /// The same, which refuses with these statuses too.
    pub(crate) fn also_refuses(self, refusals: &'static [StatusCode]) -> Self {
        Self { operation: Operation { refusals, ..self.operation }, ..self }
    }
}

/// What every request to a route needs to know of it.
#[derive(Clone, Copy)]
struct RouteInfo {
    path: &'static str,
    needs: Needs,
    mutates: bool,
}

/// The steps of every request: authorize it, parse it, look for a stored answer, run the handler.
async fn serve<P, Q, B, A, F, R>(
    app: &Arc<App>,
    (parts, body): (&mut Parts, Body),
    client: ClientAddress,
    kind: RouteInfo,
    handler: F,
) -> Result<Response, Problem>
where
    P: FromPath,
    Q: FromQuery,
    B: FromBody,
    A: Answer,
    F: Fn(Ctx, P, Q, B) -> R,
    R: Future<Output = Result<A, Problem>> + Send + 'static,
{
    let (ctx, path, query, body, request) = {
        let params = Params::new(kind.path, parts.uri.path());
        let tenant = params.get("tenant")?;
        let tenant = tenant.as_deref();
        let caller = auth::authorize(app, parts, kind.needs, tenant, client).await?;
        let (path, query) =
            (P::from_path(&params)?, Q::from_query(parts.uri.query().unwrap_or_default())?);
        let (body, bytes) = B::from_body(app.settings.limits.of_bodies(), parts, body).await?;
        let ctx = Ctx::new(app.clone(), caller);
        let check = match kind.mutates {
            true => idempotency::begin(app, &ctx.caller, parts, bytes.as_ref(), tenant).await?,
            false => IdempotencyCheck::Once,
        };
        let request = match check {
            IdempotencyCheck::Answered(response) => return Ok(response),
            IdempotencyCheck::Once => None,
            IdempotencyCheck::First(request) => Some(request),
        };
        (ctx, path, query, body, request)
    };
    let_go(parts);
    if !kind.mutates {
        return Ok(Box::pin(handler(ctx, path, query, body)).await?.into_response());
    }
    let work =
        run_despite_disconnect(handler(ctx.idempotent_request(request.clone()), path, query, body))
            .await;
    let defect = |_| Err(Problem::new(Code::Internal, "the request ended in a defect"));
    match (work.unwrap_or_else(defect), request) {
        (Ok(answer), _) => Ok(answer.into_response()),
        // Another process was faster with the same key: its answer is this request's.
        (Err(problem), Some(request)) if problem.code == Code::IdempotencyInProgress => {
            request.recall().await?.ok_or(problem)
        }
        (Err(problem), _) => Err(problem),
    }
}

/// Lets go of what refers to the connection's buffer. While the work goes on, the connection looks whether its
/// client is still there; if somebody had its buffer, it would make a new one for that.
fn let_go(parts: &mut Parts) {
    (parts.uri, parts.headers) = Default::default();
}
