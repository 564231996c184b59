//! What Railpost signs, others verify; what others sign, Railpost's receivers verify.

use crate::tools::{Library, about, base64};
use railpost_receiver::Receiver;
use railpost_receiver::request_verifier::unix_now;
use railpost_receiver::testing::{Forgery, TestSender};
use railpost_receiver::wire::{Secret, Signer};
use serde_json::json;

pub(crate) fn secrets() -> [Secret; 2] {
    [3, 4].map(|byte| Secret::generate(&[byte; 32]))
}

/// Bodies that trip up who re-serialises, guesses an encoding or expects JSON.
pub(crate) const BODIES: [&[u8]; 4] =
    [b"{\"total\": 12.0}", b"", "snow \u{2603} man".as_bytes(), b"{ }\r\n"];

#[test]
fn deliveries_verify_with_the_reference_libraries() {
    let [old, new] = secrets();
    for library in Library::ALL {
        for (case, signers, trusted, accepted) in [
            ("one secret", vec![&old], &old, true),
            ("rotation, old trusted", vec![&old, &new], &old, true),
            ("rotation, new trusted", vec![&old, &new], &new, true),
            ("after the rotation", vec![&new], &old, false),
        ] {
            let signers = signers.into_iter().cloned().map(Signer::Secret).collect();
            let mut sender = TestSender::signing(signers);
            let secret = trusted.reveal();
            let questions = BODIES.map(|body| {
                let event = sender.event(Some("A"), body);
                about("verify", &sender.request(&event, 1, unix_now()), &secret)
            });
            for answer in library.ask(&questions) {
                assert_eq!(answer == "accepted", accepted, "{library:?}, {case}: {answer}");
            }
            println!("railpost → {library:?} standardwebhooks, {case}: as it should be");
        }
    }
}

#[test]
fn forgeries_are_refused_by_the_reference_libraries_too() {
    let [old, _] = secrets();
    let mut sender = TestSender::signing(vec![Signer::Secret(old.clone())]);
    let event = sender.event(None, b"{}");
    let forged = Forgery::ALL.map(|forgery| sender.forge(&event, forgery, unix_now()));
    let questions = forged.map(|sent| about("verify", &sent, &old.reveal()));
    for library in Library::ALL {
        let answers = library.ask(&questions);
        let refused = |answer: &serde_json::Value| answer.as_str().unwrap().starts_with("refused");
        assert!(answers.iter().all(refused), "{library:?}: {answers:?}");
        println!("forged → {library:?} standardwebhooks: refused, all {}", answers.len());
    }
}

#[test]
fn messages_of_the_reference_libraries_verify_here_rotation_included() {
    let (secrets, now) = (secrets(), unix_now());
    let receiver = Receiver::new(secrets.to_vec(), vec![]);
    for library in Library::ALL {
        for body in BODIES {
            let questions = [0, 1].map(|at| {
                let secret = secrets[at].reveal();
                json!({"ask": "sign", "secret": *secret, "id": "msg_1", "timestamp": now,
                       "body": base64(body)})
            });
            let answers = library.ask(&questions);
            let [old, new] = [0, 1].map(|at| answers[at].as_str().unwrap().to_owned());
            for signature in [old.clone(), new.clone(), format!("{old} {new}")] {
                let timestamp = now.to_string();
                let header = |name: &str| match name {
                    "webhook-id" => Some(&b"msg_1"[..]),
                    "webhook-timestamp" => Some(timestamp.as_bytes()),
                    "webhook-signature" => Some(signature.as_bytes()),
                    _ => None,
                };
                receiver.verify(header, body, now).unwrap();
                let only_old = Receiver::new(vec![secrets[0].clone()], vec![]);
                let trusted = signature.contains(&old);
                assert_eq!(only_old.verify(header, body, now).is_ok(), trusted);
            }
        }
        println!("{library:?} standardwebhooks → railpost: verified, rotation included");
    }
}
