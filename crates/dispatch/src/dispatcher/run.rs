//! The run loop: inputs in, effects out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    Accepted, Attempt, AttemptToken, Because, Counters, Effect, Endpoint, EndpointStatus, Engine,
    Failure, Health, Input, Timestamp, Transition,
};
use railpost_store::{AttemptDetail, AuditEntry, Parcel, StoreError};
use railpost_wire::{DeliveryId, EndpointId};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::attempt::{Job, Tools, own_span, without_request};
use super::clock::EngineClock;
use super::fetches::Fetches;
use super::gate::Gate;
use super::hands::{Hand, Hands};
use super::lookups::{Desk, Lookups};
use super::outlet::Outlet;
use super::parcels::{Parcels, size};
use super::recorder::{Item, Recorder, insist};
use super::repair::Doubts;
use super::{AttemptEnded, DispatcherConfig, Parts};
use crate::TraceParent;
use crate::limits::{INPUTS_PER_TURN, READ_AHEAD_SHARE, RECORDS_WAITING_MAX, UNDER_WAY_BYTES_MAX};

/// What the run loop is asked to do. Small, because every accept sends one.
pub(super) enum Order {
    Accepted(Vec<(Accepted, Arc<Parcel>)>),
    /// With `reload`, what is known of it is forgotten and its backlog loaded again.
    EndpointIs {
        endpoint: Box<Endpoint>,
        outlet: Arc<Outlet>,
        reload: bool,
    },
    EndpointGone(EndpointId),
    /// What a person decided, and who did.
    Command {
        input: Box<Input>,
        audit: Option<Box<AuditEntry>>,
        answer: oneshot::Sender<Result<(), Because>>,
    },
    /// Tells when all that was decided so far is written.
    Written(oneshot::Sender<()>),
    Input(Box<Input>),
    Health(EndpointId, oneshot::Sender<Option<Health>>),
    Blocked(EndpointId, oneshot::Sender<Option<String>>),
    Counters(oneshot::Sender<Counters>),
    UnderWay(oneshot::Sender<usize>),
    Stop(oneshot::Sender<()>),
}

/// What the tasks around the run loop report.
pub(super) enum News {
    Input(Box<Input>),
    Ended(Box<Ended>),
    /// Parcels that were found of those that were asked for, or why one cannot be read.
    Fetched(Vec<DeliveryId>, Vec<(DeliveryId, Result<Parcel, StoreError>)>),
}

/// An attempt that ended, and what it was about.
pub(super) struct Ended {
    pub(super) attempt: Attempt,
    /// What was sent; nothing if there was nothing to send.
    pub(super) parcel: Option<Arc<Parcel>>,
    pub(super) trace: Option<TraceParent>,
    pub(super) detail: Box<AttemptDetail>,
    /// Who made it and is free now.
    pub(super) hand: Option<Hand>,
}

/// A person's decision that is being carried out.
struct Decision {
    /// Who decided, until it is on its way to the store.
    audit: Option<Box<AuditEntry>>,
}

pub(super) struct Run {
    parts: Parts,
    tools: Arc<Tools>,
    engine: Engine,
    clock: EngineClock,
    outlets: FxHashMap<EndpointId, Arc<Outlet>>,
    /// Endpoints to which nothing can be sent as they are.
    blocked: FxHashSet<EndpointId>,
    /// When which endpoint's last secret stops signing.
    signing_ends: BTreeSet<(Timestamp, EndpointId)>,
    parcels: Parcels,
    /// Attempts under way, by the engine's word, that will be reported as [`News::Ended`].
    under_way: usize,
    /// Bytes of their payloads.
    under_way_bytes: usize,
    /// At-most-once attempts that are being recorded as sent: what is recorded leaves, even if the end was
    /// asked for meanwhile.
    recording: FxHashSet<AttemptToken>,
    fetches: Fetches,
    hands: Hands,
    gate: Arc<Gate>,
    doubts: Arc<Doubts>,
    inbox: mpsc::Receiver<Order>,
    news: mpsc::UnboundedReceiver<News>,
    records: mpsc::Sender<Item>,
    /// Tells the recorder that it has something somebody waits for.
    awaited: Arc<Notify>,
    recorder: JoinHandle<()>,
    /// The decision of a person that is being carried out, if there is one: what is recorded is its work.
    deciding: Option<Decision>,
    /// Who waits for the end, once it has been asked for.
    stopping: Option<oneshot::Sender<()>>,
}

impl Run {
    pub(super) fn new(
        parts: Parts,
        config: &DispatcherConfig,
        inbox: mpsc::Receiver<Order>,
        gate: Arc<Gate>,
        doubts: Arc<Doubts>,
    ) -> Self {
        let (reporter, news) = mpsc::unbounded_channel();
        let (records, items) = mpsc::channel(RECORDS_WAITING_MAX);
        let awaited = Arc::new(Notify::new());
        let desk =
            Desk { store: parts.store.clone(), watch: parts.watch.clone(), news: reporter.clone() };
        let recorder = Recorder {
            store: parts.store.clone(),
            watch: parts.watch.clone(),
            epoch: config.epoch,
            items,
            awaited: awaited.clone(),
            lookups: Lookups::start(desk),
            doubts: doubts.clone(),
            news: reporter.clone(),
        };
        let tools = Tools {
            sender: parts.sender.clone(),
            source: parts.source.clone(),
            thin_url: parts.thin_url.clone(),
            node: config.node,
            reporter,
        };
        let mut seed = [0; 8];
        parts.source.fill_random(&mut seed);
        Self {
            tools: Arc::new(tools),
            engine: Engine::new(config.engine, u64::from_be_bytes(seed)),
            clock: EngineClock::new(&*parts.source),
            outlets: FxHashMap::default(),
            blocked: FxHashSet::default(),
            signing_ends: BTreeSet::new(),
            parcels: Parcels::new(config.parcels_bytes_max),
            under_way: 0,
            under_way_bytes: 0,
            recording: FxHashSet::default(),
            fetches: Fetches::new(config.parcels_bytes_max / READ_AHEAD_SHARE),
            hands: Hands::default(),
            gate,
            doubts,
            inbox,
            news,
            records,
            awaited,
            recorder: tokio::spawn(recorder.run()),
            deciding: None,
            stopping: None,
            parts,
        }
    }

    pub(super) async fn run(mut self) {
        let (mut orders, mut news) = (Vec::new(), Vec::new());
        while self.stopping.is_none() || self.under_way > 0 || !self.recording.is_empty() {
            let wake = self.until_wake();
            tokio::select! {
                count = self.inbox.recv_many(&mut orders, INPUTS_PER_TURN),
                    if self.stopping.is_none() =>
                {
                    if count == 0 {
                        break;
                    }
                    self.obey_all(orders.drain(..)).await;
                }
                _ = self.news.recv_many(&mut news, INPUTS_PER_TURN) => {
                    for item in news.drain(..) {
                        self.hear(item).await;
                    }
                }
                () = wake => {
                    self.block_where_signing_ended().await;
                    self.handle(Input::TimePassed).await;
                }
            }
            self.fetch_parcels();
            self.gate.note(self.under_way, self.parcels.len());
        }
        self.end().await;
    }

    /// Waits until everything is recorded.
    async fn end(self) {
        self.doubts.end();
        drop(self.records);
        let _ = self.recorder.await;
        if let Some(waiting) = self.stopping {
            let _ = waiting.send(());
        }
    }

    /// Producers side by side hand in what one commit accepted in any order. Put back into the order
    /// of the commit, which is that of the ids, it leaves no gaps that would have to be looked up.
    async fn obey_all(&mut self, orders: impl Iterator<Item = Order>) {
        let mut accepted = Vec::new();
        for order in orders {
            match order {
                Order::Accepted(parcels) => accepted.extend(parcels),
                order => {
                    self.accepted(&mut accepted).await;
                    self.obey(order).await;
                }
            }
        }
        self.accepted(&mut accepted).await;
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Accepted(mut parcels) => self.accepted(&mut parcels).await,
            Order::EndpointIs { endpoint, outlet, reload } => {
                if reload {
                    self.endpoint_gone(endpoint.id).await;
                }
                self.endpoint_is(*endpoint, outlet).await;
            }
            Order::EndpointGone(id) => self.endpoint_gone(id).await,
            Order::Command { input, audit, answer } => {
                self.deciding = Some(Decision { audit });
                let ignored = self.handle(*input).await;
                let untold = self.deciding.take().and_then(|decision| decision.audit);
                // What is discarded on the wire changes its state when its attempt ends.
                if let Some(audit) = untold.filter(|_| ignored.is_none()) {
                    self.write(Item::Decided(audit)).await;
                }
                let _ = answer.send(ignored.map_or(Ok(()), Err));
            }
            Order::Written(answer) => self.write(Item::Written(answer)).await,
            Order::Input(input) => {
                self.handle(*input).await;
            }
            Order::Health(id, answer) => drop(answer.send(self.engine.health(id))),
            Order::Blocked(id, answer) => {
                let outlet = self.outlets.get(&id);
                let _ = answer.send(outlet.and_then(|outlet| outlet.blocked(self.time_of_day())));
            }
            Order::Counters(answer) => drop(answer.send(*self.engine.counters())),
            Order::UnderWay(answer) => drop(answer.send(self.under_way)),
            Order::Stop(answer) => self.stopping = Some(answer),
        }
    }

    async fn accepted(&mut self, parcels: &mut Vec<(Accepted, Arc<Parcel>)>) {
        if parcels.is_empty() {
            return;
        }
        parcels.sort_unstable_by_key(|(accepted, _)| accepted.id);
        let (accepted, parcels): (Vec<_>, Vec<_>) = parcels.drain(..).unzip();
        let now = self.now();
        parcels.into_iter().for_each(|parcel| self.parcels.put(parcel, now));
        self.handle(Input::Accepted(accepted)).await;
    }

    /// Tells the engine what changed about an endpoint.
    async fn endpoint_is(&mut self, endpoint: Endpoint, outlet: Arc<Outlet>) {
        let (id, status) = (endpoint.id, endpoint.status);
        self.signing_ends.retain(|(_, other)| *other != id);
        self.signing_ends.extend(outlet.signs_until().map(|at| (at, id)));
        match self.outlets.insert(id, outlet) {
            None => {
                // Its backlog is still to be loaded: nothing starts before it is blocked, if it is.
                self.handle(Input::EndpointAppeared(endpoint)).await;
            }
            Some(_) => {
                let policy = endpoint.policy;
                self.handle(Input::EndpointChanged { endpoint: id, policy }).await;
                self.switch(id, status).await;
            }
        }
        self.block_or_unblock(id).await;
    }

    async fn endpoint_gone(&mut self, id: EndpointId) {
        self.outlets.remove(&id);
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

    /// Tells the engine and the watch, if it changed, whether anything can be sent to an endpoint.
    async fn block_or_unblock(&mut self, id: EndpointId) {
        let outlet = self.outlets.get(&id);
        let reason = outlet.and_then(|outlet| outlet.blocked(self.time_of_day()));
        let changed = match reason {
            Some(_) => self.blocked.insert(id),
            None => self.blocked.remove(&id),
        };
        if changed {
            self.parts.watch.endpoint_blocked(id, reason.as_deref());
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

    async fn hear(&mut self, news: News) {
        match news {
            News::Input(input) => {
                if let Input::Recorded(token) | Input::RecordRefused(token) = *input {
                    self.recording.remove(&token);
                }
                self.handle(*input).await;
            }
            News::Ended(mut ended) => {
                self.under_way -= 1;
                self.under_way_bytes -= ended.parcel.as_deref().map_or(0, size);
                self.hands.keep(ended.hand.take());
                let (attempt, result) = (ended.attempt.token, ended.detail.result);
                self.handle_with(Input::AttemptEnded { attempt, result }, Some(ended)).await;
            }
            News::Fetched(asked, parcels) => self.fetched(&asked, parcels),
        }
    }

    async fn handle(&mut self, input: Input) -> Option<Because> {
        self.handle_with(input, None).await
    }

    /// Hands the engine an input and performs what it asks for. Says why the input was ignored, if it
    /// was. `ended` is the attempt that it reports.
    async fn handle_with(
        &mut self,
        input: Input,
        mut ended: Option<Box<Ended>>,
    ) -> Option<Because> {
        let mut ignored = None;
        let recorded = match input {
            Input::Recorded(token) => Some(token),
            _ => None,
        };
        let now = self.now();
        self.engine.handle(now, input);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                // What is on record as sent leaves in any case: nobody may send it later.
                Effect::Start(attempt) if recorded == Some(attempt.token) => self.start(attempt),
                // Once the end has been asked for, nothing else leaves: the next process finds it
                // in the store as it is.
                Effect::Start(_) | Effect::RecordFirst(..) | Effect::Load(..)
                    if self.stopping.is_some() => {}
                Effect::Start(attempt) => self.start(attempt),
                Effect::Record(transition) => self.record(transition, &mut ended).await,
                Effect::RecordFirst(transition, token) => {
                    self.recording.insert(token);
                    self.write(Item::First(transition, token)).await;
                }
                Effect::RecordEndpoint(record) => self.write(Item::Endpoint(record)).await,
                Effect::Load(ticket, load) => self.write(Item::Load(ticket, load)).await,
                Effect::Tell(notice) => self.parts.watch.notice(&notice),
                Effect::Ignored(reason) => ignored = Some(reason.because),
            }
        }
        ignored
    }

    async fn record(&mut self, transition: Transition, ended: &mut Option<Box<Ended>>) {
        let ended = ended.take_if(|ended| transition.attempt == Some(ended.attempt.token));
        if let Some(ended) = &ended {
            self.parts.watch.attempt_ended(&AttemptEnded {
                transition: &transition,
                detail: &ended.detail,
                parcel: ended.parcel.as_deref(),
                replay: ended.attempt.replay,
                trace: ended.trace,
            });
        }
        if !transition.state.is_open() {
            self.parcels.remove(transition.delivery);
        }
        let item = match (ended, &mut self.deciding) {
            (None, Some(decision)) => Item::Decision(transition, decision.audit.take()),
            (ended, _) => Item::Transition(transition, ended.map(|ended| ended.detail)),
        };
        self.write(item).await;
    }

    /// Waits while the recorder is far behind: that is what slows accepting and sending down when the
    /// store is in trouble.
    async fn write(&self, item: Item) {
        let is_awaited = item.is_awaited();
        // The recorder ends after this loop does.
        let _ = self.records.send(item).await;
        if is_awaited {
            self.awaited.notify_one();
        }
    }

    fn start(&mut self, attempt: Attempt) {
        self.under_way += 1;
        match self.parcels.get(attempt.delivery) {
            Some(parcel) => {
                self.fetches.started(attempt.endpoint);
                self.send(attempt, parcel);
            }
            None => {
                let followers = self.engine.behind(attempt.token);
                self.fetches.wait(attempt, followers, &self.parcels);
            }
        }
    }

    fn send(&mut self, attempt: Attempt, parcel: Arc<Parcel>) {
        self.under_way_bytes += size(&parcel);
        let Some(outlet) = self.outlets.get(&attempt.endpoint) else {
            return self.end_unsent(attempt, Some(parcel), (Failure::NotSent, String::new()));
        };
        let trace = own_span(&parcel, &*self.parts.source);
        let (outlet, tools) = (outlet.clone(), self.tools.clone());
        self.hands.give(Job { attempt, outlet, parcel, trace, tools });
    }

    /// Reports the end of an attempt that cannot be made.
    fn end_unsent(&self, attempt: Attempt, parcel: Option<Arc<Parcel>>, why: (Failure, String)) {
        let detail = Box::new(without_request(&attempt, why, self.time_of_day()));
        let ended = Ended { attempt, parcel, trace: None, detail, hand: None };
        let _ = self.tools.reporter.send(News::Ended(Box::new(ended)));
    }

    fn fetch_parcels(&mut self) {
        for endpoint in self.fetches.take_due() {
            self.fetches.look_ahead(endpoint, self.engine.ready(endpoint), &self.parcels);
        }
        while self.under_way_bytes < UNDER_WAY_BYTES_MAX
            && let Some(ids) = self.fetches.next()
        {
            let (parts, tools) = (self.parts.clone(), self.tools.clone());
            tokio::spawn(async move {
                let parcels = insist(&*parts.watch, || parts.store.parcels(ids.clone())).await;
                let _ = tools.reporter.send(News::Fetched(ids, parcels));
            });
        }
    }

    fn fetched(
        &mut self,
        asked: &[DeliveryId],
        parcels: Vec<(DeliveryId, Result<Parcel, StoreError>)>,
    ) {
        let now = self.now();
        for (id, parcel) in parcels {
            match parcel {
                Ok(parcel) => self.parcel_arrived(Arc::new(parcel), now),
                Err(trouble) => self.parcel_unreadable(id, &trouble),
            }
        }
        for attempt in self.fetches.missing(asked) {
            self.end_unsent(attempt, None, (Failure::PayloadMissing, String::new()));
        }
    }

    fn parcel_arrived(&mut self, parcel: Arc<Parcel>, now: Timestamp) {
        match self.fetches.arrived(&parcel) {
            Some(attempt) => self.send(attempt, parcel),
            None => self.parcels.put_ahead(parcel, now),
        }
    }

    /// What cannot be read now may be readable later: only its own attempt fails.
    fn parcel_unreadable(&mut self, id: DeliveryId, trouble: &StoreError) {
        self.parts.watch.store_trouble(trouble);
        for attempt in self.fetches.missing(&[id]) {
            self.end_unsent(attempt, None, (Failure::NotSent, trouble.to_string()));
        }
    }

    /// The engine's time.
    fn now(&mut self) -> Timestamp {
        self.clock.now(&*self.parts.source)
    }

    /// The time that people and receivers go by.
    fn time_of_day(&self) -> Timestamp {
        self.parts.source.now()
    }

    /// Waits until the engine wants to be woken, or a secret stops signing.
    fn until_wake(&mut self) -> impl Future<Output = ()> + use<> {
        let now = self.now();
        let engine = self.engine.next_wake().map(|at| at.since(now));
        let signing = self.signing_ends.first().map(|(at, _)| at.since(self.time_of_day()));
        let wait = engine.into_iter().chain(signing).min();
        async move {
            match wait {
                Some(span) => tokio::time::sleep(Duration::from_millis(span.as_millis())).await,
                None => std::future::pending().await,
            }
        }
    }
}
