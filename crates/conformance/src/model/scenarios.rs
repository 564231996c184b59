//! Which calls a scenario makes.

use bytes::Bytes;
use railpost_engine::{
    AttemptResult, DeadReason, Delivery, DeliveryStage, DeliveryState, Progress, Span, Timestamp,
    Transition,
};
use railpost_wire::{ApiKeyId, EventId, TenantId};

use super::Model;
use super::calls::Call;
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{
    AcceptBatch, AcceptedBy, Archive, AttemptDetail, Durability, Event, PruneStep, RecordBatch,
    RedeliverBatch, Timing,
};

impl Model {
    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        self.dice.choice(of).cloned()
    }

    fn event(&mut self, tenant: &TenantId) -> Event {
        let known: Vec<_> = self.events.iter().filter(|(whose, _)| whose == tenant).collect();
        if self.dice.u32(..20) == 0
            && let Some((_, known)) = self.dice.choice(known)
        {
            let changed = if self.dice.u32(..4) == 0 { "other" } else { "{}" };
            return Event { payload: Bytes::from(changed), ..known.clone() };
        }
        self.made += 1;
        let keys = ["a", "a", "b", "c"];
        let key = (self.dice.u32(..5) > 0).then(|| keys[self.dice.usize(..4)].parse().unwrap());
        Event {
            id: EventId::generate(self.made, [0; 10]),
            event_type: ["a.b", "a.b", "c.d"][self.dice.usize(..3)].parse().unwrap(),
            key,
            payload: Bytes::from_static(b"{}"),
            content_type: "application/json".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(self.made),
            traceparent: None,
            cloudevent: None,
        }
    }

    fn batch(&mut self) -> AcceptBatch {
        let tenant = self.tenants[usize::from(self.dice.u32(..5) == 0)].clone();
        let count = self.dice.usize(1..5);
        let events = (0..count).map(|_| self.event(&tenant)).collect();
        let idempotency = self.request().map(|record| Box::new((*record).into()));
        let made = self.made.into();
        let accepted_by = self.dice.bool().then(|| AcceptedBy::Key(ApiKeyId::from_u128(made)));
        AcceptBatch { tenant, events, accepted_by, idempotency }
    }

    async fn records(&mut self) -> RecordBatch {
        let mut batch = RecordBatch::default();
        for _ in 0..self.dice.usize(1..8) {
            // Mostly of late: what is old is closed.
            let from =
                self.deliveries.len().saturating_sub(if self.dice.bool() { 12 } else { 200 });
            let Some(id) = self.dice.choice(&self.deliveries[from..]).copied() else { break };
            let Some(view) = self.memory.delivery(id).await.unwrap() else { continue };
            let mut delivery = view.delivery;
            let before = batch.transitions.iter().filter(|(before, _)| before.delivery == id);
            delivery.progress.attempts += before.count() as u32;
            batch.transitions.push(self.transition(delivery));
        }
        if self.dice.u32(..4) == 0 {
            batch.endpoints.push(self.endpoint_record());
        }
        if self.dice.u32(..4) == 0 {
            let endpoint = self.some_endpoint();
            batch.audit.push(self.audit_entry("decision", endpoint));
        }
        if self.dice.u32(..4) == 0 {
            batch.durability = Durability::Durable;
        }
        batch
    }

    fn transition(&mut self, delivery: Delivery) -> (Transition, Option<Box<AttemptDetail>>) {
        let now = self.now();
        let dead = |holds| DeliveryState::Dead { reason: DeadReason::Permanent, holds };
        let until = Timestamp::from_millis(now.as_millis() + self.dice.u64(..500));
        let states = [
            DeliveryState::Delivered,
            DeliveryState::Delivered,
            DeliveryState::Delivered,
            DeliveryState::InFlight,
            DeliveryState::Waiting { until },
            dead(true),
            dead(false),
            DeliveryState::DISCARDED,
            DeliveryState::Pending,
        ];
        let state = states[self.dice.usize(..states.len())];
        let Delivery { id, endpoint, place, progress, .. } = delivery;
        let number = progress.attempts + 1;
        let result = AttemptResult::Response { status: 200, retry_after: None };
        let timing = Timing { total_us: self.dice.u32(..), ..Timing::default() };
        let detail = AttemptDetail {
            number,
            started_at: now,
            result,
            timing,
            message: None,
            response_headers: vec![],
            response_body: Bytes::new(),
            node: None,
        };
        let progress = Progress {
            attempts: number,
            round_attempts: number,
            round_started_at: Some(now),
            last_delay: Span::from_millis(3),
            replay: progress.replay,
        };
        let transition =
            Transition { delivery: id, endpoint, place, state, progress, attempt: None, at: now };
        let attempted = !matches!(state.stage(), DeliveryStage::Pending | DeliveryStage::InFlight);
        (transition, attempted.then(|| Box::new(detail)))
    }

    fn prune_step(&mut self) -> PruneStep {
        let now = self.now().as_millis();
        let mut before = |most| Timestamp::from_millis(now - self.dice.u64(1..most));
        PruneStep {
            closed_before: before(1_500),
            dead_before: before(1_500),
            lanes_before: before(1_000),
            ..PruneStep::of_all_before(Timestamp::default(), 1_000)
        }
    }

    pub(super) async fn call(&mut self) -> Call {
        match self.dice.u32(..40) {
            0 => Call::BeginEra,
            1 => Call::Prune(self.prune_step()),
            // All at once: which ones a step closes first is the store's choice.
            2 => Call::CloseRemoved(UPKEEP_STEP_MAX),
            3..6 => Call::Fail(self.batch()),
            6..10 => Call::Commit(self.change()),
            10 => Call::AddFigures(self.figures()),
            11..14 => match self.pick(&self.events.clone()) {
                Some((tenant, event)) => {
                    let to = self.pick(&self.endpoints.clone()).unwrap();
                    let orders = vec![(event.id, to)];
                    let audit = Some(self.audit_entry("redeliver", to));
                    let idempotency = self.request();
                    Call::Redeliver(RedeliverBatch { tenant, orders, audit, idempotency })
                }
                None => Call::Accept(self.batch()),
            },
            14..26 => Call::Record(self.records().await),
            _ => Call::Accept(self.batch()),
        }
    }
}
