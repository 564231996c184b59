//! Searching: each kind of thing is found by each of its fields, in its own tenant and in no other.

use railpost_engine::LaneId;
use railpost_wire::cloudevents::Origin;
use railpost_wire::{EndpointId, ReplayId, TenantId};

use super::world::World;
use railpost_store::limits::{BATCH_EVENTS_MAX, FIND_RESULTS_MAX, FIND_WORDS_LEN_MAX};
use railpost_store::{
    AcceptBatch, DeliveryFilter, EndpointSettings, Event, FindQuery, Found, FoundItem,
    MatchedField, Replay, ReplayAction, ReplayProgress, ReplayState, StoreError, TenantSettings,
    Write,
};

async fn find(world: &World, tenant: Option<&TenantId>, words: &str) -> Vec<Found> {
    let query = FindQuery { tenant: tenant.cloned(), words: words.to_owned() };
    world.store.find(query).await.unwrap()
}

/// One word for each thing that was found: its kind, its id or key, and the field.
fn shown(found: &[Found]) -> Vec<String> {
    let show = |found: &Found| {
        let what = match &found.item {
            FoundItem::Event { id, .. } => format!("event {id}"),
            FoundItem::Delivery { event, .. } => format!("delivery of {event}"),
            FoundItem::Endpoint { url, .. } => format!("endpoint {url}"),
            FoundItem::Lane { key, .. } => format!("lane {key}"),
            FoundItem::Replay { id, .. } => format!("replay {id}"),
            FoundItem::Tenant => format!("tenant {}", found.tenant),
        };
        format!("{what}: {:?}", found.why)
    };
    found.iter().map(show).collect()
}

fn named(world: &World, id: &str, key: Option<&str>) -> Event {
    Event { id: id.parse().unwrap(), ..world.event(key) }
}

async fn endpoint(world: &World, url: &str, description: &str) -> EndpointId {
    let description = description.to_owned();
    world.endpoint_with(EndpointSettings { description, ..EndpointSettings::all_events(url) }).await
}

pub(super) async fn each_kind_of_thing_is_found_by_its_fields(world: World) {
    let tenant = Some(world.tenant.clone());
    let tenant = tenant.as_ref();
    world.accept(vec![named(&world, "lonely-event", Some("Lonely Key"))]).await;
    let to = endpoint(&world, "https://Hooks.example/in", "Orders \"of\" the warehouse").await;
    let accepted = world.accept(vec![named(&world, "order-17-paid", Some("order-17"))]).await[0];
    world.later(1);
    world.accept(vec![named(&world, "order-18-paid", Some("order-18"))]).await;
    let origin = Origin { id: "A234 1234".into(), source: "/x".into(), ..Origin::default() };
    let cloudevent = Some(Box::new(origin));
    world.accept(vec![Event { cloudevent, ..named(&world, "hash", None) }]).await;
    let id = ReplayId::from_u128(0x0192_0000_0000_0000_0000_0000_0000_0007);
    world.commit(Write::PutReplay(Box::new(replay(&world, id)))).await;
    let (delivery, to) = (accepted.id.to_string(), to.to_string());
    for (words, expected) in [
        ("order-17-paid", vec!["event order-17-paid: Id"]),
        (
            "order-1",
            vec![
                "event order-17-paid: Id",
                "event order-18-paid: Id",
                "lane order-17: Key",
                "lane order-18: Key",
            ],
        ),
        ("order-17", vec!["event order-17-paid: Id", "lane order-17: Key"]),
        ("hash", vec!["event hash: Id"]),
        ("has", vec![]),
        ("Lonely Key", vec!["event lonely-event: Key"]),
        ("Lone", vec!["event lonely-event: Key"]),
        ("A234 1234", vec!["event hash: CloudeventId"]),
        (&delivery, vec!["delivery of order-17-paid: Id"]),
        (&delivery[..14], vec!["delivery of order-17-paid: Id"]),
        (&to, vec!["endpoint https://Hooks.example/in: Id"]),
        (&to[..28], vec!["endpoint https://Hooks.example/in: Id"]),
        ("hooks.EXAMPLE", vec!["endpoint https://Hooks.example/in: Url"]),
        ("\"OF\" the", vec!["endpoint https://Hooks.example/in: Description"]),
        (&id.to_string(), vec![&*format!("replay {id}: Id")]),
        (world.tenant.as_str(), vec![&*format!("tenant {}: Id", world.tenant)]),
        ("nothing like that", vec![]),
        ("%", vec![]),
        ("\0", vec![]),
    ] {
        assert_eq!(shown(&find(&world, tenant, words).await), expected, "{words}");
        assert_eq!(shown(&find(&world, None, words).await), expected, "{words} of all");
    }
    let found = find(&world, tenant, "order-17").await;
    let place = accepted.place.unwrap();
    let lane = found.iter().find_map(|found| match found.item {
        FoundItem::Lane { lane: LaneId(lane), endpoint, .. } => Some((lane, endpoint)),
        _ => None,
    });
    assert_eq!(lane, Some((place.lane.0, accepted.endpoint)));
    assert_eq!(found[0].why, MatchedField::Id);
}

fn replay(world: &World, id: ReplayId) -> Replay {
    Replay {
        id,
        tenant: world.tenant.clone(),
        created_at: world.later(1),
        actor: "key_x".to_owned(),
        action: ReplayAction::Replay,
        filter: DeliveryFilter::default(),
        rate_per_s: None,
        dry_run: false,
        state: ReplayState::Running,
        progress: ReplayProgress::default(),
        preview: Vec::new(),
        cursor: None,
        problem: None,
        finished_at: None,
    }
}

pub(super) async fn a_search_finds_nothing_of_another_tenant(world: World) {
    let other = world.add_tenant("other-tenant", TenantSettings::default()).await;
    let to = endpoint(&world, "https://hooks.example", "secret plans").await;
    let accepted = world.accept(vec![named(&world, "order-17-paid", Some("order-17"))]).await[0];
    let id = ReplayId::from_u128(0x0192_0000_0000_0000_0000_0000_0000_0007);
    world.commit(Write::PutReplay(Box::new(replay(&world, id)))).await;
    let (delivery, to, id) = (accepted.id.to_string(), to.to_string(), id.to_string());
    let own = world.tenant.to_string();
    let events = vec![named(&world, "order-99-paid", None)];
    let batch = AcceptBatch { tenant: other.clone(), ..world.batch(events) };
    world.store.accept(batch.into()).await.unwrap();
    for words in ["order-17-paid", "order-17", "hooks", "plans", &delivery, &to, &id, &own] {
        assert_ne!(find(&world, Some(&world.tenant), words).await, [], "{words}");
        assert_eq!(find(&world, Some(&other), words).await, [], "{words}");
    }
    assert_eq!(shown(&find(&world, Some(&other), "order-").await), ["event order-99-paid: Id"]);
    assert_eq!(find(&world, None, "order-").await.len(), 3, "two events and a lane");
    world.erase(&other).await;
    assert_eq!(find(&world, None, "order-99-paid").await, []);
    let unknown = "unknown".parse().unwrap();
    assert_eq!(find(&world, Some(&unknown), "order-17").await, []);
}

pub(super) async fn a_search_finds_a_bounded_number_with_what_is_just_the_words_first(
    world: World,
) {
    world.endpoint().await;
    let name = |number: usize| format!("order-{number:03}");
    for part in (0..50).collect::<Vec<_>>().chunks(BATCH_EVENTS_MAX) {
        let event = |n: &usize| named(&world, &name(*n), Some(&name(*n)));
        world.accept(part.iter().map(event).collect()).await;
    }
    let exact = named(&world, "order-", Some("order-"));
    world.accept(vec![exact]).await;
    let found = shown(&find(&world, Some(&world.tenant), "order-").await);
    assert_eq!(found.len(), 2 * FIND_RESULTS_MAX, "{found:?}");
    assert_eq!((&*found[0], &*found[FIND_RESULTS_MAX]), ("event order-: Id", "lane order-: Key"));
    for words in [String::new(), "x".repeat(FIND_WORDS_LEN_MAX + 1)] {
        let refused = world.store.find(FindQuery { tenant: None, words }).await;
        assert!(matches!(&refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
}
