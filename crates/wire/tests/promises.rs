//! What the types promise beyond the vectors: order, size, messages, silence about secrets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use railpost_wire::cloudevents::{CloudEvent, Data, Value};
use railpost_wire::{
    BadSecret, DeliveryId, EndpointId, EventId, EventType, Header, HeaderNames, Key, LineId,
    Received, Refusal, Secret, Seq, Signer, SigningKey, TenantId, Verifier, VerifyingKey,
};
use serde_json::json;
use std::{borrow::Cow, fmt::Debug, str::FromStr};

fn error_of<T: FromStr<Err: ToString> + Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn ids_sort_by_time_as_text_and_as_values() {
    let times = [0, 1, 255, 256, 1_674_087_231_000, (1 << 48) - 1];
    let ids: Vec<_> = times.into_iter().map(|ms| DeliveryId::generate(ms, [0xff; 10])).collect();
    let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
    assert!(ids.is_sorted() && texts.is_sorted());
    assert!(ids.iter().map(|id| id.unix_ms()).eq(times));
}

#[test]
fn event_ids_sort_as_their_texts_whichever_kind_they_are() {
    let texts = [
        "0",
        "Z",
        "evt_00000000000000000000000000",
        "evt_01h455vb4pex5vsknk084sn02q",
        "evt_1",
        "evu",
        "z",
    ];
    for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
        let (id_a, id_b): (EventId, EventId) = (a.parse().unwrap(), b.parse().unwrap());
        assert_eq!(id_a.cmp(&id_b), a.cmp(b), "{a} and {b}");
    }
}

#[test]
fn ids_are_small_and_come_back_from_bytes_and_numbers() {
    assert!(size_of::<EventId>() <= 24 && size_of::<TenantId>() <= 16);
    assert_eq!((size_of::<EndpointId>(), size_of::<Option<Seq>>()), (16, 8));
    let id = EndpointId::generate(1_674_087_231_000, [7; 10]);
    assert_eq!(EndpointId::from_bytes(id.to_bytes()), id);
    assert_eq!(EndpointId::from_u128(u128::from_be_bytes(id.to_bytes())), id);
}

#[test]
fn ids_are_text_in_serde_and_seqs_are_numbers() {
    let id = EndpointId::from_u128(1);
    assert_eq!(json!(id), json!("ep_00000000000000000000000001"));
    assert_eq!(serde_json::from_value::<EndpointId>(json!(id)).unwrap(), id);
    assert_eq!(json!(Seq::FIRST.next()), json!(2));
    assert_eq!(serde_json::from_value::<Seq>(json!(2)).unwrap(), Seq::FIRST.next());
    let error = serde_json::from_value::<Seq>(json!(0)).unwrap_err();
    assert_eq!(error.to_string(), "expected a seq from 1 to 9223372036854775807; got `0`");
}

#[test]
fn the_last_seq_is_its_own_successor() {
    let last = Seq::new(i64::MAX as u64).unwrap();
    assert_eq!(last.next(), last);
}

#[test]
fn an_event_follows_the_seq_before_it_or_an_earlier_one_that_the_sender_names() {
    let follows = |line: Option<&'static str>, seq: &'static str, after: Option<&'static str>| {
        let header = |name: &str| match name {
            "webhook-id" => Some(&b"a"[..]),
            "X-Lane" => line.map(str::as_bytes),
            "X-Seq" => Some(seq.as_bytes()).filter(|seq| !seq.is_empty()),
            "X-After" => after.map(str::as_bytes),
            "webhook-timestamp" => Some(&b"5"[..]),
            _ => None,
        };
        Received::parse(&HeaderNames::default(), header).unwrap().follows()
    };
    for (seq, after, expected) in [
        ("1", None, Some(0)),
        ("7", None, Some(6)),
        ("7", Some("6"), Some(6)),
        ("7", Some("3"), Some(3)),
        ("7", Some("0"), Some(0)),
        // No event waits for itself or for a later one.
        ("7", Some("7"), Some(6)),
        ("7", Some("9223372036854775807"), Some(6)),
        ("", None, None),
        ("", Some("3"), None),
    ] {
        assert_eq!(follows(Some("l"), seq, after), expected, "{seq} after {after:?}");
        assert_eq!(follows(None, seq, after), None, "no line");
    }
}

#[test]
fn the_line_of_a_lane_is_another_in_each_era() {
    let [line, other_lane, other_era] =
        [(1, 7), (1, 8), (2, 7)].map(|(era, lane)| LineId::of(era, lane));
    assert_eq!(line.as_str(), "0000000000000001-7");
    assert!(line != other_lane && line != other_era && other_lane != other_era);
    let longest = LineId::of(u64::MAX, u64::MAX);
    assert_eq!(longest.to_string().parse(), Ok(longest));
}

#[test]
fn errors_say_what_was_expected_and_show_what_came() {
    let cases = [
        (
            error_of::<EndpointId>("dlv_1"),
            "expected the id of an endpoint such as `ep_01h455vb4pex5vsknk084sn02q`: `ep_` and 26 \
             characters; got `dlv_1`",
        ),
        (
            error_of::<EventId>("a.b"),
            "expected an event id of 1 to 64 ASCII letters, digits, `_`, `-` and `:`; got `a.b`",
        ),
        (
            error_of::<TenantId>("Acme"),
            "expected a tenant id of 1 to 64 characters: a lowercase letter or digit, then lowercase \
             letters, digits, `_` and `-`; got `Acme`",
        ),
        (
            error_of::<EventType>("a..b"),
            "expected an event type of 1 to 128 characters such as `order.paid`: letters, digits, `_` \
             and `-`, in segments with dots between them; got `a..b`",
        ),
        (
            error_of::<LineId>("a b"),
            "expected the id of a line: 1 to 64 visible ASCII characters; got `a b`",
        ),
        (error_of::<Key>(""), "expected a key of 1 to 256 bytes of UTF-8; got ``"),
        (
            error_of::<Secret>("hunter2"),
            "expected a secret: `whsec_` and the base64 of 24 to 64 bytes",
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(message, expected);
    }
}

#[test]
fn errors_cut_what_is_long_and_escape_what_is_invisible() {
    let message = error_of::<EventId>(&"é\n".repeat(10_000));
    assert!(message.ends_with("é\\né\\n…`"), "{message}");
    assert!(message.len() < 300, "{message}");
}

#[test]
fn secrets_are_not_shown_by_debug_or_by_an_error() {
    let secret = Secret::generate(&[b'A'; 32]);
    let key = SigningKey::generate(&[b'A'; 32]);
    let verifier = Verifier::new(vec![secret.clone()], vec![]);
    let signers = [Signer::Secret(secret.clone()), Signer::Key(key.clone())];
    let mistyped = [secret.reveal(), key.reveal()].map(|text| text.replace('=', ""));
    let errors = mistyped.map(|text| text.parse::<Signer>().unwrap_err());
    let shown = format!("{secret:?} {key:?} {verifier:?} {signers:?} {errors:?} {}", errors[0]);
    // Base64, hex, decimal and plain forms of the byte `A`.
    for trace in ["QUFB", "4141", "65, 65", "AAA"] {
        assert!(!shown.contains(trace), "{shown}");
    }
}

#[test]
fn a_signer_is_read_by_its_prefix_and_reveals_itself() {
    for text in [Secret::generate(&[1; 32]).reveal(), SigningKey::generate(&[1; 32]).reveal()] {
        assert_eq!(text.parse::<Signer>().unwrap().reveal(), text);
    }
    let public = SigningKey::generate(&[1; 32]).verifying_key().to_string();
    let refused: Result<Signer, BadSecret> = public.parse();
    assert!(refused.is_err());
    assert_eq!(json!(public.parse::<VerifyingKey>().unwrap()), json!(public));
}

#[test]
fn header_names_are_written_as_what_was_changed() {
    let text = r#"{"webhook_id":"X-Shop-Id","x_key":"X-Order"}"#;
    let names: HeaderNames = serde_json::from_str(text).unwrap();
    assert_eq!((names.name(Header::XKey), names.name(Header::XSeq)), ("X-Order", "X-Seq"));
    assert_eq!(serde_json::to_string(&names).unwrap(), text);
    assert_eq!(json!(HeaderNames::default()), json!({}));
}

#[test]
fn header_names_are_refused_by_field() {
    let cases = [
        (json!({"x_kye": "X"}), "unknown variant `x_kye`"),
        (json!({"x_key": 5}), "expected a string"),
        (
            json!({"x_key": "Host"}),
            "name of `X-Key`: expected a header name that the request does not need itself",
        ),
        (json!({"x_seq": "x-key"}), "name of `X-Seq`: expected a name that no other header has"),
    ];
    for (names, expected) in cases {
        let error = serde_json::from_value::<HeaderNames>(names).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn refusals_name_the_header() {
    let verifier = Verifier::new(vec![], vec![]);
    let headers = |name: &str| Some(if name == "webhook-id" { &b"a b"[..] } else { b"5" });
    let refusal = verifier.verify(headers, b"", 5).unwrap_err();
    let expected = "header `webhook-id`: expected an event id of 1 to 64 ASCII letters, digits, `_`, `-` and \
                    `:`; got `a b`";
    assert_eq!(refusal.to_string(), expected);
    let refusal = verifier.verify(|_| None, b"", 5).unwrap_err();
    assert_eq!(refusal, Refusal::MissingHeader("webhook-signature".to_owned()));
}

fn event() -> CloudEvent<'static> {
    CloudEvent { id: "1".into(), source: "/s".into(), event_type: "t".into(), ..Default::default() }
}

#[test]
fn a_cloudevent_that_breaks_a_rule_is_not_written() {
    type Change = fn(&mut CloudEvent<'static>);
    let cases: [(&str, Change); 12] = [
        ("id", |event| event.id = "".into()),
        ("source", |event| event.source = "a b".into()),
        ("type", |event| event.event_type = "\n".into()),
        ("subject", |event| event.subject = Some("".into())),
        ("time", |event| event.time = Some("noon".into())),
        ("datacontenttype", |event| event.datacontenttype = Some("a/b\r\nc: d".into())),
        ("dataschema", |event| event.dataschema = Some("/relative".into())),
        ("attribute name", |event| _ = event.extensions.insert("id".into(), Value::Integer(1))),
        ("attribute name", |event| _ = event.extensions.insert("a\r\nb".into(), Value::Integer(1))),
        ("ext", |event| _ = event.extensions.insert("ext".into(), Value::String("\n".into()))),
        ("datacontenttype", |event| event.data = Data::Text("text needs a content type".into())),
        ("extensions", |event| {
            let name = |number| Cow::Owned(format!("e{number}"));
            event.extensions = (0..65).map(|number| (name(number), Value::Boolean(true))).collect();
        }),
    ];
    for (attribute, change) in cases {
        let mut event = event();
        change(&mut event);
        assert_eq!(event.to_json().unwrap_err().attribute, attribute);
        assert_eq!(event.to_http().unwrap_err().attribute, attribute);
        let bad = CloudEvent::to_json_batch(&[self::event(), event]).unwrap_err();
        assert_eq!((bad.index, &*bad.attribute), (Some(1), attribute));
    }
}

#[test]
fn json_data_is_not_written_under_another_content_type() {
    let value = serde_json::from_str("1").unwrap();
    let mut event = CloudEvent { data: Data::Json(value), ..event() };
    assert_eq!(
        event.to_json().unwrap(),
        br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1}"#
    );
    event.datacontenttype = Some("text/plain".into());
    let error = event.to_json().unwrap_err().to_string();
    assert_eq!(
        error,
        "datacontenttype: expected a JSON media type, because the data is JSON; got `text/plain`"
    );
}

#[test]
fn a_batch_of_too_many_events_is_not_written() {
    let events = vec![event(); 1001];
    assert_eq!(CloudEvent::to_json_batch(&events).unwrap_err().attribute, "body");
    assert!(CloudEvent::to_json_batch(&events[..1000]).is_ok());
}

#[test]
fn source_and_id_identify_a_cloudevent_and_its_time_is_a_number() {
    let event = CloudEvent { time: Some("1970-01-01T00:00:01.5+00:00".into()), ..event() };
    assert_eq!((event.identity(), event.unix_ms()), (("/s", "1"), Some(1500)));
    assert_eq!(self::event().unix_ms(), None);
}
