//! How a source is, for people and metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_engine::Timestamp;
use railpost_store::{Epoch, ParkedSummary, SourceName};

use crate::config::Mode;
use crate::context::now;
use crate::row::SourceRow;
use crate::trouble::Trouble;

/// How a source is.
#[derive(Clone, Debug)]
pub struct SourceStatus {
    /// Its name.
    pub name: SourceName,
    /// How it is read.
    pub mode: Mode,
    /// What it is doing.
    pub state: SourceState,
    /// The lease under which this process reads it; nothing if it does not.
    pub epoch: Option<Epoch>,
    /// Rows that were accepted for the first time, since the start.
    pub relayed: u64,
    /// Rows that had been accepted before.
    pub duplicates: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// What is parked.
    pub parked: ParkedSummary,
    /// Rows that are known to wait at the source.
    pub pending: u64,
    /// How old the oldest row was that was read last; zero when all was read. While the source is in trouble, how
    /// long the oldest row waits, as far as it is known: at least since the trouble began.
    pub lag: Duration,
    /// Since when that row waits, while the source is in trouble.
    pub waits_since: Option<Timestamp>,
    /// When a row was last taken.
    pub last_row_at: Option<Timestamp>,
    /// Reads because the poll interval was over.
    pub wakes_by_poll: u64,
    /// Reads after a notification, a change in the log, or a command.
    pub wakes_by_notify: u64,
    /// The replication slot of a tailed source.
    pub slot: Option<SlotStatus>,
}

/// What a source is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It was not read yet.
    Starting,
    /// It is being read.
    Reading,
    /// It cannot be read.
    Trouble {
        /// Why.
        trouble: Trouble,
        /// Since when.
        since: Timestamp,
    },
}

/// How a replication slot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotStatus {
    /// How many bytes of its log the source keeps for it.
    pub retained_bytes: u64,
    /// How many more it may keep before the slot is lost; nothing if there is no bound.
    pub safe_bytes: Option<u64>,
    /// Whether it is lost.
    pub lost: bool,
}

/// The status of a source, shared between its task and those who look.
#[derive(Clone, Debug)]
pub(crate) struct StatusCell(Arc<Mutex<SourceStatus>>);

impl StatusCell {
    pub(crate) fn new(name: SourceName, mode: Mode) -> Self {
        Self(Arc::new(Mutex::new(SourceStatus {
            name,
            mode,
            state: SourceState::Starting,
            epoch: None,
            relayed: 0,
            duplicates: 0,
            refused: 0,
            parked: ParkedSummary::default(),
            pending: 0,
            lag: Duration::ZERO,
            waits_since: None,
            last_row_at: None,
            wakes_by_poll: 0,
            wakes_by_notify: 0,
            slot: None,
        })))
    }

    pub(crate) fn get(&self) -> SourceStatus {
        let mut status = self.lock().clone();
        if let Some(since) = status.waits_since {
            let waited = now().as_millis().saturating_sub(since.as_millis());
            status.lag = Duration::from_millis(waited);
        }
        status
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SourceStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The source looks: by the clock, or because something made it.
    pub(crate) fn woken(&self, by_clock: bool) {
        let mut status = self.lock();
        let wakes = if by_clock { &mut status.wakes_by_poll } else { &mut status.wakes_by_notify };
        *wakes += 1;
    }

    /// The first row of these and all behind it wait at the source, behind `taken` rows that were taken.
    pub(crate) fn wait(&self, rows: &[SourceRow], taken: usize) {
        let time = rows.first().and_then(|row| row.fields.time);
        let mut status = self.lock();
        status.waits_since = Some(
            time.and_then(|time| u64::try_from(time).ok()).map_or_else(now, Timestamp::from_millis),
        );
        status.pending = status.pending.saturating_sub(taken as u64).max(rows.len() as u64);
    }

    /// All that was known to wait was taken.
    pub(crate) fn caught_up(&self) {
        let mut status = self.lock();
        status.pending = 0;
        status.lag = Duration::ZERO;
    }
}
