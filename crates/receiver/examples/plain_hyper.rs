//! A plain hyper handler with the inbox in memory: no framework, no database.
//!
//! `WEBHOOK_SECRET=whsec_… cargo run -p railpost-receiver --example plain_hyper`;
//! `LISTEN` is `127.0.0.1:8080` unless it is set. Every path is the hook's.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a service talks to its operator")]

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, service::service_fn};
use hyper_util::rt::TokioIo;
use railpost_receiver::request_verifier::{RequestVerifier, unix_now};
use railpost_receiver::{Answer, Delivery, MemoryInbox, Receiver, Verdict};
use std::convert::Infallible;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = std::env::var("WEBHOOK_SECRET")?.parse()?;
    let verifier = RequestVerifier::new(Receiver::new(vec![secret], vec![]))
        .log(|problem| eprintln!("turned away: {problem}"));
    let inbox = MemoryInbox::default();
    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}/hook", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let (verifier, inbox) = (verifier.clone(), inbox.clone());
        let service = service_fn(move |request| handle(verifier.clone(), inbox.clone(), request));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            // A sender that hangs up is no trouble of the receiver's.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn handle(
    verifier: RequestVerifier,
    inbox: MemoryInbox,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = match verifier.verify(request).await {
        Ok((_, delivery)) => {
            let applied = inbox.apply(&delivery.received, unix_now(), || apply(&delivery));
            applied.map_or(Answer::TROUBLE, Verdict::answer)
        }
        Err(rejection) => rejection.answer(),
    };
    Ok(answer.response())
}

fn apply(delivery: &Delivery) -> Result<(), std::fmt::Error> {
    println!("{} has {} bytes", delivery.received.event_id, delivery.body.len());
    Ok(())
}
