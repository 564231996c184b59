//! A receiver that listens on loopback, notes what it gets, and answers as it is told.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::harness::in_time;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    headers: HashMap<String, String>,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// The payload as text: tests send their own names of events as payloads.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// How to answer one request.
pub(crate) enum Answer {
    Status(u16),
    /// With a `Retry-After` of so many seconds.
    RetryAfter(u16, u32),
    /// When the test says so.
    When(oneshot::Receiver<u16>),
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedReceiver<Seen>,
}

impl Receiver {
    /// Answers 200 unless told otherwise.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, seen) = mpsc::unbounded_channel();
        tokio::spawn(serve(listener, answers.clone(), sender));
        Self { address, answers, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The next request that has no answer yet gets this one.
    pub(crate) fn then(&self, answer: Answer) -> &Self {
        self.answers.lock().unwrap().push_back(answer);
        self
    }

    /// The next request is answered when the returned end says how.
    pub(crate) fn then_wait(&self) -> oneshot::Sender<u16> {
        let (say, said) = oneshot::channel();
        self.then(Answer::When(said));
        say
    }

    /// The next request it gets.
    pub(crate) async fn request(&mut self) -> Seen {
        in_time(self.seen.recv()).await.expect("a receiver lives as long as its test")
    }

    /// The next `count` requests' payloads.
    pub(crate) async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while texts.len() < count {
            texts.push(self.request().await.text().to_owned());
        }
        texts
    }

    /// Requests that no test looked at.
    pub(crate) fn left(&self) -> usize {
        self.seen.len()
    }
}

async fn serve(
    listener: TcpListener,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedSender<Seen>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (answers, seen) = (answers.clone(), seen.clone());
        let service = service_fn(move |request| respond(request, answers.clone(), seen.clone()));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            // A sender that hangs up is no trouble of the receiver's.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(
    request: hyper::Request<Incoming>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: mpsc::UnboundedSender<Seen>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let headers = headers.collect();
    let body = body.collect().await.unwrap().to_bytes();
    let answer = answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200));
    let _ = seen.send(Seen { headers, body });
    let mut response = hyper::Response::new(Full::new(Bytes::from_static(b"noted")));
    *response.status_mut() = match answer {
        Answer::Status(status) => status,
        Answer::RetryAfter(status, secs) => {
            response.headers_mut().insert("retry-after", secs.into());
            status
        }
        Answer::When(said) => said.await.unwrap_or(500),
    }
    .try_into()
    .unwrap();
    Ok(response)
}
