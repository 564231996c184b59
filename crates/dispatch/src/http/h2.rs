//! One HTTP/2 connection, shared by all attempts to the same target.

use std::sync::Arc;

use ::http::HeaderMap;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;

use super::attempt_error::{AttemptError, is_refused_untouched};
use super::body::{BodyBroken, BodyPieces, take_body};
use super::dial::Peer;
use super::exchange::{Body, Detail, Response};
use super::request::{FailedRequest, Request, Resend};
use super::stream::Stream;
use crate::limits::{H2_CONNECTION_WINDOW, H2_STREAM_WINDOW, RESPONSE_HEAD_LEN_MAX};

/// A way to send on the connection. It ends when the last clone is gone and all answers are read.
#[derive(Clone)]
pub(super) struct H2 {
    requests: SendRequest<Full<Bytes>>,
    peer: Arc<Peer>,
}

impl H2 {
    pub(super) async fn new(stream: Stream, peer: Peer) -> Result<Self, AttemptError> {
        let built = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(RESPONSE_HEAD_LEN_MAX as u32)
            .handshake(TokioIo::new(stream))
            .await;
        let (requests, connection) = built.map_err(|error| AttemptError::from(&error))?;
        // Its error reaches every request that waits on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { requests, peer: Arc::new(peer) })
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends a request and takes its answer in.
    pub(super) async fn exchange(
        &mut self,
        request: &Request<'_>,
        started: Instant,
        detail: &mut Detail,
    ) -> Result<(), FailedRequest> {
        self.peer.note(detail);
        match self.requests.try_send_request(request.to_h2()).await {
            Ok(answer) => {
                let incoming = take_head(answer, started, detail);
                take_body(&mut Frames { incoming, last: Bytes::new() }, detail).await;
                Ok(())
            }
            Err(mut error) => {
                let may_resend = request.resend == Resend::IfUntouched;
                let refused = may_resend && is_refused_untouched(error.error());
                let untouched = error.take_message().is_some() || refused;
                Err(FailedRequest { error: AttemptError::from(error.error()), untouched })
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    /// Whether there is no other clone: no request waits on it.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.peer) == 1
    }

    pub(super) fn is_same(&self, other: &H2) -> bool {
        Arc::ptr_eq(&self.peer, &other.peer)
    }
}

/// Notes an answer's head in `detail`. Its body is what follows.
fn take_head(
    answer: ::http::Response<Incoming>,
    started: Instant,
    detail: &mut Detail,
) -> Incoming {
    detail.timing.first_byte = Some(started.elapsed());
    let (head, incoming) = answer.into_parts();
    let (status, version) = (head.status.as_u16(), head.version);
    let headers = if head.status.is_success() { HeaderMap::new() } else { head.headers };
    detail.response = Some(Response { status, version, headers, body: Body::default() });
    incoming
}

/// An answer's body.
struct Frames {
    incoming: Incoming,
    /// The bytes that were handed out.
    last: Bytes,
}

impl BodyPieces for Frames {
    fn least_len(&self) -> u64 {
        self.incoming.size_hint().lower()
    }

    async fn next(&mut self) -> Option<Result<&[u8], BodyBroken>> {
        let frame = self.incoming.frame().await?.map_err(|_| BodyBroken);
        // Frames without data are trailers.
        Some(frame.map(|frame| {
            self.last = frame.into_data().unwrap_or_default();
            &self.last[..]
        }))
    }
}
