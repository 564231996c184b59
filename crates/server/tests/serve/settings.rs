//! Settings do what they say.

use std::path::Path;

use serde_json::json;

use super::process::{ADMIN_KEY, Running, railpost};
use super::receiver::Receiver;
use super::seeded::seed;

fn start(folder: &Path, receiver: &Receiver, set: &[(&str, &str)]) -> Running {
    seed(folder, &receiver.url());
    let set = [set, &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)]].concat();
    Running::start_with(folder, &[], &set)
}

fn publish(server: &Running, id: &str) {
    server.publish(&json!({"id": id, "type": "order.paid", "payload": 1}));
}

#[test]
fn receivers_that_the_settings_refuse_are_not_asked() {
    for set in
        [("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "never"), ("RAILPOST_DELIVERY_HTTPS_ONLY", "true")]
    {
        let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
        let mut server = start(folder.path(), &receiver, &[set]);
        publish(&server, "evt_1");
        assert_eq!(server.wait_for("attempt")["failure"], "blocked_address", "{set:?}");
    }
}

#[test]
fn networks_that_are_excepted_are_sent_to() {
    let set = [
        ("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "never"),
        ("RAILPOST_DELIVERY_ALLOW_NETWORKS", "10.0.0.0/8, 127.0.0.0/8"),
    ];
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
    let server = start(folder.path(), &receiver, &set);
    publish(&server, "evt_1");
    receiver.next().answer(200);
}

#[test]
fn no_more_attempts_are_under_way_than_may_be() {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
    let server = start(folder.path(), &receiver, &[("RAILPOST_DELIVERY_IN_FLIGHT_MAX", "1")]);
    publish(&server, "evt_1");
    publish(&server, "evt_2");
    let first = receiver.next();
    let page = server.get("/metrics", "").1;
    assert!(page.contains("railpost_engine_attempts_started_total 1\n"), "{page}");
    first.answer(200);
    receiver.next().answer(200);
}

#[test]
fn log_lines_look_as_configured_and_colours_are_for_terminals() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path(), &["--ephemeral", "--log-format", "text"]);
    let (_, log) = server.stopped();
    assert!(log.contains(" INFO  started version="), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
    let server = Running::start(folder.path(), &["--ephemeral", "--log-level", "error"]);
    assert_eq!(server.stopped(), (0, String::new()));
}

#[test]
fn a_flag_out_of_range_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = railpost(folder.path(), &["serve", "--log-level", "loud"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--log-level: log.level = \"loud\": expected one of"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}
