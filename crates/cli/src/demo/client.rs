//! The demo's way to the API: the command line's client, off the runtime's own threads.

use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use super::{DemoError, DemoServer};
use crate::client::Target;
use crate::failure::Outcome;

/// How often something is looked at that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(super) struct DemoClient {
    client: crate::Client,
}

impl DemoClient {
    pub(super) fn of(server: DemoServer<'_>) -> Result<Self, DemoError> {
        let client = crate::Client::new(&Target::of_default_tenant(server.url, server.key));
        Ok(Self { client: client.map_err(|failure| DemoError::new("the server", failure))? })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value, DemoError> {
        self.call(path, crate::Client::get).await
    }

    pub(super) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, DemoError> {
        let body = body.cloned();
        self.call(path, move |client, url| match &body {
            Some(body) => client.post(url, body),
            None => client.act(url),
        })
        .await
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
        path: &str,
        request: impl FnOnce(&crate::Client, &Url) -> Outcome<Value> + Send + 'static,
    ) -> Result<Value, DemoError> {
        let client = self.client.clone();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let mut url = client.of_tenant(&segments);
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        let answered = tokio::task::spawn_blocking(move || request(&client, &url)).await;
        let answered = answered.map_err(|error| DemoError::new(path, error))?;
        answered.map_err(|failure| DemoError::new(path, failure))
    }
}
