//! What is compared. Lists are compared page by page, each store with its own cursors.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures_util::future::BoxFuture;
use railpost_engine::{
    DeadReason, DeliveryStage, Failure, LaneId, LanePage, Load, LoadedPage, Span, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId, EventType, Key, Seq, TenantId};

use super::translator::{by_lane, relevant, relevant_page};
use super::{Model, everything};
use railpost_store::{
    Archive, ClosedReason, Cursor, DeliveryFilter, DeliveryQuery, EventQuery, HeldLaneQuery,
    LateQuery, Ledger, Listing, PageRequest, Period, Result, Store,
};

/// How many kinds of reads [`Model::check`] has.
pub(super) const KINDS: u64 = 8;

impl Model {
    /// Every page of a list of both stores, in the memory store's names.
    pub(super) async fn same_list<'w, T: Debug + PartialEq>(
        &'w self,
        what: impl Debug,
        limit: u32,
        list: impl Fn(&'w dyn Store, PageRequest) -> BoxFuture<'w, Result<Listing<T>>>,
        translate: impl Fn(T) -> T,
    ) {
        let mut after: (Option<Cursor>, Option<Cursor>) = (None, None);
        loop {
            let page = |after: Option<Cursor>| PageRequest { limit, after };
            let memory = list(&self.memory, page(after.0)).await;
            let backend = list(self.backend(), page(after.1)).await;
            let (memory, backend) = match (memory, backend) {
                (Ok(memory), Ok(backend)) => (memory, backend),
                (memory, backend) => panic!("seed {}: {what:?}: {memory:?} {backend:?}", self.seed),
            };
            let items: Vec<T> = backend.items.into_iter().map(&translate).collect();
            for (index, (backend, memory)) in items.iter().zip(&memory.items).enumerate() {
                assert_eq!(backend, memory, "seed {}: {what:?} {index}", self.seed);
            }
            assert_eq!(items.len(), memory.items.len(), "seed {}: {what:?}", self.seed);
            assert_eq!(backend.next.is_some(), memory.next.is_some(), "{what:?}");
            if memory.next.is_none() {
                return;
            }
            after = (memory.next, backend.next);
        }
    }

    async fn same_events(&mut self, limit: u32) {
        let (event_type, key, accepted) = self.some_filters();
        for tenant in &self.tenants {
            let query = |page| EventQuery {
                event_type: event_type.clone(),
                key: key.clone(),
                accepted,
                ..EventQuery::of(tenant.clone(), page)
            };
            self.same_list("events", limit, |store, page| store.events(query(page)), |one| one)
                .await;
        }
        for (tenant, event) in self.events.iter().rev().take(8) {
            let backend = self.backend().event(tenant, &event.id).await;
            assert_eq!(backend, self.memory.event(tenant, &event.id).await);
            let views = self.backend().deliveries_of(tenant, &event.id).await.unwrap();
            let views: Vec<_> = views.into_iter().map(|one| self.translator.view(one)).collect();
            let memory = self.memory.deliveries_of(tenant, &event.id).await.unwrap();
            assert_eq!(views, memory, "seed {}", self.seed);
        }
        self.same_event_details().await;
    }

    async fn same_event_details(&self) {
        for tenant in &self.tenants {
            let of_tenant = self.events.iter().filter(|(of, _)| of == tenant);
            let ids: Vec<_> = of_tenant.rev().take(20).map(|(_, event)| event.id.clone()).collect();
            let mut backend = self.backend().event_details(tenant, ids.clone()).await.unwrap();
            let mut memory = self.memory.event_details(tenant, ids).await.unwrap();
            backend.sort_by_key(|(id, _)| id.to_string());
            memory.sort_by_key(|(id, _)| id.to_string());
            // An id that was published twice is asked for twice.
            memory.dedup();
            backend.dedup();
            assert_eq!(backend, memory, "seed {}: {tenant}", self.seed);
        }
    }

    /// What a list is narrowed to; mostly nothing.
    fn some_filters(&mut self) -> (Option<EventType>, Option<Key>, Period) {
        let event_type = (self.dice.u32(..4) == 0).then(|| "a.b".parse().unwrap());
        let key = (self.dice.u32(..4) == 0).then(|| "a".parse().unwrap());
        (event_type, key, self.some_period())
    }

    pub(super) fn some_period(&mut self) -> Period {
        let now = self.now().as_millis();
        let mut instant = || {
            let ago = self.dice.u64(..1_000);
            (self.dice.u32(..4) == 0).then(|| Timestamp::from_millis(now - ago))
        };
        Period { from: instant(), before: instant() }
    }

    /// A few endpoints. Removed ones too: those that were made last are asked for more often.
    fn some_endpoints(&mut self) -> Vec<EndpointId> {
        let len = self.endpoints.len();
        let from = if self.dice.bool() { 0 } else { len.saturating_sub(4) };
        (0..3).map(|_| self.endpoints[self.dice.usize(from..len)]).collect()
    }

    async fn same_deliveries(&mut self, limit: u32, stage: Option<DeliveryStage>) {
        let (event_type, key, created) = self.some_filters();
        let one_in_six = |dice: &mut fastrand::Rng| dice.u32(..6) == 0;
        let reason =
            one_in_six(&mut self.dice).then_some(ClosedReason::Dead(DeadReason::Permanent));
        let status = one_in_six(&mut self.dice).then_some(500);
        let failure = one_in_six(&mut self.dice).then_some(Failure::Timeout);
        let some = self.some_endpoints().into_iter().map(Some).chain([None]);
        for (endpoint, tenant) in some.flat_map(|id| self.tenants.iter().map(move |t| (id, t))) {
            let query = |page| {
                let (event_type, key) = (event_type.clone(), key.clone());
                let filter = DeliveryFilter {
                    endpoint,
                    stage,
                    event_type,
                    key,
                    reason,
                    status,
                    failure,
                    created,
                };
                DeliveryQuery { filter, ..DeliveryQuery::of(tenant.clone(), page) }
            };
            let what =
                (endpoint, tenant, stage, &event_type, &key, reason, status, failure, created);
            let translate = |view| self.translator.view(view);
            self.same_list(what, limit, |store, page| store.deliveries(query(page)), translate)
                .await;
        }
    }

    async fn same_held_lanes(&mut self, limit: u32) {
        let some = [None, self.some_endpoints().pop()];
        for (endpoint, tenant) in
            some.iter().flat_map(|id| self.tenants.iter().map(move |t| (id, t)))
        {
            let query = |page| HeldLaneQuery { tenant: tenant.clone(), endpoint: *endpoint, page };
            let translate = |held| self.translator.held(held);
            self.same_list("held", limit, |store, page| store.held_lanes(query(page)), translate)
                .await;
            let held = self.memory.held_lanes(query(PageRequest::first(9))).await.unwrap().items;
            for lane in held.into_iter().map(|held| held.lane) {
                self.same_held_lane(tenant, lane).await;
            }
        }
    }

    async fn same_held_lane(&self, tenant: &TenantId, lane: LaneId) {
        let named = self.translator.lanes.backend(lane);
        let backend = self.backend().held_lane(tenant, named).await.unwrap();
        let memory = self.memory.held_lane(tenant, lane).await.unwrap();
        let backend = backend.map(|held| self.translator.held(held));
        assert_eq!(backend, memory, "seed {}: {lane:?}", self.seed);
    }

    async fn same_late(&self) {
        for within in [Span::ZERO, Span::from_millis(300)] {
            let memory = all_late(&self.memory, self.now(), within).await;
            let backend = all_late(self.backend(), self.now(), within).await;
            assert_eq!(backend, memory, "seed {}: {within}", self.seed);
        }
    }

    async fn same_counts(&self) {
        for id in &self.endpoints {
            let memory = self.memory.counts(*id).await;
            assert_eq!(self.backend().counts(*id).await, memory, "seed {}: {id}", self.seed);
        }
        for tenant in self.tenants.iter().map(Some).chain([None]) {
            let memory = self.memory.totals(tenant).await;
            assert_eq!(self.backend().totals(tenant).await, memory, "seed {}", self.seed);
        }
    }

    /// The open lanes of an endpoint. Each store lists them by its own ids.
    async fn same_lanes(&self, endpoint: EndpointId, limit: u32) {
        let backend = open_lanes(self.backend(), endpoint, limit).await;
        let backend = backend.into_iter().map(|page| self.translator.lane_page(page)).collect();
        let memory = open_lanes(&self.memory, endpoint, limit).await;
        let memory: Vec<_> = memory.into_iter().map(relevant).collect();
        assert_eq!(by_lane(backend), memory, "seed {}: {endpoint}", self.seed);
    }

    async fn same_loads(&mut self, limit: u32) {
        let now = self.now();
        let due_beyond = Timestamp::from_millis(now.as_millis() + 200);
        let mut loads = Vec::new();
        for endpoint in self.some_endpoints() {
            self.same_lanes(endpoint, limit).await;
            loads.push(Load::Lanes { endpoint, after: None, limit: 99, window: limit });
            loads.push(Load::Unkeyed { endpoint, after: None, due_by: now, due_beyond, limit });
            let lanes = Load::Lanes { endpoint, after: None, limit: 9, window: 1 };
            let LoadedPage::Lanes { lanes, .. } = self.memory.load(lanes).await.unwrap() else {
                panic!()
            };
            for LanePage { lane, deliveries, .. } in lanes {
                let from = deliveries[0].place.unwrap().seq;
                loads.push(Load::Lane { endpoint, lane, from, limit });
                loads.push(Load::Lane { endpoint, lane, from: Seq::FIRST, limit });
            }
        }
        let named = loads.iter().map(|load| match *load {
            Load::Lane { endpoint, lane, from, limit } => {
                Load::Lane { endpoint, lane: self.translator.lanes.backend(lane), from, limit }
            }
            other => other,
        });
        let backend = self.backend().load_all(named.collect()).await.unwrap();
        let memory = self.memory.load_all(loads.clone()).await.unwrap();
        for ((backend, memory), load) in backend.into_iter().zip(memory).zip(loads) {
            let backend = self.translator.page(backend);
            assert_eq!(backend, relevant_page(memory), "seed {}: {load:?}", self.seed);
        }
    }

    async fn same_sweeps(&self, limit: u32) {
        let (mut memory, mut backend) = (everything(), everything());
        loop {
            (memory.limit, backend.limit) = (limit, limit);
            let here = self.backend().sweep(backend).await.unwrap();
            let there = self.memory.sweep(memory).await.unwrap();
            let open: Vec<_> =
                here.deliveries.into_iter().map(|one| self.translator.accepted(one)).collect();
            assert_eq!(open, there.deliveries, "seed {}", self.seed);
            assert_eq!(self.translator.eras.memory(here.era), there.era);
            match (here.next, there.next) {
                (Some(here), Some(there)) => (backend.after, memory.after) = (here, there),
                (None, None) => return,
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
    }

    async fn same_parcels(&self) {
        let ids: Vec<_> = self.deliveries.iter().rev().take(30).copied().collect();
        let named = ids.iter().map(|id| self.translator.deliveries.backend(*id)).collect();
        let backend = self.backend().parcels(named).await.unwrap();
        let backend: BTreeMap<_, _> = backend
            .into_iter()
            .map(|(id, parcel)| {
                let parcel = self.translator.parcel(parcel.unwrap());
                (self.translator.deliveries.memory(id), parcel)
            })
            .collect();
        let memory = self.memory.parcels(ids.clone()).await.unwrap();
        let memory = memory.into_iter().map(|(id, parcel)| (id, parcel.unwrap())).collect();
        assert_eq!(backend, memory, "seed {}", self.seed);
        self.same_last_attempts(&ids).await;
        for id in ids.into_iter().take(6) {
            let named = self.translator.deliveries.backend(id);
            let page = PageRequest::first(99);
            let memory = self.memory.attempts(id, page.clone()).await;
            assert_eq!(self.backend().attempts(named, page).await, memory, "seed {}", self.seed);
            let view = self.backend().delivery(named).await.unwrap();
            let view = view.map(|view| self.translator.view(view));
            assert_eq!(view, self.memory.delivery(id).await.unwrap(), "seed {}", self.seed);
        }
    }

    async fn same_last_attempts(&self, ids: &[DeliveryId]) {
        let names = &self.translator.deliveries;
        let named = ids.iter().map(|id| names.backend(*id)).collect();
        let backend = self.backend().last_attempts(named).await.unwrap();
        let backend: BTreeMap<_, _> =
            backend.into_iter().map(|(id, last)| (names.memory(id), format!("{last:?}"))).collect();
        let memory = self.memory.last_attempts(ids.to_vec()).await.unwrap();
        let memory = memory.into_iter().map(|(id, last)| (id, format!("{last:?}"))).collect();
        assert_eq!(backend, memory, "seed {}", self.seed);
    }

    /// One kind of read after another, so that all are done between any few groups.
    pub(super) async fn check(&mut self, kind: u64) {
        let limit = [2, 9, 40, 99][self.dice.usize(..4)];
        let stages = [
            None,
            Some(DeliveryStage::Dead),
            Some(DeliveryStage::Pending),
            Some(DeliveryStage::Discarded),
        ];
        self.same_held_lanes(limit).await;
        self.same_loads(limit).await;
        match kind % KINDS {
            0 => self.same_registry(limit).await,
            1 => self.same_events(limit).await,
            2 => {
                let stage = stages[self.dice.usize(..4)];
                self.same_deliveries(limit, stage).await;
            }
            3 => {
                self.same_counts().await;
                self.same_late().await;
            }
            4 => self.same_sweeps(limit).await,
            5 => self.same_parcels().await,
            6 => self.same_access(limit).await,
            _ => self.same_figures().await,
        }
    }
}

/// The late ones of all deliveries, by endpoint.
async fn all_late(
    store: &dyn Store,
    before: Timestamp,
    within: Span,
) -> BTreeMap<(EndpointId, String), [u64; 3]> {
    let mut query = LateQuery { from: DeliveryId::from_u128(0), before, within };
    let mut all: BTreeMap<_, [u64; 3]> = BTreeMap::new();
    while query.from < query.end() {
        let page = store.late_deliveries(query).await.unwrap();
        query.from = page.judged_before;
        for late in page.endpoints {
            let status = format!("{:?} {:?}", late.status, late.failing_since);
            let counts = [late.attempted, late.behind_attempted, late.unattempted];
            let sums = all.entry((late.endpoint, status)).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    all
}

/// Every page of an endpoint's open lanes.
async fn open_lanes(store: &dyn Store, endpoint: EndpointId, limit: u32) -> Vec<LanePage> {
    let (mut all, mut after) = (Vec::<LanePage>::new(), None);
    loop {
        let load = Load::Lanes { endpoint, after, limit, window: limit };
        let LoadedPage::Lanes { lanes, next } = store.load(load).await.unwrap() else { panic!() };
        assert!(next.is_none() || lanes.len() == limit as usize, "{endpoint}: a page is full");
        all.extend(lanes);
        assert!(all.is_sorted_by_key(|page| page.lane), "{endpoint}: by id");
        match next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}
