//! What happens on a connection, and when it has been waiting for its client for too long.
//!
//! A connection takes one of a bounded number of places, so an idle client must not keep one.
//! Every wait for the client has a deadline; a wait for this server has none. The parts of a connection note
//! what they see here, and the driver of the connection asks for the deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use railpost_api::LimitsConfig;

/// How long each kind of wait may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    head: Duration,
    answer: Duration,
    pub(super) idle: Duration,
}

impl Deadlines {
    pub(super) fn of(limits: &LimitsConfig) -> Self {
        Self {
            head: Duration::from(limits.head_timeout),
            answer: Duration::from(limits.answer_timeout),
            idle: Duration::from(limits.idle_timeout),
        }
    }
}

/// What a client did not do in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientTimeout {
    /// It began a head and did not finish it.
    SlowHead,
    /// It did not take its answer.
    Stalled,
    /// It asked for nothing more.
    Idle,
}

/// What happens on one connection. Instants are milliseconds since its start, and 1: 0 is no instant.
#[derive(Debug)]
pub(super) struct Activity {
    pub(super) deadlines: Deadlines,
    start: Instant,
    is_http2: AtomicBool,
    /// Requests whose answer has not ended.
    open: AtomicU32,
    /// Those of them whose next step is this server's.
    ours: AtomicU32,
    /// When the head that is being read began.
    head_began: AtomicU64,
    /// Since when bytes of an answer wait for the client.
    stalled: AtomicU64,
    /// When a part of an answer was last taken.
    last: AtomicU64,
}

impl Activity {
    pub(super) fn new(deadlines: Deadlines) -> Self {
        Self {
            deadlines,
            start: Instant::now(),
            is_http2: AtomicBool::new(false),
            open: AtomicU32::new(0),
            ours: AtomicU32::new(0),
            head_began: AtomicU64::new(1),
            stalled: AtomicU64::new(0),
            last: AtomicU64::new(1),
        }
    }

    /// It speaks HTTP/2, whose heads cannot be told from other frames: the idle clock counts for them.
    pub(super) fn speaks_http2(&self) {
        self.is_http2.store(true, Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// Bytes came. Those that come while no request is open begin a head.
    pub(super) fn bytes_came(&self) {
        if self.open.load(Relaxed) == 0 && self.head_began.load(Relaxed) == 0 && !self.is_http2() {
            self.head_began.store(self.now(), Relaxed);
        }
    }

    /// Bytes of an answer wait for the client from here on, if they did not before.
    pub(super) fn stall(&self) {
        if !self.is_stalled() {
            self.stalled.store(self.now(), Relaxed);
        }
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed) != 0
    }

    /// The client took some of what waits for it.
    pub(super) fn stall_from_now(&self) {
        self.stalled.store(self.now(), Relaxed);
    }

    /// The client took all that waited for it.
    pub(super) fn end_stall(&self) {
        if self.is_stalled() {
            self.stalled.store(0, Relaxed);
            self.touch();
        }
    }

    /// Until when the client must have done what is waited for, if it is the client that is waited for.
    pub(super) fn deadline(&self) -> Option<(Instant, ClientTimeout)> {
        let Deadlines { answer, .. } = self.deadlines;
        match self.stalled.load(Relaxed) {
            0 if self.open.load(Relaxed) == 0 => Some(self.next_head()),
            0 if self.ours.load(Relaxed) > 0 => None,
            0 => Some((self.instant(self.last.load(Relaxed)) + answer, ClientTimeout::Stalled)),
            since => Some((self.instant(since) + answer, ClientTimeout::Stalled)),
        }
    }

    fn next_head(&self) -> (Instant, ClientTimeout) {
        let Deadlines { head, idle, .. } = self.deadlines;
        match self.head_began.load(Relaxed) {
            began if began > 0 && !self.is_http2() => {
                (self.instant(began) + head, ClientTimeout::SlowHead)
            }
            _ => (self.instant(self.last.load(Relaxed)) + idle, ClientTimeout::Idle),
        }
    }

    fn touch(&self) {
        self.last.store(self.now(), Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    fn instant(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis - 1)
    }
}

/// One request and its answer: open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    activity: Arc<Activity>,
    is_ours: bool,
}

impl OpenRequest {
    /// A request came, and its next step is this server's.
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        activity.head_began.store(0, Relaxed);
        activity.open.fetch_add(1, Relaxed);
        activity.ours.fetch_add(1, Relaxed);
        Self { activity: activity.clone(), is_ours: true }
    }

    /// A part of the answer is ready for the client.
    pub(super) fn wait_for_client(&mut self) {
        if std::mem::replace(&mut self.is_ours, false) {
            self.activity.ours.fetch_sub(1, Relaxed);
        }
        self.activity.touch();
    }

    /// The client took all there was: the next part is this server's to make.
    pub(super) fn wait_for_server(&mut self) {
        if !std::mem::replace(&mut self.is_ours, true) {
            self.activity.ours.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        self.activity.is_http2()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.wait_for_client();
        self.activity.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn activity() -> Arc<Activity> {
        let deadlines = Deadlines { head: 10 * SECOND, answer: 30 * SECOND, idle: 60 * SECOND };
        Arc::new(Activity::new(deadlines))
    }

    /// What is waited for, and for how many seconds from now.
    fn waiting(activity: &Activity) -> Option<(u64, ClientTimeout)> {
        let (at, expiry) = activity.deadline()?;
        Some(((at - Instant::now()).as_secs(), expiry))
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_for_the_client_has_its_deadline_and_a_wait_for_the_server_has_none() {
        let activity = activity();
        assert_eq!(waiting(&activity), Some((10, ClientTimeout::SlowHead)));
        tokio::time::advance(SECOND).await;
        activity.bytes_came();
        assert_eq!(waiting(&activity), Some((9, ClientTimeout::SlowHead)));
        let mut exchange = OpenRequest::begin(&activity);
        assert_eq!(waiting(&activity), None);
        exchange.wait_for_client();
        assert_eq!(waiting(&activity), Some((30, ClientTimeout::Stalled)));
        exchange.wait_for_server();
        assert_eq!(waiting(&activity), None);
        tokio::time::advance(SECOND).await;
        drop(exchange);
        assert_eq!(waiting(&activity), Some((60, ClientTimeout::Idle)));
        tokio::time::advance(SECOND).await;
        activity.bytes_came();
        assert_eq!(waiting(&activity), Some((10, ClientTimeout::SlowHead)));
    }

    #[tokio::test(start_paused = true)]
    async fn while_one_answer_is_being_made_another_may_wait_for_the_client() {
        let activity = activity();
        let (mut taken, made) = (OpenRequest::begin(&activity), OpenRequest::begin(&activity));
        taken.wait_for_client();
        assert_eq!(waiting(&activity), None);
        drop(made);
        assert_eq!(waiting(&activity), Some((30, ClientTimeout::Stalled)));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_wait_for_the_client_count_before_anything_else() {
        let activity = activity();
        drop(OpenRequest::begin(&activity));
        activity.stall();
        tokio::time::advance(10 * SECOND).await;
        activity.stall();
        assert_eq!(waiting(&activity), Some((20, ClientTimeout::Stalled)));
        activity.stall_from_now();
        assert_eq!(waiting(&activity), Some((30, ClientTimeout::Stalled)));
        activity.end_stall();
        assert_eq!(waiting(&activity), Some((60, ClientTimeout::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_that_ask_for_nothing_do_not_move_its_idle_clock() {
        let activity = activity();
        activity.speaks_http2();
        tokio::time::advance(10 * SECOND).await;
        activity.bytes_came();
        assert_eq!(waiting(&activity), Some((50, ClientTimeout::Idle)));
    }
}
