//! `railpost listen`: a receiver on this machine that verifies, prints, and misbehaves on request.

mod misbehaviour;
mod received_events;
mod show;

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use railpost_wire::{HeaderNames, Received, Verifier};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use super::Session;
use super::failure::{Failure, Outcome};
use super::out::field;
use super::policy::PolicyFlags;
use super::signatures;
use super::system;
use crate::limits::{LISTEN_BODY_LEN_MAX, LISTEN_HEAD_TIMEOUT};
use misbehaviour::{Answer, Misbehaviour};
use received_events::ReceivedEvents;
use show::ReceivedRequest;

/// The arguments of `listen`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// The address
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// A secret to verify with, `whsec_…` or `whpk_…`; may be given more than once
    #[arg(long = "secret", env = "RAILPOST_SECRET", hide_env_values = true)]
    secrets: Vec<String>,
    /// Print no payloads
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    misbehaviour: misbehaviour::Flags,
    #[command(flatten)]
    registration: Registration,
}

/// How the receiver makes itself known.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Registration")]
struct Registration {
    /// Create an endpoint for this receiver, and delete it on Ctrl-C
    #[arg(long)]
    register: bool,
    /// Event types the endpoint wants; may be given more than once
    #[arg(long = "type", value_name = "TYPE", requires = "register")]
    types: Vec<String>,
    #[command(flatten)]
    policy: PolicyFlags,
}

/// What all requests share.
struct Listener {
    session: Session,
    verifier: Option<Verifier>,
    misbehaviour: Mutex<Misbehaviour>,
    received_events: Mutex<ReceivedEvents>,
    quiet: bool,
    /// The reader of our output has closed the pipe.
    closed: tokio::sync::Notify,
}

pub(super) fn run(arguments: Arguments, session: &Session) -> Outcome {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(listen(arguments, session.clone()))
}

async fn listen(arguments: Arguments, session: Session) -> Outcome {
    let asked = SocketAddr::new(arguments.address, arguments.port);
    let listener = TcpListener::bind(asked).await.map_err(|error| {
        Failure::new(format!("{asked}: {error}"))
            .next("choose another port with --port, or --port 0 for a free one")
    })?;
    let url = format!("http://{}/", listener.local_addr()?);
    let mut secrets = arguments.secrets.clone();
    let endpoint = if arguments.registration.register {
        let (id, secret) = register(&session, &url, &arguments.registration).await?;
        secrets.push(secret);
        Some(id)
    } else {
        None
    };
    let outcome =
        receive(listener, &url, endpoint.as_deref(), &arguments, &session, &secrets).await;
    if let Some(endpoint) = endpoint {
        deregister(&session, endpoint).await?;
    }
    outcome
}

async fn register(session: &Session, url: &str, how: &Registration) -> Outcome<(String, String)> {
    let mut body = json!({ "url": url, "description": "railpost listen" });
    if !how.types.is_empty() {
        body["types"] = json!(how.types);
    }
    if how.policy.any_given() {
        body["policy"] = json!(how.policy.to_policy()?);
    }
    let client = session.client.clone();
    let creating = move || client.post(&client.of_tenant(&["endpoints"]), &body);
    let created = blocking(creating).await?;
    Ok((field(&created, "id"), field(&created["secret"], "value")))
}

async fn deregister(session: &Session, endpoint: String) -> Outcome {
    let client = session.client.clone();
    session.out.hint(&format!("deleting endpoint {endpoint}"));
    blocking(move || client.delete(&client.of_tenant(&["endpoints", &endpoint]))).await.map(|_| ())
}

/// Runs blocking requests on a separate thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Failure::new(error)))
}

async fn receive(
    listener: TcpListener,
    url: &str,
    endpoint: Option<&str>,
    arguments: &Arguments,
    session: &Session,
    secrets: &[String],
) -> Outcome {
    let shared = Arc::new(Listener {
        session: session.clone(),
        verifier: if secrets.is_empty() { None } else { Some(signatures::verifier(secrets)?) },
        misbehaviour: Mutex::new(arguments.misbehaviour.to_misbehaviour()?),
        received_events: Mutex::default(),
        quiet: arguments.quiet,
        closed: tokio::sync::Notify::new(),
    });
    greet(session, url, endpoint, shared.verifier.is_some())?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        () = accept(listener, &shared) => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        () = shared.closed.notified() => {}
    }
    Ok(())
}

fn greet(session: &Session, url: &str, endpoint: Option<&str>, verifies: bool) -> Outcome {
    if session.out.json {
        let greeting = json!({ "listening": url, "endpoint": endpoint, "verifies": verifies });
        return session.out.line(&greeting.to_string());
    }
    session.out.line(&format!("listening on {url}"))?;
    match endpoint {
        Some(id) => session.out.line(&format!("registered as {id}; Ctrl-C deletes it")),
        None if !verifies => {
            session.out.hint("Signatures are not verified: pass --secret whsec_…, or --register.");
            Ok(())
        }
        None => Ok(()),
    }
}

async fn accept(listener: TcpListener, shared: &Arc<Listener>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, shared.clone()))),
            // Out of file descriptors, most likely: let some close.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

/// Serves a connection, and breaks it if an answer asks for that.
async fn serve(stream: TcpStream, shared: Arc<Listener>) {
    let reset = Arc::new(AtomicBool::new(false));
    let asked = reset.clone();
    let service = hyper::service::service_fn(move |request| {
        let (shared, reset) = (shared.clone(), asked.clone());
        Box::pin(async move { shared.handle(request, &reset).await })
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from(LISTEN_HEAD_TIMEOUT));
    let mut connection = builder.serve_connection(TokioIo::new(stream), service);
    let _ = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    if reset.load(Ordering::Relaxed) {
        let stream = connection.into_parts().io.into_inner();
        let _ = stream.set_zero_linger();
    }
}

/// The connection is to be broken instead of answered.
#[derive(Debug)]
struct DropConnection;

impl std::fmt::Display for DropConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is broken on purpose")
    }
}

impl std::error::Error for DropConnection {}

impl Listener {
    async fn handle(
        &self,
        request: Request<Incoming>,
        reset: &AtomicBool,
    ) -> Result<Response<Full<Bytes>>, DropConnection> {
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, LISTEN_BODY_LEN_MAX).collect().await else {
            return Ok(respond(413, None));
        };
        let body = body.to_bytes();
        let plan = self.misbehaviour.lock().unwrap_or_else(PoisonError::into_inner).next();
        let received = self.look(&parts.headers, &body, &plan.answer);
        if received.print(self.session.out, &body, self.quiet).is_err() {
            self.closed.notify_one();
        }
        tokio::time::sleep(plan.delay).await;
        match plan.answer {
            Answer::Status { status, retry_after } => Ok(respond(status, retry_after)),
            Answer::Hang => std::future::pending().await,
            Answer::Reset => {
                reset.store(true, Ordering::Relaxed);
                Err(DropConnection)
            }
        }
    }

    /// What there is to say about what came.
    fn look(&self, headers: &HeaderMap, body: &[u8], answer: &Answer) -> ReceivedRequest {
        let header = |name: &str| headers.get(name).map(http::HeaderValue::as_bytes);
        let now = system::now();
        let seconds = i64::try_from(now.as_millis() / 1000).unwrap_or(i64::MAX);
        let verdict = self.verifier.as_ref().map(|verifier| verifier.verify(header, body, seconds));
        let received = Received::parse(&HeaderNames::default(), header);
        let remark = received.as_ref().ok().and_then(|received| {
            let mut received_events =
                self.received_events.lock().unwrap_or_else(PoisonError::into_inner);
            received_events.note(received, answer.acknowledges())
        });
        ReceivedRequest {
            at: now,
            event_type: show::event_type(&received, headers, body),
            received,
            verdict,
            remark,
            answer: *answer,
        }
    }
}

fn respond(status: u16, retry_after: Option<u64>) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(Full::default()).unwrap_or_default()
}
