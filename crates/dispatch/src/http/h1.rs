//! One HTTP/1 connection.
//!
//! It has no task of its own: the task that waits for its answer drives it. So an attempt that ends, for
//! whatever reason, takes its connection along, and no wake-up passes between two tasks for each
//! request. An idle connection is looked at when it is put away and before it is used again: that is
//! when a close by the other side shows.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::Instant;

use super::attempt_error::AttemptError;
use super::body::{BodyBroken, BodyPieces, take_body};
use super::dial::Peer;
use super::exchange::Detail;
use super::framing::{Framing, Head, HeadReader, Step};
use super::request::{FailedRequest, Request};
use super::stream::Stream;
use crate::limits::{BODY_JOINED_LEN_MAX, READ_LEN};

pub(super) struct H1 {
    stream: Stream,
    peer: Peer,
    /// The head of a request, and its body if that is short.
    output: Vec<u8>,
    /// What was read and is not used up.
    input: BytesMut,
    /// Whether it can serve again: all that was asked is answered, and the answer is read.
    is_free: bool,
    has_served: bool,
}

impl H1 {
    pub(super) fn new(stream: Stream, peer: Peer) -> Self {
        let (output, input) = (Vec::new(), BytesMut::new());
        Self { stream, peer, output, input, is_free: true, has_served: false }
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
        self.is_free = false;
        let body = self.write(request);
        let mut sent = Sent { body, bytes: 0, error: None };
        let mut reader = HeadReader::default();
        let head = poll_fn(|cx| self.poll_head(&mut sent, &mut reader, cx)).await?;
        detail.timing.first_byte = Some(started.elapsed());
        let was_sent = sent.bytes == self.output.len() + body.len();
        let Head { response, framing, keeps_alive } = head;
        detail.response = Some(response);
        let mut rest = Rest { connection: self, framing, taken: 0 };
        let complete = take_body(&mut rest, detail).await;
        self.is_free = complete && keeps_alive && was_sent && self.input.is_empty();
        self.has_served = true;
        Ok(())
    }

    /// Whether another request can be sent, as far as this side can know. A connection on which
    /// something comes unasked has been closed, or is not to be trusted.
    pub(super) fn is_ready(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.is_free && self.poll_fill(&mut cx).is_pending()
    }

    /// Writes a request down. What of its body is to be sent separately is given back.
    fn write<'b>(&mut self, request: &'b Request<'_>) -> &'b [u8] {
        request.write_h1(&mut self.output);
        let body = request.body();
        if body.len() > BODY_JOINED_LEN_MAX {
            return body;
        }
        self.output.extend_from_slice(body);
        &[]
    }

    /// Sends on, and reads until the head of the answer is there. That may be before all is sent, but not
    /// before anything is: an answer to nothing acknowledges nothing.
    fn poll_head(
        &mut self,
        sent: &mut Sent<'_>,
        reader: &mut HeadReader,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, FailedRequest>> {
        loop {
            let waits = match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(sent.broken(None))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(sent.broken(Some(error)))),
                // It is about an earlier request, whatever it is.
                Poll::Ready(Ok(_)) if sent.bytes == 0 && self.has_served => {
                    return Poll::Ready(Err(sent.broken(None)));
                }
                Poll::Pending if sent.error.is_some() => {
                    return Poll::Ready(Err(sent.broken(None)));
                }
                filled => filled.is_pending(),
            };
            if sent.bytes > 0 {
                match reader.take(&mut self.input) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) if !waits => continue,
                    Ok(None) => {}
                    Err(problem) => return Poll::Ready(Err(FailedRequest::bad_head(&problem))),
                }
            }
            match self.poll_send(sent, cx) {
                // A receiver that hung up may have answered before: there is one more look.
                Poll::Ready(Err(error)) => sent.error = Some(error),
                Poll::Ready(Ok(())) | Poll::Pending if waits || sent.bytes == 0 => {
                    return Poll::Pending;
                }
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
        }
    }

    fn poll_send(&mut self, sent: &mut Sent<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, output, .. } = self;
        let mut stream = Pin::new(stream);
        while sent.bytes < output.len() + sent.body.len() {
            let head = output.get(sent.bytes..).unwrap_or_default();
            let body = &sent.body[sent.bytes.saturating_sub(output.len())..];
            let both = [IoSlice::new(head), IoSlice::new(body)];
            let written = match (head, body) {
                (bytes, []) | ([], bytes) => stream.as_mut().poll_write(cx, bytes),
                _ => stream.as_mut().poll_write_vectored(cx, &both),
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => sent.bytes += bytes,
            }
        }
        stream.poll_flush(cx)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(READ_LEN);
        pin!(self.stream.read_buf(&mut self.input)).poll(cx)
    }
}

/// How far a request has been sent.
struct Sent<'b> {
    /// What follows the connection's output.
    body: &'b [u8],
    bytes: usize,
    /// Why no more can be.
    error: Option<io::Error>,
}

impl Sent<'_> {
    /// The connection broke. A request of which nothing was written may go out on another one.
    fn broken(&mut self, error: Option<io::Error>) -> FailedRequest {
        let error = error.or(self.error.take());
        FailedRequest { error: AttemptError::broken(error.as_ref()), untouched: self.bytes == 0 }
    }
}

/// What is left of an answer.
struct Rest<'c> {
    connection: &'c mut H1,
    framing: Framing,
    /// Bytes of the input that were handed out.
    taken: usize,
}

impl BodyPieces for Rest<'_> {
    fn least_len(&self) -> u64 {
        self.framing.least_len()
    }

    async fn next(&mut self) -> Option<Result<&[u8], BodyBroken>> {
        let Self { connection, framing, taken } = self;
        connection.input.advance(std::mem::take(taken));
        loop {
            match framing.step(&mut connection.input) {
                Step::Take(len) => {
                    *taken = len;
                    return Some(Ok(&connection.input[..len]));
                }
                Step::Read => match poll_fn(|cx| connection.poll_fill(cx)).await {
                    Ok(0) if !framing.ends_by_itself() => return None,
                    Ok(0) | Err(_) => return Some(Err(BodyBroken)),
                    Ok(_) => {}
                },
                Step::Done => return None,
                Step::Bad => return Some(Err(BodyBroken)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    use crate::{Guard, RouteConfig, Sender, SenderConfig, Target};

    /// A close that arrives between the check and the request.
    #[tokio::test]
    async fn a_request_to_a_connection_that_is_already_closed_comes_back_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = listener.local_addr().unwrap();
        let (socket, accepted) = tokio::join!(TcpStream::connect(remote), listener.accept());
        drop(accepted);
        let socket = socket.unwrap();
        socket.readable().await.unwrap();

        let target = Target::parse("https://example.com/", &Guard::default()).unwrap();
        let sender = Sender::new(SenderConfig::default()).unwrap();
        let route = sender.route(&RouteConfig::new(target)).unwrap();
        let none: [(&str, String); 0] = [];
        let request = Request::new(&route, none, "precious".into()).unwrap();
        let mut connection = H1::new(Stream::Plain(socket), Peer { remote, exception: None });
        let (started, mut detail) = (Instant::now(), Detail::default());
        let failed = connection.exchange(&request, started, &mut detail).await.unwrap_err();
        assert!(failed.untouched, "{:?}", failed.error);
        assert!(!connection.is_ready());
    }
}
