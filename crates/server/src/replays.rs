//! The runner of replays: jobs that apply one action to many deliveries.
//!
//! A tenant's replays run one after the other, and so do its dry runs; tenants run concurrently. A job walks its
//! deliveries from the oldest to the latest, at its rate, and saves its progress; after a restart it continues from
//! there. Actions after the last save may be repeated: a replay of a delivery that is not a dead letter any more is
//! rejected, and a delivery that is created twice carries the same event id. A cancelled job cannot save its
//! progress, and stops.

mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use railpost_api::{App, Problem, command_delivery};
use railpost_engine::Command;
use railpost_store::limits::REPLAY_PREVIEW_MAX;
use railpost_store::{
    Change, Cursor, DeliveryView, RedeliverBatch, Replay, ReplayAction, ReplayProgress,
    ReplayState, StoreError, Write,
};
use railpost_wire::{DeliveryId, EndpointId, ReplayId, TenantId};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Duration, Instant};

use crate::limits::{REPLAY_PAUSE, REPLAY_SAVE_EVERY, REPLAY_SAVE_WITHIN};
use crate::notices::Notices;
use walk::Walk;

/// The jobs under way.
#[derive(Default)]
struct Jobs {
    tasks: JoinSet<()>,
    known: HashMap<Id, RunningJob>,
}

/// A job under way: whose it is, which, whether it only counts, and how to tell it that it was cancelled.
struct RunningJob {
    tenant: TenantId,
    replay: ReplayId,
    dry_run: bool,
    cancel: watch::Sender<bool>,
}

/// Runs all replays until told to stop; what is under way then goes on with the next start.
pub(crate) async fn run(app: Arc<App>, notices: Arc<Notices>, mut stopping: watch::Receiver<bool>) {
    let mut jobs = Jobs::default();
    loop {
        // The store may be in trouble: then it is asked again after a pause.
        let known = jobs.start(&app, &notices, &stopping).await.is_ok();
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            () = app.replay_changes.notified() => {}
            Some(ended) = jobs.tasks.join_next_with_id() => {
                let id = ended.map_or_else(|died| died.id(), |(id, ())| id);
                jobs.known.remove(&id);
            }
            () = tokio::time::sleep(Duration::from(REPLAY_PAUSE)), if !known => {}
        }
    }
    // Each job saves its progress. The caller waits with a timeout.
    while jobs.tasks.join_next().await.is_some() {}
}

impl Jobs {
    /// Starts the earliest replay and the earliest dry run of each tenant that has none under way, and stops
    /// those that were cancelled. A dry run changes nothing, so it need not wait for a replay.
    async fn start(
        &mut self,
        app: &Arc<App>,
        notices: &Arc<Notices>,
        stopping: &watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        let running = app.store.running_replays().await?;
        for known in self.known.values() {
            if running.iter().all(|replay| replay.id != known.replay) {
                known.cancel.send_replace(true);
            }
        }
        for replay in running {
            let same_kind = |known: &RunningJob| {
                (&known.tenant, known.dry_run) == (&replay.tenant, replay.dry_run)
            };
            if self.known.values().any(same_kind) {
                continue;
            }
            let (cancel, cancelled) = watch::channel(false);
            let (tenant, dry_run) = (replay.tenant.clone(), replay.dry_run);
            let known = RunningJob { tenant, replay: replay.id, dry_run, cancel };
            let signals = StopSignals { stopping: stopping.clone(), cancelled };
            let job = Job::new((app.clone(), notices.clone()), replay, signals);
            self.known.insert(self.tasks.spawn(job.run()).id(), known);
        }
        Ok(())
    }
}

/// Why a job does not go on.
enum JobStop {
    /// It was cancelled, or its tenant erased: there is nobody to tell.
    Cancelled,
    /// The server stops: the next start goes on.
    Interrupted,
    /// It cannot go on.
    Failed(String),
}

/// What tells a job to stop.
struct StopSignals {
    stopping: watch::Receiver<bool>,
    cancelled: watch::Receiver<bool>,
}

impl StopSignals {
    /// Waits until the job is to stop.
    async fn stopped(&mut self) -> JobStop {
        tokio::select! {
            biased;
            _ = self.cancelled.wait_for(|cancelled| *cancelled) => JobStop::Cancelled,
            _ = self.stopping.wait_for(|stop| *stop) => JobStop::Interrupted,
        }
    }

    /// What the work comes to, unless the job is to stop before.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, JobStop> {
        tokio::select! {
            biased;
            stop = self.stopped() => Err(stop),
            done = work => Ok(done),
        }
    }

    /// Waits a moment before the next try.
    async fn pause(&mut self) -> Result<(), JobStop> {
        self.unless_stopped(tokio::time::sleep(Duration::from(REPLAY_PAUSE))).await
    }
}

/// One running replay.
struct Job {
    app: Arc<App>,
    notices: Arc<Notices>,
    replay: Replay,
    walk: Walk,
    /// What the replay had done before this start, and when that was.
    before: ReplayProgress,
    started_at: Instant,
    /// Deliveries found since the last save, and when that was.
    unsaved: u32,
    saved_at: Instant,
    /// When the next delivery may be done, by the replay's rate.
    next_at: Instant,
    signals: StopSignals,
}

impl Job {
    fn new((app, notices): (Arc<App>, Arc<Notices>), replay: Replay, signals: StopSignals) -> Self {
        let (walk, before, now) = (Walk::new(&replay), replay.progress, Instant::now());
        let (started_at, saved_at, next_at) = (now, now, now);
        let unsaved = 0;
        Self { app, notices, replay, walk, before, started_at, unsaved, saved_at, next_at, signals }
    }

    async fn run(mut self) {
        let (state, problem) = match self.work().await {
            Ok(()) => (ReplayState::Done, None),
            Err(JobStop::Failed(problem)) => (ReplayState::Failed, Some(problem)),
            Err(JobStop::Interrupted) => (ReplayState::Running, None),
            Err(JobStop::Cancelled) => return,
        };
        let ended = state != ReplayState::Running;
        self.replay.state = state;
        self.replay.problem = problem;
        self.replay.finished_at = ended.then(|| self.app.source.now());
        // Before it is saved: after a crash in between, the job ends and publishes again.
        if ended && self.publish_end().await.is_err() {
            return;
        }
        let _ = self.save().await;
    }

    /// Publishes the notice that it has ended, as soon as the store lets it.
    async fn publish_end(&mut self) -> Result<(), JobStop> {
        while self.notices.replay_finished(&self.replay).await.is_err() {
            self.signals.pause().await?;
        }
        Ok(())
    }

    /// Does it to every delivery.
    async fn work(&mut self) -> Result<(), JobStop> {
        while let Some(found) = self.next().await? {
            self.take_turn().await?;
            let id = found.delivery.id;
            match self.replay.dry_run {
                true => self.show(id),
                false => self.act(found).await?,
            }
            self.replay.progress.matched += 1;
            self.replay.cursor = Some(Cursor::at_delivery(id));
            self.save_if_due().await?;
        }
        Ok(())
    }

    /// The next delivery. A store in trouble is asked until it answers.
    async fn next(&mut self) -> Result<Option<DeliveryView>, JobStop> {
        loop {
            let next = self.walk.next(&*self.app.store);
            match self.signals.unless_stopped(next).await? {
                Ok(next) => return Ok(next),
                Err(error) if !error.is_temporary() => {
                    return Err(JobStop::Failed(error.to_string()));
                }
                Err(_) => self.signals.pause().await?,
            }
        }
    }

    /// Waits as the replay's rate has it, unless it is to stop.
    async fn take_turn(&mut self) -> Result<(), JobStop> {
        let Some(rate) = self.replay.rate_per_s.filter(|_| !self.replay.dry_run) else {
            return self.signals.unless_stopped(std::future::ready(())).await;
        };
        self.signals.unless_stopped(tokio::time::sleep_until(self.next_at)).await?;
        self.next_at = self.next_at.max(Instant::now()) + Duration::from_secs(1) / rate.max(1);
        Ok(())
    }

    /// Keeps the first few that a dry run finds.
    fn show(&mut self, id: DeliveryId) {
        if self.replay.preview.len() < REPLAY_PREVIEW_MAX {
            self.replay.preview.push(id);
        }
    }

    /// Does it to one delivery, as soon as nothing stands in the way that may pass: a store, a backlog, a
    /// dispatcher, a lane that is not loaded yet.
    async fn act(&mut self, found: DeliveryView) -> Result<(), JobStop> {
        loop {
            match self.try_to_act(&found).await {
                Ok(()) => self.replay.progress.done += 1,
                Err(problem) if problem.retry_after.is_some() => {
                    self.save().await?;
                    self.signals.pause().await?;
                    continue;
                }
                Err(problem) if self.target_is_gone().await => {
                    return Err(JobStop::Failed(problem.to_string()));
                }
                Err(_) => self.replay.progress.refused += 1,
            }
            return Ok(());
        }
    }

    async fn try_to_act(&self, found: &DeliveryView) -> Result<(), Problem> {
        let command = match self.replay.action {
            ReplayAction::Replay => Command::Replay,
            ReplayAction::Skip => Command::Skip,
            ReplayAction::Discard => Command::Discard,
            ReplayAction::Redeliver { to } => return self.redeliver(to, found).await,
        };
        command_delivery(&self.app, command, found.delivery, None).await
    }

    async fn redeliver(&self, to: EndpointId, found: &DeliveryView) -> Result<(), Problem> {
        let (tenant, orders) = (found.tenant.clone(), vec![(found.event.clone(), to)]);
        let batch = RedeliverBatch { tenant, orders, audit: None, idempotency: None };
        Ok(self.app.dispatcher.redeliver(batch).await?)
    }

    /// Whether the endpoint that everything goes to is there no more: no other delivery can go better.
    async fn target_is_gone(&self) -> bool {
        let ReplayAction::Redeliver { to } = self.replay.action else { return false };
        let found = self.app.store.endpoint(to).await;
        found.is_ok_and(|found| found.is_none_or(|endpoint| endpoint.removed_at.is_some()))
    }

    async fn save_if_due(&mut self) -> Result<(), JobStop> {
        self.unsaved += 1;
        let long_ago = self.saved_at.elapsed() >= Duration::from(REPLAY_SAVE_WITHIN);
        if self.unsaved >= REPLAY_SAVE_EVERY || long_ago { self.save().await } else { Ok(()) }
    }

    /// Writes down how far it has got, as soon as the store lets it. When the server stops it is tried once:
    /// the next start goes on from the save before.
    async fn save(&mut self) -> Result<(), JobStop> {
        let worked = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let progress = &mut self.replay.progress;
        progress.looked_at = self.before.looked_at + self.walk.looked_at();
        progress.took_ms = self.before.took_ms.saturating_add(worked);
        while !self.try_to_save().await? {
            self.signals.pause().await?;
        }
        (self.unsaved, self.saved_at) = (0, Instant::now());
        Ok(())
    }

    async fn try_to_save(&self) -> Result<bool, JobStop> {
        // What it tells of must be there after a crash.
        if self.app.dispatcher.written().await.is_err() {
            return Ok(false);
        }
        let write = Write::PutReplay(Box::new(self.replay.clone()));
        match self.app.store.commit(Change::from(write)).await {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict { .. } | StoreError::NotFound(_)) => Err(JobStop::Cancelled),
            Err(_) => Ok(false),
        }
    }
}
