//! Two tenants with one of everything, and every route filled in with what they have.

use std::collections::BTreeMap;

use railpost_api::{Route, routes};
use serde_json::json;

use crate::receiver::Receiver;
use crate::scene::text;
use crate::world::World;

/// What a tenant has, by the name that paths have for it.
pub(crate) type Things = BTreeMap<&'static str, String>;

/// Makes a tenant that has one of everything: an endpoint with a secret, an event, whose delivery is a
/// dead letter that holds its lane, an event type, a key, and a replay.
pub(crate) fn furnish(world: &World, tenant: &str) -> Things {
    let receiver = Receiver::new();
    receiver.answers(&[400]);
    let root = format!("/v1/tenants/{tenant}");
    world.post("/v1/tenants", &json!({ "id": tenant })).expect(201);
    let endpoint = world.post(&format!("{root}/endpoints"), &json!({"url": receiver.url()}));
    let endpoint = endpoint.expect(201).json();
    let name = format!("{tenant}.created");
    world.put(&format!("{root}/event-types/{name}"), &json!({})).expect(200);
    let event = json!({"id": format!("{tenant}-1"), "type": name, "key": "k", "payload": 1});
    world.post(&format!("{root}/events"), &event).expect(202);
    receiver.next();
    let lanes = format!("{root}/lanes");
    let lane = world.get_until(&lanes, |page| page["items"][0].is_object())["items"][0].clone();
    let new_key = json!({"name": "a", "scope": "tenant"});
    let key = world.post(&format!("{root}/keys"), &new_key).expect(201).json();
    let mut things = Things::from([
        ("tenant", tenant.to_owned()),
        ("endpoint", text(&endpoint["id"])),
        ("secret", text(&endpoint["secret"]["id"])),
        ("name", name),
        ("event", text(&event["id"])),
        ("delivery", text(&lane["held_by"])),
        ("lane", lane["lane"].to_string()),
        ("key", text(&key["id"])),
        // Sources are the operator's; no tenant has any.
        ("source", "shop".to_owned()),
        ("number", "1".to_owned()),
        ("role", "shop_app".to_owned()),
        ("alert", world.fire(tenant, &text(&endpoint["id"]))),
        ("silence", silence(world, tenant)),
    ]);
    if routes().iter().any(|route| route.operation.path.contains("{replay}")) {
        let body = json!({"action": "replay", "dry_run": true});
        let replay = world.post(&format!("{root}/replays"), &body).expect(202).json();
        things.insert("replay", text(&replay["id"]));
    }
    things
}

/// Silences alerts about something that no tenant has.
fn silence(world: &World, tenant: &str) -> String {
    let body = json!({"tenant": tenant, "subject": "nothing", "for": "1h", "reason": "a test"});
    text(&world.post("/v1/silences", &body).expect(201).json()["id"])
}

/// A route's path with its parameters filled in. A parameter that nobody thought of is a panic: say
/// above what a tenant has of it.
pub(crate) fn filled(route: &Route, things: &Things) -> String {
    let segments = route.operation.path.split('/').map(|segment| {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let Some(name) = name else { return segment.to_owned() };
        let thing = things.get(name);
        thing
            .unwrap_or_else(|| panic!("{}: what is a tenant's {name}?", route.operation.path))
            .clone()
    });
    let path = segments.collect::<Vec<_>>().join("/");
    // A search looks for something.
    if path.ends_with("/find") { format!("{path}?q=order") } else { path }
}

/// A body that the route would take.
pub(crate) fn body(route: &Route, things: &Things) -> String {
    let body = match route.operation.path.rsplit('/').next().unwrap_or_default() {
        "redeliver" => json!({"endpoint": things["endpoint"]}),
        _ => json!({}),
    };
    if route.operation.method == "GET" { String::new() } else { body.to_string() }
}
