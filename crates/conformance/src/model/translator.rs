//! The backend's answers in the memory store's names.

use std::fmt::Debug;
use std::hash::Hash;

use railpost_engine::{Accepted, Delivery, LaneId, LanePage, Page, Place};
use railpost_wire::{DeliveryId, LineId, Seq};
use rustc_hash::FxHashMap;

use railpost_store::{
    DeliveryView, HeldLane, LinePlace, NewDelivery, Parcel, Receipt, Recorded, RefusedTransition,
};

/// Names that the backend and the memory store gave to the same things.
#[derive(Debug)]
pub(super) struct Names<T> {
    to_memory: FxHashMap<T, T>,
    to_backend: FxHashMap<T, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { to_memory: FxHashMap::default(), to_backend: FxHashMap::default() }
    }
}

impl<T: Copy + Debug + Eq + Hash> Names<T> {
    pub(super) fn pair(&mut self, backend: T, memory: T) {
        let known = *self.to_memory.entry(backend).or_insert(memory);
        assert_eq!(known, memory, "{backend:?} is one thing");
        let known = *self.to_backend.entry(memory).or_insert(backend);
        assert_eq!(known, backend, "{memory:?} has one name");
    }

    pub(super) fn memory(&self, backend: T) -> T {
        *self.to_memory.get(&backend).unwrap_or_else(|| panic!("{backend:?} came from nowhere"))
    }

    pub(super) fn backend(&self, memory: T) -> T {
        *self.to_backend.get(&memory).unwrap_or(&memory)
    }
}

/// Translates the backend's answers.
#[derive(Debug, Default)]
pub(super) struct Translator {
    pub(super) deliveries: Names<DeliveryId>,
    pub(super) lanes: Names<LaneId>,
    pub(super) eras: Names<u64>,
}

impl Translator {
    pub(super) fn learn(&mut self, backend: &Accepted, memory: &Accepted) {
        self.deliveries.pair(backend.id, memory.id);
        if let (Some(backend), Some(memory)) = (backend.place, memory.place) {
            self.lanes.pair(backend.lane, memory.lane);
        }
    }

    pub(super) fn place(&self, place: Option<Place>) -> Option<Place> {
        place.map(|Place { lane, seq }| Place { lane: self.lanes.memory(lane), seq })
    }

    pub(super) fn line(&self, line: Option<LinePlace>) -> Option<LinePlace> {
        line.map(|place| {
            let (era, lane) = place.line.as_str().split_once('-').unwrap();
            let era = self.eras.memory(u64::from_str_radix(era, 16).unwrap());
            let lane = self.lanes.memory(LaneId(lane.parse().unwrap()));
            LinePlace { line: LineId::of(era, lane.0), ..place }
        })
    }

    pub(super) fn accepted(&self, accepted: Accepted) -> Accepted {
        let id = self.deliveries.memory(accepted.id);
        Accepted { id, place: self.place(accepted.place), ..accepted }
    }

    pub(super) fn receipt(&self, receipt: Receipt) -> Receipt {
        let translate = |NewDelivery { accepted, line }| NewDelivery {
            accepted: self.accepted(accepted),
            line: self.line(line),
        };
        match receipt {
            Receipt::Accepted { accepted_at, deliveries } => Receipt::Accepted {
                accepted_at,
                deliveries: deliveries.into_iter().map(translate).collect(),
            },
            duplicate => duplicate,
        }
    }

    pub(super) fn delivery(&self, delivery: Delivery) -> Delivery {
        let id = self.deliveries.memory(delivery.id);
        Delivery { id, place: self.place(delivery.place), ..delivery }
    }

    pub(super) fn view(&self, view: DeliveryView) -> DeliveryView {
        let line = self.line(view.line);
        DeliveryView { delivery: self.delivery(view.delivery), line, ..view }
    }

    pub(super) fn parcel(&self, parcel: Parcel) -> Parcel {
        let delivery = self.deliveries.memory(parcel.delivery);
        Parcel { delivery, line: self.line(parcel.line), ..parcel }
    }

    pub(super) fn held(&self, held: HeldLane) -> HeldLane {
        let (lane, held_by) = (self.lanes.memory(held.lane), self.deliveries.memory(held.held_by));
        HeldLane { lane, held_by, line: self.line(held.line), ..held }
    }

    pub(super) fn recorded(&self, recorded: Recorded) -> Recorded {
        let refused = recorded.refused.into_iter().map(|refused| RefusedTransition {
            delivery: self.deliveries.memory(refused.delivery),
            ..refused
        });
        Recorded { refused: refused.collect(), ..recorded }
    }

    pub(super) fn lane_page(&self, page: LanePage) -> LanePage {
        let lane = self.lanes.memory(page.lane);
        let deliveries = page.deliveries.into_iter().map(|delivery| self.delivery(delivery));
        relevant(LanePage { lane, deliveries: deliveries.collect(), ..page })
    }

    pub(super) fn page(&self, page: Page) -> Page {
        match page {
            Page::Lanes { lanes, next } => Page::Lanes {
                lanes: by_lane(lanes.into_iter().map(|page| self.lane_page(page)).collect()),
                next: next.map(|lane| self.lanes.memory(lane)),
            },
            Page::Lane(page) => Page::Lane(self.lane_page(page)),
            Page::Unkeyed { deliveries, next, next_due } => Page::Unkeyed {
                deliveries: deliveries.into_iter().map(|one| self.delivery(one)).collect(),
                next: next.map(|id| self.deliveries.memory(id)),
                next_due,
            },
        }
    }
}

/// As the memory store orders them.
pub(super) fn by_lane(mut lanes: Vec<LanePage>) -> Vec<LanePage> {
    lanes.sort_by_key(|page| page.lane);
    lanes
}

/// Without what is told of deliveries that are closed: a store may forget it when it likes.
pub(super) fn relevant(mut page: LanePage) -> LanePage {
    let end = page.through.map_or(0, Seq::get) + 1;
    let open: Vec<_> =
        page.deliveries.iter().filter_map(|one| one.place).map(|place| place.seq).collect();
    page.follows.retain(|(seq, _)| open.contains(seq) || seq.get() == end);
    page
}

pub(super) fn relevant_page(page: Page) -> Page {
    match page {
        Page::Lanes { lanes, next } => {
            Page::Lanes { lanes: lanes.into_iter().map(relevant).collect(), next }
        }
        Page::Lane(page) => Page::Lane(relevant(page)),
        unkeyed => unkeyed,
    }
}
