//! Loading what is open, as the engine asks for it.

use railpost_engine::{DeadReason, DeliveryState, LaneId, Load, LoadedPage, Timestamp};
use railpost_wire::{EndpointId, Seq};

use super::world::{World, ids, seq};
use railpost_store::{StoreError, Write};

fn dead(holds: bool) -> DeliveryState {
    DeliveryState::Dead { reason: DeadReason::AttemptsExhausted, holds }
}

pub(super) async fn a_lane_loads_its_open_deliveries_by_seq(world: World) {
    world.endpoint().await;
    let batch = (0..5).map(|_| world.event(Some("k"))).collect();
    let lane = world.accept(batch).await;
    world.move_to(&lane[0], DeliveryState::Delivered).await;
    world.move_to(&lane[2], DeliveryState::DISCARDED).await;
    let page = world.lane(&lane[0], 1, 10).await;
    let open: Vec<_> = page.deliveries.iter().map(|d| d.place.unwrap().seq.get()).collect();
    assert_eq!(open, [2, 4, 5]);
    assert_eq!((page.from, page.through, page.last), (Seq::FIRST, Seq::new(5), Seq::new(5)));
}

pub(super) async fn a_full_page_of_a_lane_ends_with_its_last_delivery(world: World) {
    world.endpoint().await;
    let batch = (0..5).map(|_| world.event(Some("k"))).collect();
    let lane = world.accept(batch).await;
    world.move_to(&lane[1], DeliveryState::Delivered).await;
    let page = world.lane(&lane[0], 1, 2).await;
    assert_eq!((page.through, page.last), (Seq::new(3), Seq::new(5)));
    let page = world.lane(&lane[0], 4, 2).await;
    assert_eq!(
        (page.from, page.through, page.last),
        (Seq::new(4).unwrap(), Seq::new(5), Seq::new(5))
    );
    assert_eq!(page.deliveries.iter().map(|d| d.id).collect::<Vec<_>>(), ids(&lane[3..]));
}

pub(super) async fn a_lane_that_ends_before_the_asked_for_seq_says_so(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    let page = world.lane(&accepted, 2, 5).await;
    assert_eq!((page.through, page.last, page.deliveries.len()), (None, Some(Seq::FIRST), 0));
}

pub(super) async fn a_lane_that_is_unknown_or_anothers_is_empty(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    let other = world.endpoint().await;
    for (endpoint, lane) in [
        (endpoint, LaneId(999)),
        (other, accepted.place.unwrap().lane),
        (EndpointId::from_u128(9), LaneId(1)),
    ] {
        let load = Load::Lane { endpoint, lane, from: Seq::FIRST, limit: 5 };
        let LoadedPage::Lane(page) = world.store.load(load).await.unwrap() else {
            panic!("not a lane")
        };
        assert_eq!((page.lane, page.through, page.last), (lane, None, None));
        assert_eq!(page.deliveries, []);
    }
}

pub(super) async fn a_drained_lane_remembers_its_last_seq(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    world.move_to(&accepted, DeliveryState::Delivered).await;
    let page = world.lane(&accepted, 1, 5).await;
    assert_eq!((page.through, page.last), (Some(Seq::FIRST), Some(Seq::FIRST)));
    assert_eq!(page.deliveries, []);
}

pub(super) async fn loads_of_one_call_are_answered_as_each_would_be_alone(world: World) {
    let endpoint = world.endpoint().await;
    let batch = ["a", "a", "b"].map(|key| world.event(Some(key)));
    let accepted = world.accept(batch.into()).await;
    world.publish(None).await;
    let lane = |index: usize, from: u64| {
        let lane = accepted[index].place.unwrap().lane;
        Load::Lane { endpoint, lane, from: Seq::new(from).unwrap(), limit: 5 }
    };
    let lanes = Load::Lanes { endpoint, after: None, limit: 1, window: 1 };
    let due_by = Timestamp::default();
    let unkeyed = Load::Unkeyed { endpoint, after: None, due_by, due_beyond: due_by, limit: 5 };
    let loads = vec![lane(2, 1), lanes, lane(0, 2), unkeyed, lane(0, 1)];
    let together = world.store.load_all(loads.clone()).await.unwrap();
    let mut alone = Vec::new();
    for load in loads {
        alone.push(world.store.load(load).await.unwrap());
    }
    assert_eq!(together, alone);
    assert_eq!(world.store.load_all(Vec::new()).await.unwrap(), []);
}

pub(super) async fn one_bad_load_of_a_call_refuses_all_of_them(world: World) {
    let endpoint = world.endpoint().await;
    let load = |limit| Load::Lane { endpoint, lane: LaneId(1), from: Seq::FIRST, limit };
    let error = world.store.load_all(vec![load(1), load(0)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
}

pub(super) async fn open_lanes_load_in_pages_by_ascending_id(world: World) {
    let endpoint = world.endpoint().await;
    let keys = ["a", "b", "c", "d", "e"];
    let heads = world.accept(keys.map(|key| world.event(Some(key))).into()).await;
    world.accept(keys.map(|key| world.event(Some(key))).into()).await;
    world.publish(None).await;
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let load = Load::Lanes { endpoint, after, limit: 2, window: 1 };
        let LoadedPage::Lanes { lanes, next } = world.store.load(load).await.unwrap() else {
            panic!()
        };
        for page in &lanes {
            assert_eq!(
                (page.from, page.through, page.last),
                (Seq::FIRST, Some(Seq::FIRST), Seq::new(2))
            );
            assert_eq!(page.deliveries.len(), 1);
            seen.push((page.lane, page.deliveries[0].id));
        }
        after = next;
        if next.is_none() {
            break;
        }
        assert_eq!(next, lanes.last().map(|page| page.lane));
    }
    let mut expected: Vec<_> = heads.iter().map(|d| (d.place.unwrap().lane, d.id)).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

pub(super) async fn closed_lanes_are_not_loaded(world: World) {
    let endpoint = world.endpoint().await;
    let keys = ["delivered", "discarded", "passed", "held", "waiting", "pending"];
    let heads = world.accept(keys.map(|key| world.event(Some(key))).into()).await;
    let until = world.later(1_000_000);
    let ends = [
        DeliveryState::Delivered,
        DeliveryState::DISCARDED,
        dead(false),
        dead(true),
        DeliveryState::Waiting { until },
    ];
    for (accepted, state) in heads.iter().zip(ends) {
        world.move_to(accepted, state).await;
    }
    let load = Load::Lanes { endpoint, after: None, limit: 10, window: 5 };
    let LoadedPage::Lanes { lanes, next } = world.store.load(load).await.unwrap() else { panic!() };
    let mut open: Vec<_> = lanes.iter().map(|page| page.deliveries[0].id).collect();
    open.sort();
    assert_eq!((open, next), (ids(&heads[3..]), None));
}

pub(super) async fn a_window_shows_where_it_was_cut(world: World) {
    let endpoint = world.endpoint().await;
    let batch = (0..4).map(|_| world.event(Some("k"))).collect();
    let lane = world.accept(batch).await;
    world.move_to(&lane[0], DeliveryState::Delivered).await;
    for (window, through) in [(2, 3), (3, 4), (9, 4)] {
        let load = Load::Lanes { endpoint, after: None, limit: 1, window };
        let LoadedPage::Lanes { lanes, .. } = world.store.load(load).await.unwrap() else {
            panic!()
        };
        assert_eq!(lanes[0].through, Seq::new(through), "window {window}");
        assert_eq!(lanes[0].deliveries[0].id, lane[1].id);
    }
}

pub(super) async fn unkeyed_deliveries_load_by_ascending_id(world: World) {
    let endpoint = world.endpoint().await;
    let all = world.accept((0..5).map(|_| world.event(None)).collect()).await;
    world.publish(Some("k")).await;
    world.move_to(&all[1], DeliveryState::Delivered).await;
    let (open, next_due) = world.unkeyed(endpoint, world.later(0)).await;
    assert_eq!(open, [all[0].id, all[2].id, all[3].id, all[4].id]);
    assert_eq!(next_due, None);
}

pub(super) async fn what_waits_longer_is_left_out_and_the_earliest_is_named(world: World) {
    let endpoint = world.endpoint().await;
    let all = world.accept((0..4).map(|_| world.event(None)).collect()).await;
    let at = |millis| Timestamp::from_millis(super::world::START.as_millis() + millis);
    for (accepted, until) in all.iter().zip([at(300), at(200), at(100)]) {
        world.move_to(accepted, DeliveryState::Waiting { until }).await;
    }
    for (due_by, open, next_due) in [
        (at(99), vec![3], Some(at(100))),
        (at(100), vec![2, 3], Some(at(200))),
        (at(250), vec![1, 2, 3], Some(at(300))),
        (at(300), vec![0, 1, 2, 3], None),
    ] {
        let expected: Vec<_> = open.into_iter().map(|index: usize| all[index].id).collect();
        assert_eq!(world.unkeyed(endpoint, due_by).await, (expected, next_due));
    }
}

pub(super) async fn a_dead_letter_that_left_its_lane_is_replayed_outside_of_it(world: World) {
    let endpoint = world.endpoint().await;
    let first = world.publish_one(Some("k")).await;
    let second = world.publish_one(Some("k")).await;
    world.move_to(&first, dead(false)).await;
    assert_eq!(world.lane(&first, 1, 5).await.deliveries[0].id, second.id);
    assert_eq!(world.unkeyed(endpoint, world.later(0)).await.0, []);
    world.move_to(&first, DeliveryState::Pending).await;
    assert_eq!(world.unkeyed(endpoint, world.later(0)).await.0, [first.id]);
    assert_eq!(world.lane(&first, 1, 5).await.deliveries.len(), 1);
    assert_eq!(world.delivery(first.id).await.place, None);
}

pub(super) async fn replayed_dead_letters_and_unkeyed_deliveries_load_in_one_order(world: World) {
    let endpoint = world.endpoint().await;
    let mut all = Vec::new();
    for key in [None, Some("k"), None, Some("k"), None] {
        all.push(world.publish_one(key).await);
    }
    for accepted in all.iter().filter(|accepted| accepted.place.is_some()) {
        world.move_to(accepted, dead(false)).await;
        world.move_to(accepted, DeliveryState::Pending).await;
    }
    assert_eq!(world.unkeyed(endpoint, world.later(0)).await.0, ids(&all));
}

pub(super) async fn a_held_lane_is_replayed_in_its_place(world: World) {
    world.endpoint().await;
    let first = world.publish_one(Some("k")).await;
    world.publish_one(Some("k")).await;
    world.move_to(&first, dead(true)).await;
    assert_eq!(world.lane(&first, 1, 5).await.deliveries[0].state, dead(true));
    world.move_to(&first, DeliveryState::Pending).await;
    let page = world.lane(&first, 1, 5).await;
    assert_eq!(page.deliveries[0].place, first.place);
    assert_eq!(page.deliveries.len(), 2);
}

pub(super) async fn a_skipped_dead_letter_leaves_its_lane_for_good(world: World) {
    world.endpoint().await;
    let first = world.publish_one(Some("k")).await;
    world.move_to(&first, dead(true)).await;
    world.move_to(&first, dead(false)).await;
    assert_eq!(world.lane(&first, 1, 5).await.deliveries, []);
    assert_eq!(seq(&world.publish_one(Some("k")).await), 2);
}

pub(super) async fn a_removed_endpoint_has_nothing_to_load(world: World) {
    let endpoint = world.endpoint().await;
    let keyed = world.publish_one(Some("k")).await;
    world.publish(None).await;
    world.commit(Write::RemoveEndpoint(endpoint)).await;
    assert_eq!(world.unkeyed(endpoint, world.later(0)).await, (vec![], None));
    assert_eq!(world.lane(&keyed, 1, 5).await.deliveries, []);
    let load = Load::Lanes { endpoint, after: None, limit: 5, window: 5 };
    assert_eq!(world.store.load(load).await, Ok(LoadedPage::Lanes { lanes: vec![], next: None }));
}

pub(super) async fn a_load_out_of_bounds_is_named(world: World) {
    let endpoint = world.endpoint().await;
    for (limit, window, named) in [(0, 1, "limit"), (1, 0, "window"), (u32::MAX, 1, "limit")] {
        let load = Load::Lanes { endpoint, after: None, limit, window };
        let refused = world.store.load(load).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == named),
            "{refused:?}"
        );
    }
}

pub(super) async fn what_waits_longer_than_any_policy_plans_is_listed(world: World) {
    let endpoint = world.endpoint().await;
    let (due, plausible, far) = (world.later(0), world.later(60_000), world.later(600_000));
    let mut all = Vec::new();
    for until in [due, plausible, far] {
        let accepted = world.publish_one(None).await;
        world.move_to(&accepted, DeliveryState::Waiting { until }).await;
        all.push(accepted);
    }
    let load =
        Load::Unkeyed { endpoint, after: None, due_by: due, due_beyond: plausible, limit: 9 };
    let page = world.store.load(load).await.unwrap();
    let LoadedPage::Unkeyed { deliveries, next_due, .. } = page else { panic!("{page:?}") };
    let found: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!((found, next_due), (vec![all[0].id, all[2].id], Some(plausible)));
}
