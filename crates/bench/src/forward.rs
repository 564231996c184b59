//! The plain forwarder: accepts one POST, sends one POST, answers after. It stores nothing and signs
//! nothing, so it is as fast as two hops can be. Written as one would: a hyper server, a pooled client.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};

use crate::parent_channel::ParentChannel;

/// Where it listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ForwarderReady {
    pub(crate) port: u16,
}

#[derive(Clone)]
struct Forwarder {
    client: Client<HttpConnector, Full<Bytes>>,
    to: Uri,
}

/// Forwards to a port of loopback until its parent is gone.
pub(crate) async fn run(to_port: u16) -> Result<(), String> {
    let problem = |error: std::io::Error| format!("no port to listen on: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(problem)?;
    let port = listener.local_addr().map_err(problem)?.port();
    let to = format!("http://127.0.0.1:{to_port}/");
    let to = to.parse().map_err(|error| format!("`{to}`: {error}"))?;
    tokio::spawn(accept(listener, Forwarder { client: client(), to }));
    let mut commands = ParentChannel::begin(&ForwarderReady { port })?;
    while commands.next::<serde_json::Value>().await?.is_some() {}
    Ok(())
}

fn client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn accept(listener: TcpListener, forwarder: Forwarder) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, forwarder.clone()));
        }
    }
}

async fn serve(stream: TcpStream, forwarder: Forwarder) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| forward(request, &forwarder));
    let connection = hyper::server::conn::http1::Builder::new();
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}

async fn forward(
    request: Request<Incoming>,
    forwarder: &Forwarder,
) -> Result<Response<Full<Bytes>>, Error> {
    let content_type = request.headers().get(CONTENT_TYPE).cloned();
    let body = request.into_body().collect().await.map(Collected::to_bytes);
    let mut onward = Request::new(Full::new(body.unwrap_or_default()));
    *onward.method_mut() = hyper::Method::POST;
    *onward.uri_mut() = forwarder.to.clone();
    if let Some(content_type) = content_type {
        onward.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    let response = forwarder.client.request(onward).await?;
    let status = response.status();
    let _ = response.into_body().collect().await;
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    Ok(answer)
}
