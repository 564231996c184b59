//! The bytes of a connection, watched on their way.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use crate::limits::{ANSWER_PROGRESS_MIN, BARE_ANSWER_LEN_MAX};

/// A connection's bytes. It notes what comes and what the client does not take, and it holds back what
/// looks like an answer that hyper gives by itself, so that a better one can be given.
#[derive(Debug)]
pub(super) struct ClientStream<S> {
    inner: S,
    activity: Arc<Activity>,
    /// Bytes that were read to find out which HTTP is spoken.
    sniffed: Bytes,
    held: Vec<u8>,
    written_in_stall: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    pub(super) fn new(inner: S, sniffed: Bytes, activity: Arc<Activity>) -> Self {
        Self { inner, activity, sniffed, held: Vec::new(), written_in_stall: 0 }
    }

    /// What was held back, if anything was.
    pub(super) fn take_held(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Writes what was held back: it was part of an answer after all.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            let written = self.poll_write_watched(cx, &held);
            let len = if let Poll::Ready(Ok(len)) = written { len } else { 0 };
            self.held = held[len..].to_vec();
            ready!(written)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_watched(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        match &written {
            Poll::Pending => self.activity.stall(),
            Poll::Ready(Ok(len)) if self.activity.is_stalled() => self.note_progress(*len, bytes),
            Poll::Ready(_) => {}
        }
        written
    }

    /// A client that takes a byte now and then takes nothing.
    fn note_progress(&mut self, len: usize, of: &[u8]) {
        self.written_in_stall += len;
        if len == of.len() {
            self.written_in_stall = 0;
            self.activity.end_stall();
        } else if self.written_in_stall >= ANSWER_PROGRESS_MIN {
            self.written_in_stall = 0;
            self.activity.stall_from_now();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The next request is waited for, so what was held back is no farewell.
        ready!(this.poll_release(cx))?;
        if this.sniffed.has_remaining() {
            let len = this.sniffed.len().min(buffer.remaining());
            buffer.put_slice(&this.sniffed.split_to(len));
            this.activity.bytes_came();
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            this.activity.bytes_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_release(cx))?;
        match bare_answer_at(bytes).filter(|_| !this.activity.is_http2()) {
            None => this.poll_write_watched(cx, bytes),
            Some(0) => {
                this.held = bytes.to_vec();
                Poll::Ready(Ok(bytes.len()))
            }
            Some(at) => this.poll_write_watched(cx, &bytes[..at]),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        match &flushed {
            Poll::Pending => self.activity.stall(),
            Poll::Ready(_) => self.activity.end_stall(),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Where an answer begins that ends these bytes and that hyper may have given by itself: an error without
/// a body, and without any of the headers that every answer of this server has.
fn bare_answer_at(bytes: &[u8]) -> Option<usize> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let from = bytes.len().saturating_sub(BARE_ANSWER_LEN_MAX);
    let at = from + bytes[from..].windows(7).rposition(|window| window == b"HTTP/1.")?;
    let mut lines = std::str::from_utf8(&bytes[at..]).ok()?.trim_end().split("\r\n");
    let is_error = lines.next()?.split(' ').nth(1)?.starts_with('4');
    let is_bare = |line: &str| {
        ["connection:", "content-length: 0", "date:"].iter().any(|name| line.starts_with(name))
    };
    (is_error && lines.all(is_bare)).then_some(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::activity::Deadlines;
    use super::*;
    use railpost_api::LimitsConfig;

    const BARE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\
                        date: Sat, 01 Jan 2022 00:00:00 GMT\r\n\r\n";

    #[test]
    fn only_an_error_that_hyper_gives_by_itself_is_bare() {
        let own = "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\n\
                   content-length: 0\r\n\r\n";
        let gone = "HTTP/1.1 204 No Content\r\ncache-control: no-store\r\n\r\n";
        let behind = format!("{own}{BARE}");
        for (bytes, at) in [
            (BARE, Some(0)),
            (behind.as_str(), Some(own.len())),
            (own, None),
            (gone, None),
            ("HTTP/1.1 100 Continue\r\n\r\n", None),
            ("{\"a\": 1}", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(bare_answer_at(bytes.as_bytes()), at, "{bytes}");
        }
    }

    fn stream() -> (ClientStream<tokio::io::DuplexStream>, tokio::io::DuplexStream, Arc<Activity>) {
        let activity = Arc::new(Activity::new(Deadlines::of(&LimitsConfig::default())));
        let (ours, theirs) = tokio::io::duplex(8 * 1024);
        (ClientStream::new(ours, Bytes::new(), activity.clone()), theirs, activity)
    }

    #[tokio::test]
    async fn a_payload_that_looks_like_a_bare_answer_arrives_whole() {
        let (mut stream, mut client, _) = stream();
        stream.write_all(BARE.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        client.write_all(b"x").await.unwrap();
        // The next request is read.
        stream.read_u8().await.unwrap();
        let mut seen = vec![0; BARE.len()];
        client.read_exact(&mut seen).await.unwrap();
        stream.write_all(BARE.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        client.read_to_end(&mut seen).await.unwrap();
        assert_eq!(String::from_utf8(seen).unwrap(), BARE.repeat(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_byte_now_and_then_takes_nothing() {
        let (mut stream, mut client, activity) = stream();
        let writing = tokio::spawn(async move {
            let _ = stream.write_all(&[0; 64 * 1024]).await;
            stream
        });
        tokio::task::yield_now().await;
        let (begun, _) = activity.deadline().unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        client.read_u8().await.unwrap();
        tokio::task::yield_now().await;
        assert_eq!(activity.deadline().unwrap().0, begun);
        client.read_exact(&mut [0; ANSWER_PROGRESS_MIN]).await.unwrap();
        tokio::task::yield_now().await;
        assert!(activity.deadline().unwrap().0 > begun);
        client.read_exact(&mut vec![0; 64 * 1024 - 1 - ANSWER_PROGRESS_MIN]).await.unwrap();
        writing.await.unwrap();
        assert!(!activity.is_stalled());
    }
}
