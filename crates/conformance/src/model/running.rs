//! The calls on both stores, and what their answers tell.

use std::sync::atomic::Ordering::Relaxed;

use futures_util::future::join_all;
use railpost_engine::{Accepted, Ordering};
use railpost_wire::AuditId;

use super::calls::{Answer, Call, failure, on_any};
use super::{Model, everything, setup};
use railpost_store::{Archive, AuditEntry, Ledger, Receipt, Store, Sweep, TenantSettings, Write};

impl Model {
    /// Makes the calls at once on the backend, and one after the other on the memory store.
    pub(super) async fn run(&mut self, calls: Vec<Call>) {
        let in_order = self.backend.choices().keeps_order;
        let accepts = |call: &Call| matches!(call, Call::Accept(_));
        for calls in calls.chunk_by(|one, next| in_order || accepts(one) && accepts(next)) {
            self.run_at_once(calls).await;
        }
    }

    async fn run_at_once(&mut self, calls: &[Call]) {
        let answers = join_all(calls.iter().map(|call| self.on_backend(call.clone()))).await;
        for (call, backend) in calls.iter().zip(answers) {
            let memory = self.on_memory(call.clone()).await;
            self.learn(call, &backend, &memory);
            if matches!(call, Call::BeginEra) {
                self.learn_era().await;
            }
            if self.is_refused_either_way(&backend, &memory) {
                continue;
            }
            let seed = self.seed;
            assert_eq!(self.translate(backend), memory, "seed {seed}: {call:?}");
        }
    }

    fn is_refused_either_way(&self, backend: &Answer, memory: &Answer) -> bool {
        !self.backend.choices().first_refusal
            && matches!((backend, memory), (Answer::Redeliver(Err(_)), Answer::Redeliver(Err(_))))
    }

    async fn on_backend(&self, call: Call) -> Answer {
        match call {
            Call::Record(mut batch) => {
                for (transition, _) in &mut batch.transitions {
                    transition.delivery = self.translator.deliveries.backend(transition.delivery);
                    if let Some(place) = &mut transition.place {
                        place.lane = self.translator.lanes.backend(place.lane);
                    }
                }
                on_any(self.backend(), Call::Record(batch)).await
            }
            Call::Fail(batch) => {
                self.backend.fail(batch).await;
                Answer::Done(Err(failure()))
            }
            other => on_any(self.backend(), other).await,
        }
    }

    async fn on_memory(&self, call: Call) -> Answer {
        match call {
            Call::Fail(_) => Answer::Done(Err(failure())),
            other => self.as_chosen(on_any(&self.memory, other).await).await,
        }
    }

    /// The memory store's answer as the backend chooses to give it.
    async fn as_chosen(&self, mut answer: Answer) -> Answer {
        if let Answer::Record(Ok(recorded)) = &mut answer
            && !self.backend.choices().refusals_in_turn
        {
            for refused in &mut recorded.refused {
                let view = self.memory.delivery(refused.delivery).await.unwrap();
                refused.on_record = view.map(|view| view.delivery.state.stage());
            }
        }
        answer
    }

    fn learn(&mut self, call: &Call, backend: &Answer, memory: &Answer) {
        let Self { translator, deliveries, events, .. } = self;
        let mut learn = |backend: &Accepted, memory: &Accepted| {
            translator.learn(backend, memory);
            deliveries.push(memory.id);
        };
        match (call, backend, memory) {
            (Call::Accept(batch), Answer::Accept(Ok(backend)), Answer::Accept(Ok(memory))) => {
                for ((backend, memory), event) in backend.iter().zip(memory).zip(&batch.events) {
                    let Receipt::Accepted { deliveries: backend, .. } = backend else { continue };
                    let Receipt::Accepted { deliveries: memory, .. } = memory else { continue };
                    events.push((batch.tenant.clone(), event.clone()));
                    for (backend, memory) in backend.iter().zip(memory) {
                        learn(&backend.accepted, &memory.accepted);
                    }
                }
            }
            (_, Answer::Redeliver(Ok(backend)), Answer::Redeliver(Ok(memory))) => {
                backend.iter().zip(memory).for_each(|(backend, memory)| learn(backend, memory));
            }
            _ => {}
        }
    }

    pub(super) async fn learn_era(&mut self) {
        let sweep = Sweep { limit: 1, ..everything() };
        let (backend, memory) = (self.backend().sweep(sweep).await, self.memory.sweep(sweep).await);
        self.translator.eras.pair(backend.unwrap().era, memory.unwrap().era);
    }

    fn translate(&self, answer: Answer) -> Answer {
        let names = &self.translator;
        match answer {
            Answer::Accept(Ok(receipts)) => {
                Answer::Accept(Ok(receipts.into_iter().map(|one| names.receipt(one)).collect()))
            }
            Answer::Redeliver(Ok(all)) => {
                Answer::Redeliver(Ok(all.into_iter().map(|one| names.accepted(one)).collect()))
            }
            Answer::Record(Ok(recorded)) => Answer::Record(Ok(names.recorded(recorded))),
            other => other,
        }
    }

    /// Erases the second tenant, and makes it again.
    async fn erase(&mut self) {
        let tenant = self.tenants[1].clone();
        self.run(vec![Call::Commit(Write::EraseTenant(tenant.clone()).into())]).await;
        self.made += 1;
        let ended = AuditEntry {
            id: AuditId::from_u128(self.made.into()),
            at: self.now(),
            tenant: None,
            actor: "model".to_owned(),
            address: None,
            action: "erased".to_owned(),
            target: tenant.to_string(),
            detail: serde_json::Value::Null,
        };
        for store in [&self.memory as &dyn Store, self.backend()] {
            while !store.erase_tenant(&tenant, &ended).await.unwrap() {}
        }
        let create = Write::CreateTenant(self.tenants[1].clone(), TenantSettings::default());
        let endpoint = self.new_endpoint(1, Ordering::PerKey);
        self.events.retain(|(tenant, _)| *tenant != self.tenants[1]);
        self.run(vec![Call::Commit(create.into()), Call::Commit(endpoint.into())]).await;
    }

    pub(super) async fn step(&mut self) {
        self.now.fetch_add(self.dice.u64(1..40), Relaxed);
        match self.dice.u32(..30) {
            0 => {
                let setup = setup(&self.now, self.dice.u64(..));
                self.backend.restart(setup).await;
            }
            1 => {
                let setup = setup(&self.now, self.dice.u64(..));
                self.backend.crash(setup).await;
            }
            2 => self.erase().await,
            _ => {
                let mut calls = Vec::new();
                for _ in 0..self.dice.usize(1..5) {
                    calls.push(self.call().await);
                }
                // What a record is about and which era it is, is looked up before and after a group.
                let (mut records, mut eras) = (0, 0);
                calls.retain(|call| {
                    records += u32::from(matches!(call, Call::Record(_)));
                    eras += u32::from(matches!(call, Call::BeginEra));
                    match call {
                        Call::Record(_) => records <= 1,
                        Call::BeginEra => eras <= 1,
                        _ => true,
                    }
                });
                self.run(calls).await;
            }
        }
    }
}
