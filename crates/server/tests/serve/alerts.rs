//! Alerts of a process that is killed: the next one goes on with them.

use serde_json::{Value, json};

use super::postgres::fresh_url;
use super::process::{ADMIN_KEY, Running};
use super::receiver::Receiver;

const TENANT: &str = "/v1/tenants/default";

#[test]
fn alerts_survive_a_kill_in_sqlite() {
    alerts_survive_a_kill(&[]);
}

#[test]
fn alerts_survive_a_kill_in_postgresql() {
    alerts_survive_a_kill(&["--store", &fresh_url("alerts")]);
}

fn alerts_survive_a_kill(store: &[&str]) {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
    let arguments = [store, &["--log-format", "json"]].concat();
    let start = || {
        let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];
        Running::start_with(folder.path(), &arguments, &set)
    };
    let mut server = start();
    let endpoint = json!({"url": receiver.url()});
    assert_eq!(server.post(&format!("{TENANT}/endpoints"), &endpoint).0, 201);
    server.publish(&json!({"id": "e1", "type": "a", "key": "k", "payload": 1}));
    receiver.next().answer(400);
    let fired = of_lane(&mut server, "alert_fired");
    until_open(&server, 1);
    server.signal("KILL");
    server.ended();

    let mut server = start();
    until_open(&server, 1);
    let dead = items(&server, &format!("{TENANT}/dead-letters"));
    let delivery = dead[0]["id"].as_str().unwrap();
    let skip = format!("{TENANT}/dead-letters/{delivery}/skip");
    assert_eq!(server.post(&skip, &json!({})).0, 200);
    // It did not fire a second time: what is resolved is the same alert.
    let resolved = next_of_lane(&mut server);
    assert_eq!(
        (&resolved["event"], &resolved["alert"]),
        (&json!("alert_resolved"), &fired["alert"])
    );
    until_open(&server, 0);
    assert_eq!(server.stopped().0, 0);
}

/// The next line with this event that is about a lane.
fn of_lane(server: &mut Running, event: &str) -> Value {
    loop {
        let line = server.wait_for(event);
        if line["rule"] == "lane_held" {
            return line;
        }
    }
}

/// The next line about an alert of a lane.
fn next_of_lane(server: &mut Running) -> Value {
    loop {
        let line = server.wait_for_any(&["alert_fired", "alert_resolved"]);
        if line["rule"] == "lane_held" {
            return line;
        }
    }
}

/// So many alerts that are warnings are open, as the metrics say.
fn until_open(server: &Running, count: u64) {
    let line = format!("railpost_alerts_open{{severity=\"warning\"}} {count}\n");
    while !server.get("/metrics", ADMIN_KEY).1.contains(&line) {}
}

fn items(server: &Running, path: &str) -> Vec<Value> {
    let page: Value = serde_json::from_str(&server.get(path, ADMIN_KEY).1).unwrap();
    page["items"].as_array().unwrap().clone()
}
