//! The runner of replays: jobs that do the same to many deliveries.
//!
//! A tenant's replays run one after the other, those of different tenants side by side. A job walks its
//! deliveries from the oldest to the latest, at its rate, and saves how far it has got; after a
//! restart it goes on from there. What was done after the last save may be done again: a replay of
//! what is no dead letter any more is refused, and a delivery that is made twice carries the same event
//! id. A job that is cancelled cannot save any more, and stops.

mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use railpost_engine::Command;
use railpost_store::{
    Change, Cursor, DeliveryView, RedeliverBatch, Replay, ReplayAction, ReplayState, StoreError,
    Write,
};
use railpost_wire::{EndpointId, ReplayId, TenantId};
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Duration, Instant};

pub(crate) use walk::Walk;

use crate::api::command_delivery;
use crate::api::problem::{Code, Problem};
use crate::app::App;
use crate::limits::{REPLAY_PAUSE, REPLAY_SAVE_EVERY, REPLAY_SAVE_WITHIN};
use crate::serve::duration;

/// Tells the runner that there is something to do.
#[derive(Debug, Default)]
pub(crate) struct ReplayBell(Notify);

impl ReplayBell {
    /// A replay was asked for or cancelled.
    pub(crate) fn ring(&self) {
        self.0.notify_one();
    }
}

/// The jobs under way.
#[derive(Default)]
struct Jobs {
    tasks: JoinSet<()>,
    known: HashMap<Id, Known>,
}

/// A job under way: whose it is, which, and how to tell it that it was cancelled.
struct Known {
    tenant: TenantId,
    replay: ReplayId,
    cancel: watch::Sender<bool>,
}

/// Runs all replays until told to stop; what is under way then goes on with the next start.
pub(crate) async fn run(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    let mut jobs = Jobs::default();
    loop {
        // The store may be in trouble: then it is asked again after a pause.
        let known = jobs.start(&app, &stopping).await.is_ok();
        tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            () = app.replays.0.notified() => {}
            Some(ended) = jobs.tasks.join_next_with_id() => {
                let id = ended.map_or_else(|died| died.id(), |(id, ())| id);
                jobs.known.remove(&id);
            }
            () = tokio::time::sleep(duration(REPLAY_PAUSE)), if !known => {}
        }
    }
    // Each saves how far it has got. Whoever waits for this has a bound.
    while jobs.tasks.join_next().await.is_some() {}
}

impl Jobs {
    /// Starts the earliest replay of each tenant that has none under way, and stops those that were
    /// cancelled.
    async fn start(
        &mut self,
        app: &Arc<App>,
        stopping: &watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        let running = app.store.running_replays().await?;
        for known in self.known.values() {
            if running.iter().all(|replay| replay.id != known.replay) {
                known.cancel.send_replace(true);
            }
        }
        for replay in running {
            if self.known.values().any(|known| known.tenant == replay.tenant) {
                continue;
            }
            let (cancel, cancelled) = watch::channel(false);
            let known = Known { tenant: replay.tenant.clone(), replay: replay.id, cancel };
            let job = Job::new(app.clone(), replay, stopping.clone(), cancelled);
            self.known.insert(self.tasks.spawn(job.run()).id(), known);
        }
        Ok(())
    }
}

/// One replay under way.
struct Job {
    app: Arc<App>,
    replay: Replay,
    walk: Walk,
    /// Deliveries found since the last save, and when that was.
    unsaved: u32,
    saved_at: Instant,
    /// When the next delivery may be done, by the replay's rate.
    next_at: Instant,
    stopping: watch::Receiver<bool>,
    cancelled: watch::Receiver<bool>,
}

/// Why a job does not go on.
enum Stop {
    /// It was cancelled, or its tenant erased: there is nobody to tell.
    Cancelled,
    /// The server stops: the next start goes on.
    Interrupted,
    /// It cannot go on.
    Failed(String),
}

impl Job {
    fn new(
        app: Arc<App>,
        replay: Replay,
        stopping: watch::Receiver<bool>,
        cancelled: watch::Receiver<bool>,
    ) -> Self {
        let (walk, now) = (Walk::new(&replay), Instant::now());
        Self { app, replay, walk, unsaved: 0, saved_at: now, next_at: now, stopping, cancelled }
    }

    async fn run(mut self) {
        let (state, problem) = match self.work().await {
            Ok(()) => (ReplayState::Done, None),
            Err(Stop::Failed(problem)) => (ReplayState::Failed, Some(problem)),
            Err(Stop::Interrupted) => (ReplayState::Running, None),
            Err(Stop::Cancelled) => return,
        };
        let ended = state != ReplayState::Running;
        self.replay.state = state;
        self.replay.problem = problem;
        self.replay.finished_at = ended.then(|| self.app.source.now());
        let _ = self.save().await;
    }

    /// Does it to every delivery.
    async fn work(&mut self) -> Result<(), Stop> {
        while let Some(found) = self.next().await? {
            self.take_turn().await?;
            self.replay.progress.matched += 1;
            let id = found.delivery.id;
            if !self.replay.dry_run {
                self.act(found).await?;
            }
            self.replay.cursor = Some(Cursor::at_delivery(id));
            self.save_if_due().await?;
        }
        Ok(())
    }

    /// The next delivery. A store in trouble is asked until it answers.
    async fn next(&mut self) -> Result<Option<DeliveryView>, Stop> {
        loop {
            match self.walk.next(&*self.app.store).await {
                Ok(next) => return Ok(next),
                Err(error) if !error.is_temporary() => return Err(Stop::Failed(error.to_string())),
                Err(_) => tokio::time::sleep(duration(REPLAY_PAUSE)).await,
            }
        }
    }

    /// Waits as the replay's rate has it, unless it is to stop.
    async fn take_turn(&mut self) -> Result<(), Stop> {
        let rate = self.replay.rate_per_s.filter(|_| !self.replay.dry_run);
        tokio::select! {
            biased;
            _ = self.cancelled.wait_for(|cancelled| *cancelled) => return Err(Stop::Cancelled),
            _ = self.stopping.wait_for(|stop| *stop) => return Err(Stop::Interrupted),
            () = tokio::time::sleep_until(self.next_at), if rate.is_some() => {}
            () = std::future::ready(()), if rate.is_none() => {}
        }
        if let Some(rate) = rate {
            self.next_at = self.next_at.max(Instant::now()) + Duration::from_secs(1) / rate.max(1);
        }
        Ok(())
    }

    async fn act(&mut self, found: DeliveryView) -> Result<(), Stop> {
        loop {
            let done = match self.replay.action {
                ReplayAction::Replay => self.command(Command::Replay, &found).await,
                ReplayAction::Skip => self.command(Command::Skip, &found).await,
                ReplayAction::Discard => self.command(Command::Discard, &found).await,
                ReplayAction::Redeliver { to } => self.redeliver(to, &found).await,
            };
            match done {
                Ok(()) => self.replay.progress.done += 1,
                Err(problem) if may_pass(problem.code) => {
                    tokio::time::sleep(duration(REPLAY_PAUSE)).await;
                    self.save().await?;
                    continue;
                }
                Err(problem) if self.target_is_gone().await => {
                    return Err(Stop::Failed(problem.to_string()));
                }
                Err(_) => self.replay.progress.refused += 1,
            }
            return Ok(());
        }
    }

    async fn command(&self, command: Command, found: &DeliveryView) -> Result<(), Problem> {
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

    async fn save_if_due(&mut self) -> Result<(), Stop> {
        self.unsaved += 1;
        let long_ago = self.saved_at.elapsed() >= duration(REPLAY_SAVE_WITHIN);
        if self.unsaved >= REPLAY_SAVE_EVERY || long_ago { self.save().await } else { Ok(()) }
    }

    /// Writes down how far it has got, as soon as the store lets it.
    async fn save(&mut self) -> Result<(), Stop> {
        loop {
            // What it tells of must be there after a crash.
            if self.app.dispatcher.written().await.is_err() && !*self.stopping.borrow() {
                tokio::time::sleep(duration(REPLAY_PAUSE)).await;
                continue;
            }
            let write = Write::PutReplay(Box::new(self.replay.clone()));
            match self.app.store.commit(Change::from(write)).await {
                Ok(()) => break,
                Err(StoreError::Conflict { .. } | StoreError::NotFound(_)) => {
                    return Err(Stop::Cancelled);
                }
                Err(_) => tokio::time::sleep(duration(REPLAY_PAUSE)).await,
            }
        }
        (self.unsaved, self.saved_at) = (0, Instant::now());
        Ok(())
    }
}

/// Whether the same may go better after a pause: the store, the backlog or the server is in the way.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::StoreUnavailable | Code::StoreStopped | Code::BacklogFull | Code::ShuttingDown
    )
}
