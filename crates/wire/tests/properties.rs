//! Whatever comes in, nothing panics; what is accepted comes back the same; what goes out is safe.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use railpost_wire::cloudevents::{CloudEvent, ContentMode, Data, Origin};
use railpost_wire::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use std::{collections::BTreeMap, fmt::Display, str::FromStr, time::Duration};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

/// Any text, texts like those that are accepted, and texts of the characters that matter.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(ep|evt|ten|dlv)_[0-9a-z]{25,27}",
        "[a-zA-Z0-9_.:*-]{0,140}",
        "wh(sec|sk|pk)_[A-Za-z0-9+/]{30,90}={0,2}",
        "(v1|v1a|v2|t)[,=]([A-Za-z0-9+/=]{0,90})( |,)(v1,)?",
        "[0-9]{0,25}",
        "[A-Z][a-z]{2,8},? [0-9]{2}[ -][A-Z][a-z]{2}[ -][0-9]{2,4} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?",
        "[%\"\\\\ a-c0-9]{0,20}",
        "[a-z]{0,3}:?[/?#\\[\\]%@:a-f0-9]{0,20}",
    ]
}

/// Any JSON, some of it close to a CloudEvent.
fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts().prop_map(Value::from),
        Just(Value::from("1.0")),
    ];
    let names =
        prop_oneof!["specversion|id|source|type|time|data|data_base64|subject|x_key", texts()];
    scalar.prop_recursive(3, 24, 8, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(names.clone(), inner, 0..8).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A value that was read must be written as it came, and read again from serde's form.
fn survives<T>(text: &str) -> Result<(), TestCaseError>
where
    T: FromStr<Err: Display> + Display + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    match text.parse::<T>() {
        Ok(parsed) => {
            prop_assert_eq!(parsed.to_string(), text);
            let value = serde_json::to_value(&parsed).unwrap();
            prop_assert_eq!(serde_json::from_value::<T>(value).unwrap(), parsed);
        }
        Err(error) => prop_assert!(error.to_string().len() < 800),
    }
    Ok(())
}

/// The last millisecond that RFC 3339 can write.
const YEAR_9999_END: u64 = 253_402_300_799_999;

fn is_safe(value: &str) -> bool {
    value.bytes().all(|c| c.is_ascii_graphic() || c == b' ')
}

prop_compose! {
    fn keys()(key in any::<String>().prop_filter_map("a key has 1 to 256 bytes", |text| text.parse().ok())) -> Key {
        key
    }
}

/// Values of an extension: of each of the three types, and texts that look like the others.
fn attribute_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé \"%/]{1,12}".prop_map(Value::from),
        "true|false|-?[0-9]{1,5}".prop_map(Value::from),
    ]
}

/// An event as Railpost sends it on, in structured and in binary mode.
fn forwarded(came: &CloudEvent<'_>) -> (Vec<u8>, Content<'static>) {
    let origin = Origin::of(came);
    let extension = |name: &str| came.extensions.get(name).map(ToString::to_string);
    let key = extension("partitionkey").or(came.subject.as_ref().map(ToString::to_string));
    let key: Option<Key> = key.map(|key| key.parse().unwrap());
    let payload = came.to_http().unwrap().body;
    let content_type = match (&came.datacontenttype, &came.data) {
        (Some(declared), _) => declared.parse().unwrap(),
        (None, Data::Json(_)) => ContentType::JSON,
        (None, _) => "application/octet-stream".parse().unwrap(),
    };
    let event = Event {
        id: &origin.event_id(),
        event_type: &came.event_type.parse().unwrap(),
        key: key.as_ref(),
        payload: &payload,
        content_type: &content_type,
        schema_version: extension("schemaversion").map(|text| text.parse().unwrap()),
        unix_ms: came.unix_ms().unwrap().try_into().unwrap(),
        source: &"/tenants/acme".parse().unwrap(),
        cloudevent: Some(&origin),
        url: "",
    };
    let structured = Envelope::CloudeventsStructured.wrap(&event).body.into_owned();
    let binary = Envelope::CloudeventsBinary.wrap(&event);
    (structured, Content { headers: binary.headers, body: binary.body.into_owned().into() })
}

proptest! {
    #[test]
    fn what_is_read_from_text_is_written_as_it_came(text in texts()) {
        survives::<EndpointId>(&text)?;
        survives::<NodeId>(&text)?;
        survives::<EventId>(&text)?;
        survives::<TenantId>(&text)?;
        survives::<EventType>(&text)?;
        survives::<EventTypeFilter>(&text)?;
        survives::<Key>(&text)?;
        survives::<LineId>(&text)?;
        survives::<ContentType>(&text)?;
        survives::<Source>(&text)?;
        survives::<VerifyingKey>(&text)?;
    }

    #[test]
    fn secrets_are_read_from_any_text_without_a_panic(text in texts()) {
        if let Ok(secret) = text.parse::<Secret>() {
            prop_assert_eq!(&*secret.reveal(), &text);
        }
        if let Ok(signer) = text.parse::<Signer>() {
            prop_assert!(signer.reveal().parse::<Signer>().is_ok());
        }
    }

    #[test]
    fn no_json_value_makes_deserializing_panic(value in values()) {
        let _ = serde_json::from_value::<EndpointId>(value.clone());
        let _ = serde_json::from_value::<EventId>(value.clone());
        let _ = serde_json::from_value::<Seq>(value.clone());
        let _ = serde_json::from_value::<Envelope>(value.clone());
        let _ = serde_json::from_value::<Header>(value.clone());
        if let Ok(names) = serde_json::from_value::<HeaderNames>(value) {
            prop_assert!(Header::ALL.into_iter().all(|header| is_safe(names.name(header))));
        }
    }

    #[test]
    fn ids_made_at_any_time_come_back(unix_ms: u64, random: [u8; 10]) {
        let id = EventId::generate(unix_ms, random);
        prop_assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
        let id = AttemptId::generate(unix_ms, random);
        prop_assert_eq!(id.unix_ms(), unix_ms.min((1 << 48) - 1));
    }

    #[test]
    fn event_ids_are_ordered_as_their_texts(a in texts(), b in texts()) {
        if let (Ok(id_a), Ok(id_b)) = (a.parse::<EventId>(), b.parse::<EventId>()) {
            prop_assert_eq!(id_a.cmp(&id_b), a.cmp(&b));
        }
    }

    #[test]
    fn any_key_passes_through_a_header(key in keys()) {
        let header = key.to_header();
        prop_assert!(header.bytes().all(|c| c.is_ascii_graphic() && c != b'"'));
        prop_assert_eq!(Key::from_header(header.as_bytes()).unwrap(), key);
    }

    #[test]
    fn no_header_bytes_make_a_receiver_panic(
        value in bytes(), text in texts(), pick in vec(0..4u8, Header::ALL.len()), body in bytes(), now: i64, tolerance: u64,
    ) {
        let names = HeaderNames::default();
        let lookup = |name: &str| {
            let header = Header::ALL.into_iter().find(|header| header.default_name() == name).unwrap();
            [None, Some(&value[..]), Some(text.as_bytes()), Some(&b"5"[..])][usize::from(pick[header as usize])]
        };
        let key = SigningKey::generate(&[1; 32]).verifying_key();
        let verifier = Verifier::new(vec![Secret::generate(&[1; 32])], vec![key]);
        let verifier = verifier.tolerance(Duration::from_secs(tolerance));
        prop_assert!(verifier.verify(lookup, &body, now).is_err());
        let _ = Received::parse(&names, lookup);
        let _ = Key::from_header(&value);
        let _ = retry_after(&value, now);
    }

    #[test]
    fn retry_after_never_asks_for_more_than_a_year(text in texts(), now: i64) {
        if let Some(wait) = retry_after(text.as_bytes(), now) {
            prop_assert!(wait <= limits::RETRY_AFTER_MAX);
        }
    }

    #[test]
    fn what_is_sent_is_received_and_what_is_changed_is_refused(
        event_unix_ms: u64, recent: bool, schema_version: Option<u32>,
        key in proptest::option::of(keys()), line in proptest::option::of("[!-~]{1,64}"), seq in 0..=i64::MAX as u64,
        after in proptest::option::of(0..=i64::MAX as u64), number in 1..=u32::MAX,
        replay: bool, thin: bool, timestamp in 0..=i64::MAX, body in vec(any::<u8>(), 1..300), at: prop::sample::Index,
        signer in prop_oneof![Just("whsec_"), Just("whsk_")],
    ) {
        let event_id = EventId::generate(1, [1; 10]);
        let secret = Secret::generate(&[7; 32]);
        let signing_key = SigningKey::generate(&[7; 32]);
        let verifier = Verifier::new(vec![secret.clone()], vec![signing_key.verifying_key()]);
        let shared = signer == "whsec_";
        let signer = if shared { Signer::Secret(secret) } else { Signer::Key(signing_key) };
        let line: Option<LineId> = line.map(|line| line.parse().unwrap());
        let event_type: EventType = "order.paid".parse().unwrap();
        let event_unix_ms = if recent { event_unix_ms % (YEAR_9999_END + 1) } else { event_unix_ms };
        let attempt = Attempt {
            event_id: &event_id, event_type: &event_type, event_unix_ms, schema_version, key: key.as_ref(), line: line.as_ref(), seq: Seq::new(seq), after, number, replay, thin,
            timestamp, body: &body, signers: &[signer],
        };
        let names = HeaderNames::default();
        let headers = attempt.headers(&names);
        prop_assert!(headers.iter().all(|(_, value)| is_safe(value)));
        let lookup = |name: &str| headers.iter().find(|header| header.0 == name).map(|header| header.1.as_bytes());

        prop_assert_eq!(verifier.verify(lookup, &body, timestamp), Ok(Verified { form: SignatureForm::Standard, timestamp }));
        let timestamped = |name: &str| lookup(name).filter(|_| name != "webhook-signature");
        let expected = shared.then_some(Verified { form: SignatureForm::Timestamped, timestamp });
        prop_assert_eq!(verifier.verify(timestamped, &body, timestamp).ok(), expected);
        let received = Received::parse(&names, lookup).unwrap();
        let expected = Received {
            event_id, event_type: Some(event_type), schema_version,
            event_unix_ms: (event_unix_ms <= YEAR_9999_END).then_some(event_unix_ms as i64),
            key: key.clone(), line, seq: Seq::new(seq), after, attempt: Some(number), replay, thin, timestamp,
        };
        prop_assert_eq!(&received, &expected);
        prop_assert!(received.follows().is_none_or(|follows| follows < seq && follows <= after.unwrap_or(follows)));

        let mut changed = body.clone();
        changed[at.index(body.len())] ^= 1;
        prop_assert_eq!(verifier.verify(lookup, &changed, timestamp), Err(Refusal::NoMatch));
        prop_assert!(verifier.verify(timestamped, &changed, timestamp).is_err());
    }

    #[test]
    fn no_bytes_and_no_json_make_reading_a_cloudevent_panic(body in bytes(), value in values(), text in texts()) {
        let _ = CloudEvent::from_json(&body);
        let _ = CloudEvent::from_json_batch(&body);
        let _ = ContentMode::of_content_type(&text);
        let json = value.to_string();
        let _ = CloudEvent::from_json(json.as_bytes());
        let _ = CloudEvent::from_json_batch(format!("[{json}]").as_bytes());
    }

    #[test]
    fn no_headers_make_reading_a_cloudevent_panic(
        headers in vec((prop_oneof!["(ce|CE)-(id|type|source|time|subject)", texts()], bytes()), 0..6), body in bytes(),
    ) {
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let required = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/"), ("ce-type", "t")];
        let required = required.map(|(name, value)| (name, value.as_bytes()));
        let _ = CloudEvent::from_http(headers.clone(), &body);
        let _ = CloudEvent::from_http(required.into_iter().chain(headers), &body);
    }

    #[test]
    fn a_cloudevent_that_is_read_can_be_written_in_every_mode(
        id in texts(), source in texts(), subject in any::<String>(), name in "[a-z0-9]{1,5}", value in values(),
    ) {
        let json = serde_json::json!({
            "specversion": "1.0", "id": id, "source": source, "type": "t", "subject": subject, name: value, "data": value,
        }).to_string();
        if let Ok(event) = CloudEvent::from_json(json.as_bytes()) {
            let again = event.to_json().unwrap();
            prop_assert_eq!(CloudEvent::from_json(&again).unwrap().to_json().unwrap(), again);
            let content = event.to_http().unwrap();
            prop_assert!(content.headers.iter().all(|(_, value)| is_safe(value)));
            let headers = content.headers.iter().map(|(name, value)| (&**name, value.as_bytes()));
            let read = CloudEvent::from_http(headers, &content.body).unwrap();
            prop_assert_eq!(read.identity(), event.identity());
            prop_assert_eq!(&read.subject, &event.subject);
        }
    }

    #[test]
    fn a_cloudevent_leaves_as_it_came(
        subject in proptest::option::of("[a-zé ]{1,9}"), dataschema in proptest::option::of("https://[a-z]{1,9}/[a-z]{0,9}"),
        extensions in btree_map("(partitionkey|schemaversion|traceparent|[a-z0-9]{1,8}x)", attribute_values(), 0..6),
        data in 0..6usize, number: i32,
    ) {
        let mut json = serde_json::json!({
            "specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid", "time": "2026-01-01T00:00:00.5Z",
        });
        let members = json.as_object_mut().unwrap();
        members.extend(subject.map(|subject| ("subject".to_owned(), subject.into())));
        members.extend(dataschema.map(|uri| ("dataschema".to_owned(), uri.into())));
        members.extend(extensions);
        if let Some(version) = members.get_mut("schemaversion") {
            *version = number.unsigned_abs().to_string().into();
        }
        match data {
            0 => {}
            1 => members.extend([("data".to_owned(), Value::Null)]),
            2 => members.extend([("data".to_owned(), serde_json::json!({"n": number}))]),
            3 => members.extend([("data_base64".to_owned(), "".into()), ("datacontenttype".to_owned(), "a/b".into())]),
            4 => members.extend([("data_base64".to_owned(), "AP8=".into()), ("datacontenttype".to_owned(), "a/b".into())]),
            _ => members.extend([("datacontenttype".to_owned(), "text/xml".into())]),
        }
        let body = json.to_string();
        let came = CloudEvent::from_json(body.as_bytes()).unwrap();
        let (structured, binary) = forwarded(&came);
        // What JSON need not say, it says: that the data is JSON.
        if matches!(came.data, Data::Json(_)) {
            json["datacontenttype"] = "application/json".into();
        }
        prop_assert_eq!(&serde_json::from_slice::<Value>(&structured).unwrap(), &json);
        let headers = binary.headers.iter().map(|(name, value)| (&**name, value.as_bytes()));
        let read = CloudEvent::from_http(headers, &binary.body).unwrap();
        prop_assert_eq!(read.identity(), came.identity());
        prop_assert_eq!((&read.subject, &read.time, &read.dataschema), (&came.subject, &came.time, &came.dataschema));
        let texts = |event: &CloudEvent<'_>| -> BTreeMap<String, String> {
            event.extensions.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        prop_assert_eq!(texts(&read), texts(&came));
        prop_assert_eq!(binary.body.is_empty(), [0, 3, 5].contains(&data));
    }

    #[test]
    fn every_envelope_is_safe_and_a_valid_cloudevent_if_it_is_one(
        key in keys(), payload in prop_oneof![bytes(), values().prop_map(|value| value.to_string().into_bytes())],
        unix_ms: u64, schema_version: Option<u32>, json: bool, url in any::<String>(),
    ) {
        let event = Event {
            id: &EventId::generate(1, [1; 10]), event_type: &"order.paid".parse().unwrap(), key: Some(&key),
            payload: &payload, content_type: &if json { "application/json" } else { "text/plain" }.parse().unwrap(),
            schema_version, unix_ms, cloudevent: None, source: &"/tenants/acme".parse().unwrap(), url: &url,
        };
        for envelope in Envelope::ALL {
            let content = envelope.wrap(&event);
            prop_assert!(content.headers.iter().all(|(_, value)| is_safe(value)));
            let headers = content.headers.iter().map(|(name, value)| (&**name, value.as_bytes()));
            match envelope {
                Envelope::Raw => prop_assert_eq!(&*content.body, &payload),
                Envelope::CloudeventsStructured => match CloudEvent::from_json(&content.body).unwrap().data {
                    Data::Json(value) => prop_assert_eq!(value.get().as_bytes(), payload.trim_ascii()),
                    Data::Binary(bytes) => prop_assert_eq!(&*bytes, &payload),
                    other => prop_assert!(false, "{:?}", other),
                },
                Envelope::CloudeventsBinary => {
                    let id = CloudEvent::from_http(headers, &content.body).unwrap().id;
                    prop_assert_eq!(id, event.id.to_string());
                    prop_assert_eq!(&*content.body, &payload);
                }
                Envelope::Event => {
                    let body: BTreeMap<&str, &RawValue> = serde_json::from_slice(&content.body).unwrap();
                    prop_assert_eq!(body["type"].get(), "\"order.paid\"");
                    prop_assert_eq!(serde_json::from_str::<String>(body["key"].get()).unwrap(), key.as_str());
                    match body.get("data") {
                        Some(data) => prop_assert_eq!(data.get().as_bytes(), payload.trim_ascii()),
                        None => {
                            let encoded: String = serde_json::from_str(body["data_base64"].get()).unwrap();
                            prop_assert_eq!(STANDARD.decode(encoded).unwrap(), &payload[..]);
                        }
                    }
                }
                Envelope::Thin => {
                    let thin: Value = serde_json::from_slice(&content.body).unwrap();
                    prop_assert_eq!(&thin["key"], key.as_str());
                    prop_assert_eq!(&thin["url"], url.as_str());
                }
                Envelope::Pagerduty | Envelope::Slack | Envelope::Teams | Envelope::Template => {
                    let body: Value = serde_json::from_slice(&content.body).unwrap();
                    prop_assert!(body.is_object());
                }
            }
        }
    }
}
