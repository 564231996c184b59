//! The run loop: inputs in, effects out.

use std::sync::Arc;
use std::time::Duration;

use railpost_engine::{
    Accepted, Attempt, Because, Counters, Effect, Endpoint, EndpointStatus, Engine, Failure,
    Health, Input, Timestamp, Transition,
};
use railpost_store::{AttemptDetail, Parcel};
use railpost_wire::{DeliveryId, EndpointId};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::attempt::{Job, Tools, own_span, without_request};
use super::fetches::Fetches;
use super::gate::Gate;
use super::hands::{Hand, Hands};
use super::lookups::{Desk, Lookups};
use super::outlet::Outlet;
use super::parcels::Parcels;
use super::recorder::{Item, Recorder, insist};
use super::{AttemptEnded, DispatcherConfig, Parts};
use crate::TraceParent;
use crate::limits::{INPUTS_PER_TURN, READ_AHEAD_SHARE, RECORDS_WAITING_MAX};

/// What the run loop is asked to do. Small, because every accept sends one.
pub(super) enum Order {
    Accepted(Vec<(Accepted, Arc<Parcel>)>),
    EndpointIs { endpoint: Box<Endpoint>, outlet: Arc<Outlet> },
    EndpointGone(EndpointId),
    Command(Box<Input>, oneshot::Sender<Result<(), Because>>),
    Input(Box<Input>),
    Health(EndpointId, oneshot::Sender<Option<Health>>),
    Counters(oneshot::Sender<Counters>),
    UnderWay(oneshot::Sender<usize>),
    Stop(oneshot::Sender<()>),
}

/// What the tasks around the run loop report.
pub(super) enum News {
    Input(Box<Input>),
    Ended(Box<Ended>),
    /// Parcels that were found of those that were asked for.
    Fetched(Vec<DeliveryId>, Vec<Parcel>),
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

pub(super) struct Run {
    parts: Parts,
    tools: Arc<Tools>,
    engine: Engine,
    outlets: FxHashMap<EndpointId, (Arc<Outlet>, EndpointStatus)>,
    parcels: Parcels,
    /// Attempts under way, by the engine's word, that will be reported as [`News::Ended`].
    under_way: usize,
    fetches: Fetches,
    hands: Hands,
    gate: Arc<Gate>,
    inbox: mpsc::Receiver<Order>,
    news: mpsc::UnboundedReceiver<News>,
    records: mpsc::Sender<Item>,
    /// Tells the recorder that it has something somebody waits for.
    awaited: Arc<Notify>,
    recorder: JoinHandle<()>,
    /// Who waits for the end, once it has been asked for.
    stopping: Option<oneshot::Sender<()>>,
}

impl Run {
    pub(super) fn new(
        parts: Parts,
        config: &DispatcherConfig,
        inbox: mpsc::Receiver<Order>,
        gate: Arc<Gate>,
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
            outlets: FxHashMap::default(),
            parcels: Parcels::new(config.parcels_bytes_max),
            under_way: 0,
            fetches: Fetches::new(config.parcels_bytes_max / READ_AHEAD_SHARE),
            hands: Hands::default(),
            gate,
            inbox,
            news,
            records,
            awaited,
            recorder: tokio::spawn(recorder.run()),
            stopping: None,
            parts,
        }
    }

    pub(super) async fn run(mut self) {
        let (mut orders, mut news) = (Vec::new(), Vec::new());
        while self.stopping.is_none() || self.under_way > 0 {
            let wake = until_wake(self.engine.next_wake(), self.now());
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
            Order::EndpointIs { endpoint, outlet } => self.endpoint_is(*endpoint, outlet).await,
            Order::EndpointGone(id) => {
                self.outlets.remove(&id);
                self.handle(Input::EndpointRemoved(id)).await;
            }
            Order::Command(input, answer) => {
                let ignored = self.handle(*input).await;
                let _ = answer.send(ignored.map_or(Ok(()), Err));
            }
            Order::Input(input) => {
                self.handle(*input).await;
            }
            Order::Health(id, answer) => drop(answer.send(self.engine.health(id))),
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
        match self.outlets.insert(id, (outlet, status)) {
            None => {
                self.handle(Input::EndpointAppeared(endpoint)).await;
            }
            Some(_) => {
                let policy = endpoint.policy;
                self.handle(Input::EndpointChanged { endpoint: id, policy }).await;
                self.switch(id, status).await;
            }
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
                self.handle(*input).await;
            }
            News::Ended(mut ended) => {
                self.under_way -= 1;
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
        self.engine.handle(self.now(), input);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                // Once the end has been asked for, nothing new leaves: whoever starts next finds it
                // in the store as it is.
                Effect::Start(_) | Effect::RecordFirst(..) | Effect::Load(..)
                    if self.stopping.is_some() => {}
                Effect::Start(attempt) => self.start(attempt),
                Effect::Record(transition) => self.record(transition, &mut ended).await,
                Effect::RecordFirst(transition, token) => {
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
        self.write(Item::Transition(transition, ended.map(|ended| ended.detail))).await;
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
        let Some((outlet, _)) = self.outlets.get(&attempt.endpoint) else {
            return self.end_unsent(attempt, Some(parcel), Failure::NotSent);
        };
        let trace = own_span(&parcel, &*self.parts.source);
        let (outlet, tools) = (outlet.clone(), self.tools.clone());
        self.hands.give(Job { attempt, outlet, parcel, trace, tools });
    }

    /// Reports the end of an attempt that cannot be made.
    fn end_unsent(&self, attempt: Attempt, parcel: Option<Arc<Parcel>>, failure: Failure) {
        let detail = Box::new(without_request(&attempt, failure, self.now()));
        let ended = Ended { attempt, parcel, trace: None, detail, hand: None };
        let _ = self.tools.reporter.send(News::Ended(Box::new(ended)));
    }

    fn fetch_parcels(&mut self) {
        for endpoint in self.fetches.take_due() {
            self.fetches.look_ahead(endpoint, self.engine.ready(endpoint), &self.parcels);
        }
        while let Some(ids) = self.fetches.next() {
            let (parts, tools) = (self.parts.clone(), self.tools.clone());
            tokio::spawn(async move {
                let parcels = insist(&*parts.watch, || parts.store.parcels(ids.clone())).await;
                let _ = tools.reporter.send(News::Fetched(ids, parcels));
            });
        }
    }

    fn fetched(&mut self, asked: &[DeliveryId], parcels: Vec<Parcel>) {
        let now = self.now();
        for parcel in parcels.into_iter().map(Arc::new) {
            match self.fetches.arrived(&parcel) {
                Some(attempt) => self.send(attempt, parcel),
                None => self.parcels.put_ahead(parcel, now),
            }
        }
        for attempt in self.fetches.missing(asked) {
            self.end_unsent(attempt, None, Failure::PayloadMissing);
        }
    }

    fn now(&self) -> Timestamp {
        self.parts.source.now()
    }
}

async fn until_wake(wake: Option<Timestamp>, now: Timestamp) {
    match wake {
        Some(at) => tokio::time::sleep(Duration::from_millis(at.since(now).as_millis())).await,
        None => std::future::pending().await,
    }
}
