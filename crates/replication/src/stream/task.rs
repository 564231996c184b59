//! The task of a stream. All of its state survives a `select!` whose branch did not win: what was read stays
//! in `input`, what was not written yet stays in `output`, and a frame without room stays in `waiting`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{BufMut, BytesMut};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

use super::{Feedback, Frame, Item, ServerState, Timing, Waiting};
use crate::backend::{self, Backend, POSTGRES_EPOCH_US, StreamData};
use crate::error::Operation;
use crate::limits::{
    BUFFERED_BYTES_MAX, FRAME_OVERHEAD, MESSAGE_LEN_MAX, READ_LEN, SMALL_READ_LEN,
};
use crate::pgoutput::{self, Message};
use crate::transport::{Socket, closed};
use crate::{Error, ErrorKind, Lsn};

type Reader = ReadHalf<Box<dyn Socket>>;
type Writer = WriteHalf<Box<dyn Socket>>;

/// From version 18 on a server that misses a publication goes on without it, and warns with this SQLSTATE.
const CHANGES_ARE_PASSED_OVER: &str = "55000";

pub(super) struct Task {
    reader: Reader,
    writer: Writer,
    input: BytesMut,
    output: BytesMut,
    /// Something of `output` is not on its way yet.
    is_writing: bool,
    /// Why nothing can be written any more. What the server sent before is read first: it may say why.
    broken: Option<Error>,
    items: mpsc::UnboundedSender<Item>,
    /// Frames that have their room, to be sent together.
    batch: Vec<Waiting>,
    room: Arc<Semaphore>,
    /// A frame for which there is no room, and how much it needs. Until it has it, nothing is read.
    waiting: Option<(Frame, u32)>,
    feedback: watch::Receiver<Feedback>,
    /// The end of what was handed over. Once it is confirmed, nothing is unconfirmed.
    handed_over: Lsn,
    /// Whether the last message was part of a transaction that goes on.
    in_transaction: bool,
    server: Arc<ServerState>,
    timing: Timing,
    status_due: bool,
    /// When the server was last heard of, or last not listened to.
    heard_at: Instant,
    /// Whether the last read brought few bytes, and whether any of them were changes.
    is_small_read: bool,
    has_changes: bool,
    /// Until when the socket is left alone.
    paused_until: Option<Instant>,
}

impl Task {
    pub(super) fn new(
        socket: Box<dyn Socket>,
        input: BytesMut,
        feedback: watch::Receiver<Feedback>,
        server: Arc<ServerState>,
        timing: Timing,
    ) -> (Self, mpsc::UnboundedReceiver<Item>) {
        let (items, receiver) = mpsc::unbounded_channel();
        let (reader, writer) = tokio::io::split(socket);
        let handed_over = feedback.borrow().confirmed;
        let task = Self {
            reader,
            writer,
            input,
            output: BytesMut::new(),
            is_writing: false,
            broken: None,
            items,
            batch: Vec::new(),
            room: Arc::new(Semaphore::new(BUFFERED_BYTES_MAX as usize)),
            waiting: None,
            feedback,
            handed_over,
            in_transaction: false,
            server,
            timing,
            status_due: true,
            heard_at: Instant::now(),
            is_small_read: false,
            has_changes: false,
            paused_until: None,
        };
        (task, receiver)
    }

    /// Runs until the stream ends. The connection is closed when this returns.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.work().await {
            self.send_batch();
            // A caller that is gone needs no error.
            let _ = self.items.send(Err(error));
        }
    }

    async fn work(&mut self) -> Result<(), Error> {
        let mut ticks = interval_at(Instant::now() + self.timing.status, self.timing.status);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.take_messages()?;
            self.send_batch();
            self.pause_after_changes();
            if self.status_due && self.output.is_empty() && self.broken.is_none() {
                self.write_status();
            }
            self.input.reserve(READ_LEN);
            let needed = self.waiting.as_ref().map_or(0, |(_, needed)| *needed);
            let is_paused = self.paused_until.is_some();
            let pause_end = self.paused_until.unwrap_or_else(Instant::now);
            tokio::select! {
                read = self.reader.read_buf(&mut self.input), if needed == 0 && !is_paused => {
                    let len = read.map_err(|error| Error::disconnected(&error))?;
                    if len == 0 {
                        return Err(self.broken.take().unwrap_or_else(closed));
                    }
                    self.heard_at = Instant::now();
                    self.is_small_read = len < SMALL_READ_LEN;
                }
                () = sleep_until(pause_end), if is_paused => self.paused_until = None,
                room = self.room.clone().acquire_many_owned(needed), if needed > 0 => {
                    self.hand_over(room.expect("nobody closes the semaphore"));
                }
                written = write_out(&mut self.writer, &mut self.output), if self.is_writing => {
                    self.broken = written.err().map(|error| Error::disconnected(&error));
                    self.is_writing = false;
                }
                changed = self.feedback.changed() => {
                    let stop = self.feedback.borrow_and_update().stop;
                    if changed.is_err() || stop {
                        self.close().await;
                        return Ok(());
                    }
                    self.status_due = true;
                    self.offer_idle();
                }
                _ = ticks.tick() => self.tick()?,
            }
        }
    }

    /// Takes what was read apart, as long as there is room for it.
    fn take_messages(&mut self) -> Result<(), Error> {
        loop {
            if let Some((_, needed)) = self.waiting {
                let Ok(room) = self.room.clone().try_acquire_many_owned(needed) else {
                    return Ok(());
                };
                self.hand_over(room);
            }
            match backend::take(&mut self.input, MESSAGE_LEN_MAX)? {
                None => return Ok(()),
                Some(Backend::CopyData(data)) => self.take_data(data)?,
                Some(Backend::Error(error)) => {
                    return Err(Error::of_server(Operation::Stream, error));
                }
                Some(Backend::Notice(notice)) if notice.sqlstate == CHANGES_ARE_PASSED_OVER => {
                    return Err(Error::of_server(Operation::Stream, notice));
                }
                Some(Backend::CopyDone | Backend::Ready) => {
                    return Err(Error::new(ErrorKind::Disconnected, "the server ended the stream"));
                }
                // Other notices, and settings that were changed while the stream runs.
                Some(_) => {}
            }
        }
    }

    /// Leaves the socket alone for a moment if changes trickle in. A keepalive is no reason to: a change that
    /// follows it would wait for nothing.
    fn pause_after_changes(&mut self) {
        if std::mem::take(&mut self.has_changes) && self.is_small_read {
            self.paused_until = Some(self.heard_at + self.timing.read_pause);
        }
    }

    fn take_data(&mut self, data: bytes::Bytes) -> Result<(), Error> {
        match backend::stream_data(data)? {
            StreamData::Plugin(data) => {
                self.has_changes = true;
                let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let message = pgoutput::decode(data)
                    .map_err(|error| Error::new(ErrorKind::Protocol, error.to_string()))?;
                match message {
                    Message::Begin(_) => self.in_transaction = true,
                    Message::Commit(_) => self.in_transaction = false,
                    _ => {}
                }
                self.wait_for_room(Frame::Message(message), len);
            }
            StreamData::Keepalive { server_end, reply } => {
                self.server.end.fetch_max(server_end.as_u64(), Ordering::Relaxed);
                if reply {
                    self.server.asked.fetch_max(server_end.as_u64(), Ordering::Relaxed);
                    self.status_due = true;
                }
                self.offer_idle();
            }
        }
        Ok(())
    }

    /// While nothing is unconfirmed, the server's position is one that can be confirmed: whatever was
    /// committed before it was sent before it.
    fn offer_idle(&mut self) {
        let server_end = self.server.end();
        let all_confirmed = self.feedback.borrow().confirmed >= self.handed_over;
        let is_idle = all_confirmed && !self.in_transaction && self.waiting.is_none();
        if is_idle && server_end > self.handed_over {
            self.wait_for_room(Frame::Idle(server_end), 0);
        }
    }

    fn wait_for_room(&mut self, frame: Frame, len: u32) {
        let needed = len.saturating_add(FRAME_OVERHEAD).min(BUFFERED_BYTES_MAX);
        self.handed_over = frame.end_lsn().unwrap_or_default().max(self.handed_over);
        debug_assert!(self.waiting.is_none(), "one frame waits at a time");
        self.waiting = Some((frame, needed));
    }

    fn hand_over(&mut self, room: OwnedSemaphorePermit) {
        self.heard_at = Instant::now();
        if let Some((frame, _)) = self.waiting.take() {
            self.batch.push((frame, room));
        }
    }

    fn send_batch(&mut self) {
        if !self.batch.is_empty() {
            // A caller that is gone also ends `feedback`, and with it the task.
            let _ = self.items.send(Ok(std::mem::take(&mut self.batch)));
        }
    }

    /// Sends a status, due or not: the server must hear of this client also while nothing is read.
    fn tick(&mut self) -> Result<(), Error> {
        self.status_due = true;
        if self.waiting.is_some() {
            self.heard_at = Instant::now();
        }
        if self.heard_at.elapsed() < self.timing.silence_max {
            return Ok(());
        }
        let problem = format!("the server is silent for {:?}", self.timing.silence_max);
        Err(Error::new(ErrorKind::TimedOut, problem))
    }

    /// Everything is reported as far as it is confirmed and no further: what was only received may be lost.
    fn write_status(&mut self) {
        self.status_due = false;
        let confirmed = self.feedback.borrow().confirmed.as_u64();
        let mut status = BytesMut::with_capacity(34);
        status.put_u8(b'r');
        for _written_flushed_applied in 0..3 {
            status.put_u64(confirmed);
        }
        status.put_i64(now_us());
        let asks_for_answer = self.heard_at.elapsed() >= self.timing.silence_max / 2;
        status.put_u8(u8::from(asks_for_answer));
        let data = frontend::CopyData::new(status.freeze()).expect("a status is short");
        data.write(&mut self.output);
        self.is_writing = true;
    }

    /// Sends the last status and goodbye, and waits until the server closes: the slot is free then. A
    /// connection that breaks meanwhile is closed just as well.
    async fn close(&mut self) {
        self.write_status();
        frontend::copy_done(&mut self.output);
        frontend::terminate(&mut self.output);
        let written = write_out(&mut self.writer, &mut self.output);
        let drained = async {
            let mut unread = vec![0; READ_LEN];
            while self.reader.read(&mut unread).await.is_ok_and(|len| len > 0) {}
        };
        let _ = tokio::join!(written, drained);
    }
}

async fn write_out(writer: &mut Writer, output: &mut BytesMut) -> io::Result<()> {
    while !output.is_empty() {
        if writer.write_buf(output).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    writer.flush().await
}

/// The time of day as PostgreSQL counts it. The server only shows it.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX).saturating_sub(POSTGRES_EPOCH_US)
}
