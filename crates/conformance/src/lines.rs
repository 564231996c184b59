//! Lines of numbers: where they begin, what is passed over in them, and when their lanes go.

use railpost_engine::{
    Accepted, DeadReason, DeliveryStage, DeliveryState, DiscardReason, Load, LoadedPage, Timestamp,
};
use railpost_wire::{EventId, LineId, Seq};

use super::world::{START, World, deliveries, ids, seq};
use railpost_store::{
    DeliveryFilter, DeliveryQuery, LinePlace, NewDelivery, PageRequest, PruneStep, Receipt,
    RecordBatch, RedeliverBatch, Store, Write,
};

const SKIPPED: DeliveryState = DeliveryState::Dead { reason: DeadReason::Permanent, holds: false };

/// What one event makes, lines and all.
async fn publish(world: &World, store: &dyn Store, key: &str) -> Vec<NewDelivery> {
    let batch = world.batch(vec![world.event(Some(key))]);
    match store.accept(batch.into()).await.unwrap().remove(0) {
        Receipt::Accepted { deliveries, .. } => deliveries,
        other => panic!("{other:?}"),
    }
}

/// The line and the number in it that the only delivery of an event got.
async fn numbered(world: &World, store: &dyn Store, key: &str) -> (LineId, u64) {
    let place = publish(world, store, key).await.remove(0).line.unwrap();
    (place.line, place.seq.get())
}

pub(super) async fn each_lane_of_each_endpoint_has_a_line_of_its_own(world: World) {
    world.endpoint().await;
    world.endpoint().await;
    let mut lines = Vec::new();
    for key in ["a", "b"] {
        for expected in [1, 2] {
            for delivery in publish(&world, &*world.store, key).await {
                let place = delivery.line.unwrap();
                assert_eq!((place.seq.get(), place.before), (expected, 0));
                assert_eq!(world.line(delivery.accepted.id).await, place, "as it was told");
                lines.push(place.line);
            }
        }
    }
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 4);
    let unkeyed = world.event(None);
    let receipts = world.store.accept(world.batch(vec![unkeyed]).into()).await.unwrap();
    let [Receipt::Accepted { deliveries, .. }] = &receipts[..] else { panic!("{receipts:?}") };
    assert!(deliveries.iter().all(|delivery| delivery.line.is_none()));
}

pub(super) async fn a_new_era_begins_new_lines_and_leaves_the_old_ones_alone(world: World) {
    world.endpoint().await;
    let first = publish(&world, &*world.store, "a").await.remove(0);
    let second = publish(&world, &*world.store, "a").await.remove(0);
    let mut lines = vec![first.line.clone().unwrap().line];
    for era in 1..=2 {
        world.store.begin_era().await.unwrap();
        for expected in [1, 2] {
            let delivery = publish(&world, &*world.store, "a").await.remove(0);
            let place = delivery.line.unwrap();
            assert_eq!((place.seq.get(), place.before), (expected, 2 * era));
            assert_eq!(seq(&delivery.accepted), 2 * era + expected, "the lane's numbers go on");
            lines.push(place.line);
        }
    }
    lines.dedup();
    assert_eq!(lines.len(), 3);
    for delivery in [first, second] {
        assert_eq!(Some(world.line(delivery.accepted.id).await), delivery.line);
    }
    let page = world.lane(&publish(&world, &*world.store, "a").await[0].accepted, 1, 9).await;
    assert_eq!(page.deliveries.len(), 7, "all of them stand in one lane");
}

pub(super) async fn a_restored_store_never_uses_a_number_of_a_line_twice(world: World) {
    world.endpoint().await;
    let open = publish(&world, &*world.store, "a").await.remove(0);
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let lost = numbered(&world, &*world.store, "a").await;
    for _ in 0..2 {
        let restored = world.restore(&path, 1).await.unwrap();
        let place = line_in(&*restored, &open.accepted).await;
        assert_eq!(place.seq.get(), 1);
        assert_ne!(place.line, lost.0, "what was open goes out in a new line");
        let (line, number) = numbered(&world, &*restored, "a").await;
        assert_eq!((&line, number), (&place.line, 2), "the next one follows it");
        let (other, _) = numbered(&world, &*restored, "made after the copy").await;
        assert_ne!(other, line);
    }
}

async fn line_in(store: &dyn Store, of: &Accepted) -> LinePlace {
    store.delivery(of.id).await.unwrap().unwrap().line.unwrap()
}

/// By number of a lane: its number in the line that it is in now, and the number that it follows there.
async fn open_in(store: &dyn Store, all: &[Accepted]) -> Vec<(u64, u64, u64)> {
    let (endpoint, lane) = (all[0].endpoint, all[0].place.unwrap().lane);
    let load = Load::Lane { endpoint, lane, from: Seq::FIRST, limit: 99 };
    let LoadedPage::Lane(page) = store.load(load).await.unwrap() else { panic!("expected a lane") };
    let mut found = Vec::new();
    for delivery in page.deliveries {
        let place = line_in(store, all.iter().find(|one| one.id == delivery.id).unwrap()).await;
        let seq = delivery.place.unwrap().seq;
        let noted = page.follows.iter().find(|(of, _)| *of == seq);
        let follows = noted.map_or(seq.get() - 1, |(_, before)| *before);
        found.push((seq.get(), place.seq.get(), place.number(follows)));
    }
    found
}

pub(super) async fn what_is_open_goes_out_in_a_new_line_after_a_restore(world: World) {
    world.endpoint().await;
    let mut all = Vec::new();
    for _ in 0..9 {
        all.push(world.publish_one(Some("k")).await);
    }
    let old = world.line(all[0].id).await;
    world.move_to(&all[0], DeliveryState::Delivered).await;
    world.move_to(&all[1], SKIPPED).await;
    // Open are 3, 4, 6 and 8. What was delivered in the old line is never sent in the new one.
    for (index, state) in [
        (4, DeliveryState::Delivered),
        (6, DeliveryState::DISCARDED),
        (8, DeliveryState::Delivered),
    ] {
        world.move_to(&all[index], state).await;
    }
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    let next = publish(&world, &*restored, "k").await.remove(0);
    all.push(next.accepted);
    let expected = [(3, 1, 0), (4, 2, 1), (6, 4, 2), (8, 6, 4), (10, 8, 6)];
    assert_eq!(open_in(&*restored, &all).await, expected);
    let new = line_in(&*restored, &all[2]).await;
    assert_ne!(new.line, old.line);
    assert_eq!(next.line.unwrap().line, new.line, "all of it is one line");
    for closed in &all[..2] {
        let place = line_in(&*restored, closed).await;
        assert_eq!(place.line, old.line, "what was closed before keeps its line");
    }
}

pub(super) async fn lines_are_told_apart_however_often_a_store_is_restored(world: World) {
    world.endpoint().await;
    let mut all = Vec::new();
    for _ in 0..2 {
        all.push(world.publish_one(Some("k")).await);
        all.push(world.publish_one(Some("k")).await);
        world.store.begin_era().await.unwrap();
    }
    // 1 and 2 are of the first line, 3 and 4 of the second.
    let (first, second) = (world.line(all[0].id).await.line, world.line(all[2].id).await.line);
    world.move_to(&all[0], DeliveryState::Delivered).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let once = world.restore(&path, 1).await.unwrap();
    let third = line_in(&*once, &all[1]).await.line;
    assert!(![&first, &second].contains(&&third));
    let expected = [(&first, 1), (&third, 1), (&third, 2), (&third, 3)];
    assert_lines(&*once, &all, expected).await;

    let delivered = all[1..3].iter().map(|one| world.transition(one, DeliveryState::Delivered));
    once.record(RecordBatch::of(delivered).into()).await.unwrap();
    let path = world.new_path();
    once.backup(&path).await.unwrap();
    let twice = world.restore(&path, 1).await.unwrap();
    let fourth = line_in(&*twice, &all[3]).await.line;
    assert_ne!(fourth, third);
    let expected = [(&first, 1), (&third, 1), (&third, 2), (&fourth, 1)];
    assert_lines(&*twice, &all, expected).await;
}

async fn assert_lines(store: &dyn Store, all: &[Accepted], expected: [(&LineId, u64); 4]) {
    for (accepted, expected) in all.iter().zip(expected) {
        let place = line_in(store, accepted).await;
        assert_eq!((&place.line, place.seq.get()), expected, "{accepted:?}");
    }
}

pub(super) async fn what_was_skipped_is_passed_over(world: World) {
    world.endpoint().await;
    let held = DeliveryState::Dead { reason: DeadReason::Permanent, holds: true };
    // By state of the deliveries 1, 2 … of a lane: what follows what.
    for (states, expected) in [
        (vec![DeliveryState::Delivered, DeliveryState::Delivered], vec![]),
        (vec![DeliveryState::Delivered, SKIPPED], vec![(3, 1)]),
        (vec![SKIPPED, SKIPPED], vec![(3, 0)]),
        (vec![DeliveryState::Delivered, held], vec![]),
        (
            vec![DeliveryState::Delivered, DeliveryState::DISCARDED, DeliveryState::DISCARDED],
            vec![(4, 1)],
        ),
    ] {
        let key = world.unique().to_string();
        let mut last = world.publish_one(Some(&key)).await;
        for state in &states {
            world.move_to(&last, *state).await;
            last = world.publish_one(Some(&key)).await;
        }
        assert_eq!(follows(&world, &last).await, expected, "{states:?}");
    }
}

async fn follows(world: &World, of: &Accepted) -> Vec<(u64, u64)> {
    let page = world.lane(of, 1, 99).await;
    page.follows.into_iter().map(|(seq, before)| (seq.get(), before)).collect()
}

pub(super) async fn what_is_discarded_out_of_order_is_passed_over_too(world: World) {
    world.endpoint().await;
    let mut all = Vec::new();
    for _ in 0..9 {
        all.push(world.publish_one(Some("k")).await);
    }
    let discarded = |index: usize| world.transition(&all[index - 1], DeliveryState::DISCARDED);
    // 3 to 5 from the middle outwards, and 8, in one call.
    world.record([discarded(4), discarded(5), discarded(3), discarded(8)]).await;
    assert_eq!(follows(&world, &all[0]).await, [(6, 2), (9, 7)]);
    let page = world.lane(&all[0], 7, 2).await;
    let shown: Vec<_> = page.follows.iter().map(|(seq, before)| (seq.get(), *before)).collect();
    assert_eq!(shown, [(9, 7)], "a page tells of its own stretch and of what comes after it");
    let delivered = |index: usize| world.transition(&all[index - 1], DeliveryState::Delivered);
    world.record([1, 2, 6, 7].map(delivered)).await;
    world.record([discarded(9)]).await;
    let next = world.publish_one(Some("k")).await;
    assert_eq!(follows(&world, &next).await.last(), Some(&(10, 7)));
}

pub(super) async fn a_redelivery_is_a_replay_from_its_first_attempt_on(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(Some("k"));
    let first = world.accept(vec![event.clone()]).await[0];
    assert!(!first.replay && !world.delivery(first.id).await.progress.replay);
    let again = redeliver(&world, event.id, endpoint).await;
    assert!(again.replay && world.delivery(again.id).await.progress.replay);
    assert_eq!((seq(&again), world.line(again.id).await.seq.get()), (2, 2));
}

async fn redeliver(world: &World, event: EventId, endpoint: railpost_wire::EndpointId) -> Accepted {
    let orders = vec![(event, endpoint)];
    let batch =
        RedeliverBatch { tenant: world.tenant.clone(), orders, audit: None, idempotency: None };
    world.store.redeliver(batch).await.unwrap()[0]
}

pub(super) async fn a_dead_letter_that_left_its_lane_keeps_its_line(world: World) {
    world.endpoint().await;
    world.publish_one(Some("k")).await;
    let second = world.publish_one(Some("k")).await;
    let line = world.line(second.id).await;
    world.move_to(&second, SKIPPED).await;
    assert_eq!(world.delivery(second.id).await.place, None);
    world.store.begin_era().await.unwrap();
    world.publish_one(Some("k")).await;
    assert_eq!(world.line(second.id).await, line);
    assert_eq!(line.seq.get(), 2);
}

/// Deletes the lanes that stood empty since `before`, and says how many those were.
async fn prune_lanes(world: &World, before: Timestamp) -> u64 {
    let mut lanes = 0;
    // Lanes are walked in small steps, beside the events.
    for _ in 0..10 {
        let step = PruneStep { lanes_before: before, ..PruneStep::of_all_before(START, 2) };
        lanes += world.store.prune(step).await.unwrap().lanes;
    }
    lanes
}

pub(super) async fn a_lane_that_stood_empty_for_long_goes_and_its_key_begins_a_new_line(
    world: World,
) {
    world.endpoint().await;
    let mut lines = Vec::new();
    for key in ["a", "b", "c"] {
        let delivery = publish(&world, &*world.store, key).await.remove(0);
        world.move_to(&delivery.accepted, DeliveryState::Delivered).await;
        lines.push(delivery.line.unwrap().line);
    }
    let open = world.publish_one(Some("open")).await;
    let cut = world.later(1_000);
    let young = world.publish_one(Some("young")).await;
    world.move_to(&young, DeliveryState::Delivered).await;
    assert_eq!(prune_lanes(&world, START).await, 0);
    assert_eq!(prune_lanes(&world, cut).await, 3);
    for (key, line) in ["a", "b", "c"].into_iter().zip(lines) {
        let (other, number) = numbered(&world, &*world.store, key).await;
        assert_eq!(number, 1, "{key}");
        assert_ne!(other, line, "{key}");
    }
    assert_eq!(world.line(open.id).await.seq.get(), 1);
    assert_eq!(numbered(&world, &*world.store, "open").await.1, 2);
    assert_eq!(numbered(&world, &*world.store, "young").await.1, 2);
}

pub(super) async fn what_a_removed_endpoint_has_open_is_discarded_in_small_steps(world: World) {
    let endpoint = world.endpoint().await;
    let kept = world.endpoint().await;
    let mut mine = Vec::new();
    for key in [Some("a"), Some("a"), None, Some("b"), Some("c")] {
        let all = world.publish(key).await;
        mine.extend(all.into_iter().filter(|accepted| accepted.endpoint == endpoint));
    }
    let until = world.later(10);
    world.move_to(&mine[2], DeliveryState::Waiting { until }).await;
    world.move_to(&mine[3], SKIPPED).await;
    world.move_to(&mine[4], DeliveryState::Delivered).await;
    assert_eq!(world.store.close_removed(9).await, Ok(0));
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        steps.push(world.store.close_removed(3).await.unwrap());
    }
    assert_eq!(steps, [3, 1, 0]);
    let discarded = DeliveryState::Discarded { reason: DiscardReason::EndpointRemoved };
    for accepted in &mine[..4] {
        assert_eq!(world.delivery(accepted.id).await.state, discarded);
    }
    assert_eq!(world.delivery(mine[4].id).await.state, DeliveryState::Delivered);
    for (named, stage, expected) in [
        (Some(endpoint), Some(DeliveryStage::Discarded), 4),
        (Some(endpoint), None, 5),
        (None, Some(DeliveryStage::Discarded), 4),
        (None, Some(DeliveryStage::Delivered), 1),
        (None, Some(DeliveryStage::Dead), 0),
        (None, None, 10),
    ] {
        let page = PageRequest::first(19);
        let query = DeliveryQuery::of(world.tenant.clone(), page);
        let filter = DeliveryFilter { endpoint: named, stage, ..DeliveryFilter::default() };
        let query = DeliveryQuery { filter, ..query };
        let listed = world.store.deliveries(query).await.unwrap().items;
        assert_eq!(listed.len(), expected, "{named:?} {stage:?}");
    }
    assert_eq!(world.store.counts(kept).await.unwrap().open(), 5);
}

pub(super) async fn a_sweep_lists_what_is_open_in_a_stretch_of_ids(world: World) {
    let endpoint = world.endpoint().await;
    let gone = world.endpoint().await;
    let mut all = Vec::new();
    for key in [Some("a"), None, Some("a"), Some("b"), None] {
        all.extend(world.publish(key).await);
        world.later(1);
    }
    world.commit(Write::RemoveEndpoint(gone)).await;
    all.retain(|accepted| accepted.endpoint == endpoint);
    world.move_to(&all[1], DeliveryState::Delivered).await;
    let until = world.later(60_000);
    world.move_to(&all[2], DeliveryState::Waiting { until }).await;
    let open = [all[0], all[2], all[3], all[4]];
    for (after, through, expected) in [
        (None, None, vec![0, 1, 2, 3]),
        (Some(all[0].id), None, vec![1, 2, 3]),
        (None, Some(all[2].id), vec![0, 1]),
        (Some(all[3].id), Some(all[3].id), vec![]),
        (Some(all[4].id), Some(all[0].id), vec![]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|index: usize| open[index].id).collect();
        assert_eq!(ids(&swept(&world, after, through).await), expected);
    }
    let found = swept(&world, None, None).await;
    assert_eq!(found.iter().map(|one| one.place).collect::<Vec<_>>(), open.map(|one| one.place));
}

/// A whole sweep, two at a time.
async fn swept(
    world: &World,
    after: Option<railpost_wire::DeliveryId>,
    through: Option<railpost_wire::DeliveryId>,
) -> Vec<Accepted> {
    let mut found = Vec::new();
    let mut after = after.unwrap_or(railpost_wire::DeliveryId::from_u128(0));
    let through = through.unwrap_or(railpost_wire::DeliveryId::from_u128(u128::MAX));
    loop {
        let page =
            world.store.sweep(railpost_store::Sweep { after, through, limit: 2 }).await.unwrap();
        assert!(page.deliveries.len() <= 2);
        found.extend(page.deliveries);
        match page.next {
            Some(next) => after = next,
            None => return found,
        }
    }
}

pub(super) async fn a_sweep_tells_the_era(world: World) {
    let era = async || {
        let (after, through) = (railpost_wire::DeliveryId::from_u128(0), all_ids());
        world.store.sweep(railpost_store::Sweep { after, through, limit: 1 }).await.unwrap().era
    };
    let first = era().await;
    assert_eq!(era().await, first);
    world.store.begin_era().await.unwrap();
    assert_ne!(era().await, first);
}

fn all_ids() -> railpost_wire::DeliveryId {
    railpost_wire::DeliveryId::from_u128(u128::MAX)
}

pub(super) async fn an_event_of_the_future_keeps_none_behind_it_from_being_pruned(world: World) {
    world.endpoint().await;
    let now = world.later(0);
    world.source.set(Timestamp::from_millis(now.as_millis() + 1_000_000));
    let future = world.publish_one(None).await;
    world.source.set(now);
    let present = world.publish_one(None).await;
    for accepted in [&future, &present] {
        world.move_to(accepted, DeliveryState::Delivered).await;
    }
    let cut = world.later(1_000);
    let (mut pruned, mut after) = (0, None);
    loop {
        let step = PruneStep {
            closed_before: cut,
            dead_before: cut,
            after: after.take(),
            ..PruneStep::of_all_before(START, 1)
        };
        let done = world.store.prune(step).await.unwrap();
        pruned += done.events;
        after = done.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pruned, 1);
    assert_eq!(world.store.delivery(present.id).await, Ok(None));
    assert!(world.store.delivery(future.id).await.unwrap().is_some());
}

pub(super) async fn a_healthy_store_is_found_to_be_whole(world: World) {
    world.endpoint().await;
    deliveries(world.store.accept(world.batch(vec![world.event(None)]).into()).await.unwrap());
    assert_eq!(world.store.verify().await, Ok(()));
}
