//! A harness around one engine: it keeps the clock, collects the effects and answers for the store.

use std::collections::BTreeMap;

use railpost_engine::{
    Accepted, Attempt, AttemptResult, AttemptToken, Command, Config, Delivery, DeliveryState,
    Effect, Endpoint, EndpointRecord, EndpointStatus, Engine, Failure, Ignored, IgnoredReason,
    Input, LaneId, Load, LoadTicket, LoadedPage, NoticeKind, Place, Policy, Progress, Span,
    Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, Seq, TenantId};
use serde_json::Value;

pub(crate) struct Harness {
    pub(crate) engine: Engine,
    now: Timestamp,
    next_id: u64,
    /// The latest instant an id was made at: stores make ids that ascend whatever the clock does.
    ids_at: Timestamp,
    /// Attempts under way, in the order of their start.
    pub(crate) under_way: Vec<Attempt>,
    pub(crate) started: Vec<Attempt>,
    pub(crate) records: Vec<Transition>,
    pub(crate) records_first: Vec<(Transition, AttemptToken)>,
    pub(crate) endpoint_records: Vec<EndpointRecord>,
    pub(crate) loads: Vec<(LoadTicket, Load)>,
    pub(crate) notices: Vec<NoticeKind>,
    pub(crate) ignored: Vec<Ignored>,
    /// Where each accepted delivery stands in line.
    places: BTreeMap<DeliveryId, (EndpointId, Option<Place>)>,
}

pub(crate) fn seq(number: u64) -> Seq {
    Seq::new(number).expect("a seq")
}

pub(crate) fn at(lane: u64, number: u64) -> Option<Place> {
    Some(Place { lane: LaneId(lane), seq: seq(number) })
}

pub(crate) fn policy(json: Value) -> Policy {
    serde_json::from_value(json).expect("a valid policy")
}

pub(crate) fn answer(status: u16) -> AttemptResult {
    AttemptResult::Response { status, retry_after: None }
}

pub(crate) fn answer_after(status: u16, secs: u64) -> AttemptResult {
    AttemptResult::Response { status, retry_after: Some(Span::from_secs(secs)) }
}

pub(crate) const TIMEOUT: AttemptResult = AttemptResult::Failed(Failure::Timeout);

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self {
            engine: Engine::new(config, 7),
            now: Timestamp::from_millis(1_700_000_000_000),
            next_id: 1,
            ids_at: Timestamp::default(),
            under_way: Vec::new(),
            started: Vec::new(),
            records: Vec::new(),
            records_first: Vec::new(),
            endpoint_records: Vec::new(),
            loads: Vec::new(),
            notices: Vec::new(),
            ignored: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.engine.handle(self.now, input);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Start(attempt) => {
                    self.under_way.push(attempt);
                    self.started.push(attempt);
                }
                Effect::Record(transition) => self.records.push(transition),
                Effect::RecordFirst(transition, token) => {
                    self.records_first.push((transition, token));
                }
                Effect::RecordEndpoint(record) => self.endpoint_records.push(record),
                Effect::Load(ticket, load) => self.loads.push((ticket, load)),
                Effect::Notify(notice) => self.notices.push(notice.kind),
                Effect::Ignored(ignored) => self.ignored.push(ignored),
            }
        }
    }

    /// Lets time pass, waking the engine whenever it asks for it.
    pub(crate) fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(wake) = self.engine.next_wake().filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            self.handle(Input::TimePassed);
        }
        self.now = end;
        self.handle(Input::TimePassed);
    }

    pub(crate) fn pass_secs(&mut self, secs: u64) {
        self.pass(Span::from_secs(secs));
    }

    /// Turns the clock back, as an operating system may.
    pub(crate) fn turn_clock_back(&mut self, span: Span) {
        self.now = Timestamp::from_millis(self.now.as_millis() - span.as_millis());
    }

    pub(crate) fn endpoint_id(&mut self) -> EndpointId {
        self.next_id += 1;
        EndpointId::from_u128(self.next_id.into())
    }

    /// An endpoint of the tenant `acme` with an empty backlog.
    pub(crate) fn endpoint(&mut self, json: Value) -> EndpointId {
        self.endpoint_of("acme", json)
    }

    pub(crate) fn endpoint_of(&mut self, tenant: &str, json: Value) -> EndpointId {
        let id = self.endpoint_id();
        self.endpoint_appears(id, tenant, json);
        self.answer_loads_with_nothing();
        id
    }

    /// An endpoint whose backlog is still to be loaded.
    pub(crate) fn endpoint_appears(&mut self, id: EndpointId, tenant: &str, json: Value) {
        self.handle(Input::EndpointAppeared(Endpoint {
            id,
            tenant: tenant.parse::<TenantId>().expect("a tenant id"),
            policy: policy(json),
            status: EndpointStatus::Active,
            status_since: None,
            failing_since: None,
            rotation: None,
        }));
    }

    pub(crate) fn answer_loads_with_nothing(&mut self) {
        for (ticket, load) in std::mem::take(&mut self.loads) {
            let page = match load {
                Load::Lanes { .. } => LoadedPage::Lanes { lanes: vec![], next: None },
                Load::Unkeyed { .. } => {
                    LoadedPage::Unkeyed { deliveries: vec![], next: None, next_due: None }
                }
                Load::Lane { .. } => panic!("nothing is known of this lane: {load:?}"),
            };
            self.handle(Input::Loaded { ticket, page });
        }
    }

    pub(crate) fn answer_load(&mut self, page: LoadedPage) {
        let (ticket, _) = self.loads.remove(0);
        self.handle(Input::Loaded { ticket, page });
    }

    /// Ids ascend, and tell when they were made.
    fn delivery_id(&mut self) -> DeliveryId {
        self.next_id += 1;
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.next_id.to_be_bytes());
        self.ids_at = self.ids_at.max(self.now);
        DeliveryId::generate(self.ids_at.as_millis(), random)
    }

    pub(crate) fn new_delivery(&mut self, endpoint: EndpointId, place: Option<Place>) -> Accepted {
        let id = self.delivery_id();
        self.places.insert(id, (endpoint, place));
        Accepted { id, endpoint, place, replay: false }
    }

    pub(crate) fn accept(&mut self, endpoint: EndpointId, place: Option<Place>) -> DeliveryId {
        let accepted = self.new_delivery(endpoint, place);
        self.handle(Input::Accepted(vec![accepted]));
        accepted.id
    }

    /// Deliveries 1 to `count` of a lane.
    pub(crate) fn accept_lane(
        &mut self,
        endpoint: EndpointId,
        lane: u64,
        count: u64,
    ) -> Vec<DeliveryId> {
        (1..=count).map(|number| self.accept(endpoint, at(lane, number))).collect()
    }

    /// What is under way now, by delivery, in the order of its start.
    pub(crate) fn in_flight(&self) -> Vec<DeliveryId> {
        self.under_way.iter().map(|attempt| attempt.delivery).collect()
    }

    pub(crate) fn take_attempt(&mut self, delivery: DeliveryId) -> Attempt {
        let index = self.under_way.iter().position(|attempt| attempt.delivery == delivery);
        self.under_way.remove(index.expect("that delivery is under way"))
    }

    pub(crate) fn end(&mut self, delivery: DeliveryId, result: AttemptResult) {
        let attempt = self.take_attempt(delivery).token;
        self.handle(Input::AttemptEnded { attempt, result });
    }

    pub(crate) fn acknowledge(&mut self, delivery: DeliveryId) {
        self.end(delivery, answer(200));
    }

    pub(crate) fn command(&mut self, command: Command, delivery: DeliveryId) {
        let delivery = self.stored(delivery);
        self.handle(Input::Command { command, delivery });
    }

    /// The delivery as a store that recorded everything has it.
    pub(crate) fn stored(&self, id: DeliveryId) -> Delivery {
        let (endpoint, place) = self.places[&id];
        let (state, progress) = self
            .records
            .iter()
            .rev()
            .find(|record| record.delivery == id)
            .map_or((DeliveryState::Pending, Progress::default()), |r| (r.state, r.progress));
        let left_lane = self.records.iter().any(|record| {
            record.delivery == id
                && matches!(record.state, DeliveryState::Dead { holds: false, .. })
        });
        Delivery { id, endpoint, place: place.filter(|_| !left_lane), state, progress }
    }

    pub(crate) fn state(&self, id: DeliveryId) -> DeliveryState {
        self.stored(id).state
    }

    pub(crate) fn last_ignored(&self) -> Option<IgnoredReason> {
        self.ignored.last().map(|ignored| ignored.reason)
    }

    pub(crate) fn status(&self, endpoint: EndpointId) -> EndpointStatus {
        self.engine.health(endpoint).expect("a served endpoint").status
    }
}
