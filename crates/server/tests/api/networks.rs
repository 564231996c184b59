//! Where requests leave from, and whose requests are taken.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};

use railpost::config::Config;
use railpost::serve::Server;
use railpost_telemetry::{Level, Log};
use serde_json::json;

use crate::world::{World, request};

fn networks(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

/// The status of a request without a key, from a client that a trusted proxy names. A client of a refused network is
/// refused before the operation is known, so the specification has no such answer.
fn status(world: &World, path: &str, client: &str) -> u16 {
    request("GET", &world.url(path), "", &[("x-forwarded-for", client)], b"").unwrap().status
}

#[test]
fn requests_leave_from_the_address_that_is_set_and_published() {
    let mut config = Config::default();
    config.delivery.bind = vec!["127.0.0.2".parse().unwrap()];
    let world = World::with(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    world.endpoint_with(&json!({"url": url, "types": ["*"]}));
    world.publish("e1", "a", None);
    let (mut stream, peer) = listener.accept().unwrap();
    let _ = stream.read(&mut [0; 4096]).unwrap();
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert_eq!(peer.ip(), IpAddr::from([127, 0, 0, 2]));
    let egress = world.call("GET", "/v1/egress", "", &[], b"").expect(200).json();
    assert_eq!(egress, json!({"networks": ["127.0.0.2/32"]}));
}

#[test]
fn a_gateways_networks_are_published_in_place_of_the_machines_addresses() {
    let mut config = Config::default();
    config.delivery.bind = vec!["127.0.0.2".parse().unwrap()];
    config.delivery.egress = networks("203.0.113.0/28");
    let egress = World::with(config).get("/v1/egress").expect(200).json();
    assert_eq!(egress, json!({"networks": ["203.0.113.0/28"]}));
    let unknown = World::new().get("/v1/egress").expect(200).json();
    assert_eq!(unknown, json!({"networks": []}));
}

#[tokio::test]
async fn an_address_of_another_machine_is_refused_at_the_start() {
    let mut config = Config::default();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.store.url = "memory:".to_owned();
    config.delivery.bind = vec!["192.0.2.1".parse().unwrap()];
    let started = Server::start(config, Log::new(Level::Error, std::io::sink())).await;
    assert_eq!(
        started.unwrap_err().to_string(),
        "delivery.bind: this machine does not have the address 192.0.2.1"
    );
}

#[test]
fn api_dashboard_and_metrics_have_allow_lists_of_their_own() {
    let mut config = Config::default();
    config.server.trusted_proxies = networks("127.0.0.0/8");
    config.server.allow_api = networks("10.1.0.0/16");
    config.server.allow_dashboard = networks("10.2.0.0/16");
    config.server.allow_metrics = networks("10.3.0.0/16");
    let world = World::with(config);
    for (path, taken_from, answer) in [
        ("/v1/tenants", "10.1.0.9", 401),
        ("/docs", "10.1.0.9", 200),
        ("/dashboard/sign-in", "10.2.0.9", 200),
        ("/metrics", "10.3.0.9", 200),
    ] {
        for client in ["10.1.0.9", "10.2.0.9", "10.3.0.9", "192.0.2.9"] {
            let expected = if client == taken_from { answer } else { 403 };
            assert_eq!(status(&world, path, client), expected, "{path} for {client}");
        }
    }
    for path in ["/health/live", "/health/ready", "/v1/egress"] {
        assert_eq!(status(&world, path, "192.0.2.9"), 200, "{path}");
    }
    let headers = [("x-forwarded-for", "192.0.2.9")];
    let refused = world.call("GET", "/v1/tenants", &world.admin, &headers, b"").expect(403).json();
    assert_eq!(
        refused["detail"],
        "requests from 192.0.2.9 are not taken here: see `server.allow_api`"
    );
}

#[test]
fn the_metrics_can_need_a_token() {
    let mut config = Config::default();
    config.server.metrics_token = "scrape-me-if-you-can".to_owned();
    let world = World::with(config);
    let url = world.url("/metrics");
    for (token, expected) in [("", 401), ("scrape-me-if-you-can!", 401), (&*world.admin, 401)] {
        let answer = request("GET", &url, token, &[], b"").unwrap();
        assert_eq!(answer.status, expected, "{token}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    let page = request("GET", &url, "scrape-me-if-you-can", &[], b"").unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text.contains("railpost_build_info"), "{}", page.text);
}
