//! What can be read out of a delivery, by its headers and by its envelope.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use railpost_receiver::testing::{TestEvent, TestRequest, TestSender};
use railpost_receiver::wire::Secret;
use railpost_receiver::{Delivery, Receiver, Rejection};

const NOW: i64 = 1_767_225_600;
const SECRET: &[u8] = b"a secret of the delivery tests";

fn verified(sent: TestRequest) -> Result<Delivery, Rejection> {
    let receiver = Receiver::new(vec![Secret::from_bytes(SECRET).unwrap()], vec![]);
    let headers = sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    Delivery::verify(&receiver, &headers.collect::<Vec<_>>(), sent.body, NOW)
}

fn dated() -> (TestSender, TestEvent) {
    let mut sender = TestSender::new(SECRET);
    let event = sender.event(Some("A"), b"{}");
    let event_type = "order.paid".parse().unwrap();
    (sender, TestEvent { event_type, schema_version: Some(3), ..event })
}

#[test]
fn the_headers_of_a_delivery_tell_type_time_and_schema_version() {
    let (sender, event) = dated();
    let received = verified(sender.request(&event, 1, NOW)).unwrap().received;
    assert_eq!(received.event_type, Some(event.event_type));
    assert_eq!(received.event_unix_ms, Some(NOW * 1000));
    assert_eq!(received.schema_version, Some(3));
}

#[test]
fn a_sender_that_says_neither_type_nor_time_is_read_as_well() {
    let (sender, event) = dated();
    let mut sent = sender.request(&event, 1, NOW);
    sent.headers.retain(|(name, _)| {
        !["X-Event-Type", "X-Event-Time", "X-Schema-Version"].contains(&name.as_str())
    });
    let received = verified(sent).unwrap().received;
    assert_eq!((received.event_type, received.event_unix_ms), (None, None));
    assert_eq!(received.schema_version, None);
}
