//! The key of the configuration: one key, whatever it was before.

use std::path::Path;

use serde_json::{Value, json};

use super::process::{ADMIN_KEY, Running, call};

/// Another key of the test's choosing.
const OTHER_KEY: &str = "rp_another-key-of-the-tests-choosing-0123456789";

fn start(folder: &Path, arguments: &[&str], key: &str) -> Running {
    let set = [("RAILPOST_SERVER_ADMIN_KEY", key)];
    Running::start_with(folder, arguments, if key.is_empty() { &[] } else { &set })
}

fn status(server: &Running, key: &str) -> u16 {
    server.get("/v1/tenants", key).0
}

/// What the configuration did, the latest first: action, target and detail.
fn done_by_configuration(server: &Running, key: &str) -> Vec<(Value, Value, Value)> {
    let (_, text) = server.get("/v1/audit", key);
    let audit: Value = serde_json::from_str(&text).unwrap();
    let entries = audit["items"].as_array().unwrap().iter();
    let own = entries.filter(|entry| entry["actor"] == "configuration");
    let parts = |entry: &Value| ["action", "target", "detail"].map(|name| entry[name].clone());
    own.map(|entry| parts(entry).into()).collect()
}

fn own_id(server: &Running, key: &str) -> Value {
    let (_, text) = server.get("/v1/whoami", key);
    serde_json::from_str::<Value>(&text).unwrap()["key"]["id"].clone()
}

fn make_admin_key(server: &Running, key: &str) -> String {
    let request = http::Request::post(server.url("/v1/keys"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json");
    let body = json!({"name": "operations", "scope": "admin"}).to_string().into_bytes();
    let (status, text) = call(request.body(body).unwrap());
    assert_eq!(status, 201, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["key"].as_str().unwrap().to_owned()
}

/// A changed key replaces the old one; an unchanged one does nothing.
pub(crate) fn assert_replaced(folder: &Path, arguments: &[&str]) {
    let first = start(folder, arguments, ADMIN_KEY);
    let old = own_id(&first, ADMIN_KEY);
    assert_eq!(done_by_configuration(&first, ADMIN_KEY).len(), 1);
    assert_eq!(first.stopped().0, 0);

    let same = start(folder, arguments, ADMIN_KEY);
    assert_eq!(own_id(&same, ADMIN_KEY), old);
    assert_eq!(done_by_configuration(&same, ADMIN_KEY).len(), 1);
    assert_eq!(same.stopped().0, 0);

    let changed = start(folder, arguments, OTHER_KEY);
    assert_eq!((status(&changed, ADMIN_KEY), status(&changed, OTHER_KEY)), (401, 200));
    let done = done_by_configuration(&changed, OTHER_KEY);
    let (action, target, detail) = &done[0];
    assert_eq!((action, done.len()), (&json!("key.replace"), 2));
    assert_eq!((target, &detail["revoked"]), (&own_id(&changed, OTHER_KEY), &json!([old])));
    assert!(!done.iter().any(|entry| format!("{entry:?}").contains("choosing")), "{done:?}");
}

/// A key that is taken out of the configuration goes when somebody else can manage the server.
pub(crate) fn assert_removed(folder: &Path, arguments: &[&str]) {
    assert_eq!(start(folder, arguments, ADMIN_KEY).stopped().0, 0);
    let mut without = start(folder, arguments, "");
    let problem = without.wait_for("config_warning")["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("server.admin_key") && problem.contains("stays valid"), "{problem}");
    assert_eq!((without.key(), status(&without, ADMIN_KEY)), (None, 200));
    let other = make_admin_key(&without, ADMIN_KEY);
    assert_eq!(without.stopped().0, 0);

    let again = start(folder, arguments, "");
    assert_eq!((status(&again, ADMIN_KEY), status(&again, &other)), (401, 200));
    assert_eq!(done_by_configuration(&again, &other)[0].0, "key.revoke");
}

#[test]
fn another_key_in_the_configuration_replaces_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    assert_replaced(folder.path(), &[]);
}

#[test]
fn a_key_taken_out_of_the_configuration_goes_if_another_admin_key_stays() {
    let folder = tempfile::tempdir().unwrap();
    assert_removed(folder.path(), &[]);
}

#[test]
fn a_key_that_exists_becomes_the_configured_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), &[]);
    let made = first.key().unwrap().to_owned();
    assert_eq!(first.stopped().0, 0);
    let adopted = start(folder.path(), &[], &made);
    assert_eq!(status(&adopted, &made), 200);
    assert_eq!(adopted.stopped().0, 0);
    let changed = start(folder.path(), &[], ADMIN_KEY);
    assert_eq!((status(&changed, &made), status(&changed, ADMIN_KEY)), (401, 200));
}

#[test]
fn a_key_that_was_revoked_does_not_come_back_by_being_configured() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start(folder.path(), &[], ADMIN_KEY).stopped().0, 0);
    assert_eq!(start(folder.path(), &[], OTHER_KEY).stopped().0, 0);
    let mut back = start(folder.path(), &[], ADMIN_KEY);
    let problem = back.wait_for("config_warning")["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("server.admin_key") && problem.contains("revoked"), "{problem}");
    assert_eq!((status(&back, ADMIN_KEY), status(&back, OTHER_KEY)), (401, 200));
}
