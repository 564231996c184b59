//! One HTTP/2 connection, shared by all attempts to the same target.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;

use super::body::{take_body, take_head};
use super::dial::Peer;
use super::exchange::Detail;
use super::request::{Failed, Message, Resend};
use super::stream::Stream;
use super::trouble::{Trouble, is_refused_untouched};
use crate::limits::{H2_CONNECTION_WINDOW, H2_STREAM_WINDOW, RESPONSE_HEAD_LEN_MAX};

/// A way to send on the connection. It ends when the last clone is gone and all answers are read.
#[derive(Clone)]
pub(super) struct H2 {
    requests: SendRequest<Full<Bytes>>,
    peer: Arc<Peer>,
}

impl H2 {
    pub(super) async fn new(stream: Stream, peer: Peer) -> Result<Self, Trouble> {
        let built = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_header_list_size(RESPONSE_HEAD_LEN_MAX as u32)
            .handshake(TokioIo::new(stream))
            .await;
        let (requests, connection) = built.map_err(|error| Trouble::from(&error))?;
        // Its error reaches every request that waits on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { requests, peer: Arc::new(peer) })
    }

    /// Sends `message` and takes its answer in.
    pub(super) async fn exchange(
        &mut self,
        message: Message,
        resend: Resend,
        started: Instant,
        detail: &mut Detail,
    ) -> Result<(), Failed> {
        self.peer.note(detail);
        let spare = (resend == Resend::IfUntouched).then(|| message.clone());
        match self.requests.try_send_request(message).await {
            Ok(answer) => {
                let incoming = take_head(answer, started, detail);
                take_body(incoming, detail).await;
                Ok(())
            }
            Err(mut error) => {
                let refused = spare.filter(|_| is_refused_untouched(error.error()));
                let untouched = error.take_message().or(refused);
                Err(Failed { trouble: Trouble::from(error.error()), untouched })
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.requests.is_ready()
    }

    pub(super) fn is_same(&self, other: &H2) -> bool {
        Arc::ptr_eq(&self.peer, &other.peer)
    }
}
