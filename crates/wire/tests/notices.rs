//! The envelopes of people's tools: their formats and bounds, whatever an event holds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use railpost_wire::limits::{
    DEDUP_KEY_CHARS_MAX, PAGERDUTY_LEN_MAX, SLACK_SECTION_CHARS_MAX, SUMMARY_CHARS_MAX,
    TEAMS_LEN_MAX,
};
use railpost_wire::{Envelope, EnvelopeSettings, Event, Template};
use serde_json::{Value, json};

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

fn wrapped(envelope: Envelope, payload: &[u8], template: Option<&Template>) -> Vec<u8> {
    let settings = EnvelopeSettings { routing_key: ROUTING_KEY, template };
    let event = Event {
        id: &"alr_1:fired".parse().unwrap(),
        event_type: &"railpost.breaker.opened".parse().unwrap(),
        key: Some(&"ep_1".parse().unwrap()),
        payload,
        content_type: &"application/json".parse().unwrap(),
        schema_version: Some(1),
        unix_ms: 1_767_225_600_000,
        source: &"/tenants/railpost".parse().unwrap(),
        cloudevent: None,
        url: "",
    };
    envelope.wrap_with(&event, &settings).body.into_owned()
}

fn body(envelope: Envelope, payload: &Value) -> Value {
    serde_json::from_slice(&wrapped(envelope, payload.to_string().as_bytes(), None)).unwrap()
}

fn notice(status: &str) -> Value {
    json!({
        "notice": "breaker_open",
        "status": status,
        "severity": "warning",
        "summary": "Breaker of https://a.example opened: 12 of 20 failed. <!channel> & [more](x)",
        "dedup_key": "railpost/hooks.example/breaker_open/acme/ep_1",
        "alert": "alr_1",
        "tenant": "acme",
        "subject": "ep_1",
        "endpoint": { "id": "ep_1", "url": "https://a.example/hooks" },
        "since": "2026-01-01T00:00:00Z",
        "at": "2026-01-01T00:00:00Z",
        "details": { "failed": 12 },
        "links": [
            { "href": "https://hooks.example/dashboard/x", "text": "Open" },
            { "href": "javascript:alert(1)", "text": "Bad" },
        ],
        "test": false,
    })
}

#[test]
fn pagerduty_is_triggered_and_resolved_by_the_same_dedup_key() {
    let fired = body(Envelope::Pagerduty, &notice("fired"));
    assert_eq!(
        fired,
        json!({
            "routing_key": ROUTING_KEY,
            "event_action": "trigger",
            "dedup_key": "railpost/hooks.example/breaker_open/acme/ep_1",
            "client": "Railpost",
            "client_url": "https://hooks.example/dashboard/x",
            "links": [{ "href": "https://hooks.example/dashboard/x", "text": "Open" }],
            "payload": {
                "summary": notice("fired")["summary"],
                "source": "https://a.example/hooks",
                "severity": "warning",
                "timestamp": "2026-01-01T00:00:00Z",
                "class": "breaker_open",
                "group": "acme",
                "custom_details": {
                    "tenant": "acme",
                    "endpoint": "https://a.example/hooks",
                    "subject": "ep_1",
                    "since": "2026-01-01T00:00:00Z",
                    "details": { "failed": 12 },
                },
            },
        })
    );
    let resolved = body(Envelope::Pagerduty, &notice("resolved"));
    let dedup_key = &fired["dedup_key"];
    let expected =
        json!({ "routing_key": ROUTING_KEY, "event_action": "resolve", "dedup_key": dedup_key });
    assert_eq!(resolved, expected);
}

#[test]
fn slack_gets_escaped_text_and_buttons_that_browsers_can_open() {
    let message = body(Envelope::Slack, &notice("fired"));
    let section = "*Fired (warning): breaker_open*\nBreaker of https://a.example opened: 12 of 20 failed. \
                   &lt;!channel&gt; &amp; [more](x)";
    assert_eq!(message["blocks"][0]["text"], json!({ "type": "mrkdwn", "text": section }));
    let buttons = json!([{
        "type": "button",
        "text": { "type": "plain_text", "text": "Open" },
        "url": "https://hooks.example/dashboard/x",
    }]);
    assert_eq!(message["blocks"][2], json!({ "type": "actions", "elements": buttons }));
    assert!(
        message["text"].as_str().unwrap().starts_with("Fired (warning): breaker_open: Breaker")
    );
}

#[test]
fn teams_gets_a_card_whose_text_makes_no_links() {
    let message = body(Envelope::Teams, &notice("resolved"));
    assert_eq!(message["type"], "message");
    let attachment = &message["attachments"][0];
    assert_eq!(attachment["contentType"], "application/vnd.microsoft.card.adaptive");
    let card = &attachment["content"];
    assert_eq!((&card["type"], &card["version"]), (&json!("AdaptiveCard"), &json!("1.4")));
    assert_eq!(card["body"][0]["text"], "Resolved (warning): breaker_open");
    assert!(card["body"][1]["text"].as_str().unwrap().ends_with("\\[more](x)"), "{card}");
    assert_eq!(card["actions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_template_holds_values_of_the_notice_as_escaped_text() {
    let template: Template = r#"{"From": "a@b.example", "Subject": "[{{severity}}] {{summary}}",
        "TextBody": "{{details}} {{details.failed}} {{links.0.href}} {{missing.at.all}}",
        "Tag": "{{event.type}} {{event.time}}"}"#
        .parse()
        .unwrap();
    let mut notice = notice("fired");
    notice["summary"] = json!("a \"quoted\"\nline");
    let body = wrapped(Envelope::Template, notice.to_string().as_bytes(), Some(&template));
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["Subject"], "[warning] a \"quoted\" line");
    assert_eq!(body["TextBody"], "{\"failed\":12} 12 https://hooks.example/dashboard/x ");
    assert_eq!(body["Tag"], "railpost.breaker.opened 2026-01-01T00:00:00Z");
}

#[test]
fn an_event_that_is_no_notice_becomes_a_generic_one() {
    let order = json!({ "order": 17 });
    let triggered = body(Envelope::Pagerduty, &order);
    assert_eq!(triggered["event_action"], "trigger");
    assert_eq!(triggered["dedup_key"], "alr_1:fired");
    assert_eq!(triggered["payload"]["severity"], "info");
    assert_eq!(triggered["payload"]["summary"], "railpost.breaker.opened of ep_1");
    assert_eq!(triggered["payload"]["custom_details"]["details"], order);
    assert_eq!(body(Envelope::Template, &order)["text"], "railpost.breaker.opened of ep_1");
}

#[test]
fn two_long_dedup_keys_with_one_beginning_stay_two() {
    let with = |end: char| {
        let mut notice = notice("fired");
        notice["dedup_key"] = format!("railpost/{}{end}", "é".repeat(300)).into();
        body(Envelope::Pagerduty, &notice)["dedup_key"].as_str().unwrap().to_owned()
    };
    assert_eq!(with('a').chars().count(), DEDUP_KEY_CHARS_MAX);
    assert_ne!(with('a'), with('b'));
    assert_eq!(with('a'), with('a'));
}

/// Texts of all lengths and kinds, among them such as grow most when they are escaped.
fn texts() -> impl Strategy<Value = String> {
    let kinds = prop_oneof![
        any::<char>(),
        Just('&'),
        Just('<'),
        Just('"'),
        Just('['),
        Just('\u{1}'),
        Just('𝄞')
    ];
    (kinds, 0..6000_usize, any::<String>())
        .prop_map(|(c, count, rest)| c.to_string().repeat(count) + &rest)
}

fn notices() -> impl Strategy<Value = Vec<u8>> {
    let texts = || texts().prop_map(Value::from);
    let fields = (texts(), texts(), texts(), texts(), texts(), texts(), texts());
    let statuses = prop_oneof![Just("fired"), Just("resolved"), Just("told"), Just("other")];
    (fields, statuses).prop_map(|((a, b, c, d, e, f, g), status)| {
        let link = json!({ "href": format!("https://a/{}", "b".repeat(1000)), "text": e });
        let notice = json!({
            "notice": a, "status": status, "severity": "critical", "summary": b, "dedup_key": c,
            "tenant": d, "subject": e, "endpoint": { "url": f }, "since": g, "details": { "x": [a, b, c] },
            "links": vec![link; 20], "test": true,
        });
        notice.to_string().into_bytes()
    })
}

fn chars(value: &Value) -> usize {
    value.as_str().unwrap().chars().count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_payload_gives_json_within_the_bounds_of_its_format(
        payload in prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), notices()],
    ) {
        let read = |envelope| {
            let bytes = wrapped(envelope, &payload, None);
            (bytes.len(), serde_json::from_slice::<Value>(&bytes).unwrap())
        };
        let (len, event) = read(Envelope::Pagerduty);
        prop_assert!(len <= PAGERDUTY_LEN_MAX);
        prop_assert!((1..=DEDUP_KEY_CHARS_MAX).contains(&chars(&event["dedup_key"])));
        if event["event_action"] == "trigger" {
            prop_assert!((1..=SUMMARY_CHARS_MAX).contains(&chars(&event["payload"]["summary"])));
            prop_assert!(chars(&event["payload"]["source"]) > 0);
        } else {
            prop_assert_eq!(&event["event_action"], "resolve");
        }
        let (_, message) = read(Envelope::Slack);
        prop_assert!((1..=SLACK_SECTION_CHARS_MAX).contains(&chars(&message["blocks"][0]["text"]["text"])));
        let (len, _) = read(Envelope::Teams);
        prop_assert!(len <= TEAMS_LEN_MAX, "{}", len);
        read(Envelope::Template);
    }

    #[test]
    fn a_template_that_is_accepted_gives_json_whatever_it_is_filled_with(
        template in r#"[{}\["a:x,\\u0]{0,24}"#, payload in notices(),
    ) {
        if let Ok(template) = template.parse::<Template>() {
            let body = wrapped(Envelope::Template, &payload, Some(&template));
            prop_assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
    }
}
