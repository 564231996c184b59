//! The dispatcher: holds an engine, performs its effects, and tells it what came of them.
//!
//! One task, the `run_loop`, owns the engine. It takes `messages`: commands, and reports of the tasks around it.
//! A `recorder` writes in batches, and a `loader` reads for the engine. A `reconciler` finds what the engine was not
//! told of. The `payload_cache` has what was just accepted, and `payload_reads` fetch the rest. A `prepared_endpoint`
//! has what all attempts of an endpoint share; `attempt_tasks` make each `attempt` in a task of its own. The
//! `accept_throttle` slows accepting down while sending is behind. A `probe` is sent past all of them. None of these holds a delivery rule.

mod clock;
mod payload_cache;
mod payload_reads;
mod prepared_endpoint;
mod attempt;
mod attempt_tasks;
mod messages;
mod loader;
mod recorder;
mod accept_throttle;
mod reconciler;
mod probe;
mod run_loop;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    Command, Config, Counters, Delivery, Health, HealthState, IgnoredReason, Input, LaneId, Notice,
    OpenLanes, Span, Timestamp, Transition,
};
use railpost_store::{
    AcceptBatch, AttemptDetail, AuditEntry, Change, Epoch, NewEndpoint, NewSecret, PageRequest,
    Parcel, Receipt, RedeliverBatch, Source, Store, StoreError, Sweep, Tenant, Write,
};
use railpost_wire::{DeliveryId, EndpointId, NodeId, TenantId};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::limits::{
    COMMANDS_WAITING_MAX, DECISION_TIMEOUT, PAYLOAD_CACHE_BYTES_MAX_DEFAULT, REGISTRY_PAGE,
    SWEEP_EVERY_DEFAULT, SWEEP_LAG_DEFAULT,
};
use crate::{Sender, TraceParent};
use accept_throttle::AcceptThrottle;
use messages::LoopCommand;
use prepared_endpoint::PreparedEndpoint;
use probe::ProbesInFlight;
use reconciler::{InDoubtWrites, Reconciler};
use run_loop::RunLoop;

pub use probe::{Probe, ProbeRefused};

/// What a dispatcher works with.
#[derive(Clone)]
pub struct Parts {
    /// Where everything is written.
    pub store: Arc<dyn Store>,
    /// How attempts leave.
    pub sender: Sender,
    /// The time, and chance.
    pub source: Arc<dyn Source>,
    /// Is told what happens.
    pub observer: Arc<dyn Observer>,
    /// Where a thin envelope says that its event can be fetched.
    pub thin_url: Arc<dyn ThinUrl>,
}

/// A dispatcher's bounds, and its place in a cluster.
#[derive(Clone, Debug)]
pub struct DispatcherConfig {
    /// The engine's bounds.
    pub engine: Config,
    /// Which node this is, for the record of attempts.
    pub node: Option<NodeId>,
    /// The epoch of its ownership.
    pub epoch: Epoch,
    /// Bytes of payloads just accepted that are kept in memory, so that they need not be read back.
    pub payload_cache_bytes_max: usize,
    /// How often to look for deliveries that the engine was not told of.
    pub sweep_every: Duration,
    /// How old a delivery is then: its commit must be over.
    pub sweep_lag: Span,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            engine: Config::default(),
            node: None,
            epoch: Epoch::default(),
            payload_cache_bytes_max: PAYLOAD_CACHE_BYTES_MAX_DEFAULT,
            sweep_every: SWEEP_EVERY_DEFAULT,
            sweep_lag: SWEEP_LAG_DEFAULT,
        }
    }
}

/// An attempt that ended: what came of it, what follows, and what it was about.
#[derive(Clone, Copy, Debug)]
pub struct AttemptEnded<'a> {
    /// What follows.
    pub transition: &'a Transition,
    /// What came of it.
    pub detail: &'a AttemptDetail,
    /// What was to be sent; nothing if it was gone from the store.
    pub parcel: Option<&'a Parcel>,
    /// Whether a person asked for it.
    pub replay: bool,
    /// The producer's trace with the attempt's own span, as the receiver saw it.
    pub trace: Option<TraceParent>,
    /// Whether the delivery is dead, or will be if its next attempt fails.
    pub is_near_death: bool,
}

/// How an endpoint that is served here is doing.
#[derive(Clone, Debug)]
pub struct ServedHealth {
    /// As the engine has it.
    pub health: Health,
    /// Why nothing can be sent to it as it is, if that is so.
    pub blocked: Option<String>,
}

/// How many endpoints are in which state, and how some are doing that are not active.
#[derive(Clone, Debug)]
pub struct EndpointSurvey {
    /// Attempts in flight at all of them.
    pub in_flight: u64,
    /// How many endpoints, by [`HealthState`] in the order of [`HealthState::ALL`].
    pub counts: [u64; HealthState::ALL.len()],
    /// Endpoints that someone should look at.
    pub attention: Vec<(EndpointId, ServedHealth)>,
    /// Endpoints that are paused.
    pub paused: Vec<(EndpointId, ServedHealth)>,
}

/// What people should hear of: endpoints that are not well, and lanes that are held.
#[derive(Clone, Debug)]
pub struct ServedConcerns {
    /// Endpoints that are not well, or whose last secret ends soon.
    pub endpoints: Vec<ServedConcern>,
    /// Endpoints that a person paused.
    pub paused: Vec<EndpointId>,
    /// Lanes that a dead letter holds, as many as were asked for.
    pub held_lanes: Vec<ServedLane>,
    /// How many lanes are held.
    pub held_lanes_count: u64,
}

/// An endpoint that is not well, or whose last secret ends soon.
#[derive(Clone, Debug)]
pub struct ServedConcern {
    /// Which.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Where it is.
    pub url: String,
    /// How it is doing.
    pub served: ServedHealth,
    /// After which time with nothing but failures it is switched off.
    pub disable_after: Option<Span>,
    /// When its last secret stops signing, if it must sign and none signs for ever.
    pub signs_until: Option<Timestamp>,
}

/// A lane that a dead letter holds.
#[derive(Clone, Debug)]
pub struct ServedLane {
    /// Which.
    pub lane: LaneId,
    /// Of which endpoint.
    pub endpoint: EndpointId,
    /// Whose endpoint it is.
    pub tenant: TenantId,
    /// Where the endpoint is.
    pub url: String,
}

/// Is told what happens. Called on the dispatcher's own task: it must not block.
pub trait Observer: Send + Sync {
    /// Events of this tenant were accepted. Called on the task of the caller of [`Dispatcher::accept`].
    fn accepted(&self, _tenant: &TenantId, _receipts: &[Receipt]) {}

    /// An attempt ended, and this is what follows.
    fn attempt_ended(&self, _ended: &AttemptEnded<'_>) {}

    /// The engine has something to tell operators.
    fn notice(&self, _notice: &Notice) {}

    /// The store could not be written or read. It is tried again.
    fn store_trouble(&self, _trouble: &StoreError) {}

    /// Nothing can be sent to an endpoint as it is, for this reason; or it can again.
    fn endpoint_blocked(&self, _endpoint: EndpointId, _reason: Option<&str>) {}
}

/// Observes nothing.
impl Observer for () {}

/// Says where an event can be fetched.
pub trait ThinUrl: Send + Sync {
    /// The URL for this delivery.
    fn thin_url(&self, parcel: &Parcel) -> String;
}

impl<F: Fn(&Parcel) -> String + Send + Sync> ThinUrl for F {
    fn thin_url(&self, parcel: &Parcel) -> String {
        self(parcel)
    }
}

/// Accepts events and sees to it that they arrive. Cheap to clone; [`Dispatcher::stop`] ends it.
#[derive(Clone)]
pub struct Dispatcher {
    parts: Parts,
    commands: mpsc::Sender<LoopCommand>,
    throttle: Arc<AcceptThrottle>,
    in_doubt: Arc<InDoubtWrites>,
    probes: Arc<ProbesInFlight>,
}

/// The dispatcher has stopped: what it is told has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the dispatcher has stopped")
    }
}

impl std::error::Error for Stopped {}

impl From<Stopped> for StoreError {
    fn from(stopped: Stopped) -> Self {
        StoreError::Unavailable(stopped.to_string())
    }
}

impl Dispatcher {
    /// Serves every endpoint in the store. The handle ends when the dispatcher has stopped.
    pub async fn start(
        parts: Parts,
        config: &DispatcherConfig,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let (commands, inbox) = mpsc::channel(COMMANDS_WAITING_MAX);
        let (throttle, in_doubt) =
            (Arc::new(AcceptThrottle::new()), Arc::new(InDoubtWrites::default()));
        // Before anything is loaded: if it changes from here on, everything is loaded again.
        let era = parts.store.sweep(EMPTY_SWEEP).await?.era;
        let run = RunLoop::new(parts.clone(), config, inbox, throttle.clone(), in_doubt.clone());
        let task = tokio::spawn(run.run());
        let probes = Arc::new(ProbesInFlight::default());
        let dispatcher = Self { parts, commands, throttle, in_doubt, probes };
        let reconciler = Reconciler::new(&dispatcher, config, era);
        dispatcher.introduce_tenants().await?;
        dispatcher.introduce_endpoints(false).await?;
        tokio::spawn(reconciler.run());
        Ok((dispatcher, task))
    }

    /// Accepts events durably and sends them on their way.
    pub async fn accept(&self, batch: AcceptBatch) -> Result<Vec<Receipt>, StoreError> {
        let batch = Arc::new(batch);
        let permit = self.throttle.permit(batch.events.len()).await;
        let receipts = self.parts.store.accept(batch.clone()).await;
        let receipts = receipts.inspect_err(|trouble| self.note_deliveries_in_doubt(trouble))?;
        drop(permit);
        self.parts.observer.accepted(&batch.tenant, &receipts);
        let parcels = payload_cache::of_receipts(&batch, &receipts);
        // If the dispatcher has stopped, the next one finds them in the store.
        let _ = self.send_command(LoopCommand::Accepted(parcels)).await;
        Ok(receipts)
    }

    /// Sends events that were accepted before once more, at the end of their lanes.
    pub async fn redeliver(&self, batch: RedeliverBatch) -> Result<(), StoreError> {
        let accepted = self.parts.store.redeliver(batch).await;
        let accepted = accepted.inspect_err(|trouble| self.note_deliveries_in_doubt(trouble))?;
        let _ = self.send_command(LoopCommand::Input(Box::new(Input::Accepted(accepted)))).await;
        Ok(())
    }

    /// A write without an answer may have been committed.
    fn note_deliveries_in_doubt(&self, trouble: &StoreError) {
        if trouble.is_in_doubt() {
            self.in_doubt.note_deliveries();
        }
    }

    /// Makes a change of the registry, and has it taken into account: at once, or as soon as the store
    /// can be read. One whose answer was lost is looked up, too.
    pub async fn commit(&self, change: Change) -> Result<(), StoreError> {
        let affected = AffectedIds::of(&change);
        let done = self.parts.store.commit(change).await;
        match &done {
            Ok(()) => self.look_up(affected).await,
            Err(trouble) if trouble.is_in_doubt() => self.note_in_doubt(affected),
            Err(_) => {}
        }
        done
    }

    async fn look_up(&self, affected: AffectedIds) {
        for id in affected.tenants {
            self.tenant_changed(&id).await;
        }
        for id in affected.endpoints {
            self.endpoint_changed(id).await;
        }
    }

    fn note_in_doubt(&self, affected: AffectedIds) {
        affected.tenants.into_iter().for_each(|id| self.in_doubt.note_tenant(id));
        affected.endpoints.into_iter().for_each(|id| self.in_doubt.note_endpoint(id));
    }

    /// Carries out what a person decided about a delivery, or says why not. It survives a crash once
    /// [`written`](Self::written) has answered.
    pub async fn command(
        &self,
        command: Command,
        delivery: Delivery,
    ) -> Result<Result<(), IgnoredReason>, Stopped> {
        self.decide(command, delivery, None).await
    }

    /// The same with an audit entry, which is written with the decision if it is carried out.
    pub async fn decide(
        &self,
        command: Command,
        delivery: Delivery,
        audit: Option<AuditEntry>,
    ) -> Result<Result<(), IgnoredReason>, Stopped> {
        let input = Box::new(Input::Command { command, delivery });
        let audit = audit.map(Box::new);
        self.ask(|answer| LoopCommand::Decide { input, audit, answer }).await
    }

    /// Waits until all that people decided so far is durable.
    pub async fn written(&self) -> Result<(), StoreError> {
        let (answer, answered) = oneshot::channel();
        self.send_command(LoopCommand::Written(answer)).await?;
        let in_time = tokio::time::timeout(DECISION_TIMEOUT, answered).await;
        let written = in_time.ok().and_then(Result::ok);
        written.ok_or_else(|| StoreError::Unavailable("it could not be recorded yet".to_owned()))
    }

    /// An endpoint was created, changed, switched on or off, removed, or its secrets changed. If it cannot
    /// be read now, it is as soon as it can.
    pub async fn endpoint_changed(&self, id: EndpointId) {
        if let Err(trouble) = self.look_up_endpoint(id, false).await {
            self.parts.observer.store_trouble(&trouble);
            self.in_doubt.note_endpoint(id);
        }
    }

    /// A tenant was created or its settings changed. If it cannot be read now, it is as soon as it can.
    pub async fn tenant_changed(&self, id: &TenantId) {
        if let Err(trouble) = self.look_up_tenant(id).await {
            self.parts.observer.store_trouble(&trouble);
            self.in_doubt.note_tenant(id.clone());
        }
    }

    /// Tells the run loop what the store has of an endpoint; with `reload`, its backlog is loaded again.
    async fn look_up_endpoint(&self, id: EndpointId, reload: bool) -> Result<(), StoreError> {
        match self.parts.store.endpoint(id).await? {
            Some(endpoint) if endpoint.removed_at.is_none() => {
                self.introduce(&[endpoint], reload).await
            }
            _ => Ok(self.send_command(LoopCommand::RemoveEndpoint(id)).await?),
        }
    }

    async fn look_up_tenant(&self, id: &TenantId) -> Result<(), StoreError> {
        match self.parts.store.tenant(id).await? {
            Some(tenant) => Ok(self.introduce_tenant(tenant).await?),
            None => Ok(()),
        }
    }

    /// How an endpoint is doing; nothing if it is not served here.
    pub async fn health(&self, id: EndpointId) -> Result<Option<ServedHealth>, Stopped> {
        Ok(self.health_of(&[id]).await?.pop().flatten())
    }

    /// The same for many endpoints, in their order.
    pub async fn health_of(
        &self,
        ids: &[EndpointId],
    ) -> Result<Vec<Option<ServedHealth>>, Stopped> {
        self.ask(|answer| LoopCommand::Health(ids.to_vec(), answer)).await
    }

    /// The states of all endpoints, or of a tenant's, and how at most `named_max` are doing that need attention, and
    /// as many that are paused.
    pub async fn survey(
        &self,
        tenant: Option<&TenantId>,
        named_max: usize,
    ) -> Result<EndpointSurvey, Stopped> {
        let tenant = tenant.cloned().map(Box::new);
        self.ask(|answer| LoopCommand::Survey { tenant, named_max, answer }).await
    }

    /// What people should hear of: endpoints that are not well or whose last secret ends by `signs_until`, and at
    /// most `lanes_max` of the lanes that are held.
    pub async fn concerns(
        &self,
        signs_until: Timestamp,
        lanes_max: usize,
    ) -> Result<ServedConcerns, Stopped> {
        self.ask(|answer| LoopCommand::Concerns { signs_until, lanes_max, answer }).await
    }

    /// Ends the wait of an endpoint that is switched on, as a person wants it: an open breaker lets its probe go at
    /// once, and `Retry-After` is lifted. Answers how the endpoint was doing before.
    pub async fn end_wait(&self, id: EndpointId) -> Result<Option<ServedHealth>, Stopped> {
        self.ask(|answer| LoopCommand::EndWait(id, answer)).await
    }

    /// A tenant's lanes with anything open, or those of one endpoint of it: counts of all, and at most `limit` of
    /// them, the held ones first, then those whose head waits longest.
    pub async fn open_lanes(
        &self,
        tenant: &TenantId,
        endpoint: Option<EndpointId>,
        limit: usize,
    ) -> Result<OpenLanes, Stopped> {
        let tenant = Box::new(tenant.clone());
        self.ask(|answer| LoopCommand::OpenLanes { tenant, endpoint, limit, answer }).await
    }

    /// What the engine has done since it started.
    pub async fn counters(&self) -> Result<Counters, Stopped> {
        self.ask(LoopCommand::Counters).await
    }

    /// How many attempts are under way.
    pub async fn under_way(&self) -> Result<usize, Stopped> {
        self.ask(LoopCommand::UnderWay).await
    }

    /// Starts nothing more, waits for the attempts under way, records them, and ends. Attempts that are still under
    /// way after `drain_timeout` are aborted. Says whether all ended before that.
    pub async fn stop(&self, drain_timeout: Duration) -> bool {
        let stop = |answer| LoopCommand::Stop { drain_timeout, answer };
        self.ask(stop).await.unwrap_or(true)
    }

    async fn introduce_tenants(&self) -> Result<(), StoreError> {
        let mut page = PageRequest::first(REGISTRY_PAGE);
        loop {
            let listing = self.parts.store.tenants(page.clone()).await?;
            for tenant in listing.items {
                self.introduce_tenant(tenant).await?;
            }
            match listing.next {
                Some(next) => page.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn introduce_tenant(&self, tenant: Tenant) -> Result<(), Stopped> {
        let rate_limit = tenant.settings.rate_limit;
        let input = Input::TenantChanged { tenant: tenant.id, rate_limit };
        self.send_command(LoopCommand::Input(Box::new(input))).await
    }

    async fn introduce_endpoints(&self, reload: bool) -> Result<(), StoreError> {
        let mut page = PageRequest::first(REGISTRY_PAGE);
        loop {
            let listing = self.parts.store.endpoints(None, page.clone()).await?;
            self.introduce(&listing.items, reload).await?;
            match listing.next {
                Some(next) => page.after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn introduce(
        &self,
        endpoints: &[railpost_store::Endpoint],
        reload: bool,
    ) -> Result<(), StoreError> {
        let ids: Vec<EndpointId> = endpoints.iter().map(|endpoint| endpoint.id).collect();
        let secrets = self.parts.store.secrets_of(&ids).await?;
        for (endpoint, secrets) in endpoints.iter().zip(secrets) {
            // One endpoint whose secrets cannot be opened does not keep the others from being served.
            let secrets = secrets.map_err(|trouble| trouble.to_string());
            let for_engine = endpoint.for_engine(secrets.as_deref().unwrap_or_default());
            let prepared = Arc::new(PreparedEndpoint::new(endpoint, secrets));
            let endpoint = Box::new(for_engine);
            self.send_command(LoopCommand::PutEndpoint { endpoint, prepared, reload }).await?;
        }
        Ok(())
    }

    async fn send_command(&self, command: LoopCommand) -> Result<(), Stopped> {
        match self.commands.try_send(command) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Stopped),
            // Boxed, so that everyone who accepts events need not have room for the wait.
            Err(TrySendError::Full(command)) => {
                Box::pin(self.commands.send(command)).await.map_err(|_| Stopped)
            }
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> LoopCommand,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.send_command(command(answer)).await?;
        answered.await.map_err(|_| Stopped)
    }
}

/// Finds nothing, and says which era it is.
const EMPTY_SWEEP: Sweep =
    Sweep { after: DeliveryId::from_u128(0), through: DeliveryId::from_u128(0), limit: 1 };

/// The endpoints and tenants that a change is about.
#[derive(Debug, Default)]
struct AffectedIds {
    endpoints: BTreeSet<EndpointId>,
    tenants: BTreeSet<TenantId>,
}

impl AffectedIds {
    fn of(change: &Change) -> Self {
        let mut affected = Self::default();
        for write in &change.writes {
            match write {
                Write::CreateTenant(id, _) | Write::UpdateTenant(id, _) => {
                    affected.tenants.insert(id.clone());
                }
                Write::CreateEndpoint(NewEndpoint { id, .. })
                | Write::UpdateEndpoint { id, .. }
                | Write::SetEndpointStatus(id, _)
                | Write::RemoveEndpoint(id)
                | Write::CreateSecret(NewSecret { endpoint: id, .. })
                | Write::ExpireSecret { endpoint: id, .. }
                | Write::RemoveSecret { endpoint: id, .. } => {
                    affected.endpoints.insert(*id);
                }
                // The server looks up its endpoints when it marks a tenant: they cannot be found by the tenant afterwards.
                Write::EraseTenant(_)
                | Write::PutEventType(_)
                | Write::RemoveEventType(..)
                | Write::CreateApiKey(_)
                | Write::RevokeApiKey(..)
                | Write::RenameApiKey(..)
                | Write::TouchApiKey(..)
                | Write::PutReplay(_) => {}
            }
        }
        affected
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher").finish_non_exhaustive()
    }
}
