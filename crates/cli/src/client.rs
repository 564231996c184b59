//! The client of the API: one request at a time, safe to send again.

mod orientation;

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use url::Url;

use super::failure::{Failure, Outcome};
use super::system;
use crate::limits::{ANSWER_LEN_MAX, REQUEST_RETRY_DELAY, REQUEST_TIMEOUT, REQUEST_TRIES_MAX};

/// The tenant that every server has.
const DEFAULT_TENANT: &str = "default";

/// The server's URL, the API key and the tenant.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// The server
    #[arg(
        long,
        global = true,
        env = "RAILPOST_URL",
        default_value = "http://127.0.0.1:8087",
        value_name = "URL",
        help_heading = "Server"
    )]
    server: String,
    /// The API key; better in the environment than on the command line
    #[arg(
        long,
        global = true,
        env = "RAILPOST_API_KEY",
        hide_env_values = true,
        value_name = "KEY",
        help_heading = "Server"
    )]
    api_key: Option<String>,
    /// Whose events, endpoints and deliveries
    #[arg(
        long,
        global = true,
        env = "RAILPOST_TENANT",
        default_value = DEFAULT_TENANT,
        value_name = "TENANT",
        help_heading = "Server"
    )]
    tenant: String,
}

impl Target {
    /// The default tenant of this server.
    pub(super) fn of_default_tenant(server: &str, api_key: &str) -> Self {
        let (server, api_key) = (server.to_owned(), Some(api_key.to_owned()));
        Self { server, api_key, tenant: DEFAULT_TENANT.to_owned() }
    }
}

/// A client of one server, as one tenant.
#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    base: Url,
    key: Option<String>,
    tenant: String,
}

/// What is sent with a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    pub(super) content_type: &'static str,
    pub(super) bytes: Vec<u8>,
}

impl From<&Value> for Body {
    fn from(value: &Value) -> Self {
        Self { content_type: "application/json", bytes: value.to_string().into_bytes() }
    }
}

impl Client {
    /// A client of this server.
    pub fn new(target: &Target) -> Outcome<Self> {
        let base = base_url(&target.server)?;
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from(REQUEST_TIMEOUT)))
            .max_redirects(0)
            .build();
        let (agent, key) = (config.into(), target.api_key.clone().filter(|key| !key.is_empty()));
        Ok(Self { agent, base, key, tenant: target.tenant.clone() })
    }

    /// The address of something of the server: `/v1/…`.
    pub(super) fn of_server(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(segments);
        }
        url
    }

    /// The address of something of the tenant: `/v1/tenants/{tenant}/…`.
    pub(super) fn of_tenant(&self, segments: &[&str]) -> Url {
        self.of_server(&[&["tenants", &self.tenant], segments].concat())
    }

    pub(super) fn get(&self, url: &Url) -> Outcome<Value> {
        self.json(&Method::GET, url, None)
    }

    pub(super) fn post(&self, url: &Url, body: &Value) -> Outcome<Value> {
        self.json(&Method::POST, url, Some(&Body::from(body)))
    }

    /// A POST that says all it has to say in its path.
    pub(super) fn act(&self, url: &Url) -> Outcome<Value> {
        self.json(&Method::POST, url, None)
    }

    pub(super) fn patch(&self, url: &Url, body: &Value) -> Outcome<Value> {
        self.json(&Method::PATCH, url, Some(&Body::from(body)))
    }

    pub(super) fn put(&self, url: &Url, body: &Value) -> Outcome<Value> {
        self.json(&Method::PUT, url, Some(&Body::from(body)))
    }

    pub(super) fn delete(&self, url: &Url) -> Outcome<Value> {
        self.json(&Method::DELETE, url, None)
    }

    /// The bytes that are found there.
    pub(super) fn bytes(&self, url: &Url) -> Outcome<Vec<u8>> {
        self.request(&Method::GET, url, None)
    }

    fn json(&self, method: &Method, url: &Url, body: Option<&Body>) -> Outcome<Value> {
        let bytes = self.request(method, url, body)?;
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes).map_err(|_| self.is_not_railpost("without JSON"))
    }

    /// Publishes events. Each has an id, which makes them safe to send again; an idempotency key would
    /// keep the server from saying how many deliveries there are.
    pub(super) fn publish(&self, url: &Url, body: &Body) -> Outcome<Vec<Value>> {
        let answer = self.send(&Method::POST, url, Some(body), None)?;
        let receipts = serde_json::Deserializer::from_slice(&answer).into_iter();
        let receipts: Result<Vec<Value>, _> = receipts.collect();
        receipts.map_err(|_| self.is_not_railpost("without receipts"))
    }

    /// Whose things it asks for.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant
    }

    fn request(&self, method: &Method, url: &Url, body: Option<&Body>) -> Outcome<Vec<u8>> {
        let key = idempotency_key();
        self.send(method, url, body, (*method != Method::GET).then_some(key.as_str()))
    }

    /// One request, sent again while no connection comes about or it breaks.
    fn send(
        &self,
        method: &Method,
        url: &Url,
        body: Option<&Body>,
        idempotency_key: Option<&str>,
    ) -> Outcome<Vec<u8>> {
        let mut wait = Duration::from(REQUEST_RETRY_DELAY);
        for _ in 1..REQUEST_TRIES_MAX {
            match self.try_once(method, url, body, idempotency_key) {
                Ok(answer) => return self.judge(answer),
                Err(error) if is_worth_another_try(&error) => std::thread::sleep(wait),
                Err(error) => return Err(self.unreachable(&error)),
            }
            wait *= 2;
        }
        let last = self.try_once(method, url, body, idempotency_key);
        last.map_err(|error| self.unreachable(&error)).and_then(|answer| self.judge(answer))
    }

    fn try_once(
        &self,
        method: &Method,
        url: &Url,
        body: Option<&Body>,
        idempotency_key: Option<&str>,
    ) -> Result<(StatusCode, Vec<u8>), ureq::Error> {
        let mut request = http::Request::builder().method(method.clone()).uri(url.as_str());
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.header("content-type", body.content_type);
        }
        let request = request.body(body.map(|body| body.bytes.as_slice()).unwrap_or_default())?;
        let mut response = self.agent.run(request)?;
        let mut bytes = Vec::new();
        let reader = response.body_mut().with_config().limit(ANSWER_LEN_MAX).reader();
        { reader }.read_to_end(&mut bytes)?;
        Ok((response.status(), bytes))
    }

    fn judge(&self, (status, bytes): (StatusCode, Vec<u8>)) -> Outcome<Vec<u8>> {
        if status.is_success() {
            return Ok(bytes);
        }
        let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(self.refused(status, problem))
    }

    fn refused(&self, status: StatusCode, problem: Value) -> Failure {
        let text = |name: &str| problem[name].as_str().unwrap_or_default();
        let (code, title, detail) = (text("code"), text("title"), text("detail"));
        if code.is_empty() {
            return self.is_not_railpost(&format!("with {status}"));
        }
        if code == "not_found" && detail.starts_with("no such path") && self.has_path() {
            return self.is_not_railpost("that there is no such path");
        }
        let message = match text("field") {
            "" => format!("{title}: {detail}"),
            field => format!("{title}: {field}: {detail}"),
        };
        let next = self.what_next(code, detail);
        Failure::new(message).next_if(next).problem(problem)
    }

    /// What the user can do about this error.
    fn what_next(&self, code: &str, detail: &str) -> Option<String> {
        let missing =
            detail.strip_prefix("no such ").and_then(|rest| rest.split([':', '`']).next());
        if let Some(next) = blocked_address(detail) {
            return Some(next);
        }
        let next = match code {
            "unauthorized" if self.key.is_none() => {
                "export RAILPOST_API_KEY=…: the first `railpost serve` printed one; `railpost keys create` makes more"
            }
            "unauthorized" => {
                "check RAILPOST_API_KEY: it may be of another server, expired or revoked"
            }
            "forbidden" => {
                "`railpost whoami` shows what this key may do; an admin makes others with `railpost keys create`"
            }
            "not_found" => return missing.map(|what| self.how_to_find(what.trim())),
            "revision_mismatch" => "read it again, then repeat the change",
            "wrong_state" => {
                "check the state: `railpost deliveries show ID`, `railpost lanes list`, `railpost replay list`"
            }
            "backlog_full" => {
                "find the cause with `railpost lanes list` and `railpost dead-letters list`, or raise the limit with `railpost tenants update --backlog-max`"
            }
            "rate_limited" | "shutting_down" | "store_unavailable" | "store_stopped" => {
                "wait a moment and try again"
            }
            "last_secret" => "`railpost endpoints rotate ID` creates another one",
            "limit_reached" => {
                "delete what you do not need, or raise the limit in the server's configuration"
            }
            "schema_mismatch" => "`railpost event-types show TYPE` prints the schema",
            _ => return None,
        };
        Some(next.to_owned())
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        if is_no_tls(error) {
            return self.speaks_no_tls();
        }
        let failure = Failure::new(format!("no answer from {}: {error}", self.base));
        match error {
            ureq::Error::Timeout(_) => failure.next("look at the log of the server"),
            ureq::Error::Protocol(_) => failure
                .next("it does not speak HTTP: set --server or RAILPOST_URL to the server's URL"),
            _ => failure.next(
                "start the server with `railpost serve`, or set --server or RAILPOST_URL to its URL",
            ),
        }
    }
}

/// The server's URL. It has a host, and a scheme that a client speaks.
fn base_url(server: &str) -> Outcome<Url> {
    let url = Url::parse(server).ok();
    let scheme = url.as_ref().map(Url::scheme).filter(|name| !is_http(name));
    if let Some(scheme) = scheme.filter(|_| server.contains("://")) {
        let text = format!("--server: expected http:// or https://; got the scheme `{scheme}`");
        return Err(Failure::usage(text));
    }
    url.filter(Url::has_host).ok_or_else(|| {
        Failure::usage(format!(
            "--server: expected a URL such as http://127.0.0.1:8087; got `{server}`"
        ))
    })
}

fn is_http(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}

/// Whether something else than TLS was answered to a TLS handshake. `ureq` passes on what `rustls` says, as text.
fn is_no_tls(error: &ureq::Error) -> bool {
    error.to_string().contains("corrupt message of type InvalidContentType")
}

/// Whether nothing was answered, so that the same request may be sent again: its idempotency key, or
/// the ids of its events, make the work be done once.
fn is_worth_another_try(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(_) | ureq::Error::ConnectionFailed) && !is_no_tls(error)
}

/// What lets the server send to an address that its guard refuses.
fn blocked_address(detail: &str) -> Option<String> {
    let network = match detail.split_once("requests to ") {
        Some((_, rest)) => {
            let address = rest.split_whitespace().find_map(|word| word.parse::<IpAddr>().ok())?;
            format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
        }
        None if detail.contains("is a local name") => "NETWORK".to_owned(),
        None => return None,
    };
    Some(format!(
        "if the receiver is meant to be there, start the server with `--allow-network {network}`, or with a larger network"
    ))
}

/// A unique key.
fn idempotency_key() -> String {
    format!("cli-{:032x}", u128::from_be_bytes(system::random()))
}

/// How long to wait between two looks at something that takes its time.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(200));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_scheme_that_is_not_http_is_named() {
        for (server, wanted) in [
            ("ftp://127.0.0.1:8087", "the scheme `ftp`"),
            ("unix:///run/railpost", "the scheme `unix`"),
            ("localhost:8087", "got `localhost:8087`"),
            ("nowhere", "got `nowhere`"),
        ] {
            let failure = base_url(server).unwrap_err().to_string();
            assert!(failure.contains(wanted), "{failure}");
        }
        assert!(base_url("http://localhost").is_ok() && base_url("https://localhost").is_ok());
    }

    #[test]
    fn https_to_a_server_that_speaks_http_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 8192]).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
        });
        let target = Target::of_default_tenant(&format!("https://{address}"), "rp_key");
        let client = Client::new(&target).unwrap();
        let failure = client.get(&client.of_server(&["whoami"])).unwrap_err().to_string();
        server.join().unwrap();
        assert!(failure.contains("may speak http"), "{failure}");
        assert!(failure.contains(&format!("http://{address}")), "{failure}");
        assert!(!failure.contains("corrupt") && !failure.contains("railpost serve"), "{failure}");
    }

    #[test]
    fn a_refused_address_names_the_flag_that_allows_it() {
        for (detail, flag) in [
            ("requests to 10.1.2.3 (private) are refused", Some("--allow-network 10.1.2.3/32")),
            (
                "requests to hooks.test at fd12::1 (unique local) are refused",
                Some("--allow-network fd12::1/128"),
            ),
            (
                "`hooks.local` is a local name, and no local network is excepted",
                Some("--allow-network"),
            ),
            ("the url names no host", None),
        ] {
            let next = blocked_address(detail);
            assert_eq!(next.is_some(), flag.is_some(), "{detail}");
            assert!(next.is_none_or(|next| next.contains(flag.unwrap_or_default())), "{detail}");
        }
    }
}
