//! The guard at work: requests go to the address that was checked, or nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use railpost_dispatch::*;
use railpost_engine::Failure;

use crate::support::*;

/// A sender with the strictest guard, and its table of names.
fn strict_sender() -> (Sender, Arc<Names>) {
    let names = Arc::new(Names::default());
    let resolver = Arc::clone(&names) as Arc<dyn Resolve>;
    let sender = Sender::new(SenderConfig { resolver, ..SenderConfig::default() }).unwrap();
    (sender, names)
}

#[tokio::test]
async fn a_public_name_of_a_special_address_is_blocked() {
    let (sender, names) = strict_sender();
    for addresses in [
        &["127.0.0.1"][..],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["::ffff:10.1.2.3"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["fd00:ec2::254"],
        &["fe80::1"],
        &["0.0.0.0"],
        &["::"],
        &["10.0.0.1", "192.168.0.1", "::1"],
    ] {
        names.set("rebound.example.com", addresses);
        let exchange = post(&sender, &route_config("http://rebound.example.com/")).await;
        let words = "requests to rebound.example.com at ";
        assert_failed(&exchange, Failure::BlockedAddress, words);
        assert_eq!(exchange.detail.remote, None, "{addresses:?}: nothing was connected to");
    }
}

#[tokio::test]
async fn of_mixed_addresses_only_the_allowed_ones_are_tried() {
    let receiver = Receiver::answering(OK).await;
    let names = Names::default();
    // All of these lead to the receiver's machine; only the last is excepted.
    names.set(NAME, &["127.0.0.9", "::1", "::ffff:127.0.0.8", "0.0.0.0", "127.0.0.1"]);
    let sender = Sender::new(SenderConfig { resolver: Arc::new(names), ..config() }).unwrap();
    let exchange = post(&sender, &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(200));
    assert_eq!(exchange.detail.remote, Some(receiver.address));
    assert_eq!(receiver.connections(), 1);
}

/// Answers with an allowed address first, and with a forbidden one ever after.
struct TwoFaced(AtomicUsize);

impl Resolve for TwoFaced {
    fn resolve<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        let address = match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => "127.0.0.1",
            _ => "127.0.0.2",
        };
        Box::pin(std::future::ready(Ok(vec![address.parse().unwrap()])))
    }
}

#[tokio::test]
async fn a_resolver_that_changes_its_answer_after_the_check_gains_nothing() {
    let receiver =
        Receiver::answering("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            .await;
    let resolver = Arc::new(TwoFaced(AtomicUsize::new(0)));
    let lookups = Arc::clone(&resolver);
    let sender = Sender::new(SenderConfig { resolver, ..config() }).unwrap();
    let config = route_config(&receiver.url("http"));

    let exchange = post(&sender, &config).await;
    assert_eq!(status(&exchange), Some(200));
    assert_eq!(exchange.detail.remote, Some(receiver.address), "the address that was checked");
    assert_eq!(lookups.0.load(Ordering::SeqCst), 1, "one lookup for check and connection");

    let exchange = post(&sender, &config).await;
    assert_failed(&exchange, Failure::BlockedAddress, "127.0.0.2 (loopback)");
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_target_of_a_laxer_guard_is_judged_by_the_senders() {
    let receiver = Receiver::answering(OK).await;
    let (sender, _) = strict_sender();
    let url = format!("http://{}/", receiver.address);
    let exchange = post(&sender, &route_config(&url)).await;
    assert_failed(&exchange, Failure::BlockedAddress, "127.0.0.1 (loopback)");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_reused_connection_needs_no_lookup() {
    let receiver = Receiver::answering(OK).await;
    let names = Arc::new(Names::default());
    names.set(NAME, &["127.0.0.1"]);
    let resolver = Arc::clone(&names) as Arc<dyn Resolve>;
    let sender = Sender::new(SenderConfig { resolver, ..config() }).unwrap();
    for _ in 0..3 {
        post(&sender, &route_config(&receiver.url("http"))).await;
    }
    assert_eq!(names.lookups.load(Ordering::SeqCst), 1);
}
