//! One task for each source: it takes the lease, reads until something fails, says so, and tries again.

use std::sync::Arc;
use std::time::Duration;

use railpost_engine::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::config::{Location, Mode, SourceConfig};
use crate::context::{Observation, RelayContext, now};
use crate::handover::Handover;
use crate::limits::{BACK_OFF_MAX, BACK_OFF_MIN, STANDBY_RETRY_MAX};
use crate::status::{SourceState, SourceStatus, StatusCell};
use crate::trouble::Trouble;
use crate::{postgres, sqlite};

/// All sources of a server. Dropping it stops them too, without waiting for their end.
pub struct Relay {
    sources: Vec<Source>,
    stop: watch::Sender<bool>,
}

struct Source {
    status: StatusCell,
    wake: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts to read each source in a task of its own. One in trouble keeps no other one from being
    /// read.
    pub fn start(sources: Vec<SourceConfig>, context: &RelayContext) -> Self {
        let (stop, stopped) = watch::channel(false);
        let start = |config: SourceConfig| {
            let status = StatusCell::new(config.name.clone(), config.mode);
            let task = SourceTask {
                config: Arc::new(config),
                context: context.clone(),
                status: status.clone(),
                wake: Arc::default(),
            };
            let wake = task.wake.clone();
            let task = tokio::spawn(task.run(stopped.clone()));
            Source { status, wake, task }
        };
        Self { sources: sources.into_iter().map(start).collect(), stop }
    }

    /// How each source is, in the order of the configuration.
    pub fn status(&self) -> Vec<SourceStatus> {
        self.sources.iter().map(|source| source.status.get()).collect()
    }

    /// Lets each source look at once what people want: after one has commanded parked rows.
    pub fn wake(&self) {
        for source in &self.sources {
            source.wake.notify_one();
        }
    }

    /// Stops reading, and ends the leases.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for source in self.sources {
            // A task that panicked has stopped too.
            let _ = source.task.await;
        }
    }
}

/// The task of one source.
pub(crate) struct SourceTask {
    pub(crate) config: Arc<SourceConfig>,
    pub(crate) context: RelayContext,
    pub(crate) status: StatusCell,
    pub(crate) wake: Arc<Notify>,
}

impl SourceTask {
    async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut back_off = BACK_OFF_MIN;
        loop {
            // Whatever is dropped here halfway is done again: what was accepted is a duplicate then.
            let read = tokio::select! {
                read = self.read() => read,
                () = until_stopped(&mut stopped) => return self.end_lease().await,
            };
            let was_reading = self.status.lock().state == SourceState::Reading;
            if was_reading {
                back_off = BACK_OFF_MIN;
            }
            self.end_lease().await;
            let Err(trouble) = read else { continue };
            if matches!(trouble, Trouble::Elsewhere(_)) {
                back_off = back_off.min(STANDBY_RETRY_MAX);
            }
            self.in_trouble(trouble, back_off);
            tokio::select! {
                () = tokio::time::sleep(back_off) => {}
                () = self.wake.notified() => {}
                () = until_stopped(&mut stopped) => return,
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    async fn read(&self) -> Result<(), Trouble> {
        let (context, config, status) =
            (self.context.clone(), self.config.clone(), self.status.clone());
        let mut handover = Handover::begin(context, config, status).await?;
        handover.renew().await?;
        match (&self.config.location, self.config.mode) {
            (Location::Sqlite(path), _) => sqlite::run(self, path, &mut handover).await,
            (_, Mode::Poll) => postgres::poll::run(self, &mut handover).await,
            (_, Mode::Tail | Mode::Messages) => postgres::tail::run(self, &mut handover).await,
        }
    }

    /// The source is being read: what was wrong is over.
    pub(crate) fn reading(&self) {
        let mut status = self.status.lock();
        status.waits_since = None;
        let before = std::mem::replace(&mut status.state, SourceState::Reading);
        drop(status);
        if before != SourceState::Reading {
            self.context.observer.observe(&self.config.name, &Observation::Reading);
        }
    }

    pub(crate) fn in_trouble(&self, trouble: Trouble, retry_after: Duration) {
        let observation = Observation::Trouble { trouble: &trouble, retry_after };
        self.context.observer.observe(&self.config.name, &observation);
        let mut status = self.status.lock();
        let since = status.state.trouble_since().unwrap_or_else(now);
        if matches!(trouble, Trouble::Elsewhere(_)) {
            // Another process knows.
            (status.waits_since, status.lag, status.pending) = (None, Duration::ZERO, 0);
        } else {
            status.waits_since.get_or_insert(since);
        }
        status.state = SourceState::Trouble { trouble, since };
    }

    /// A lease that is not given back costs the next reader its length.
    async fn end_lease(&self) {
        let epoch = self.status.lock().epoch.take();
        if let Some(epoch) = epoch {
            // If it fails, the lease ends by itself.
            let _ = self.context.sources.release_source(&self.config.name, epoch).await;
        }
    }
}

/// The owner of the relay stops it, or was dropped.
async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

impl SourceState {
    fn trouble_since(&self) -> Option<Timestamp> {
        match self {
            Self::Trouble { since, .. } => Some(*since),
            Self::Starting | Self::Reading => None,
        }
    }
}
