//! Finds what the engine was not told of, so that no fault of a store needs a restart.
//!
//! A write without an answer may have been committed. [`InDoubtWrites`] notes it, and the reconciler reads it again:
//! endpoints and tenants by id, deliveries by a sweep over the latest ids. A slow sweep over all new ids runs always:
//! it finds deliveries of which no hint came.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_engine::{Input, Span, Timestamp};
use railpost_store::{StoreError, Sweep};
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::messages::LoopCommand;
use super::{Dispatcher, DispatcherConfig};
use crate::limits::{
    IN_DOUBT_MAX, RECONCILE_PAUSE_MAX, RECONCILE_PAUSE_MIN, SWEEP_LIMIT, WHOLE_SWEEP_EVERY,
};

/// Writes that may have been committed without the engine being told.
#[derive(Debug, Default)]
pub(super) struct InDoubtWrites {
    state: Mutex<InDoubtState>,
    added: Notify,
    /// The run loop has ended: nothing is to be reconciled any more.
    ended: Notify,
}

#[derive(Debug, Default)]
struct InDoubtState {
    /// When deliveries were last added without an answer, if they may have been.
    deliveries: Option<Instant>,
    /// Endpoints whose settings or status may have changed.
    endpoints: BTreeSet<EndpointId>,
    /// Endpoints of which memory may know something else than the store.
    backlogs: BTreeSet<EndpointId>,
    tenants: BTreeSet<TenantId>,
}

impl InDoubtWrites {
    fn state(&self) -> MutexGuard<'_, InDoubtState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deliveries may have been made without an answer.
    pub(super) fn note_deliveries(&self) {
        self.state().deliveries = Some(Instant::now());
        self.added.notify_one();
    }

    /// An endpoint may have changed.
    pub(super) fn note_endpoint(&self, id: EndpointId) {
        self.state().endpoints.insert(id);
        self.added.notify_one();
    }

    /// A tenant may have changed.
    pub(super) fn note_tenant(&self, id: TenantId) {
        self.state().tenants.insert(id);
        self.added.notify_one();
    }

    /// What was recorded of these endpoints' deliveries was refused.
    pub(super) fn note_backlogs(&self, ids: impl IntoIterator<Item = EndpointId>) {
        self.state().backlogs.extend(ids);
        self.added.notify_one();
    }

    /// The run loop ends. The reconciler ends with it, and drops the store.
    pub(super) fn end(&self) {
        self.ended.notify_one();
    }

    /// What may have changed, but for deliveries: those stay in doubt for a while.
    fn take_changes(&self) -> InDoubtState {
        let mut state = self.state();
        let deliveries = state.deliveries;
        std::mem::replace(&mut state, InDoubtState { deliveries, ..InDoubtState::default() })
    }

    fn any(&self) -> bool {
        let InDoubtState { deliveries, endpoints, backlogs, tenants } = &*self.state();
        deliveries.is_some() || !endpoints.is_empty() || !backlogs.is_empty() || !tenants.is_empty()
    }
}

/// Reads again what is in doubt, and sweeps.
pub(super) struct Reconciler {
    pub(super) in_doubt: Arc<InDoubtWrites>,
    /// The dispatcher with a closed channel to the run loop: that loop ends when no open channel is left.
    dispatcher: Dispatcher,
    commands: mpsc::WeakSender<LoopCommand>,
    sweep_every: Duration,
    sweep_lag: Span,
    /// All deliveries up to this one are known to the engine or closed.
    swept: DeliveryId,
    /// How many slow sweeps there were.
    slow_sweeps: u32,
    era: u64,
}

/// The run loop has ended.
struct LoopEnded;

impl Reconciler {
    /// For a dispatcher that is about to load everything. `era` is the store's.
    pub(super) fn new(dispatcher: &Dispatcher, config: &DispatcherConfig, era: u64) -> Self {
        let (commands, _) = mpsc::channel(1);
        let now = dispatcher.parts.source.now();
        Self {
            in_doubt: dispatcher.in_doubt.clone(),
            commands: dispatcher.commands.downgrade(),
            dispatcher: Dispatcher { commands, ..dispatcher.clone() },
            sweep_every: config.sweep_every,
            sweep_lag: config.sweep_lag,
            swept: first_id(earlier(now, config.sweep_lag)),
            slow_sweeps: 0,
            era,
        }
    }

    /// Runs as long as the run loop does.
    pub(super) async fn run(mut self) {
        let (mut pause, mut next_sweep) = (RECONCILE_PAUSE_MIN, Instant::now() + self.sweep_every);
        loop {
            let in_doubt = self.in_doubt.any();
            let wake = if in_doubt { Instant::now() + pause } else { next_sweep };
            tokio::select! {
                () = tokio::time::sleep_until(wake.min(next_sweep)) => {}
                () = self.in_doubt.added.notified(), if !in_doubt => {}
                () = self.in_doubt.ended.notified() => return,
            }
            let Some(commands) = self.commands.upgrade().filter(|commands| !commands.is_closed())
            else {
                return;
            };
            self.dispatcher.commands = commands;
            let done = self.reconcile_once(&mut next_sweep).await;
            // The run loop must be able to see that no channel is left.
            (self.dispatcher.commands, _) = mpsc::channel(1);
            match done {
                Ok(true) => pause = RECONCILE_PAUSE_MIN,
                Ok(false) => pause = (pause * 2).min(RECONCILE_PAUSE_MAX),
                Err(LoopEnded) => return,
            }
        }
    }

    /// Whether nothing is left in doubt.
    async fn reconcile_once(&mut self, next_sweep: &mut Instant) -> Result<bool, LoopEnded> {
        let mut clear = self.look_up_changes().await?;
        if self.dispatcher.commands.is_closed() {
            return Err(LoopEnded);
        }
        let since = self.in_doubt.state().deliveries;
        let swept = match since {
            Some(since) => self.sweep(LAST_ID).await.map(|()| self.clear_deliveries(since)),
            None if Instant::now() >= *next_sweep => self.slow_sweep().await.map(|()| true),
            None => Ok(true),
        };
        match swept {
            Ok(done) => clear &= done,
            Err(SweepError::LoopEnded) => return Err(LoopEnded),
            Err(SweepError::Store(trouble)) => {
                self.dispatcher.parts.observer.store_trouble(&trouble);
                clear = false;
            }
        }
        if Instant::now() >= *next_sweep {
            *next_sweep = Instant::now() + self.sweep_every;
        }
        Ok(clear)
    }

    /// Deliveries stay in doubt for as long as a statement that was given up can still commit.
    fn clear_deliveries(&self, since: Instant) -> bool {
        let mut state = self.in_doubt.state();
        let over = since.elapsed() >= IN_DOUBT_MAX && state.deliveries == Some(since);
        if over {
            state.deliveries = None;
        }
        over
    }

    async fn look_up_changes(&self) -> Result<bool, LoopEnded> {
        let InDoubtState { endpoints, backlogs, tenants, .. } = self.in_doubt.take_changes();
        let mut clear = true;
        for id in tenants {
            if self.keep(self.dispatcher.look_up_tenant(&id).await)? {
                self.in_doubt.note_tenant(id);
                clear = false;
            }
        }
        for id in endpoints.difference(&backlogs).copied() {
            if self.keep(self.dispatcher.look_up_endpoint(id, false).await)? {
                self.in_doubt.note_endpoint(id);
                clear = false;
            }
        }
        for id in backlogs {
            if self.keep(self.dispatcher.look_up_endpoint(id, true).await)? {
                self.in_doubt.note_backlogs([id]);
                clear = false;
            }
        }
        Ok(clear)
    }

    /// Whether it stays in doubt after this read.
    fn keep(&self, looked_up: Result<(), StoreError>) -> Result<bool, LoopEnded> {
        match looked_up {
            Ok(()) => Ok(false),
            Err(_) if self.dispatcher.commands.is_closed() => Err(LoopEnded),
            Err(trouble) => {
                self.dispatcher.parts.observer.store_trouble(&trouble);
                Ok(true)
            }
        }
    }

    /// The stretch that was made since the sweep before, up to where nothing can be committed any more. Now and
    /// then everything beyond it, too: while a clock is set back, ids go on where they were, ahead of it.
    async fn slow_sweep(&mut self) -> Result<(), SweepError> {
        self.slow_sweeps += 1;
        let over = self.over();
        if self.slow_sweeps.is_multiple_of(WHOLE_SWEEP_EVERY) {
            self.sweep(LAST_ID).await?;
        } else if over > self.swept {
            self.sweep(over).await?;
        }
        self.swept = over;
        Ok(())
    }

    /// The first id whose commit may not be over.
    fn over(&self) -> DeliveryId {
        first_id(earlier(self.dispatcher.parts.source.now(), self.sweep_lag))
    }

    async fn sweep(&mut self, through: DeliveryId) -> Result<(), SweepError> {
        // If the clock was set back, what is made now lies before what was swept.
        let mut after = self.swept.min(self.over());
        loop {
            let sweep = Sweep { after, through, limit: SWEEP_LIMIT };
            let page = self.dispatcher.parts.store.sweep(sweep).await?;
            if page.era != self.era {
                self.start_over().await?;
                self.era = page.era;
            }
            if !page.deliveries.is_empty() {
                let swept = Box::new(Input::Swept(page.deliveries));
                self.dispatcher
                    .send_command(LoopCommand::Input(swept))
                    .await
                    .map_err(|_| SweepError::LoopEnded)?;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// The store may have lost commits: what memory has of it is forgotten and loaded again.
    async fn start_over(&self) -> Result<(), StoreError> {
        self.dispatcher.introduce_tenants().await?;
        self.dispatcher.introduce_endpoints(true).await
    }
}

enum SweepError {
    Store(StoreError),
    LoopEnded,
}

impl From<StoreError> for SweepError {
    fn from(trouble: StoreError) -> Self {
        Self::Store(trouble)
    }
}

const LAST_ID: DeliveryId = DeliveryId::from_u128(u128::MAX);

/// The least id that a delivery made at `at` can have.
fn first_id(at: Timestamp) -> DeliveryId {
    DeliveryId::generate(at.as_millis(), [0; 10])
}

fn earlier(at: Timestamp, span: Span) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(span.as_millis()))
}
