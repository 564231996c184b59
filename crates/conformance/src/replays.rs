//! Replays as jobs.

use railpost_engine::{DeadReason, DeliveryStage, Failure, Timestamp};
use railpost_wire::{AuditId, DeliveryId, EndpointId, ReplayId, TenantId};

use super::world::{START, World};
use railpost_store::backend::listing::ListKind;
use railpost_store::limits::{
    REPLAY_PREVIEW_MAX, REPLAYS_RUNNING_MAX, REPLAYS_RUNNING_PER_TENANT_MAX,
};
use railpost_store::{
    AuditEntry, AuditQuery, Change, ClosedReason, Cursor, DeliveryFilter, IdempotencyKey,
    IdempotencyRecord, PageRequest, Period, PruneStep, Replay, ReplayAction, ReplayProgress,
    ReplayState, StoreError, StoredResponse, TenantSettings, Write,
};

/// A replay of the tenant's that has just begun.
fn running(world: &World) -> Replay {
    Replay {
        id: ReplayId::from_u128(world.unique()),
        tenant: world.tenant.clone(),
        created_at: START,
        actor: "key_1".to_owned(),
        action: ReplayAction::Replay,
        filter: DeliveryFilter::default(),
        rate_per_s: None,
        dry_run: false,
        state: ReplayState::Running,
        progress: ReplayProgress::default(),
        preview: vec![],
        cursor: None,
        problem: None,
        finished_at: None,
    }
}

fn finished(replay: &Replay, state: ReplayState, at: Timestamp) -> Replay {
    Replay { state, finished_at: Some(at), ..replay.clone() }
}

async fn put(world: &World, replay: &Replay) {
    world.commit(Write::PutReplay(Box::new(replay.clone()))).await;
}

async fn refused(world: &World, replay: &Replay) -> StoreError {
    let change = Write::PutReplay(Box::new(replay.clone())).into();
    world.store.commit(change).await.expect_err("it is refused")
}

pub(super) async fn a_replay_reads_back_in_every_detail(world: World) {
    let replay = Replay {
        action: ReplayAction::Redeliver { to: EndpointId::from_u128(9) },
        filter: DeliveryFilter {
            stage: Some(DeliveryStage::Dead),
            endpoint: Some(EndpointId::from_u128(8)),
            event_type: Some("order.paid".parse().unwrap()),
            key: Some("a \"key\" é\0".parse().unwrap()),
            reason: Some(ClosedReason::Dead(DeadReason::Expired)),
            status: Some(503),
            failure: Some(Failure::Reset),
            created: Period { from: Some(START), before: Some(world.later(5)) },
        },
        rate_per_s: Some(50),
        dry_run: true,
        state: ReplayState::Failed,
        progress: ReplayProgress { matched: 3, done: 2, refused: 1, looked_at: 20, took_ms: 7 },
        preview: vec![DeliveryId::from_u128(4)],
        cursor: Some(Cursor::at(ListKind::Deliveries, &[7; 16])),
        problem: Some("no such endpoint".to_owned()),
        finished_at: Some(world.later(9)),
        ..running(&world)
    };
    put(&world, &replay).await;
    assert_eq!(world.store.replay(replay.id).await, Ok(Some(replay)));
    assert_eq!(world.store.replay(ReplayId::from_u128(404)).await, Ok(None));
}

pub(super) async fn a_replay_goes_on_from_its_last_progress(world: World) {
    let first = running(&world);
    put(&world, &first).await;
    let next = Replay {
        progress: ReplayProgress { matched: 10, done: 9, refused: 1, ..Default::default() },
        cursor: Some(Cursor::at(ListKind::Deliveries, &[3; 16])),
        ..first
    };
    put(&world, &next).await;
    assert_eq!(world.store.replay(next.id).await, Ok(Some(next.clone())));
    assert_eq!(world.store.running_replays().await, Ok(vec![next]));
}

pub(super) async fn a_finished_replay_cannot_be_changed(world: World) {
    let replay = running(&world);
    put(&world, &replay).await;
    let cancelled = finished(&replay, ReplayState::Cancelled, START);
    put(&world, &cancelled).await;
    for late in [&replay, &finished(&replay, ReplayState::Done, START)] {
        let error = refused(&world, late).await;
        assert!(matches!(&error, StoreError::Conflict { field, .. } if field == "id"), "{error:?}");
    }
    // A caller that did not get the answer may send the same again.
    put(&world, &cancelled).await;
    assert_eq!(world.store.replay(replay.id).await, Ok(Some(cancelled)));
}

pub(super) async fn a_replay_belongs_to_one_tenant_that_exists(world: World) {
    let replay = running(&world);
    put(&world, &replay).await;
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let error = refused(&world, &Replay { tenant: other, ..replay.clone() }).await;
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    let nobody: TenantId = "nobody".parse().unwrap();
    let id = ReplayId::from_u128(world.unique());
    let error = refused(&world, &Replay { id, tenant: nobody, ..replay }).await;
    assert_eq!(error, StoreError::NotFound("tenant `nobody`".to_owned()));
}

pub(super) async fn replays_list_the_latest_first(world: World) {
    let mine: Vec<_> = (0..3).map(|_| running(&world)).collect();
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let theirs = Replay { tenant: other.clone(), ..running(&world) };
    for replay in mine.iter().chain([&theirs]) {
        put(&world, replay).await;
    }
    let first = world.store.replays(&world.tenant, PageRequest::first(2)).await.unwrap();
    let page = PageRequest::after(2, first.next.clone().unwrap());
    let rest = world.store.replays(&world.tenant, page).await.unwrap();
    let all: Vec<_> = first.items.into_iter().chain(rest.items).collect();
    assert_eq!(all, mine.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(rest.next, None);
    let page = PageRequest::first(9);
    assert_eq!(world.store.replays(&other, page).await.unwrap().items, [theirs]);
}

pub(super) async fn running_replays_of_all_tenants_are_found(world: World) {
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let first = running(&world);
    let ended = running(&world);
    let last = Replay { tenant: other, ..running(&world) };
    for replay in [&last, &first, &ended, &finished(&ended, ReplayState::Done, START)] {
        put(&world, replay).await;
    }
    assert_eq!(world.store.running_replays().await, Ok(vec![first, last]));
}

pub(super) async fn a_replay_is_made_once_with_its_audit_entry_and_its_answer(world: World) {
    let replay = running(&world);
    let entry = AuditEntry {
        id: AuditId::from_u128(world.unique()),
        at: START,
        tenant: Some(world.tenant.clone()),
        actor: replay.actor.clone(),
        address: None,
        action: "replay.create".to_owned(),
        target: replay.id.to_string(),
        detail: serde_json::Value::Null,
    };
    let record = IdempotencyRecord {
        key: IdempotencyKey { owner: "o".into(), route: "r".into(), key: "k".into() },
        fingerprint: [1; 32],
        response: StoredResponse { status: 201, body: bytes::Bytes::new() },
        tenant: Some(world.tenant.clone()),
        expires_at: Timestamp::from_millis(START.as_millis() + 10_000),
    };
    let change = |replay: &Replay, audit| Change {
        writes: vec![Write::PutReplay(Box::new(replay.clone()))],
        audit,
        idempotency: Some(Box::new(record.clone())),
    };
    world.commit(change(&replay, Some(entry.clone()))).await;
    let again = running(&world);
    assert_eq!(world.store.commit(change(&again, None)).await, Err(StoreError::Repeated));
    assert_eq!(world.store.replay(again.id).await, Ok(None));
    let (target, at) = (Some(replay.id.to_string()), Period::default());
    let audit = AuditQuery { tenant: None, target, at, page: PageRequest::first(9) };
    assert_eq!(world.store.audit(audit).await.unwrap().items, [entry]);
}

pub(super) async fn a_tenant_has_a_bounded_number_of_running_replays(world: World) {
    let all: Vec<_> = (0..REPLAYS_RUNNING_PER_TENANT_MAX).map(|_| running(&world)).collect();
    for replay in &all {
        put(&world, replay).await;
    }
    let error = refused(&world, &running(&world)).await;
    let named = "running replays (of the tenant)";
    assert!(matches!(&error, StoreError::Invalid { field, .. } if field == named), "{error:?}");
    // Those that run go on, and there is room again when one has finished.
    put(&world, &Replay { rate_per_s: Some(1), ..all[0].clone() }).await;
    put(&world, &finished(&running(&world), ReplayState::Done, START)).await;
    put(&world, &finished(&all[1], ReplayState::Done, START)).await;
    put(&world, &running(&world)).await;
    let found = world.store.running_replays().await.unwrap();
    assert_eq!(found.len(), REPLAYS_RUNNING_PER_TENANT_MAX);
}

pub(super) async fn no_tenant_can_take_the_places_of_all_replays(world: World) {
    for n in 0..REPLAYS_RUNNING_MAX / REPLAYS_RUNNING_PER_TENANT_MAX {
        let tenant = world.add_tenant(&format!("t{n}"), TenantSettings::default()).await;
        for _ in 0..REPLAYS_RUNNING_PER_TENANT_MAX {
            put(&world, &Replay { tenant: tenant.clone(), ..running(&world) }).await;
        }
    }
    let error = refused(&world, &running(&world)).await;
    let named = "running replays (of all tenants)";
    assert!(matches!(&error, StoreError::Invalid { field, .. } if field == named), "{error:?}");
}

pub(super) async fn a_bad_replay_names_the_field(world: World) {
    let good = running(&world);
    for (named, replay) in [
        ("actor", Replay { actor: "a\0b".to_owned(), ..good.clone() }),
        ("problem (bytes)", Replay { problem: Some("x".repeat(9_999)), ..good.clone() }),
        (
            "preview (deliveries)",
            Replay {
                preview: vec![DeliveryId::from_u128(1); REPLAY_PREVIEW_MAX + 1],
                ..good.clone()
            },
        ),
        ("rate_per_s", Replay { rate_per_s: Some(0), ..good.clone() }),
        ("finished_at", Replay { finished_at: Some(START), ..good.clone() }),
        ("finished_at", Replay { state: ReplayState::Done, ..good.clone() }),
    ] {
        let error = refused(&world, &replay).await;
        assert!(matches!(&error, StoreError::Invalid { field, .. } if field == named), "{error:?}");
    }
}

pub(super) async fn replays_are_pruned_when_they_ended_long_ago(world: World) {
    let runs = running(&world);
    let old = finished(&running(&world), ReplayState::Cancelled, START);
    let cut = world.later(1_000);
    let young = finished(&running(&world), ReplayState::Done, cut);
    for replay in [&runs, &old, &young] {
        put(&world, replay).await;
    }
    let step = PruneStep::of_all_before(cut, 9);
    assert_eq!(world.store.prune(step).await.unwrap().others, 1);
    let left = world.store.replays(&world.tenant, PageRequest::first(9)).await.unwrap();
    assert_eq!(left.items, [young, runs]);
}

pub(super) async fn replays_are_erased_with_their_tenant(world: World) {
    let other = world.add_tenant("other", TenantSettings::default()).await;
    let mine = running(&world);
    let theirs = Replay { tenant: other, ..running(&world) };
    put(&world, &mine).await;
    put(&world, &theirs).await;
    world.erase(&world.tenant).await;
    assert_eq!(world.store.replay(mine.id).await, Ok(None));
    assert_eq!(world.store.running_replays().await, Ok(vec![theirs]));
    let error = refused(&world, &mine).await;
    assert!(matches!(error, StoreError::NotFound(_)), "{error:?}");
}

pub(super) async fn a_backup_holds_replays(world: World) {
    let replay = running(&world);
    put(&world, &replay).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = world.restore(&path, 1).await.unwrap();
    assert_eq!(restored.running_replays().await, Ok(vec![replay]));
}
