//! Sections `[[notices]]` of the configuration file: a fresh server pages somebody.

use serde_json::{Value, json};

use super::process::{ADMIN_KEY, Running, output};
use super::receiver::Receiver;

const SECTION: &str = "[[notices]]\nname = \"oncall\"\nurl = \"file:pager.url\"\n\
                       envelope = \"pagerduty\"\nrouting_key = \"env:PAGER_KEY\"\n";

#[test]
fn a_fresh_server_pages_when_a_receiver_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let (pager, broken) = (Receiver::new(), Receiver::new());
    std::fs::write(folder.path().join("railpost.toml"), SECTION).unwrap();
    std::fs::write(folder.path().join("pager.url"), format!("{}\n", pager.url())).unwrap();
    let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY), ("PAGER_KEY", "0123456789abcdef")];
    let server = Running::start_with(folder.path(), &[], &set);
    let breaker = json!({"failure_percent": 50, "min_attempts": 1, "window": 1});
    let new = json!({"url": broken.url(), "policy": {"breaker": breaker}});
    assert_eq!(server.post("/v1/tenants/default/endpoints", &new).0, 201);
    server.publish(&json!({"type": "order.paid", "payload": 1}));
    broken.next().answer(503);
    let page = pager.next();
    let body: Value = serde_json::from_str(&page.body).unwrap();
    page.answer(202);
    assert_eq!(body["routing_key"], "0123456789abcdef");
    assert_eq!(body["event_action"], "trigger");
    assert_eq!(body["payload"]["class"], "breaker_open");
    assert_eq!(body["payload"]["group"], "default");
    assert!(body["payload"]["summary"].as_str().unwrap().contains(&broken.url()), "{body}");
}

#[test]
fn a_section_that_cannot_be_followed_is_named_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("railpost.toml");
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (section, expected) in [
        (SECTION.to_owned(), "notices[0].url: pager.url: "),
        (
            SECTION.replace("file:pager.url", "https://pager.example"),
            "notices[0].routing_key: the variable PAGER_KEY is not set",
        ),
        (
            SECTION.replace("file:pager.url", "https://").replace("env:PAGER_KEY", "k"),
            "notices[0].url: ",
        ),
        (
            SECTION
                .replace("file:pager.url", "https://pager.example")
                .replace("env:PAGER_KEY", "a b"),
            "notices[0].routing_key: expected 1 to 128 visible ASCII characters",
        ),
        (SECTION.replace("oncall", "On call"), "railpost.toml, line 2: notices[0].name: expected"),
    ] {
        std::fs::write(&file, &section).unwrap();
        let (code, _, stderr) = output(folder.path(), &serve);
        assert_ne!(code, 0, "{section}");
        assert!(stderr.contains(expected), "{expected}\n{stderr}");
    }
}
