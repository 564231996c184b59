//! The table of routes: it finds the route of a request.

use std::fmt;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, header};

use super::answer::with_security_headers;
use super::problem::{Code, Problem};
use super::route::{Route, ServeFuture};
use super::routes;
use crate::app::App;
use crate::client_address::ClientAddress;

/// The API: what answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Api(Arc<Table>);

struct Table {
    app: Arc<App>,
    paths: matchit::Router<Methods>,
}

/// The routes of one path, each with its number among all.
type Methods = Vec<(usize, Route)>;

impl Api {
    /// All routes of the API.
    ///
    /// # Panics
    ///
    /// If two paths cannot be told apart: a defect that the first start shows.
    pub fn new(app: &Arc<App>) -> Self {
        let mut by_path: Vec<(&str, Methods)> = Vec::new();
        for (number, route) in routes().into_iter().enumerate() {
            match by_path.iter_mut().find(|(path, _)| *path == route.operation.path) {
                Some((_, methods)) => methods.push((number, route)),
                None => by_path.push((route.operation.path, vec![(number, route)])),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, methods) in by_path {
            paths.insert(path, methods).expect("paths that can be told apart");
        }
        Self(Arc::new(Table { app: app.clone(), paths }))
    }

    /// Answers a request, if it is for one of the API's paths; otherwise it is given back.
    pub fn take(
        &self,
        request: Request,
        client: ClientAddress,
    ) -> Result<ServeFuture, Box<Request>> {
        let Ok(found) = self.0.paths.at(request.uri().path()) else {
            return Err(Box::new(request));
        };
        // What asks for the head alone is answered as if it asked for all; HTTP leaves out the rest.
        let wanted = match *request.method() {
            Method::HEAD => &Method::GET,
            ref method => method,
        };
        match found.value.iter().find(|(_, route)| route.operation.method == *wanted) {
            Some((number, route)) => {
                Ok((route.serve)(self.0.app.clone(), *number, request, client))
            }
            None => {
                Ok(Box::pin(std::future::ready(with_security_headers(wrong_method(found.value)))))
            }
        }
    }

    /// Answers a request of this process, on behalf of this client.
    pub async fn call(&self, request: Request, client: ClientAddress) -> Response {
        match self.take(request, client) {
            Ok(answer) => answer.await,
            Err(request) => not_found(request.uri().path()),
        }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

/// The answer where there is nothing.
pub fn not_found(path: &str) -> Response {
    with_security_headers(Problem::not_found("path", path).into_response())
}

fn wrong_method(methods: &Methods) -> Response {
    let detail = "the path exists, but not with this method";
    let mut response = Problem::new(Code::MethodNotAllowed, detail).into_response();
    let names = methods.iter().flat_map(|(_, route)| match route.operation.method {
        Method::GET => vec!["GET", "HEAD"],
        ref method => vec![method.as_str()],
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let allow = HeaderValue::from_str(&names).expect("methods are visible ASCII");
    response.headers_mut().insert(header::ALLOW, allow);
    response
}
