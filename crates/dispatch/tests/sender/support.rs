//! Receivers on loopback that do exactly as they are told, and a sender that may talk to them.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use railpost_dispatch::*;
use railpost_engine::{AttemptResult, Failure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The name under which every receiver is found.
pub(crate) const NAME: &str = "receiver.test";

/// A timeout that a test means to run into.
pub(crate) const SHORT: Duration = Duration::from_millis(200);

/// So long until a test that hangs is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A receiver that runs as long as the test.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: mpsc::UnboundedReceiver<String>,
}

/// What a receiver's script works with.
#[derive(Clone)]
pub(crate) struct Seen {
    /// Which connection this is, from 1.
    pub(crate) connection: usize,
    requests: mpsc::UnboundedSender<String>,
}

impl Seen {
    pub(crate) fn note(&self, request: String) {
        let _ = self.requests.send(request);
    }
}

impl Receiver {
    /// Runs `script` for every connection.
    pub(crate) async fn scripted<F>(script: impl Fn(TcpStream, Seen) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, requests) = mpsc::unbounded_channel();
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = counter.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(script(stream, Seen { connection, requests: sender.clone() }));
            }
        });
        Self { address, connections, requests }
    }

    /// Gives every request the same answer, and keeps connections open.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::scripted(move |stream, seen| answer_all(stream, seen, Arc::clone(&answer))).await
    }

    /// How many connections were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The next request it read, whole.
    pub(crate) async fn request(&mut self) -> String {
        in_time(self.requests.recv()).await.expect("a receiver lives as long as its test")
    }

    /// How many requests it read that no test asked for yet.
    pub(crate) fn requests_left(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{NAME}:{}/hooks?a=1", self.address.port())
    }
}

/// Reads requests and answers each, until the other side has enough.
pub(crate) async fn answer_all(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    seen: Seen,
    answer: Arc<[u8]>,
) {
    while let Some(request) = read_request(&mut stream).await {
        seen.note(request);
        if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// One request, head and body, or nothing if the other side hung up.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let read = String::from_utf8_lossy(&text);
        if let Some((head, body)) = read.split_once("\r\n\r\n")
            && body.len() >= content_length(head)
        {
            return Some(read.into_owned());
        }
        match stream.read_buf(&mut text).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

fn content_length(head: &str) -> usize {
    let value = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Holds a connection open and silent for as long as the test runs.
pub(crate) async fn fall_silent(stream: impl AsyncRead) {
    let _open = stream;
    std::future::pending::<()>().await;
}

/// Looks names up in a table, which a test may change.
#[derive(Default)]
pub(crate) struct Names {
    answers: Mutex<HashMap<String, Vec<IpAddr>>>,
    pub(crate) lookups: AtomicUsize,
}

impl Names {
    pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.answers.lock().unwrap().insert(name.to_owned(), addresses);
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let known = self.answers.lock().unwrap().get(host).cloned();
        let answer = known.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(std::future::ready(answer))
    }
}

/// A guard that lets requests go to loopback, by name.
pub(crate) fn guard() -> Guard {
    let loopback = NamedNetwork::new("test-loopback", "127.0.0.1/32").unwrap();
    Guard::new(GuardConfig { networks: vec![loopback], https_only: false })
}

/// Settings of a sender that finds [`NAME`] on loopback.
pub(crate) fn config() -> SenderConfig {
    let names = Names::default();
    names.set(NAME, &["127.0.0.1"]);
    SenderConfig { guard: guard(), resolver: Arc::new(names), ..SenderConfig::default() }
}

pub(crate) fn sender() -> Sender {
    Sender::new(config()).unwrap()
}

pub(crate) fn route_config(url: &str) -> RouteConfig {
    RouteConfig::new(Target::parse(url, &guard()).unwrap())
}

/// The same for requests of this tenant.
pub(crate) fn of_tenant(tenant: &str, url: &str) -> RouteConfig {
    RouteConfig { tenant: Some(tenant.parse().unwrap()), ..route_config(url) }
}

/// A route whose attempts may take [`SHORT`] in all.
pub(crate) fn hasty(url: &str) -> RouteConfig {
    RouteConfig { timeouts: Timeouts::new(SHORT, SHORT).unwrap(), ..route_config(url) }
}

/// Sends one small request by way of `config`.
pub(crate) async fn post(sender: &Sender, config: &RouteConfig) -> Exchange {
    send(sender, &sender.route(config).unwrap(), Resend::IfUntouched).await
}

pub(crate) async fn send(sender: &Sender, route: &Route, resend: Resend) -> Exchange {
    let headers = [("webhook-id", "evt_1".to_owned())];
    let request = Request::new(route, headers, "{\"a\":1}".into()).unwrap();
    in_time(sender.send(request.with_resend(resend))).await
}

/// What `work` gives, unless it hangs.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("the test hangs")
}

pub(crate) fn status(exchange: &Exchange) -> Option<u16> {
    match exchange.result {
        AttemptResult::Response { status, .. } => Some(status),
        AttemptResult::Failed(_) => None,
    }
}

/// Asserts that no answer came, for this reason, told in words that hold `words`.
#[track_caller]
pub(crate) fn assert_failed(exchange: &Exchange, failure: Failure, words: &str) {
    assert_eq!(exchange.result, AttemptResult::Failed(failure), "{:?}", exchange.detail);
    let message = exchange.detail.message.as_deref().unwrap_or_default();
    assert!(message.contains(words), "{words:?} is not in {message:?}");
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
