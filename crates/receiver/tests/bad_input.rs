//! Any bytes in any header or body give an error value: no panic, no write.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use proptest::prelude::*;
use railpost_receiver::testing::{Forgery, TestSender};
use railpost_receiver::wire::{Header, Secret, Signer};
use railpost_receiver::{Delivery, Receiver, Rejection};

const NOW: i64 = 1_767_225_600;
const SECRET: &[u8] = b"a secret of the bad input tests";

fn secret() -> Secret {
    Secret::from_bytes(SECRET).unwrap()
}

fn receiver() -> Receiver {
    Receiver::new(vec![secret()], vec![])
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        "(v1,|v1a,|t=|=|,|[0-9]{1,20}|[ -~]){0,8}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_stranger_sends_is_refused(
        values in prop::collection::vec(prop::option::of(bytes()), Header::ALL.len()),
        body in bytes(),
    ) {
        let header = |name: &str| {
            let at = Header::ALL.iter().position(|header| header.default_name() == name)?;
            values[at].as_deref()
        };
        let rejection = receiver().verify(header, &body, NOW).unwrap_err();
        prop_assert!([400, 401].contains(&rejection.answer().status));
        prop_assert!(rejection.to_string().len() < 2_000, "fit for a log");
    }

    /// What the signature does not cover may hold anything even when the signature is right.
    #[test]
    fn an_authentic_request_with_any_other_headers_is_read_or_refused(
        value in bytes(),
        content_type in bytes(),
        body in bytes(),
        at in 4..Header::ALL.len(),
    ) {
        let mut sender = TestSender::new(SECRET);
        let event = sender.event(Some("A"), &body);
        let sent = sender.request(&event, 1, NOW);
        let mut headers: Vec<(&str, &[u8])> =
            sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let changed = Header::ALL[at].default_name();
        headers.retain(|(name, _)| *name != changed);
        headers.extend([(changed, &value[..]), ("content-type", &content_type), ("ce-id", &value)]);
        if let Ok(delivery) = Delivery::verify(&receiver(), &headers, body, NOW) {
            let _ = (delivery.cloud_event(), delivery.thin(), delivery.json::<serde_json::Value>());
        }
    }
}

#[test]
fn each_forgery_is_refused_with_a_reason_for_the_log_and_none_for_the_sender() {
    let mut sender = TestSender::new(SECRET);
    let event = sender.event(Some("A"), b"{}");
    for (forgery, status, reason) in [
        (Forgery::OtherSecret, 401, "no signature matches a trusted secret or key: check that"),
        (Forgery::ChangedBody, 401, "no signature matches a trusted secret or key: check that"),
        (Forgery::ChangedId, 401, "no signature matches a trusted secret or key: check that"),
        (Forgery::Replayed, 401, "the timestamp is too old by 86100 s: an old request sent again"),
        (Forgery::Unsigned, 401, "no `webhook-signature` header: the request is unsigned"),
        (Forgery::TimestampedOnly, 401, "no `webhook-signature` header: the request is unsigned"),
        (Forgery::Garbage, 400, "header `webhook-signature`: expected the base64 of 32 bytes"),
    ] {
        let forged = sender.forge(&event, forgery, NOW);
        let rejection =
            receiver().verify(|name| forged.header(name), &forged.body, NOW).unwrap_err();
        assert_eq!(rejection.answer().status, status, "{forgery:?}");
        assert!(rejection.to_string().starts_with(reason), "{forgery:?}: {rejection}");
        assert!(["not authentic", "not readable"].contains(&rejection.answer().text));
    }
}

#[test]
fn during_a_rotation_either_secret_will_do() {
    let new = Secret::from_bytes(&[7; 32]).unwrap();
    let signers = [vec![secret()], vec![new.clone()], vec![secret(), new.clone()]];
    for signers in signers {
        let signers = signers.into_iter().map(Signer::Secret).collect();
        let mut sender = TestSender::signing(signers);
        let event = sender.event(None, b"{}");
        let sent = sender.request(&event, 1, NOW);
        let receiver = Receiver::new(vec![new.clone(), secret()], vec![]);
        receiver.verify(|name| sent.header(name), &sent.body, NOW).unwrap();
    }
}

#[test]
fn the_timestamped_form_is_taken_from_those_who_ask_for_it() {
    let mut sender = TestSender::new(SECRET);
    let event = sender.event(None, b"{}");
    let sent = sender.forge(&event, Forgery::TimestampedOnly, NOW);
    let header = |name: &str| sent.header(name);
    let lenient = Receiver::with_timestamped_form(vec![secret()], vec![]);
    assert_eq!(lenient.verify(header, &sent.body, NOW).unwrap().event_id, event.id);
    let refused = receiver().verify(header, &sent.body, NOW);
    assert!(matches!(refused, Err(Rejection::Unsigned(_))));
}

#[test]
fn a_public_key_will_do_as_well() {
    let signer: Signer = "whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=".parse().unwrap();
    let Signer::Key(key) = &signer else { panic!("a key") };
    let receiver = Receiver::new(vec![], vec![key.verifying_key()]);
    let mut sender = TestSender::signing(vec![signer]);
    let event = sender.event(None, b"{}");
    let sent = sender.request(&event, 1, NOW);
    receiver.verify(|name| sent.header(name), &sent.body, NOW).unwrap();
    assert!(receiver.verify(|name| sent.header(name), b"{ }", NOW).is_err());
}
