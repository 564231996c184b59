//! A receiver in memory: once something is sent to it, it says its pieces one after the other.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What one read gives.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// Nothing yet.
    Pause,
}

/// What follows the last piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Close,
    StayOpen,
}

#[derive(Debug)]
pub(crate) struct Script {
    pieces: VecDeque<Piece>,
    end: End,
    was_written_to: bool,
    reader: Option<Waker>,
}

impl Script {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Piece>, end: End) -> Self {
        Self { pieces: pieces.into_iter().collect(), end, was_written_to: false, reader: None }
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.was_written_to {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match self.pieces.pop_front() {
            Some(Piece::Bytes(mut bytes)) => {
                let rest = bytes.split_off(bytes.len().min(buf.remaining()));
                buf.put_slice(&bytes);
                if !rest.is_empty() {
                    self.pieces.push_front(Piece::Bytes(rest));
                }
                Poll::Ready(Ok(()))
            }
            Some(Piece::Pause) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if self.end == End::Close => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.was_written_to = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
