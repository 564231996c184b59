//! A server of a test's own, and a client to talk to it.

use std::time::Duration;

use railpost::config::{AllowLoopback, Config};
use railpost::serve::Server;
use railpost_telemetry::{Level, Log};
use serde_json::Value;

use crate::contract;
use tokio::runtime::Runtime;

/// Longest that a test waits for something that must come. Far longer than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

/// A server in memory, and its admin key. It ends with the test.
pub(crate) struct World {
    runtime: Runtime,
    server: Option<Server>,
    pub(crate) admin: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    /// Its body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// The answer, if its status is this one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    /// A server with this configuration, but in memory and on a port of its own.
    pub(crate) fn with(mut config: Config) -> Self {
        config.store.url = "memory:".to_owned();
        Self::stored(config)
    }

    /// A server with this configuration and store, on a port of its own.
    pub(crate) fn stored(config: Config) -> Self {
        Self::start(config, None)
    }

    /// The same once more, on what a server before it left, with that one's admin key.
    pub(crate) fn again(config: Config, admin: String) -> Self {
        Self::start(config, Some(admin))
    }

    fn start(mut config: Config, admin: Option<String>) -> Self {
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        // Receivers are on this machine, whatever tenants there are.
        config.delivery.allow_loopback = AllowLoopback::Always;
        let runtime = Runtime::new().unwrap();
        let log = Log::new(Level::Error, std::io::sink());
        let server = runtime.block_on(Server::start(config, log)).unwrap();
        let admin = admin.unwrap_or_else(|| server.admin_key().unwrap().to_owned());
        Self { runtime, server: Some(server), admin }
    }

    /// A server that was started in this runtime, with the admin key of one before it, if there was one.
    pub(crate) fn of(runtime: Runtime, server: Server, admin: Option<String>) -> Self {
        let admin = admin.unwrap_or_else(|| server.admin_key().unwrap().to_owned());
        Self { runtime, server: Some(server), admin }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.as_ref().unwrap().address())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &self.admin, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &self.admin, &JSON, body.to_string().as_bytes())
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call("PATCH", path, &self.admin, &JSON, body.to_string().as_bytes())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, &self.admin, &JSON, body.to_string().as_bytes())
    }

    /// A key of this tenant and scope.
    pub(crate) fn key(&self, tenant: &str, scope: &str) -> String {
        let new = serde_json::json!({"name": scope, "scope": scope});
        let made = self.post(&format!("/v1/tenants/{tenant}/keys"), &new).expect(201);
        made.json()["key"].as_str().unwrap().to_owned()
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Stops the server. Says whether all that was under way ended in time.
    pub(crate) fn drain(mut self) -> bool {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.drain())
    }

    /// Waits for what the server's own parts do.
    pub(crate) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, &self.admin, &[], b"")
    }

    /// One request with this key and these headers. Its answer is held against the specification.
    #[track_caller]
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        key: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let url = self.url(path);
        let answer = request(method, &url, key, headers, body).expect("the server should answer");
        contract::check(method, &url, &answer);
        answer
    }
}

/// One request; nothing if no answer came.
pub(crate) fn request(
    method: &str,
    url: &str,
    key: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Answer> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = http::Request::builder().method(method).uri(url);
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_vec()).unwrap();
    let mut response = agent.run(request).ok()?;
    Some(Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_string().ok()?,
    })
}

/// Bytes of an answer that a test reads: the largest ones have some 20 MB.
const ANSWER_LEN_MAX: u64 = 64 * 1024 * 1024;

pub(crate) const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.drain());
        }
    }
}
