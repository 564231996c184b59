//! One HTTP/1 connection.
//!
//! It has no task of its own: whoever waits for its answer drives it. So an attempt that ends, for
//! whatever reason, takes its connection along, and no wake-up passes between two tasks for each
//! request. An idle connection is polled when it is put away and before it is used again: that is
//! when a close by the other side shows.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::body::{take_body, take_head};
use super::dial::Peer;
use super::exchange::Detail;
use super::request::{Failed, Message};
use super::stream::Stream;
use super::trouble::Trouble;
use crate::limits::RESPONSE_HEAD_LEN_MAX;

pub(super) struct H1 {
    requests: SendRequest<Full<Bytes>>,
    /// Nothing once it has ended; its end is what tells a waiting request that no answer will come.
    connection: Option<Box<Connection<TokioIo<Stream>, Full<Bytes>>>>,
    peer: Peer,
}

impl H1 {
    pub(super) async fn new(stream: Stream, peer: Peer) -> Result<Self, Trouble> {
        let built = Builder::new()
            .max_buf_size(RESPONSE_HEAD_LEN_MAX)
            .max_header_size(RESPONSE_HEAD_LEN_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        let (requests, connection) = built.map_err(|error| Trouble::from(&error))?;
        Ok(Self { requests, connection: Some(Box::new(connection)), peer })
    }

    /// Sends `message` and takes its answer in.
    pub(super) fn exchange(
        &mut self,
        message: Message,
        started: Instant,
        detail: &mut Detail,
    ) -> impl Future<Output = Result<(), Failed>> {
        self.peer.note(detail);
        let sent = self.requests.try_send_request(message);
        async move {
            let answered = self.drive(pin!(sent)).await;
            let incoming = take_head(answered.map_err(given_back)?, started, detail);
            let complete = self.drive(pin!(take_body(incoming, detail))).await;
            if !complete {
                self.connection = None;
            }
            Ok(())
        }
    }

    /// Whether another request can be sent, as far as this side can know.
    pub(super) fn is_ready(&mut self) -> bool {
        self.poll_connection(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.requests.is_ready()
    }

    /// Runs what waits for this connection together with the connection.
    fn drive<T>(
        &mut self,
        mut waiting: Pin<&mut impl Future<Output = T>>,
    ) -> impl Future<Output = T> {
        poll_fn(move |cx| {
            if let Poll::Ready(done) = waiting.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            self.poll_connection(cx);
            waiting.as_mut().poll(cx)
        })
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = &mut self.connection else { return };
        if Pin::new(connection).poll(cx).is_ready() {
            self.connection = None;
        }
    }
}

/// The message comes back only if nothing of it was written.
fn given_back(mut error: TrySendError<Message>) -> Failed {
    let untouched = error.take_message();
    Failed { trouble: Trouble::from(error.error()), untouched }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    /// A close that arrives between the check and the request.
    #[tokio::test]
    async fn a_request_to_a_connection_that_is_already_closed_comes_back_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = listener.local_addr().unwrap();
        let (socket, accepted) = tokio::join!(TcpStream::connect(remote), listener.accept());
        drop(accepted);
        let socket = socket.unwrap();
        socket.readable().await.unwrap();

        let peer = Peer { remote, exception: None };
        let mut connection = H1::new(Stream::Plain(socket), peer).await.unwrap();
        let message = Message::new(Full::new("precious".into()));
        let (started, mut detail) = (Instant::now(), Detail::default());
        let failed = connection.exchange(message, started, &mut detail).await.unwrap_err();
        assert!(failed.untouched.is_some(), "{:?}", failed.trouble);
        assert!(!connection.is_ready());
    }
}
