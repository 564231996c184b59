//! The deliveries that a replay is for, the oldest first.
//!
//! The store lists the latest first, in pages. A walk reads one time range after the other, each so short that
//! its deliveries fit in a page, and reverses the page. Ids ascend with time, and within a lane with its seqs,
//! so the result is in the order of each lane.

use std::collections::VecDeque;

use railpost_engine::{Span, Timestamp};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{
    Cursor, DeliveryQuery, DeliveryView, Listing, PageRequest, Period, Replay, Store, StoreError,
};
use railpost_wire::DeliveryId;

/// A walk over the deliveries of one replay.
#[derive(Debug)]
pub(crate) struct Walk {
    query: DeliveryQuery,
    /// Where the next stretch begins.
    from: Timestamp,
    /// The first instant that is of no interest.
    end: Timestamp,
    /// How long the next stretch is.
    stretch: Span,
    /// The last delivery that was walked past before this walk began.
    after: Option<DeliveryId>,
    ready: VecDeque<DeliveryView>,
    /// Deliveries that the store has looked at for this walk.
    looked_at: u64,
}

impl Walk {
    /// A walk that begins where the replay has got to. Deliveries made after the replay was asked for
    /// are not its affair.
    pub(crate) fn new(replay: &Replay) -> Self {
        let filter = &replay.filter;
        let after = replay.cursor.as_ref().and_then(Cursor::delivery);
        let from = match after {
            Some(id) => Timestamp::from_millis(id.unix_ms()),
            None => filter.created.from.unwrap_or_default(),
        };
        let asked = replay.created_at + Span::from_millis(1);
        let end = filter.created.before.map_or(asked, |before| before.min(asked));
        let query = DeliveryQuery {
            tenant: replay.tenant.clone(),
            filter: filter.clone(),
            page: PageRequest::first(LIST_LIMIT_MAX),
        };
        let stretch = end.since(from);
        Self { query, from, end, stretch, after, ready: VecDeque::new(), looked_at: 0 }
    }

    /// How many deliveries the store has looked at so far: what the walk has cost.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// The next delivery; nothing at the end.
    pub(crate) async fn next(
        &mut self,
        store: &dyn Store,
    ) -> Result<Option<DeliveryView>, StoreError> {
        while self.ready.is_empty() && self.from < self.end {
            self.load(store).await?;
        }
        Ok(self.ready.pop_front())
    }

    /// Looks at one stretch: takes it if it fits in a page, and makes it shorter if not.
    async fn load(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let before = (self.from + self.stretch).min(self.end);
        let listing = self.page(store, before, None).await?;
        let one = Span::from_millis(1);
        if listing.next.is_some() && self.stretch > one {
            self.stretch = Span::from_millis((self.stretch.as_millis() / 8).max(1));
            return Ok(());
        }
        let items = self.rest(store, before, listing).await?;
        let news = items.into_iter().rev().filter(|view| self.after < Some(view.delivery.id));
        self.ready = news.collect();
        self.from = before;
        self.stretch = Span::from_millis(self.stretch.as_millis().max(1) * 4);
        Ok(())
    }

    /// All of a stretch that cannot be made shorter: a millisecond holds what one group of accepts
    /// does.
    async fn rest(
        &mut self,
        store: &dyn Store,
        before: Timestamp,
        first: Listing<DeliveryView>,
    ) -> Result<Vec<DeliveryView>, StoreError> {
        let Listing { mut items, mut next, .. } = first;
        while next.is_some() {
            let listing = self.page(store, before, next).await?;
            items.extend(listing.items);
            next = listing.next;
        }
        Ok(items)
    }

    async fn page(
        &mut self,
        store: &dyn Store,
        before: Timestamp,
        after: Option<Cursor>,
    ) -> Result<Listing<DeliveryView>, StoreError> {
        let mut query = self.query.clone();
        query.filter.created = Period { from: Some(self.from), before: Some(before) };
        query.page.after = after;
        let listing = store.deliveries(query).await?;
        self.looked_at += listing.looked_at;
        Ok(listing)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use railpost_store::{
        AcceptBatch, Change, DeliveryFilter, EndpointPrivate, EndpointSettings, Event, Intake,
        MasterKey, MemoryStore, NewEndpoint, Registry, ReplayAction, ReplayProgress, ReplayState,
        Setup, Source, TenantSettings, Write,
    };
    use railpost_wire::{EndpointId, ReplayId};

    use super::*;

    /// A clock that is set.
    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl Source for Clock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn fill_random(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    fn event(n: usize) -> Event {
        Event {
            id: format!("e{n}").parse().unwrap(),
            event_type: "a".parse().unwrap(),
            key: Some("k".parse().unwrap()),
            payload: Default::default(),
            content_type: "text/plain".parse().unwrap(),
            schema_version: None,
            time: Timestamp::default(),
            traceparent: None,
            cloudevent: None,
        }
    }

    /// A store with one endpoint, and deliveries at these instants: so many each.
    async fn store(accepts: &[(u64, usize)]) -> MemoryStore {
        let clock = Arc::new(Clock::default());
        let source: Arc<dyn Source> = clock.clone();
        let store = MemoryStore::new(Setup { source, master_key: MasterKey::new(&[1; 32]) });
        let endpoint = NewEndpoint {
            id: EndpointId::from_u128(1),
            tenant: "t".parse().unwrap(),
            settings: EndpointSettings::all_events("http://127.0.0.1:8000/"),
            private: EndpointPrivate::default(),
        };
        let tenant = Write::CreateTenant("t".parse().unwrap(), TenantSettings::default());
        let writes = vec![tenant, Write::CreateEndpoint(endpoint)];
        store.commit(Change { writes, ..Change::default() }).await.unwrap();
        let mut number = 0;
        for (at, count) in accepts {
            clock.0.store(*at, Ordering::Relaxed);
            let events = (number..number + count).map(event).collect();
            number += count;
            let batch = AcceptBatch {
                tenant: "t".parse().unwrap(),
                events,
                accepted_by: None,
                idempotency: None,
            };
            store.accept(batch.into()).await.unwrap();
        }
        store
    }

    fn replay(created_at: u64, cursor: Option<Cursor>) -> Replay {
        Replay {
            id: ReplayId::from_u128(1),
            tenant: "t".parse().unwrap(),
            created_at: Timestamp::from_millis(created_at),
            actor: String::new(),
            action: ReplayAction::Replay,
            filter: DeliveryFilter::default(),
            rate_per_s: None,
            dry_run: false,
            state: ReplayState::Running,
            progress: ReplayProgress::default(),
            preview: vec![],
            cursor,
            problem: None,
            finished_at: None,
        }
    }

    async fn walked(store: &MemoryStore, replay: &Replay) -> Vec<DeliveryView> {
        let (mut walk, mut found) = (Walk::new(replay), Vec::new());
        while let Some(next) = walk.next(store).await.unwrap() {
            found.push(next);
        }
        found
    }

    const DAY: u64 = 24 * 60 * 60 * 1000;

    #[tokio::test]
    async fn every_delivery_comes_once_and_in_the_order_of_its_lane() {
        let accepts = [
            (DAY, 1),
            (DAY + 1, 1000),
            (DAY + 2, 700),
            (2 * DAY, 3),
            (700 * DAY, 900),
            (701 * DAY, 1),
        ];
        let store = store(&accepts).await;
        let found = walked(&store, &replay(701 * DAY, None)).await;
        let seqs: Vec<u64> =
            found.iter().map(|view| view.line.as_ref().unwrap().seq.get()).collect();
        assert_eq!(seqs, (1..=2605).collect::<Vec<u64>>());
    }

    #[tokio::test]
    async fn a_walk_says_how_many_deliveries_were_looked_at() {
        let store = store(&[(DAY, 5), (2 * DAY, 5)]).await;
        let mut other = replay(3 * DAY, None);
        other.filter.key = Some("other".parse().unwrap());
        let mut walk = Walk::new(&other);
        assert!(walk.next(&store).await.unwrap().is_none());
        assert_eq!(walk.looked_at(), 10, "all of them, for none that is wanted");
    }

    #[tokio::test]
    async fn a_walk_goes_on_behind_its_cursor() {
        let store = store(&[(DAY, 700), (DAY + 5, 20)]).await;
        let all = walked(&store, &replay(2 * DAY, None)).await;
        for at in [0, 699, 700, 719] {
            let cursor = Cursor::at_delivery(all[at].delivery.id);
            let rest = walked(&store, &replay(2 * DAY, Some(cursor))).await;
            assert_eq!(rest, all[at + 1..], "{at}");
        }
    }

    #[tokio::test]
    async fn what_was_made_after_the_replay_was_asked_for_is_not_its_affair() {
        let store = store(&[(DAY, 2), (2 * DAY, 2), (3 * DAY, 2)]).await;
        assert_eq!(walked(&store, &replay(2 * DAY, None)).await.len(), 4);
        let mut later = replay(3 * DAY, None);
        let at = Timestamp::from_millis;
        later.filter.created = Period { from: Some(at(2 * DAY)), before: Some(at(3 * DAY)) };
        assert_eq!(walked(&store, &later).await.len(), 2);
    }
}
