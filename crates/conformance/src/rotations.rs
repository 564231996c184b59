//! Rotations: of the master key, and when those of endpoints' secrets are due.

use std::collections::BTreeMap;
use std::sync::Arc;

use railpost_engine::{Span, Timestamp};
use railpost_wire::{EndpointId, Secret, SecretId};

use super::world::{START, World};
use railpost_store::{
    Change, DueRotation, EndpointPrivate, EndpointSettings, IdempotencyKey, IdempotencyLookup,
    IdempotencyRecord, MasterKey, NewEndpoint, NewSecret, SealedRows, SecretValue, Setup, Store,
    StoreError, StoredResponse, Write,
};

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];
const FINGERPRINT: [u8; 32] = [9; 32];

fn new_key() -> MasterKey {
    MasterKey::new(&NEW)
}

fn both_keys() -> MasterKey {
    MasterKey::rotating(&NEW, &OLD)
}

/// An endpoint with a secret and a header that is encrypted.
async fn add_endpoint(world: &World, rotate_every: Option<Span>) -> EndpointId {
    let id = EndpointId::from_u128(world.unique());
    let settings =
        EndpointSettings { rotate_every, ..EndpointSettings::all_events("https://example.com") };
    let headers = BTreeMap::from([("authorization".to_owned(), "Bearer t0ken".to_owned())]);
    let private = EndpointPrivate { headers, ..EndpointPrivate::default() };
    let new = NewEndpoint { id, tenant: world.tenant.clone(), settings, private };
    let writes = vec![Write::CreateEndpoint(new), add_secret(world, id)];
    world.commit(Change { writes, ..Change::default() }).await;
    id
}

fn add_secret(world: &World, endpoint: EndpointId) -> Write {
    let value = SecretValue::Shared(Secret::from_bytes(&[7; 32]).unwrap());
    let id = SecretId::from_u128(world.unique());
    Write::CreateSecret(NewSecret { id, endpoint, value, expires_at: None })
}

fn answer_key(number: usize) -> IdempotencyKey {
    let (owner, route) = ("key_1".to_owned(), "POST /v1/x".to_owned());
    IdempotencyKey { owner, route, key: format!("n{number}") }
}

async fn add_answer(world: &World, number: usize, body: Vec<u8>) {
    let record = IdempotencyRecord {
        key: answer_key(number),
        fingerprint: FINGERPRINT,
        response: StoredResponse { status: 201, body: body.into() },
        tenant: None,
        expires_at: START + Span::from_days(1),
    };
    world.commit(Change { idempotency: Some(Box::new(record)), ..Change::default() }).await;
}

/// A whole pass in steps of two. Answers how many values were under the old key.
async fn pass(store: &dyn Store) -> u64 {
    let (mut changed, mut next) = (0, Some(SealedRows::FIRST));
    while let Some(from) = next {
        let step = store.reencrypt(from, 2).await.unwrap();
        (changed, next) = (changed + step.changed, step.next);
    }
    changed
}

async fn end(world: &World, store: &dyn Store) {
    let ended = world.audit_entry("store");
    store.end_key_rotation(START + Span::from_days(3), &ended).await.unwrap();
}

/// Everything that is sealed can be read.
async fn read_all(store: &dyn Store, key: &MasterKey, endpoints: &[EndpointId], answers: usize) {
    for id in endpoints {
        let private = store.endpoint(*id).await.unwrap().unwrap().private.unwrap();
        assert_eq!(private.headers["authorization"], "Bearer t0ken");
        assert_eq!(store.secrets(*id).await.unwrap().len(), 1);
    }
    for number in 0..answers {
        let found = store.lookup_idempotency(&answer_key(number), &FINGERPRINT).await.unwrap();
        let IdempotencyLookup::Match(stored) = found else { panic!("{found:?}") };
        assert_eq!(key.open_answer(&stored.body).unwrap(), "{\"value\":1}", "answer {number}");
    }
}

async fn restore(
    world: &World,
    backup: &std::path::Path,
    master_key: MasterKey,
) -> railpost_store::Result<Arc<dyn Store>> {
    world.restore_with(backup, Setup { source: world.source.clone(), master_key }).await
}

pub(super) async fn the_master_key_is_rotated_in_small_steps(world: World) {
    let (store, old) = (world.store.clone(), MasterKey::new(&OLD));
    let mut endpoints = Vec::new();
    for number in 0..5 {
        endpoints.push(add_endpoint(&world, None).await);
        let plain = b"{\"value\":1}".to_vec();
        let sealed = old.seal_answer(&*world.source, &plain);
        add_answer(&world, number, if number == 2 { plain } else { sealed }).await;
    }
    store.begin_key_rotation(&new_key()).await.unwrap();
    store.begin_key_rotation(&new_key()).await.expect("the same again changes nothing");
    let other = store.begin_key_rotation(&MasterKey::new(&[3; 32])).await;
    assert!(matches!(other, Err(StoreError::Conflict { .. })), "{other:?}");
    endpoints.push(add_endpoint(&world, None).await);
    read_all(&*store, &both_keys(), &endpoints, 5).await;
    assert_eq!(pass(&*store).await, 5 + 5 + 4, "secrets, endpoints and sealed answers");
    assert_eq!(pass(&*store).await, 0);
    end(&world, &*store).await;
    end(&world, &*store).await;
    assert_eq!(world.audit_trail().await.len(), 1, "it ends once");
    read_all(&*store, &new_key(), &endpoints, 5).await;
    assert_eq!(pass(&*store).await, 0, "there is no old key");

    let path = world.new_path();
    store.backup(&path).await.unwrap();
    assert_eq!(restore(&world, &path, old).await.err(), Some(StoreError::WrongMasterKey));
    let restored = restore(&world, &path, new_key()).await.unwrap();
    read_all(&*restored, &new_key(), &endpoints, 5).await;
    restored.begin_key_rotation(&MasterKey::new(&[3; 32])).await.expect("and once more");
}

pub(super) async fn a_backup_in_the_middle_of_a_rotation_needs_both_keys_and_goes_on(world: World) {
    let mut endpoints = Vec::new();
    for _ in 0..4 {
        endpoints.push(add_endpoint(&world, None).await);
    }
    world.store.begin_key_rotation(&new_key()).await.unwrap();
    world.store.reencrypt(SealedRows::FIRST, 2).await.unwrap();
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    for half in [MasterKey::new(&OLD), new_key()] {
        let refused = restore(&world, &path, half).await.err();
        assert_eq!(refused, Some(StoreError::BothMasterKeysNeeded));
    }
    let stranger = MasterKey::rotating(&[3; 32], &OLD);
    assert_eq!(restore(&world, &path, stranger).await.err(), Some(StoreError::WrongMasterKey));

    let restored = restore(&world, &path, both_keys()).await.unwrap();
    read_all(&*restored, &both_keys(), &endpoints, 0).await;
    assert_eq!(pass(&*restored).await, 2 + 4);
    end(&world, &*restored).await;
    read_all(&*restored, &new_key(), &endpoints, 0).await;
}

pub(super) async fn a_store_that_is_opened_with_two_keys_begins_their_rotation(world: World) {
    let endpoint = add_endpoint(&world, None).await;
    let path = world.new_path();
    world.store.backup(&path).await.unwrap();
    let restored = restore(&world, &path, both_keys()).await.unwrap();
    let begun = world.new_path();
    restored.backup(&begun).await.unwrap();
    let refused = restore(&world, &begun, MasterKey::new(&OLD)).await.err();
    assert_eq!(refused, Some(StoreError::BothMasterKeysNeeded));
    assert_eq!(pass(&*restored).await, 2);
    end(&world, &*restored).await;
    let ended = world.new_path();
    restored.backup(&ended).await.unwrap();
    for key in [new_key(), both_keys()] {
        let again = restore(&world, &ended, key).await.expect("the old key may still be there");
        read_all(&*again, &new_key(), &[endpoint], 0).await;
    }
}

pub(super) async fn a_rotation_of_secrets_is_due_by_the_newest_that_lasts(world: World) {
    let day = Span::from_days(1);
    let first = add_endpoint(&world, Some(day)).await;
    let second = add_endpoint(&world, Some(day)).await;
    let without = add_endpoint(&world, None).await;
    let due_at = async |now: Timestamp| world.store.due_rotations(now, None, 10).await.unwrap();
    let rotates_at = async |id| world.store.endpoint(id).await.unwrap().unwrap().rotates_at;
    assert_eq!((rotates_at(first).await, rotates_at(without).await), (Some(START + day), None));
    assert_eq!(due_at(START).await, []);
    let due = |endpoint, at| DueRotation { endpoint, at };
    let both = [due(first, START + day), due(second, START + day)];
    assert_eq!(due_at(START + day).await, both);
    let rest = world.store.due_rotations(START + day, Some(both[0]), 10).await.unwrap();
    assert_eq!(rest, [both[1]], "pages go on behind the last one");
    assert_eq!(world.store.due_rotations(START + day, None, 1).await.unwrap(), [both[0]]);
    assert!(world.store.due_rotations(START, None, 0).await.is_err());

    world.source.set(START + Span::from_hours(6));
    let old = world.store.secrets(first).await.unwrap()[0].id;
    let at = START + day;
    let expire = Write::ExpireSecret { endpoint: first, id: old, at };
    let writes = vec![expire, add_secret(&world, first)];
    world.commit(Change { writes, ..Change::default() }).await;
    let later = START + Span::from_hours(30);
    assert_eq!(due_at(later).await, [both[1], due(first, later)]);
    let new = world.store.secrets(first).await.unwrap()[1].id;
    world.commit(Write::RemoveSecret { endpoint: first, id: new }).await;
    assert_eq!(rotates_at(first).await, None, "one that expires does not count");
    world.commit(Write::RemoveEndpoint(second)).await;
    assert_eq!(due_at(later).await, []);
    let settings = EndpointSettings {
        rotate_every: Some(Span::from_hours(2)),
        ..EndpointSettings::all_events("https://example.com")
    };
    let private = EndpointPrivate::default();
    let update = Write::UpdateEndpoint { id: without, settings, private, revision: None };
    world.commit(update).await;
    assert_eq!(rotates_at(without).await, Some(START + Span::from_hours(2)));
    let backup = world.new_path();
    world.store.backup(&backup).await.unwrap();
    let restored = world.restore(&backup, 1).await.unwrap();
    assert_eq!(restored.due_rotations(later, None, 10).await.unwrap().len(), 1);
}
