//! Runs every vector of the repository's `vectors` directory, whose README explains their fields.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use base64::{Engine, engine::general_purpose::STANDARD};
use railpost_wire::cloudevents::{
    BadCloudEvent, CloudEvent, ContentMode, Data, Origin, Value as Attribute,
};
use railpost_wire::{
    ApiKeyId, Attempt, AttemptId, AuditId, ContentType, DeliveryId, EndpointId, Envelope, Event,
    EventId, EventType, EventTypeFilter, Header, HeaderNames, Key, LineId, NodeId, Received,
    Refusal, ReplayId, Secret, SecretId, Seq, SignatureForm, Signer, SigningKey, TenantId,
    Verifier, VerifyingKey, retry_after, standard_signature, timestamped_signature,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Display, str::FromStr, time::Duration};

/// The cases of one list in one file.
fn cases(file: &str, list: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let file: Value = serde_json::from_str(&text).unwrap();
    let cases = file[list].as_array().cloned().unwrap_or_default();
    assert!(!cases.is_empty(), "{path} has no cases under `{list}`");
    cases
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("`{field}` is not text in {case}"))
}

/// The bytes of a field, written as text, or as base64 in `<field>_base64`.
fn bytes(case: &Value, field: &str) -> Vec<u8> {
    match case[format!("{field}_base64")].as_str() {
        Some(encoded) => STANDARD.decode(encoded).unwrap(),
        None => text(case, field).as_bytes().to_vec(),
    }
}

fn list<T: FromStr<Err: Display>>(case: &Value, field: &str) -> Vec<T> {
    let parse = |item: &Value| item.as_str().unwrap().parse();
    let items = case[field].as_array().unwrap().iter().map(parse);
    items.map(|item| item.unwrap_or_else(|error: T::Err| panic!("{error}"))).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Parses a text as the kind of thing that the case names, and writes it back.
fn reparse(kind: &str, text: &str) -> Result<String, String> {
    fn again<T: FromStr<Err: Display> + Display>(text: &str) -> Result<String, String> {
        text.parse::<T>().map(|parsed| parsed.to_string()).map_err(|error| error.to_string())
    }
    match kind {
        "endpoint" => again::<EndpointId>(text),
        "delivery" => again::<DeliveryId>(text),
        "attempt" => again::<AttemptId>(text),
        "secret" => again::<SecretId>(text),
        "api_key" => again::<ApiKeyId>(text),
        "replay" => again::<ReplayId>(text),
        "audit" => again::<AuditId>(text),
        "node" => again::<NodeId>(text),
        "event" => again::<EventId>(text),
        "tenant" => again::<TenantId>(text),
        "line" => again::<LineId>(text),
        "event_types" => again::<EventType>(text),
        "filters" => again::<EventTypeFilter>(text),
        "content_types" => again::<ContentType>(text),
        other => panic!("no kind `{other}`"),
    }
}

fn generate(kind: &str, unix_ms: u64, random: [u8; 10]) -> String {
    match kind {
        "endpoint" => EndpointId::generate(unix_ms, random).to_string(),
        "delivery" => DeliveryId::generate(unix_ms, random).to_string(),
        "attempt" => AttemptId::generate(unix_ms, random).to_string(),
        "secret" => SecretId::generate(unix_ms, random).to_string(),
        "api_key" => ApiKeyId::generate(unix_ms, random).to_string(),
        "replay" => ReplayId::generate(unix_ms, random).to_string(),
        "audit" => AuditId::generate(unix_ms, random).to_string(),
        "node" => NodeId::generate(unix_ms, random).to_string(),
        "event" => EventId::generate(unix_ms, random).to_string(),
        "tenant" => TenantId::generate(unix_ms, random).to_string(),
        other => panic!("no kind `{other}`"),
    }
}

#[test]
fn ids_are_generated_and_read_as_the_vectors_say() {
    for case in cases("ids", "generated") {
        let random = unhex(text(&case, "random")).try_into().unwrap();
        let unix_ms = text(&case, "unix_ms").parse().unwrap();
        let expected = text(&case, "text");
        assert_eq!(generate(text(&case, "kind"), unix_ms, random), expected, "{case}");
        assert_eq!(reparse(text(&case, "kind"), expected).as_deref(), Ok(expected), "{case}");
        if let Ok(id) = expected.parse::<EndpointId>() {
            assert_eq!(
                id.to_bytes().to_vec(),
                unhex(&text(&case, "uuid").replace('-', "")),
                "{case}"
            );
        }
    }
    for case in cases("ids", "chosen") {
        let expected = text(&case, "text");
        assert_eq!(reparse(text(&case, "kind"), expected).as_deref(), Ok(expected), "{case}");
    }
}

#[test]
fn ids_are_refused_as_the_vectors_say() {
    for case in cases("ids", "refused") {
        assert!(reparse(text(&case, "kind"), text(&case, "text")).is_err(), "{case}");
    }
    for case in cases("ids", "seqs") {
        let number = text(&case, "number").parse().unwrap();
        assert_eq!(json!(Seq::new(number).is_some()), case["accepted"], "{case}");
    }
}

#[test]
fn names_are_read_and_filters_match_as_the_vectors_say() {
    for kind in ["event_types", "filters", "content_types"] {
        for case in cases("names", kind) {
            assert_eq!(
                json!(reparse(kind, text(&case, "text")).is_ok()),
                case["accepted"],
                "{case}"
            );
            if let Some(json) = case["json"].as_bool() {
                let content_type: ContentType = text(&case, "text").parse().unwrap();
                assert_eq!(content_type.is_json(), json, "{case}");
            }
        }
    }
    for case in cases("names", "matches") {
        let filter: EventTypeFilter = text(&case, "filter").parse().unwrap();
        let matches = filter.matches(&text(&case, "event_type").parse().unwrap());
        assert_eq!(json!(matches), case["matches"], "{case}");
    }
}

#[test]
fn keys_stand_in_headers_as_the_vectors_say() {
    for case in cases("keys", "encoded") {
        let key: Key = text(&case, "key").parse().unwrap();
        assert_eq!(key.to_header(), text(&case, "header"));
        assert_eq!(Key::from_header(text(&case, "header").as_bytes()).as_ref(), Ok(&key));
    }
    for case in cases("keys", "decoded") {
        let key = Key::from_header(text(&case, "header").as_bytes()).unwrap();
        assert_eq!(key.as_str(), text(&case, "key"));
    }
    for case in cases("keys", "refused") {
        assert!(Key::from_header(&bytes(&case, "header")).is_err(), "{case}");
    }
}

#[test]
fn secrets_are_read_and_revealed_as_the_vectors_say() {
    for case in cases("secrets", "secrets") {
        let secret: Secret = text(&case, "text").parse().unwrap();
        assert_eq!(*secret.reveal(), text(&case, "text"));
        let same = Secret::from_bytes(&unhex(text(&case, "bytes"))).unwrap();
        assert_eq!(same.reveal(), secret.reveal());
    }
    for case in cases("secrets", "signing_keys") {
        let key: SigningKey = text(&case, "text").parse().unwrap();
        assert_eq!(*key.reveal(), text(&case, "canonical"));
        assert_eq!(key.verifying_key().to_string(), text(&case, "public"));
        assert_eq!(text(&case, "public").parse(), Ok(key.verifying_key()));
    }
    for case in cases("secrets", "refused") {
        let read = match text(&case, "kind") {
            "secret" => text(&case, "text").parse::<Secret>().err(),
            "signing_key" => text(&case, "text").parse::<SigningKey>().err(),
            _ => text(&case, "text").parse::<VerifyingKey>().err(),
        };
        assert!(read.is_some(), "{case}");
    }
}

#[test]
fn signatures_are_made_as_the_vectors_say() {
    for case in cases("signatures", "cases") {
        let signers: Vec<Signer> = list(&case, "signers");
        let (id, body) = (text(&case, "id").parse().unwrap(), bytes(&case, "body"));
        let timestamp = case["timestamp"].as_i64().unwrap();
        let standard = standard_signature(&signers, &id, timestamp, &body);
        assert_eq!(json!(standard), case["webhook_signature"], "{case}");
        let timestamped = timestamped_signature(&signers, timestamp, &body);
        assert_eq!(json!(timestamped), case["x_webhook_signature"], "{case}");
    }
}

/// Finds a header of a case's `headers` object, without regard to case.
fn lookup<'a>(case: &'a Value) -> impl Fn(&str) -> Option<&'a [u8]> {
    let headers = case["headers"].as_object().unwrap();
    move |wanted| {
        let (_, value) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value.as_str().unwrap().as_bytes())
    }
}

fn names(case: &Value) -> HeaderNames {
    serde_json::from_value(case.get("names").cloned().unwrap_or(json!({}))).unwrap()
}

/// A refusal in the words of the vectors: its kind, the header it is about, the seconds it is off by.
fn describe(refusal: Refusal) -> (&'static str, Value, Value) {
    match refusal {
        Refusal::MissingHeader(name) => ("missing_header", json!(name), Value::Null),
        Refusal::Malformed { header, .. } => ("malformed", json!(header), Value::Null),
        Refusal::Stale { by } => ("stale", Value::Null, json!(by)),
        Refusal::Future { by } => ("future", Value::Null, json!(by)),
        Refusal::NoMatch => ("no_match", Value::Null, Value::Null),
        other => panic!("{other}"),
    }
}

#[test]
fn requests_are_verified_as_the_vectors_say() {
    for case in cases("verification", "cases") {
        let mut verifier = Verifier::new(list(&case, "secrets"), list(&case, "keys"))
            .names(names(&case))
            .tolerance(Duration::from_secs(case["tolerance"].as_u64().unwrap()));
        if case["standard_only"] == json!(true) {
            verifier = verifier.standard_only();
        }
        let now = case["now"].as_i64().unwrap();
        let outcome = match verifier.verify(lookup(&case), &bytes(&case, "body"), now) {
            Ok(verified) if verified.form == SignatureForm::Standard => {
                ("standard", Value::Null, Value::Null)
            }
            Ok(_) => ("timestamped", Value::Null, Value::Null),
            Err(refusal) => describe(refusal),
        };
        let expected = (text(&case, "outcome"), case["header"].clone(), case["by"].clone());
        assert_eq!(outcome, expected, "{}", case["name"]);
    }
}

#[test]
fn headers_are_renamed_as_the_vectors_say() {
    for case in cases("headers", "names") {
        let renamed: BTreeMap<Header, String> =
            serde_json::from_value(case["renamed"].clone()).unwrap();
        let refused = HeaderNames::renamed(renamed).err();
        assert_eq!(json!(refused.is_none()), case["accepted"], "{case}");
        assert_eq!(json!(refused.map(|bad| bad.header)), case["header"], "{case}");
    }
}

#[test]
fn the_headers_of_an_attempt_are_made_and_read_as_the_vectors_say() {
    for case in cases("headers", "attempts") {
        let key = case["key"].as_str().map(|key| key.parse().unwrap());
        let line = case["line"].as_str().map(|line| line.parse().unwrap());
        let (event_id, signers): (EventId, Vec<Signer>) =
            (text(&case, "event_id").parse().unwrap(), list(&case, "signers"));
        let (event_type, event_unix_ms): (EventType, _) =
            (text(&case, "event_type").parse().unwrap(), case["event_unix_ms"].as_u64().unwrap());
        let schema_version = case["schema_version"].as_u64().map(|it| it.try_into().unwrap());
        let attempt = Attempt {
            event_id: &event_id,
            event_type: &event_type,
            event_unix_ms,
            schema_version,
            key: key.as_ref(),
            line: line.as_ref(),
            seq: case["seq"].as_u64().and_then(Seq::new),
            after: case["after"].as_u64(),
            number: case["attempt"].as_u64().unwrap().try_into().unwrap(),
            replay: case["replay"].as_bool().unwrap(),
            thin: case["thin"].as_bool().unwrap(),
            timestamp: case["timestamp"].as_i64().unwrap(),
            body: &bytes(&case, "body"),
            signers: &signers,
        };
        let names = names(&case);
        let headers = attempt.headers(&names);
        assert_eq!(json!(headers), case["headers"], "{}", case["name"]);

        let find = |name: &str| headers.iter().find(|header| header.0 == name);
        let lookup = |name: &str| find(name).map(|header| header.1.as_bytes());
        let received = Received::parse(&names, lookup).unwrap();
        let Attempt { seq, after, number, replay, thin, timestamp, .. } = attempt;
        let attempt = Some(number);
        let expected = Received {
            event_id,
            event_type: Some(event_type),
            event_unix_ms: i64::try_from(event_unix_ms).ok().filter(|ms| *ms <= YEAR_9999_END),
            schema_version,
            key,
            line,
            seq,
            after,
            attempt,
            replay,
            thin,
            timestamp,
        };
        assert_eq!(received, expected, "{}", case["name"]);
    }
}

/// The last millisecond that RFC 3339 can write.
const YEAR_9999_END: i64 = 253_402_300_799_999;

#[test]
fn the_time_of_an_event_is_read_as_the_vectors_say() {
    for case in cases("headers", "event_times") {
        let header = |name: &str| match name {
            "webhook-id" => Some(&b"a"[..]),
            "webhook-timestamp" => Some(&b"5"[..]),
            "X-Event-Time" => Some(text(&case, "value").as_bytes()),
            _ => None,
        };
        let received = Received::parse(&HeaderNames::default(), header).unwrap();
        assert_eq!(json!(received.event_unix_ms), case["unix_ms"], "{case}");
    }
}

#[test]
fn the_headers_of_a_request_are_refused_as_the_vectors_say() {
    for case in cases("headers", "refused") {
        let refusal = Received::parse(&HeaderNames::default(), lookup(&case)).unwrap_err();
        let expected = (text(&case, "outcome"), case["header"].clone(), Value::Null);
        assert_eq!(describe(refusal), expected, "{case}");
    }
}

#[test]
fn retry_after_is_read_as_the_vectors_say() {
    for case in cases("retry_after", "cases") {
        let wait = retry_after(&bytes(&case, "value"), case["now"].as_i64().unwrap());
        assert_eq!(json!(wait.map(|wait| wait.as_secs())), case["seconds"], "{case}");
    }
}

/// Checks an event that was read against a case's `attributes` and `data`.
fn assert_event(event: &CloudEvent<'_>, case: &Value) {
    let mut attributes = json!({ "specversion": "1.0", "id": event.id, "source": event.source, "type": event.event_type });
    let optional = [
        ("subject", &event.subject),
        ("time", &event.time),
        ("datacontenttype", &event.datacontenttype),
        ("dataschema", &event.dataschema),
    ];
    for (name, value) in
        optional.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)))
    {
        attributes[name] = json!(value);
    }
    for (name, value) in &event.extensions {
        attributes[&**name] = match value {
            Attribute::Boolean(truth) => json!(truth),
            Attribute::Integer(number) => json!(number),
            Attribute::String(text) => json!(text),
        };
    }
    let data = match &event.data {
        Data::None => json!({ "kind": "none" }),
        Data::Json(value) => json!({ "kind": "json", "text": value.get() }),
        Data::Text(text) => json!({ "kind": "text", "text": text }),
        Data::Binary(bytes) => json!({ "kind": "binary", "base64": STANDARD.encode(bytes) }),
    };
    assert_eq!(attributes, case["attributes"], "{}", case["name"]);
    assert_eq!(data, case["data"], "{}", case["name"]);
}

#[test]
fn cloudevents_in_json_are_read_and_written_as_the_vectors_say() {
    for case in cases("cloudevents", "structured") {
        let body = bytes(&case, "body");
        let event = CloudEvent::from_json(&body).unwrap_or_else(|bad| panic!("{case}: {bad}"));
        assert_event(&event, &case);
        let written = event.to_json().unwrap();
        assert_event(&CloudEvent::from_json(&written).unwrap(), &case);

        let binary = event.to_http().unwrap();
        assert_eq!(json!(binary.headers), case["binary"]["headers"], "{}", case["name"]);
        assert_eq!(binary.body, bytes(&case["binary"], "body"), "{}", case["name"]);
    }
    for case in cases("cloudevents", "structured_refused") {
        let body = bytes(&case, "body");
        let bad = CloudEvent::from_json(&body).expect_err(text(&case, "name"));
        assert_eq!(bad.attribute, text(&case, "attribute"), "{}", case["name"]);
    }
}

fn from_http<'a>(case: &'a Value, body: &'a [u8]) -> Result<CloudEvent<'a>, BadCloudEvent> {
    let headers = case["headers"].as_object().unwrap().iter();
    let headers = headers.map(|(name, value)| (name.as_str(), value.as_str().unwrap().as_bytes()));
    CloudEvent::from_http(headers, body)
}

#[test]
fn cloudevents_in_headers_are_read_as_the_vectors_say() {
    for case in cases("cloudevents", "binary") {
        let body = bytes(&case, "body");
        let event = from_http(&case, &body).unwrap_or_else(|bad| panic!("{case}: {bad}"));
        assert_event(&event, &case);
    }
    for case in cases("cloudevents", "binary_refused") {
        let bad = from_http(&case, b"").expect_err(text(&case, "name"));
        assert_eq!(bad.attribute, text(&case, "attribute"), "{}", case["name"]);
    }
}

#[test]
fn batches_and_modes_are_read_as_the_vectors_say() {
    for case in cases("cloudevents", "batches") {
        let body = bytes(&case, "body");
        match CloudEvent::from_json_batch(&body) {
            Ok(events) => {
                let ids: Vec<_> = events.iter().map(|event| &event.id).collect();
                assert_eq!(json!(ids), case["ids"], "{}", case["name"]);
                let again = CloudEvent::to_json_batch(&events).unwrap();
                assert_eq!(CloudEvent::from_json_batch(&again).unwrap().len(), events.len());
            }
            Err(bad) => {
                assert_eq!(json!(bad.attribute), case["attribute"], "{}", case["name"]);
                assert_eq!(json!(bad.index), case["index"], "{}", case["name"]);
            }
        }
    }
    for case in cases("cloudevents", "modes") {
        let mode = ContentMode::of_content_type(text(&case, "content_type")).ok();
        let name = mode.map(|mode| format!("{mode:?}").to_lowercase());
        assert_eq!(json!(name), case["mode"], "{case}");
    }
}

#[test]
fn the_id_of_an_event_is_made_of_source_and_id_as_the_vectors_say() {
    for case in cases("cloudevents", "event_ids") {
        let (source, id) = (text(&case, "source"), text(&case, "id"));
        let event = CloudEvent { source: source.into(), id: id.into(), ..CloudEvent::default() };
        assert_eq!(json!(event.event_id()), case["event_id"], "{case}");
        assert_eq!(json!(Origin::of(&event).event_id()), case["event_id"], "{case}");
    }
}

#[test]
fn envelopes_hold_what_the_vectors_say() {
    for case in cases("envelopes", "cases") {
        let event = &case["event"];
        let key: Option<Key> = event["key"].as_str().map(|key| key.parse().unwrap());
        let payload = bytes(event, "payload");
        let cloudevent: Option<Origin> =
            serde_json::from_value(event["cloudevent"].clone()).unwrap();
        let event = Event {
            id: &text(event, "id").parse().unwrap(),
            event_type: &text(event, "type").parse().unwrap(),
            key: key.as_ref(),
            payload: &payload,
            content_type: &text(event, "content_type").parse().unwrap(),
            schema_version: event["schema_version"]
                .as_u64()
                .map(|version| version.try_into().unwrap()),
            unix_ms: event["unix_ms"].as_u64().unwrap(),
            source: &text(event, "source").parse().unwrap(),
            cloudevent: cloudevent.as_ref(),
            url: text(event, "url"),
        };
        // The others are for people's tools, and no receiver library reads them.
        for envelope in Envelope::ALL.into_iter().filter(|envelope| !envelope.shows_notices()) {
            let (name, content) = (json!(envelope), envelope.wrap(&event));
            let expected = &case["envelopes"][name.as_str().unwrap()];
            assert_eq!(json!(content.headers), expected["headers"], "{name}, {}", case["name"]);
            let body = String::from_utf8_lossy(&content.body);
            assert_eq!(content.body, bytes(expected, "body"), "{name}, {}: {body}", case["name"]);
        }
    }
}
