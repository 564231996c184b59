//! Receivers on this machine, while nobody else can reach them through this server.

use serde_json::json;

use super::process::{ADMIN_KEY, Running, call, output};
use super::receiver::Receiver;
use super::seeded::seed;

const ADMIN: [(&str, &str); 1] = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];

fn publish(server: &Running, id: &str) {
    server.publish(&json!({"id": id, "type": "order.paid", "payload": 1}));
}

#[track_caller]
fn assert_refused(server: &mut Running, id: &str) {
    publish(server, id);
    let attempt = server.wait_for("attempt");
    assert_eq!(attempt["failure"], "blocked_address", "{attempt}");
    let message = attempt["message"].as_str().unwrap();
    assert!(message.contains("delivery.allow_loopback"), "{message}");
}

#[test]
fn a_second_tenant_closes_loopback_and_it_stays_closed_at_the_next_start() {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
    seed(folder.path(), &receiver.url());
    let mut server = Running::start_with(folder.path(), &[], &ADMIN);
    assert!(server.greeting.contains("are allowed, until"), "{}", server.greeting);
    publish(&server, "evt_1");
    receiver.next().answer(200);
    server.wait_for("attempt");
    assert_eq!(server.post("/v1/tenants", &json!({"id": "acme"})).0, 201);
    let closed = server.wait_for("loopback_closed");
    assert_eq!(closed["reason"], "there is more than one tenant");
    // The connection of the first attempt is open and is not used again.
    assert_refused(&mut server, "evt_2");
    let endpoint = json!({"url": receiver.url()});
    let (status, refused) = server.post("/v1/tenants/acme/endpoints", &endpoint);
    assert_eq!(status, 422);
    assert!(refused["detail"].as_str().unwrap().contains("delivery.allow_loopback"), "{refused}");
    assert_eq!(server.stopped().0, 0);

    let mut again = Running::start_with(folder.path(), &[], &ADMIN);
    assert!(again.greeting.contains("are blocked"), "{}", again.greeting);
    assert!(again.greeting.contains("more than one tenant"), "{}", again.greeting);
    assert_refused(&mut again, "evt_3");
}

#[test]
fn a_request_that_came_through_a_proxy_closes_loopback() {
    for name in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
        let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
        seed(folder.path(), &receiver.url());
        let mut server = Running::start_with(folder.path(), &[], &ADMIN);
        let request = http::Request::get(server.url("/health/live")).header(name, "192.0.2.7");
        assert_eq!(call(request.body(Vec::new()).unwrap()).0, 200);
        let closed = server.wait_for("loopback_closed");
        assert_eq!(closed["reason"], "a request came through a proxy", "{name}");
        assert_refused(&mut server, "evt_1");
    }
}

#[test]
fn loopback_that_is_always_allowed_stays_open() {
    let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
    seed(folder.path(), &receiver.url());
    let set = [ADMIN[0], ("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "always")];
    let server = Running::start_with(folder.path(), &[], &set);
    assert_eq!(server.post("/v1/tenants", &json!({"id": "acme"})).0, 201);
    server.publish_with(
        &json!({"id": "evt_1", "type": "order.paid", "payload": 1}),
        &[("via", "1.1 proxy")],
    );
    receiver.next().answer(200);
}

#[test]
fn the_check_of_the_configuration_says_who_may_be_sent_to() {
    let folder = tempfile::tempdir().unwrap();
    for (file, said) in [
        ("", "are allowed, until there is a second tenant or a request comes through a proxy"),
        (
            "[server]\npublic_url = \"https://a.example\"\n",
            "are blocked (delivery.allow_loopback): server.public_url is set",
        ),
        (
            "[server]\nlisten = \"0.0.0.0:80\"\n",
            "are blocked (delivery.allow_loopback): the API does not listen on loopback alone",
        ),
        (
            "[delivery]\nallow_loopback = \"never\"\n",
            "are blocked (delivery.allow_loopback): the setting is \"never\"",
        ),
        ("[delivery]\nallow_loopback = \"always\"\n", "are allowed (delivery.allow_loopback)"),
    ] {
        std::fs::write(folder.path().join("railpost.toml"), file).unwrap();
        let (code, text, _) = output(folder.path(), &["config", "check"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(said), "{said} not in {text}");
    }
}
