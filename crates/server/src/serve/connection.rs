//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::FutureExt;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use railpost_api::with_security_headers;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use super::activity::{Activity, ClientTimeout, Deadlines, OpenRequest};
use super::answer_body::AnswerBody;
use super::client_stream::ClientStream;
use super::drive::{ConnectionEnd, ConnectionStep, drive};
use super::listen::RequestHandlers;
use super::refusal;
use crate::limits::{
    HTTP2_HEAD_LEN_MAX, LINGER_LEN_MAX, LINGER_TIMEOUT, PEER_PROBE_AFTER, PEER_PROBE_EVERY,
    PEER_PROBES_MAX, REQUEST_HEAD_LEN_MAX, REQUEST_HEADERS_MAX, SNIFFED_LEN_MAX,
};

/// What serves a connection, and its place among those that may be open.
pub(super) struct Connection {
    pub(super) served: Arc<RequestHandlers>,
    pub(super) peer: IpAddr,
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) _place: OwnedSemaphorePermit,
}

/// What HTTP runs over.
trait Bytestream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Bytestream for S {}

impl Connection {
    pub(super) async fn receive(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let telemetry = self.served.app.telemetry.clone();
        telemetry.metrics.connections_open.fetch_add(1, Ordering::Relaxed);
        prepare(&stream);
        // A connection that breaks is its client's affair.
        let _ = match tls {
            None => self.serve(stream).await,
            Some(tls) => self.serve_tls(stream, tls).await,
        };
        telemetry.metrics.connections_open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve_tls(self, stream: TcpStream, tls: TlsAcceptor) -> io::Result<()> {
        match self.in_time(tls.accept(stream)).await {
            Some(stream) => self.serve(stream?).await,
            None => Ok(()),
        }
    }

    async fn serve(self, mut stream: impl Bytestream) -> io::Result<()> {
        let activity = Arc::new(Activity::new(Deadlines::of(&self.served.app.settings.limits)));
        let mut sniffed = BytesMut::with_capacity(SNIFFED_LEN_MAX);
        let found = self.in_time(speaks_http2(&mut stream, &mut sniffed)).await;
        let is_silent = sniffed.is_empty();
        let stream = ClientStream::new(stream, sniffed.freeze(), activity.clone());
        match found.transpose()? {
            Some(true) => {
                activity.speaks_http2();
                self.serve_http2(stream, &activity).await;
                Ok(())
            }
            Some(false) => self.serve_http1(stream, &activity).await,
            None if is_silent => Ok(()),
            None => self.refuse_slow_head(stream).await,
        }
    }

    /// What comes of a client's first words, if it says them in time and before the server stops.
    async fn in_time<T>(&self, words: impl Future<Output = T>) -> Option<T> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            said = timeout(Duration::from(self.served.app.settings.limits.head_timeout), words) => said.ok(),
            _ = stopping.wait_for(|stop| *stop) => None,
        }
    }

    async fn serve_http2(self, stream: ClientStream<impl Bytestream>, activity: &Arc<Activity>) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // What is larger than a head may be, but not by much, is told so in a problem's words.
        builder.max_header_list_size(HTTP2_HEAD_LEN_MAX);
        let stopping = self.stopping.clone();
        let exchanges = activity.clone();
        let service = service_fn(move |request| self.answer(request, &exchanges));
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let serving = |step: ConnectionStep<'_, '_>| match step {
            ConnectionStep::Serve(cx) => connection.as_mut().poll(cx),
            ConnectionStep::WindDown => {
                connection.as_mut().graceful_shutdown();
                Poll::Pending
            }
        };
        drive(serving, activity, stopping).await;
    }

    async fn serve_http1(
        self,
        stream: ClientStream<impl Bytestream>,
        activity: &Arc<Activity>,
    ) -> io::Result<()> {
        let mut builder = http1::Builder::new();
        // Most answers are short: to copy one behind its head is cheaper than to write two pieces.
        builder.writev(false).max_buf_size(REQUEST_HEAD_LEN_MAX);
        let this = Arc::new(self);
        let (serving, exchanges) = (this.clone(), activity.clone());
        let service = service_fn(move |request| serving.answer(request, &exchanges));
        let mut connection = builder.serve_connection(TokioIo::new(stream), service);
        let serving = |step: ConnectionStep<'_, '_>| match step {
            ConnectionStep::Serve(cx) => connection.poll_without_shutdown(cx),
            ConnectionStep::WindDown => {
                Pin::new(&mut connection).graceful_shutdown();
                Poll::Pending
            }
        };
        let end = drive(serving, activity, this.stopping.clone()).await;
        let parts = connection.into_parts();
        let mut stream = parts.io.into_inner();
        match end {
            ConnectionEnd::Expired(ClientTimeout::SlowHead) => this.refuse_slow_head(stream).await,
            ConnectionEnd::Expired(_) => Ok(()),
            ConnectionEnd::Served(Err(error)) if error.is_parse() => match stream.take_held() {
                bare if bare.is_empty() => Ok(()),
                bare => {
                    let problem = refusal::unreadable(&bare, &parts.read_buf);
                    hang_up(stream, &refusal::last_answer(problem)).await
                }
            },
            ConnectionEnd::Served(Err(_)) => Ok(()),
            ConnectionEnd::Served(Ok(())) if *this.stopping.borrow() => stream.shutdown().await,
            ConnectionEnd::Served(Ok(())) => hang_up(stream, b"").await,
        }
    }

    async fn refuse_slow_head(&self, stream: ClientStream<impl Bytestream>) -> io::Result<()> {
        let problem = refusal::too_slow(self.served.app.settings.limits.head_timeout);
        hang_up(stream, &refusal::last_answer(problem)).await
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        activity: &Arc<Activity>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, Infallible>> + Unpin + use<> {
        let exchange = OpenRequest::begin(activity);
        let answer = self.route(request.map(Body::new));
        answer.map(|answer| Ok(answer.map(|body| AnswerBody::new(body, exchange))))
    }

    fn route(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        if request.version() == Version::HTTP_2 && is_too_large(&request) {
            let refused = with_security_headers(refusal::too_large().into_response());
            return Box::pin(std::future::ready(refused));
        }
        self.served.loopback.note_request(request.headers());
        let client = self.served.trusted_proxies.client(self.peer, request.headers());
        let (path, headers) = (request.uri().path(), request.headers());
        if let Err(problem) = self.served.admission.check(path, headers, client) {
            let refused = with_security_headers(problem.into_response());
            return Box::pin(std::future::ready(refused));
        }
        self.served.api.take(request, client).unwrap_or_else(|mut request| {
            request.extensions_mut().insert(client);
            let answer = self.served.dashboard.clone().call(*request);
            Box::pin(answer.map(|answer| answer.unwrap_or_else(|never| match never {})))
        })
    }
}

/// A peer that is gone without a word is noticed although nothing is sent to it.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let probes = TcpKeepalive::new()
        .with_time(Duration::from(PEER_PROBE_AFTER))
        .with_interval(Duration::from(PEER_PROBE_EVERY))
        .with_retries(PEER_PROBES_MAX);
    let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
}

/// Whether the client begins as HTTP/2 does. What was read to find out is in `sniffed`.
async fn speaks_http2(stream: &mut impl Bytestream, sniffed: &mut BytesMut) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    loop {
        if sniffed.starts_with(PREFACE) {
            return Ok(true);
        }
        if !PREFACE.starts_with(sniffed) || stream.read_buf(sniffed).await? == 0 {
            return Ok(false);
        }
    }
}

/// HTTP/1 has its own bound for this.
fn is_too_large(request: &Request<Body>) -> bool {
    /// What HTTP/2 counts for a field besides its name and value.
    const FIELD_LEN: usize = 32;
    let headers = request.headers();
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_LEN);
    let uri = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    headers.len() > REQUEST_HEADERS_MAX || uri + fields.sum::<usize>() > REQUEST_HEAD_LEN_MAX
}

/// Says the last that there is to say and closes the connection. Reads on for a moment: if bytes of the client were
/// left unread, closing would take the answer from it.
async fn hang_up(mut stream: ClientStream<impl Bytestream>, last: &[u8]) -> io::Result<()> {
    let close = async {
        stream.write_all(last).await?;
        stream.shutdown().await?;
        let mut unread = (&mut stream).take(LINGER_LEN_MAX);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    timeout(Duration::from(LINGER_TIMEOUT), close).await??;
    Ok(())
}
