//! The run loop: inputs in, effects out.

mod health;
mod payloads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    Accepted, Attempt, AttemptToken, Effect, Endpoint, EndpointStatus, Engine, Failure,
    IgnoredReason, Input, Timestamp, Transition,
};
use railpost_store::{AuditEntry, Parcel};
use railpost_wire::EndpointId;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::accept_throttle::AcceptThrottle;
use super::attempt::{AttemptContext, AttemptJob, own_span, without_request};
use super::attempt_tasks::AttemptTasks;
use super::clock::EngineClock;
use super::loader::{LoadTask, Loader};
use super::messages::{AttemptReport, LoopCommand, TaskReport};
use super::payload_cache::{PayloadCache, size};
use super::payload_reads::PayloadReads;
use super::prepared_endpoint::PreparedEndpoint;
use super::reconciler::InDoubtWrites;
use super::recorder::{LedgerWork, Recorder};
use super::{AttemptEnded, DispatcherConfig, Parts};
use crate::limits::{INPUTS_PER_TURN, READ_AHEAD_SHARE, RECORDS_WAITING_MAX};

/// A person's decision that is being carried out.
struct Decision {
    /// Its audit entry, until it is on its way to the store.
    audit: Option<Box<AuditEntry>>,
}

pub(super) struct RunLoop {
    parts: Parts,
    context: Arc<AttemptContext>,
    engine: Engine,
    clock: EngineClock,
    prepared: FxHashMap<EndpointId, Arc<PreparedEndpoint>>,
    /// Endpoints to which nothing can be sent as they are.
    blocked: FxHashSet<EndpointId>,
    /// When which endpoint's last secret stops signing.
    signing_ends: BTreeSet<(Timestamp, EndpointId)>,
    payloads: PayloadCache,
    /// Attempts that the engine started and that were not yet reported as [`TaskReport::AttemptEnded`].
    under_way: usize,
    /// Bytes of their payloads.
    under_way_bytes: usize,
    /// At-most-once attempts that are being recorded as sent: what is recorded leaves, even if the end was
    /// asked for meanwhile.
    recording: FxHashSet<AttemptToken>,
    reads: PayloadReads,
    attempts: AttemptTasks,
    throttle: Arc<AcceptThrottle>,
    in_doubt: Arc<InDoubtWrites>,
    inbox: mpsc::Receiver<LoopCommand>,
    reports: mpsc::UnboundedReceiver<TaskReport>,
    records: mpsc::Sender<LedgerWork>,
    /// Notified when the recorder gets work that is awaited.
    awaited: Arc<Notify>,
    recorder: JoinHandle<()>,
    /// The decision of a person that is being carried out, if there is one: what is recorded is its work.
    deciding: Option<Decision>,
    stopping: Option<Stopping>,
}

/// The loop was asked to stop.
struct Stopping {
    /// When attempts that are still under way are aborted, if ever.
    deadline: Option<Instant>,
    answer: oneshot::Sender<bool>,
}

impl RunLoop {
    pub(super) fn new(
        parts: Parts,
        config: &DispatcherConfig,
        inbox: mpsc::Receiver<LoopCommand>,
        throttle: Arc<AcceptThrottle>,
        in_doubt: Arc<InDoubtWrites>,
    ) -> Self {
        let (report, reports) = mpsc::unbounded_channel();
        let (records, work) = mpsc::channel(RECORDS_WAITING_MAX);
        let awaited = Arc::new(Notify::new());
        let task = LoadTask {
            store: parts.store.clone(),
            observer: parts.observer.clone(),
            reports: report.clone(),
        };
        let recorder = Recorder {
            store: parts.store.clone(),
            observer: parts.observer.clone(),
            epoch: config.epoch,
            work,
            awaited: awaited.clone(),
            loader: Loader::start(task),
            in_doubt: in_doubt.clone(),
            reports: report.clone(),
        };
        let context = AttemptContext {
            sender: parts.sender.clone(),
            source: parts.source.clone(),
            thin_url: parts.thin_url.clone(),
            node: config.node,
            reports: report,
        };
        let mut seed = [0; 8];
        parts.source.fill_random(&mut seed);
        Self {
            context: Arc::new(context),
            engine: Engine::new(config.engine, u64::from_be_bytes(seed)),
            clock: EngineClock::new(&*parts.source),
            prepared: FxHashMap::default(),
            blocked: FxHashSet::default(),
            signing_ends: BTreeSet::new(),
            payloads: PayloadCache::new(config.payload_cache_bytes_max),
            under_way: 0,
            under_way_bytes: 0,
            recording: FxHashSet::default(),
            reads: PayloadReads::new(config.payload_cache_bytes_max / READ_AHEAD_SHARE),
            attempts: AttemptTasks::default(),
            throttle,
            in_doubt,
            inbox,
            reports,
            records,
            awaited,
            recorder: tokio::spawn(recorder.run()),
            deciding: None,
            stopping: None,
            parts,
        }
    }

    pub(super) async fn run(mut self) {
        let (mut commands, mut reports) = (Vec::new(), Vec::new());
        while !self.may_end() {
            let wake = self.until_wake();
            tokio::select! {
                count = self.inbox.recv_many(&mut commands, INPUTS_PER_TURN),
                    if self.stopping.is_none() =>
                {
                    if count == 0 {
                        break;
                    }
                    self.execute_all(commands.drain(..)).await;
                }
                _ = self.reports.recv_many(&mut reports, INPUTS_PER_TURN) => {
                    for report in reports.drain(..) {
                        self.handle_report(report).await;
                    }
                }
                () = wake => {
                    self.block_where_signing_ended().await;
                    self.handle(Input::TimePassed).await;
                }
            }
            self.read_payloads();
            self.throttle.update(self.under_way, self.payloads.len());
        }
        self.end().await;
    }

    /// Whether the loop was asked to stop, and all attempts have ended or the time for that is over.
    fn may_end(&self) -> bool {
        let is_late = |deadline| Instant::now() >= deadline;
        let stopping = self.stopping.as_ref();
        stopping.is_some_and(|stopping| self.is_drained() || stopping.deadline.is_some_and(is_late))
    }

    fn is_drained(&self) -> bool {
        self.under_way == 0 && self.recording.is_empty()
    }

    /// Aborts attempts that are still under way, and waits until everything is recorded. The store has an aborted
    /// attempt as a crash would leave it: the next process makes it again, unless it may be sent once at most.
    async fn end(self) {
        let is_drained = self.is_drained();
        self.attempts.abort_all();
        self.in_doubt.end();
        drop(self.records);
        let _ = self.recorder.await;
        if let Some(stopping) = self.stopping {
            let _ = stopping.answer.send(is_drained);
        }
    }

    /// Producers side by side hand in what one commit accepted in any order. Put back into the order
    /// of the commit, which is that of the ids, it leaves no gaps that would have to be looked up.
    async fn execute_all(&mut self, commands: impl Iterator<Item = LoopCommand>) {
        let mut accepted = Vec::new();
        for command in commands {
            match command {
                LoopCommand::Accepted(parcels) => accepted.extend(parcels),
                command => {
                    self.accepted(&mut accepted).await;
                    self.execute(command).await;
                }
            }
        }
        self.accepted(&mut accepted).await;
    }

    async fn execute(&mut self, command: LoopCommand) {
        match command {
            LoopCommand::Accepted(mut parcels) => self.accepted(&mut parcels).await,
            LoopCommand::PutEndpoint { endpoint, prepared, reload } => {
                if reload {
                    self.remove_endpoint(endpoint.id).await;
                }
                self.put_endpoint(*endpoint, prepared).await;
            }
            LoopCommand::RemoveEndpoint(id) => self.remove_endpoint(id).await,
            LoopCommand::Decide { input, audit, answer } => {
                let _ = answer.send(self.decide(*input, audit).await);
            }
            LoopCommand::Written(answer) => self.write(LedgerWork::Written(answer)).await,
            LoopCommand::Input(input) => {
                self.handle(*input).await;
            }
            LoopCommand::Health(ids, answer) => {
                self.handle(Input::TimePassed).await;
                let _ = answer.send(ids.into_iter().map(|id| self.health(id)).collect());
            }
            LoopCommand::Survey { tenant, named_max, answer } => {
                self.handle(Input::TimePassed).await;
                let _ = answer.send(self.survey(tenant.as_deref(), named_max));
            }
            LoopCommand::Concerns { signs_until, lanes_max, answer } => {
                self.handle(Input::TimePassed).await;
                let _ = answer.send(self.concerns(signs_until, lanes_max));
            }
            LoopCommand::EndWait(id, answer) => {
                self.handle(Input::TimePassed).await;
                let before = self.health(id);
                self.handle(Input::EndpointWaitEnded(id)).await;
                let _ = answer.send(before);
            }
            LoopCommand::Prepared(id, answer) => {
                let _ = answer.send(self.prepared.get(&id).cloned());
            }
            LoopCommand::OpenLanes { tenant, endpoint, limit, answer } => {
                self.handle(Input::TimePassed).await;
                let _ = answer.send(self.engine.open_lanes(&tenant, endpoint, limit));
            }
            LoopCommand::Counters(answer) => drop(answer.send(*self.engine.counters())),
            LoopCommand::UnderWay(answer) => drop(answer.send(self.under_way)),
            LoopCommand::Stop { drain_timeout, answer } => {
                let deadline = Instant::now().checked_add(drain_timeout);
                self.stopping = Some(Stopping { deadline, answer });
            }
        }
    }

    /// Carries out a person's decision, or says why not.
    async fn decide(
        &mut self,
        input: Input,
        audit: Option<Box<AuditEntry>>,
    ) -> Result<(), IgnoredReason> {
        self.deciding = Some(Decision { audit });
        let ignored = self.handle(input).await;
        let unwritten = self.deciding.take().and_then(|decision| decision.audit);
        if let Some(reason) = ignored {
            return Err(reason);
        }
        // A delivery that is discarded during its attempt changes its state when the attempt ends.
        if let Some(audit) = unwritten {
            self.write(LedgerWork::Audit(audit)).await;
        }
        Ok(())
    }

    async fn accepted(&mut self, parcels: &mut Vec<(Accepted, Arc<Parcel>)>) {
        if parcels.is_empty() {
            return;
        }
        parcels.sort_unstable_by_key(|(accepted, _)| accepted.id);
        let (accepted, parcels): (Vec<_>, Vec<_>) = parcels.drain(..).unzip();
        let now = self.now();
        parcels.into_iter().for_each(|parcel| self.payloads.put(parcel, now));
        self.handle(Input::Accepted(accepted)).await;
    }

    /// Tells the engine of an endpoint that is new or changed.
    async fn put_endpoint(&mut self, endpoint: Endpoint, prepared: Arc<PreparedEndpoint>) {
        let (id, status) = (endpoint.id, endpoint.status);
        self.signing_ends.retain(|(_, other)| *other != id);
        self.signing_ends.extend(prepared.signs_until().map(|at| (at, id)));
        match self.prepared.insert(id, prepared) {
            None => {
                // Its backlog is still to be loaded: nothing starts before it is blocked, if it is.
                self.handle(Input::EndpointAppeared(endpoint)).await;
            }
            Some(_) => {
                let railpost_engine::Endpoint { policy, rotation, .. } = endpoint;
                self.handle(Input::EndpointChanged { endpoint: id, policy, rotation }).await;
                self.switch(id, status).await;
            }
        }
        self.block_or_unblock(id).await;
    }

    /// Aborts the endpoint's attempts, too: their outcomes would not be recorded.
    async fn remove_endpoint(&mut self, id: EndpointId) {
        self.attempts.abort_endpoint(id);
        self.prepared.remove(&id);
        self.blocked.remove(&id);
        self.signing_ends.retain(|(_, other)| *other != id);
        self.handle(Input::EndpointRemoved(id)).await;
    }

    async fn block_where_signing_ended(&mut self) {
        let now = self.time_of_day();
        while let Some((at, id)) = self.signing_ends.first().copied().filter(|(at, _)| *at <= now) {
            self.signing_ends.remove(&(at, id));
            self.block_or_unblock(id).await;
        }
    }

    /// Tells the engine and the observer, if it changed, whether anything can be sent to an endpoint.
    async fn block_or_unblock(&mut self, id: EndpointId) {
        let prepared = self.prepared.get(&id);
        let reason = prepared.and_then(|prepared| prepared.blocked(self.time_of_day()));
        let changed = match reason {
            Some(_) => self.blocked.insert(id),
            None => self.blocked.remove(&id),
        };
        if changed {
            self.parts.observer.endpoint_blocked(id, reason.as_deref());
            let blocked = reason.is_some();
            self.handle(Input::EndpointBlocked { endpoint: id, blocked }).await;
        }
    }

    /// Passes on what a person switched. What the engine switched off itself, it knows.
    async fn switch(&mut self, id: EndpointId, status: EndpointStatus) {
        let known = self.engine.health(id).map(|health| health.status);
        match status {
            EndpointStatus::Active if known != Some(EndpointStatus::Active) => {
                self.handle(Input::EndpointResumed(id)).await;
            }
            EndpointStatus::Paused if known != Some(EndpointStatus::Paused) => {
                self.handle(Input::EndpointPaused(id)).await;
            }
            _ => {}
        }
    }

    async fn handle_report(&mut self, report: TaskReport) {
        match report {
            TaskReport::Input(input) => {
                if let Input::Recorded(token) | Input::RecordRefused(token) = *input {
                    self.recording.remove(&token);
                }
                self.handle(*input).await;
            }
            TaskReport::AttemptEnded(ended) => {
                let (attempt, result) = (ended.attempt.token, ended.detail.result);
                self.attempts.remove(attempt);
                self.under_way -= 1;
                self.under_way_bytes -= ended.parcel.as_deref().map_or(0, size);
                self.handle_with(Input::AttemptEnded { attempt, result }, Some(ended)).await;
            }
            TaskReport::PayloadsRead(asked, parcels) => self.payloads_read(&asked, parcels),
        }
    }

    async fn handle(&mut self, input: Input) -> Option<IgnoredReason> {
        self.handle_with(input, None).await
    }

    /// Hands the engine an input and performs what it asks for. Says why the input was ignored, if it
    /// was. `ended` is the attempt that it reports.
    async fn handle_with(
        &mut self,
        input: Input,
        mut ended: Option<Box<AttemptReport>>,
    ) -> Option<IgnoredReason> {
        let mut ignored = None;
        let recorded = match input {
            Input::Recorded(token) => Some(token),
            _ => None,
        };
        let now = self.now();
        self.engine.handle(now, input);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                // It is on record as sent, so it leaves in any case: it may not be sent later.
                Effect::Start(attempt) if recorded == Some(attempt.token) => self.start(attempt),
                // Once the end has been asked for, nothing else leaves: the next process finds it
                // in the store as it is.
                Effect::Start(_) | Effect::RecordFirst(..) | Effect::Load(..)
                    if self.stopping.is_some() => {}
                Effect::Start(attempt) => self.start(attempt),
                Effect::Record(transition) => self.record(transition, &mut ended).await,
                Effect::RecordFirst(transition, token) => {
                    self.recording.insert(token);
                    self.write(LedgerWork::RecordFirst(transition, token)).await;
                }
                Effect::RecordEndpoint(record) => self.write(LedgerWork::Endpoint(record)).await,
                Effect::Load(ticket, load) => self.write(LedgerWork::Load(ticket, load)).await,
                Effect::Notify(notice) => self.parts.observer.notice(&notice),
                Effect::Ignored(refused) => ignored = Some(refused.reason),
            }
        }
        ignored
    }

    async fn record(&mut self, transition: Transition, ended: &mut Option<Box<AttemptReport>>) {
        let ended = ended.take_if(|ended| transition.attempt == Some(ended.attempt.token));
        if let Some(ended) = &ended {
            self.parts.observer.attempt_ended(&AttemptEnded {
                transition: &transition,
                detail: &ended.detail,
                parcel: ended.parcel.as_deref(),
                replay: ended.attempt.replay,
                trace: ended.trace,
                is_near_death: self.engine.is_near_death(&transition),
            });
        }
        if !transition.state.is_open() {
            self.payloads.remove(transition.delivery);
        }
        let work = match (ended, &mut self.deciding) {
            (None, Some(decision)) => LedgerWork::Decision(transition, decision.audit.take()),
            (ended, _) => LedgerWork::Transition(transition, ended.map(|ended| ended.detail)),
        };
        self.write(work).await;
    }

    /// Waits while the recorder is far behind: that is what slows accepting and sending down when the
    /// store is in trouble.
    async fn write(&self, work: LedgerWork) {
        let is_awaited = work.is_awaited();
        // The recorder ends after this loop does.
        let _ = self.records.send(work).await;
        if is_awaited {
            self.awaited.notify_one();
        }
    }

    fn start(&mut self, attempt: Attempt) {
        self.under_way += 1;
        match self.payloads.get(attempt.delivery) {
            Some(parcel) => {
                self.reads.started(attempt.endpoint);
                self.send(attempt, parcel);
            }
            None => {
                let followers = self.engine.behind(attempt.token);
                self.reads.wait(attempt, followers, &self.payloads);
            }
        }
    }

    fn send(&mut self, attempt: Attempt, parcel: Arc<Parcel>) {
        self.under_way_bytes += size(&parcel);
        let Some(prepared) = self.prepared.get(&attempt.endpoint) else {
            return self.end_unsent(attempt, Some(parcel), (Failure::NotSent, String::new()));
        };
        let trace = own_span(&parcel, &*self.parts.source);
        let (prepared, context) = (prepared.clone(), self.context.clone());
        self.attempts.spawn(AttemptJob { attempt, prepared, parcel, trace, context });
    }

    /// Reports the end of an attempt that cannot be made.
    fn end_unsent(&self, attempt: Attempt, parcel: Option<Arc<Parcel>>, why: (Failure, String)) {
        let detail = Box::new(without_request(&attempt, why, self.time_of_day()));
        let ended = AttemptReport { attempt, parcel, trace: None, detail };
        let _ = self.context.reports.send(TaskReport::AttemptEnded(Box::new(ended)));
    }

    /// The engine's time.
    fn now(&mut self) -> Timestamp {
        self.clock.now(&*self.parts.source)
    }

    /// The time that people and receivers go by.
    fn time_of_day(&self) -> Timestamp {
        self.parts.source.now()
    }

    /// Waits until the engine wants to be woken, a secret stops signing, or the time to drain is over.
    fn until_wake(&mut self) -> impl Future<Output = ()> + use<> {
        let now = self.now();
        let engine = self.engine.next_wake().map(|at| at.since(now));
        let signing = self.signing_ends.first().map(|(at, _)| at.since(self.time_of_day()));
        let planned = engine.into_iter().chain(signing).min();
        let planned = planned.map(Duration::from);
        let deadline = self.stopping.as_ref().and_then(|stopping| stopping.deadline);
        let drain = deadline.map(|deadline| deadline.duration_since(Instant::now()));
        let wait = planned.into_iter().chain(drain).min();
        async move {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        }
    }
}
