//! The demo's way to the API: its routes, in this process, with the first admin key.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, header};
use serde_json::{Value, json};

use super::DemoError;
use crate::api::Api;
use crate::client_address::ClientAddress;
use crate::serve::{DEFAULT_TENANT, Server};

/// How often something is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(super) struct Client {
    api: Api,
    key: String,
}

/// It is in this process.
const HERE: ClientAddress = ClientAddress(IpAddr::V4(Ipv4Addr::LOCALHOST));

impl Client {
    pub(super) fn of(server: &Server) -> Self {
        let key = server.admin_key().unwrap_or_default().to_owned();
        Self { api: Api::new(server.app()), key }
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, DemoError> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, DemoError> {
        self.call(Method::POST, path, body).await
    }

    /// Publishes one event.
    pub(super) async fn publish(
        &self,
        kind: &str,
        key: &str,
        payload: Value,
    ) -> Result<(), DemoError> {
        let event = json!({ "type": kind, "key": key, "payload": payload });
        self.post("/events", Some(&event)).await.map(drop)
    }

    /// What the API says at this path, once it is as wanted.
    pub(super) async fn wait(
        &self,
        path: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, DemoError> {
        loop {
            let answer = self.get(path).await?;
            if wanted(&answer) {
                return Ok(answer);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, DemoError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("/v1/tenants/{DEFAULT_TENANT}{path}"))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.key))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .map_err(|error| DemoError::new(path, error))?;
        let response = self.api.call(request, HERE).await;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        let bytes = bytes.map_err(|error| DemoError::new(path, error))?;
        if !status.is_success() {
            return Err(DemoError::new(path, String::from_utf8_lossy(&bytes)));
        }
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}
