//! How it stops.

use railpost_engine::DeliveryState;
use railpost_store::PageRequest;
use serde_json::json;

use super::process::{ADMIN_KEY, Running};
use super::receiver::{Arrived, Receiver};
use super::seeded::{look, seed, tenant};

/// A server with an attempt under way at a receiver that does not answer yet.
fn busy(folder: &std::path::Path, set: &[(&str, &str)]) -> (Running, Receiver, Arrived) {
    let receiver = Receiver::new();
    seed(folder, &receiver.url());
    let set = [set, &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)]].concat();
    let server = Running::start_with(folder, &[], &set);
    server.publish(&json!({"id": "evt_1", "type": "order.paid", "payload": 1}));
    let arrived = receiver.next();
    (server, receiver, arrived)
}

fn state(folder: &std::path::Path) -> (DeliveryState, usize) {
    look(folder, async |store| {
        let event = "evt_1".parse().unwrap();
        let delivery = store.deliveries_of(&tenant(), &event).await.unwrap().remove(0).delivery;
        let attempts = store.attempts(delivery.id, PageRequest::first(10)).await.unwrap();
        (delivery.state, attempts.items.len())
    })
}

#[test]
fn a_signal_lets_the_attempt_under_way_end_and_records_it() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, _receiver, arrived) = busy(folder.path(), &[]);
        server.signal(signal);
        assert_eq!(server.wait_for("stopping")["signal"], format!("SIG{signal}"));
        arrived.answer(200);
        assert_eq!(server.wait_for("stopped")["drained"], true);
        assert_eq!(server.ended().0, 0);
        assert_eq!(state(folder.path()), (DeliveryState::Delivered, 1));
    }
}

#[test]
fn a_second_signal_stops_at_once_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, _receiver, _arrived) = busy(folder.path(), &[]);
    server.signal("TERM");
    server.wait_for("stopping");
    server.signal("TERM");
    let (code, log) = server.ended();
    assert_eq!(code, 3, "{log}");
    assert_eq!(state(folder.path()), (DeliveryState::Pending, 0));
}

#[test]
fn draining_ends_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let set = [("RAILPOST_SERVER_DRAIN_TIMEOUT", "100ms")];
    let (mut server, _receiver, _arrived) = busy(folder.path(), &set);
    server.signal("TERM");
    assert_eq!(server.wait_for("stopped")["drained"], false);
    assert_eq!(server.ended().0, 3);
}

#[test]
fn connections_that_wait_for_nothing_do_not_keep_it_from_ending() {
    use std::io::{Read, Write};
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path(), &["--ephemeral"]);
    let address = server.url("").replace("http://", "");
    let mut idle = std::net::TcpStream::connect(address).unwrap();
    idle.write_all(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    idle.read_exact(&mut [0; 1]).unwrap();
    assert_eq!(server.stopped().0, 0);
}

#[test]
fn a_connection_that_says_nothing_does_not_keep_it_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let set = [("RAILPOST_SERVER_DRAIN_TIMEOUT", "4s")];
    let server = Running::start_with(folder.path(), &["--ephemeral"], &set);
    let _silent = std::net::TcpStream::connect(server.url("").replace("http://", "")).unwrap();
    // Connections are taken in order: who is answered came behind it.
    assert_eq!(server.get("/health/live", "").0, 200);
    assert_eq!(server.stopped().0, 0);
}
