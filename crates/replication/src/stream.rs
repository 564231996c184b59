//! A stream of changes. A task of its own reads the socket and sends statuses, so that the server hears from
//! this client however long the caller takes.

mod task;
#[cfg(test)]
mod task_test;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::limits::{
    READ_PAUSE, SILENCE_MAX, STATUSES_PER_TIMEOUT, STOP_TIMEOUT, WAL_SENDER_TIMEOUT,
};
use crate::pgoutput::Message;
use crate::transport::Socket;
use crate::{Error, ErrorKind, Lsn};

/// What a stream brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message of the output plug-in.
    Message(Message),
    /// Everything before this position was handed over and confirmed, and nothing of it is for this stream.
    /// Confirming it lets the server remove log that only other tables and databases wrote. The next one
    /// comes after this one is confirmed.
    Idle(Lsn),
}

impl Frame {
    /// The position that stands for everything up to this frame, if it is one that can be confirmed.
    pub fn end_lsn(&self) -> Option<Lsn> {
        match self {
            Frame::Message(Message::Commit(commit)) => Some(commit.end_lsn),
            Frame::Message(Message::Logical(message)) if !message.transactional => {
                Some(message.lsn)
            }
            Frame::Idle(lsn) => Some(*lsn),
            Frame::Message(_) => None,
        }
    }
}

/// How often something is done, and how long something may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// A status is sent at least as often.
    pub(crate) status: Duration,
    /// A server that was asked and is silent for so long is gone.
    pub(crate) silence_max: Duration,
    /// The socket is left alone for so long after a small read.
    pub(crate) read_pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            status: WAL_SENDER_TIMEOUT / STATUSES_PER_TIMEOUT,
            silence_max: SILENCE_MAX,
            read_pause: READ_PAUSE,
        }
    }
}

/// A frame, with the room that it takes while it waits for the caller.
type Waiting = (Frame, OwnedSemaphorePermit);

/// What the task hands to the caller: the frames of one read, or the error that ended it.
type Item = Result<Vec<Waiting>, Error>;

/// What is known of the server.
#[derive(Debug)]
struct ServerState {
    /// How far it was.
    end: AtomicU64,
    /// How far it was when it last asked for an answer.
    asked: AtomicU64,
}

impl ServerState {
    fn at(end: Lsn) -> Self {
        Self { end: AtomicU64::new(end.as_u64()), asked: AtomicU64::new(0) }
    }

    fn end(&self) -> Lsn {
        Lsn::from_u64(self.end.load(Ordering::Relaxed))
    }
}

/// What the caller tells the task.
#[derive(Clone, Copy, Debug)]
struct Feedback {
    confirmed: Lsn,
    stop: bool,
}

/// A running stream. Dropping it closes the connection at once; [`Stream::stop`] sends the last confirmation
/// first.
#[derive(Debug)]
pub struct Stream {
    items: mpsc::UnboundedReceiver<Item>,
    /// Frames that the caller has not asked for yet.
    ready: VecDeque<Waiting>,
    feedback: watch::Sender<Feedback>,
    server: Arc<ServerState>,
    /// Up to where everything was handed over.
    handed_over: Lsn,
    ended: Option<Error>,
    task: JoinHandle<()>,
}

impl Stream {
    pub(crate) fn spawn(
        socket: Box<dyn Socket>,
        input: BytesMut,
        from: Lsn,
        timing: Timing,
    ) -> Self {
        let (feedback, receiver) = watch::channel(Feedback { confirmed: from, stop: false });
        let server = Arc::new(ServerState::at(from));
        let (task, items) = task::Task::new(socket, input, receiver, server.clone(), timing);
        let task = tokio::spawn(task.run());
        let ready = VecDeque::new();
        Self { items, ready, feedback, server, handed_over: from, ended: None, task }
    }

    /// The next frame, in the order of the commits. It may be dropped before it is ready: nothing is lost.
    /// After an error every call returns the same one.
    pub async fn next(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.take_ready() {
                return Ok(frame);
            }
            if let Some(error) = &self.ended {
                return Err(error.clone());
            }
            let item = self.items.recv().await.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Disconnected, "the stream's task was ended"))
            });
            self.put(item);
        }
    }

    /// The next frame if it is here already. An error is left to [`Stream::next`].
    pub fn try_next(&mut self) -> Option<Frame> {
        if self.ready.is_empty()
            && let Ok(item) = self.items.try_recv()
        {
            self.put(item);
        }
        self.take_ready()
    }

    fn put(&mut self, item: Item) {
        match item {
            Ok(frames) => self.ready.extend(frames),
            Err(error) => self.ended = Some(error),
        }
    }

    fn take_ready(&mut self) -> Option<Frame> {
        let (frame, _room) = self.ready.pop_front()?;
        self.handed_over = frame.end_lsn().unwrap_or_default().max(self.handed_over);
        Some(frame)
    }

    /// Says that everything before this position is stored, and need not be sent again. The server hears of
    /// it at once. A position before one that was confirmed changes nothing.
    ///
    /// # Panics
    ///
    /// If the position is after everything that was handed over: changes would be lost.
    pub fn confirm(&self, lsn: Lsn) {
        assert!(lsn <= self.handed_over, "{lsn} was not handed over: {}", self.handed_over);
        self.feedback.send_if_modified(|feedback| {
            let is_later = lsn > feedback.confirmed;
            feedback.confirmed = lsn.max(feedback.confirmed);
            is_later
        });
    }

    /// How far the caller confirmed.
    pub fn confirmed(&self) -> Lsn {
        self.feedback.borrow().confirmed
    }

    /// How far the server was when it was last heard of. It is heard of only while frames are taken.
    pub fn server_end(&self) -> Lsn {
        self.server.end()
    }

    /// Whether the server waits for a confirmation: it asked for an answer, and not all that it has was confirmed.
    /// A server that shuts down waits until it is.
    pub fn is_awaited(&self) -> bool {
        self.server.asked.load(Ordering::Relaxed) > self.confirmed().as_u64()
    }

    /// Ends the stream: the last confirmation is sent, and the slot is free when this returns, unless the
    /// server takes too long.
    pub async fn stop(mut self) {
        self.items.close();
        self.feedback.send_modify(|feedback| feedback.stop = true);
        // A task that takes too long ends when it is dropped.
        let _ = timeout(STOP_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
