//! Recording: transitions, guards, attempts, epochs; and what a sender needs.

use railpost_engine::{
    AttemptResult, DeadReason, DeliveryStage, DeliveryState, EndpointRecord, EndpointStatus,
    Failure,
};
use railpost_wire::{DeliveryId, EndpointId};

use super::world::{World, detail, ids, progress};
use railpost_store::limits::RESPONSE_BODY_LEN_MAX;
use railpost_store::{
    AttemptDetail, Durability, Epoch, PageRequest, Partition, RecordBatch, Recorded,
    RefusedTransition, StoreError,
};

pub(super) async fn a_recorded_state_reads_back_in_every_detail(world: World) {
    world.endpoint().await;
    let until = world.later(9_000);
    let dead = |holds| DeliveryState::Dead { reason: DeadReason::OutcomeUnknown, holds };
    for state in [
        DeliveryState::InFlight,
        DeliveryState::Waiting { until },
        DeliveryState::Delivered,
        DeliveryState::DISCARDED,
        dead(true),
        dead(false),
    ] {
        let accepted = world.publish_one(None).await;
        assert_eq!(world.move_to(&accepted, state).await.applied, 1);
        let delivery = world.delivery(accepted.id).await;
        assert_eq!((delivery.state, delivery.progress), (state, progress()));
    }
}

pub(super) async fn what_is_recorded_is_seen_by_the_next_load(world: World) {
    world.endpoint().await;
    let first = world.publish_one(Some("k")).await;
    let second = world.publish_one(Some("k")).await;
    for _ in 0..20 {
        assert_eq!(world.lane(&first, 1, 10).await.deliveries[0].id, first.id);
        world.move_to(&first, DeliveryState::Waiting { until: world.later(1) }).await;
    }
    world.move_to(&first, DeliveryState::Delivered).await;
    let page = world.lane(&first, 1, 10).await;
    assert_eq!(page.deliveries.iter().map(|d| d.id).collect::<Vec<_>>(), [second.id]);
}

pub(super) async fn a_record_never_lowers_the_count_of_attempts(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let waiting = DeliveryState::Waiting { until: world.later(1) };
    world.move_to(&accepted, waiting).await;
    let mut outdated = world.transition(&accepted, DeliveryState::DISCARDED);
    outdated.progress.attempts -= 1;
    assert_eq!(world.record([outdated]).await.applied, 1);
    assert_eq!(world.delivery(accepted.id).await.progress.attempts, progress().attempts);
}

pub(super) async fn an_illegal_transition_is_skipped_and_the_rest_is_recorded(world: World) {
    world.endpoint().await;
    let done = world.publish_one(None).await;
    let open = world.publish_one(None).await;
    world.move_to(&done, DeliveryState::Delivered).await;
    let transitions = [
        world.transition(&done, DeliveryState::Pending),
        world.transition(&open, DeliveryState::Delivered),
    ];
    let recorded = world.record(transitions).await;
    let refused =
        RefusedTransition { delivery: done.id, on_record: Some(DeliveryStage::Delivered) };
    assert_eq!(recorded, Recorded { applied: 1, refused: vec![refused] });
    assert_eq!(world.delivery(done.id).await.state, DeliveryState::Delivered);
    assert_eq!(world.delivery(open.id).await.state, DeliveryState::Delivered);
}

pub(super) async fn every_pair_of_stages_is_guarded_as_the_engine_says(world: World) {
    world.endpoint().await;
    let until = world.later(0);
    let dead = |holds| DeliveryState::Dead { reason: DeadReason::Permanent, holds };
    let states = [
        DeliveryState::Pending,
        DeliveryState::InFlight,
        DeliveryState::Waiting { until },
        DeliveryState::Delivered,
        dead(true),
        dead(false),
        DeliveryState::DISCARDED,
    ];
    for from in states {
        for to in states {
            let accepted = world.publish_one(Some("k")).await;
            if from != DeliveryState::Pending {
                assert_eq!(world.move_to(&accepted, from).await.applied, 1, "{from:?}");
            }
            let legal = from.stage().may_be_recorded_as(to.stage());
            let applied = world.move_to(&accepted, to).await.applied;
            assert_eq!(applied == 1, legal, "{from:?} → {to:?}");
            let expected = if legal { to } else { from };
            assert_eq!(world.delivery(accepted.id).await.state, expected, "{from:?} → {to:?}");
        }
    }
}

pub(super) async fn a_transition_of_an_unknown_delivery_is_skipped(world: World) {
    let endpoint = world.endpoint().await;
    let id = DeliveryId::from_u128(77);
    let unknown = railpost_engine::Accepted { id, endpoint, place: None, replay: false };
    let recorded = world.move_to(&unknown, DeliveryState::Delivered).await;
    assert_eq!(recorded.refused, [RefusedTransition { delivery: id, on_record: None }]);
}

pub(super) async fn two_transitions_of_one_delivery_in_a_batch_are_both_recorded(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let until = world.later(5);
    let recorded = world
        .record([
            world.transition(&accepted, DeliveryState::Waiting { until }),
            world.transition(&accepted, DeliveryState::Delivered),
            world.transition(&accepted, DeliveryState::DISCARDED),
        ])
        .await;
    assert_eq!((recorded.applied, recorded.refused.len()), (2, 1));
    assert_eq!(world.delivery(accepted.id).await.state, DeliveryState::Delivered);
}

pub(super) async fn an_empty_record_is_fine(world: World) {
    assert_eq!(world.record([]).await, Recorded::default());
}

pub(super) async fn attempts_read_back_in_order_with_every_detail(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(Some("k")).await;
    let until = world.later(1_000);
    let failed = AttemptDetail {
        result: AttemptResult::Failed(Failure::ConnectTimeout),
        message: None,
        response_headers: vec![],
        response_body: bytes::Bytes::new(),
        node: None,
        ..detail(1, 0)
    };
    let answered = detail(2, 204);
    let transitions = vec![
        (
            world.transition(&accepted, DeliveryState::Waiting { until }),
            Some(failed.clone().into()),
        ),
        (world.transition(&accepted, DeliveryState::Delivered), Some(answered.clone().into())),
    ];
    let batch = RecordBatch { transitions, durability: Durability::Durable, ..Default::default() };
    assert_eq!(world.store.record(batch.into()).await.unwrap().applied, 2);
    let listed = world.store.attempts(accepted.id, PageRequest::first(10)).await.unwrap();
    let [first, second] = &listed.items[..] else { panic!("{listed:?}") };
    assert_eq!(
        (&first.detail, first.led_to, first.next_at),
        (&failed, DeliveryStage::Waiting, Some(until))
    );
    assert_eq!(
        (&second.detail, second.led_to, second.next_at),
        (&answered, DeliveryStage::Delivered, None)
    );
}

pub(super) async fn a_retry_after_reads_back_with_its_attempt(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let retry_after = Some(railpost_engine::Span::from_secs(30));
    let result = AttemptResult::Response { status: 429, retry_after };
    let detail = AttemptDetail { result, ..detail(1, 429) };
    let waiting = DeliveryState::Waiting { until: world.later(30_000) };
    let transitions = vec![(world.transition(&accepted, waiting), Some(detail.clone().into()))];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let listed = world.store.attempts(accepted.id, PageRequest::first(10)).await.unwrap();
    assert_eq!(listed.items[0].detail, detail);
}

pub(super) async fn an_attempt_of_a_skipped_transition_is_not_kept(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    world.move_to(&accepted, DeliveryState::DISCARDED).await;
    let transitions =
        vec![(world.transition(&accepted, DeliveryState::Delivered), Some(detail(1, 200).into()))];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let listed = world.store.attempts(accepted.id, PageRequest::first(10)).await.unwrap();
    assert_eq!(listed.items, []);
}

pub(super) async fn a_long_response_is_cut_to_its_bound(world: World) {
    world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let long = AttemptDetail {
        response_body: vec![b'x'; RESPONSE_BODY_LEN_MAX + 1].into(),
        message: None,
        response_headers: vec![
            ("a".to_owned(), "x".repeat(9_000)),
            ("b".to_owned(), "y".to_owned()),
        ],
        ..detail(1, 500)
    };
    let waiting = DeliveryState::Waiting { until: world.later(1) };
    let transitions = vec![(world.transition(&accepted, waiting), Some(long.into()))];
    world.store.record(RecordBatch { transitions, ..Default::default() }.into()).await.unwrap();
    let listed = world.store.attempts(accepted.id, PageRequest::first(10)).await.unwrap();
    let kept = &listed.items[0].detail;
    assert_eq!(kept.response_body.len(), RESPONSE_BODY_LEN_MAX);
    assert_eq!(kept.response_headers, [("b".to_owned(), "y".to_owned())]);
}

pub(super) async fn an_endpoints_status_is_recorded(world: World) {
    let endpoint = world.endpoint().await;
    let at = world.later(5);
    let record = EndpointRecord {
        endpoint,
        status: EndpointStatus::Quarantined,
        was: EndpointStatus::Active,
        failing_since: Some(super::world::START),
        at,
    };
    let unknown = EndpointRecord { endpoint: EndpointId::from_u128(99), ..record };
    let batch = RecordBatch { endpoints: vec![unknown, record], ..Default::default() };
    world.store.record(batch.into()).await.unwrap();
    let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!(stored.status, EndpointStatus::Quarantined);
    assert_eq!((stored.failing_since, stored.updated_at), (Some(super::world::START), at));
    let for_engine = stored.for_engine(&[]);
    assert_eq!((for_engine.status, for_engine.status_since), (stored.status, Some(at)));
    let later = world.later(9);
    let was = EndpointStatus::Quarantined;
    let again = EndpointRecord { was, failing_since: None, at: later, ..record };
    let batch = RecordBatch { endpoints: vec![again], ..Default::default() };
    world.store.record(batch.into()).await.unwrap();
    let stored = world.store.endpoint(endpoint).await.unwrap().unwrap();
    assert_eq!((stored.status_since, stored.updated_at), (Some(at), later), "it is as it was");
}

pub(super) async fn a_record_does_not_undo_what_a_person_decided(world: World) {
    let endpoint = world.endpoint().await;
    let record = |was, status| EndpointRecord {
        endpoint,
        status,
        was,
        failing_since: Some(super::world::START),
        at: super::world::START,
    };
    let status = async || world.store.endpoint(endpoint).await.unwrap().unwrap().status;
    use EndpointStatus::{Active, Failing, Paused, Quarantined};
    world.commit(railpost_store::Write::SetEndpointStatus(endpoint, Paused)).await;
    for late in [record(Active, Active), record(Active, Quarantined)] {
        let batch = RecordBatch { endpoints: vec![late], ..Default::default() };
        world.store.record(batch.into()).await.unwrap();
        assert_eq!(status().await, Paused);
    }
    world.commit(railpost_store::Write::SetEndpointStatus(endpoint, Active)).await;
    let one_after_the_other = vec![record(Active, Quarantined), record(Quarantined, Failing)];
    let batch = RecordBatch { endpoints: one_after_the_other, ..Default::default() };
    world.store.record(batch.into()).await.unwrap();
    assert_eq!(status().await, Failing);
}

pub(super) async fn an_endpoint_that_is_switched_off_is_in_the_audit_trail(world: World) {
    use EndpointStatus::{Active, Failing, Gone, Paused, Quarantined};
    let endpoint = world.endpoint().await;
    let at = world.later(5);
    let record = |was, status| EndpointRecord { endpoint, status, was, failing_since: None, at };
    let write = async |records: Vec<EndpointRecord>| {
        let batch = RecordBatch { endpoints: records, ..Default::default() };
        world.store.record(batch.into()).await.unwrap();
    };
    write(vec![record(Active, Active), record(Paused, Gone)]).await;
    assert_eq!(world.audit_trail().await, [], "it is on, and nobody paused it");
    for _ in 0..2 {
        write(vec![record(Active, Quarantined)]).await;
    }
    let trail = world.audit_trail().await;
    assert_eq!(trail.len(), 1);
    let entry = &trail[0];
    assert_eq!((&entry.tenant, entry.at), (&Some(world.tenant.clone()), at));
    assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("railpost", "endpoint.switch_off"));
    assert_eq!(entry.target, endpoint.to_string());
    let changes = serde_json::json!({"status": {"from": "active", "to": "quarantined"}});
    assert_eq!(entry.detail, serde_json::json!({ "changes": changes }));
    world.commit(railpost_store::Write::SetEndpointStatus(endpoint, Active)).await;
    write(vec![record(Active, Gone), record(Gone, Failing)]).await;
    assert_eq!(world.audit_trail().await.len(), 3);
}

pub(super) async fn a_decision_is_recorded_with_its_audit_entry(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let partition = Partition::of(endpoint);
    world.store.fence(partition, Epoch(7)).await.unwrap();
    let entry = world.audit_entry("a");
    let by = |epoch| RecordBatch {
        epoch: Epoch(epoch),
        durability: railpost_store::Durability::Durable,
        audit: vec![entry.clone()],
        ..RecordBatch::of([world.transition(&accepted, DeliveryState::DISCARDED)])
    };
    assert!(world.store.record(by(6).into()).await.is_err());
    assert_eq!(world.audit_trail().await, []);
    for _ in 0..2 {
        world.store.record(by(7).into()).await.unwrap();
    }
    assert_eq!(world.audit_trail().await, std::slice::from_ref(&entry));
    let alone = world.audit_entry("b");
    let batch = RecordBatch { epoch: Epoch(7), audit: vec![alone.clone()], ..Default::default() };
    world.store.record(batch.into()).await.unwrap();
    assert_eq!(world.audit_trail().await, [alone, entry]);
}

pub(super) async fn a_record_of_an_earlier_owner_is_fenced(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let partition = Partition::of(endpoint);
    world.store.fence(partition, Epoch(7)).await.unwrap();
    let by = |epoch| {
        let batch = RecordBatch::of([world.transition(&accepted, DeliveryState::Delivered)]);
        RecordBatch { epoch: Epoch(epoch), ..batch }
    };
    assert_eq!(world.store.record(by(6).into()).await, Err(StoreError::Fenced { partition }));
    assert_eq!(world.delivery(accepted.id).await.state, DeliveryState::Pending);
    assert_eq!(world.store.record(by(7).into()).await.unwrap().applied, 1);
    assert_eq!(world.store.fence(partition, Epoch(6)).await, Err(StoreError::Fenced { partition }));
    assert_eq!(world.store.fence(partition, Epoch(7)).await, Ok(()));
}

pub(super) async fn a_fence_leaves_other_partitions_alone(world: World) {
    let endpoint = world.endpoint().await;
    let accepted = world.publish_one(None).await;
    let other = Partition(Partition::of(endpoint).0.wrapping_add(1));
    world.store.fence(other, Epoch(7)).await.unwrap();
    assert_eq!(world.move_to(&accepted, DeliveryState::Delivered).await.applied, 1);
}

pub(super) async fn a_parcel_holds_all_that_a_sender_needs(world: World) {
    let endpoint = world.endpoint().await;
    let event = world.event(Some("k"));
    let accepted = world.accept(vec![event.clone()]).await;
    let unknown = DeliveryId::from_u128(5);
    let parcels = world.store.parcels(vec![unknown, accepted[0].id]).await.unwrap();
    let [(id, Ok(parcel))] = &parcels[..] else { panic!("{parcels:?}") };
    assert_eq!(*id, accepted[0].id);
    assert_eq!((parcel.delivery, parcel.endpoint), (accepted[0].id, endpoint));
    assert_eq!((&parcel.tenant, &parcel.event), (&world.tenant, &event));
    assert_eq!(parcel.line.as_ref().unwrap().seq.get(), 1);
    assert_eq!(parcel.accepted_at, super::world::START);
}

pub(super) async fn parcels_come_for_many_deliveries_at_once(world: World) {
    world.endpoint().await;
    world.endpoint().await;
    let accepted = world.accept((0..50).map(|_| world.event(Some("k"))).collect()).await;
    let mut found: Vec<_> =
        world.store.parcels(ids(&accepted)).await.unwrap().iter().map(|(id, _)| *id).collect();
    found.sort();
    let mut expected = ids(&accepted);
    expected.sort();
    assert_eq!(found, expected);
}
