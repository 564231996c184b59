//! `railpost tenants`.

use serde_json::json;

use crate::world::World;

#[test]
fn a_tenant_is_created_shown_changed_and_erased() {
    let world = World::new();
    let created =
        world.json(&["tenants", "create", "acme", "--name", "Acme", "--rate-limit", "100/1s"]);
    assert_eq!(created["rate_limit"], json!({"count": 100, "per": "1s", "burst": 100}));
    let changed =
        world.json(&["tenants", "update", "acme", "--backlog-max", "5", "--rate-limit", "none"]);
    assert_eq!((&changed["backlog_max"], &changed["rate_limit"]), (&json!(5), &json!(null)));
    assert_eq!(world.json(&["tenants", "show", "acme"])["name"], "Acme");
    let refused = world.run(&["tenants", "delete", "acme"]).expect(2);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    assert_eq!(world.json(&["tenants", "delete", "acme", "--yes"])["erased"], true);
    world.run(&["tenants", "show", "acme"]).expect(1);
}

#[test]
fn erasing_a_tenant_can_be_left_to_itself() {
    let world = World::new();
    world.run(&["tenants", "create", "acme"]).expect(0);
    let erasing = world.json(&["tenants", "delete", "acme", "--yes", "--no-wait"]);
    assert_eq!(erasing["id"], "acme");
    assert!(erasing["erasing"]["since"].is_string(), "{erasing}");
}

#[test]
fn lists_show_a_page_and_how_to_see_more_or_all_of_it() {
    let world = World::new();
    for id in ["a", "b", "c"] {
        world.run(&["tenants", "create", id]).expect(0);
    }
    let page = world.run(&["tenants", "list", "--limit", "2"]).expect(0);
    assert_eq!(page.out.lines().count(), 3, "{}", page.out);
    assert!(page.out.starts_with("ID") && page.err.contains("--all"), "{page:?}");
    let all = world.run(&["tenants", "list", "--all"]).expect(0);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (6, ""));
    let page = world.json(&["tenants", "list", "--limit", "2"]);
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let rest = world.json(&["tenants", "list", "--cursor", page["next"].as_str().unwrap()]);
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (3, &json!(null)));
    assert_eq!(world.json(&["tenants", "list", "--all"])["items"].as_array().unwrap().len(), 5);
}
