//! `X-Webhook-Signature` is what receivers of Stripe's form expect: they pass the secret as it was shown to
//! them, `whsec_…`, to their library or to an HMAC of their own.

use crate::signatures::{BODIES, secrets};
use crate::tools::{Library, about, base64};
use railpost_receiver::Receiver;
use railpost_receiver::request_verifier::unix_now;
use railpost_receiver::testing::{Forgery, TestSender};
use railpost_receiver::wire::{Secret, Signer};
use serde_json::json;

fn sender(secrets: &[&Secret]) -> TestSender {
    TestSender::signing(secrets.iter().map(|secret| Signer::Secret((*secret).clone())).collect())
}

/// Whether this way of verifying accepts each body, signed by `signers`, with the secret as it is shown.
fn accepts(library: Library, way: &str, signers: &[&Secret], trusted: &Secret) -> Vec<bool> {
    let mut sender = sender(signers);
    let questions = BODIES.map(|body| {
        let event = sender.event(Some("A"), body);
        about(way, &sender.request(&event, 1, unix_now()), &trusted.reveal())
    });
    library.ask(&questions).iter().map(|answer| answer == "accepted").collect()
}

#[test]
fn deliveries_verify_with_stripes_libraries_and_the_secret_as_shown() {
    let [old, new] = &secrets();
    for library in Library::ALL {
        for (case, signers, trusted, accepted) in [
            ("one secret", vec![old], old, true),
            ("rotation, old trusted", vec![old, new], old, true),
            ("rotation, new trusted", vec![old, new], new, true),
            ("after the rotation", vec![new], old, false),
        ] {
            let answers = accepts(library, "verify_timestamped", &signers, trusted);
            assert_eq!(answers, [accepted; BODIES.len()], "{library:?}, {case}");
            println!("railpost → {library:?} stripe, {case}: as it should be");
        }
    }
}

/// A verifier that is written by hand often reads one `v1`, which is the last: it follows a rotation once
/// the new secret stands there.
#[test]
fn deliveries_verify_with_verifiers_that_people_write_by_hand() {
    let [old, new] = &secrets();
    for library in Library::ALL {
        for (case, signers, trusted, accepted) in [
            ("one secret", vec![old], old, true),
            ("another secret", vec![new], old, false),
            ("rotation, the last one trusted", vec![old, new], new, true),
        ] {
            let answers = accepts(library, "verify_plainly", &signers, trusted);
            assert_eq!(answers, [accepted; BODIES.len()], "{library:?}, {case}");
            println!("railpost → {library:?} by hand, {case}: as it should be");
        }
    }
}

/// What this form does not cover, the event id, is not among them.
#[test]
fn forgeries_of_the_timestamped_form_are_refused_there_too() {
    let [old, _] = &secrets();
    let mut sender = sender(&[old]);
    let event = sender.event(None, b"{}");
    let forgeries =
        [Forgery::OtherSecret, Forgery::ChangedBody, Forgery::Replayed, Forgery::Unsigned];
    for (library, way) in Library::ALL
        .into_iter()
        .flat_map(|library| ["verify_timestamped", "verify_plainly"].map(|way| (library, way)))
    {
        let forged = forgeries.map(|forgery| sender.forge(&event, forgery, unix_now()));
        let answers = library.ask(&forged.map(|sent| about(way, &sent, &old.reveal())));
        let refused = |answer: &serde_json::Value| answer.as_str().unwrap().starts_with("refused");
        assert!(answers.iter().all(refused), "{library:?}, {way}: {answers:?}");
    }
}

#[test]
fn headers_of_stripes_libraries_verify_here() {
    let ([old, new], now) = (&secrets(), unix_now());
    let trusting = |secret: &Secret| Receiver::with_timestamped_form(vec![secret.clone()], vec![]);
    for library in Library::ALL {
        let questions = BODIES.map(|body| {
            json!({"ask": "sign_timestamped", "secret": *old.reveal(), "timestamp": now,
                   "body": base64(body)})
        });
        for (body, signature) in BODIES.iter().zip(library.ask(&questions)) {
            let (timestamp, signature) = (now.to_string(), signature.as_str().unwrap().to_owned());
            let header = |name: &str| match name {
                "webhook-id" => Some(&b"msg_1"[..]),
                "webhook-timestamp" => Some(timestamp.as_bytes()),
                "X-Webhook-Signature" => Some(signature.as_bytes()),
                _ => None,
            };
            trusting(old).verify(header, body, now).unwrap();
            assert!(trusting(new).verify(header, body, now).is_err());
        }
        println!("{library:?} stripe → railpost: verified");
    }
}
