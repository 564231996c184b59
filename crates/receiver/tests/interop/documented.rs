//! The receivers of docs/receiving.md, run as they stand there and put through the ordeal.

use crate::running::Running;
use crate::support::interop_folder;
use crate::tools::python;
use railpost_receiver::request_verifier::unix_now;
use railpost_receiver::testing::{TestEvent, TestRequest, TestSender};
use railpost_receiver::wire::Secret;
use std::path::Path;
use std::process::Command;

const SECRET: [u8; 32] = [6; 32];

/// Trusts a secret that is not used any more, and the one that is.
fn start(mut command: Command) -> Running {
    let secret = Secret::generate(&SECRET).reveal().to_string();
    command.env("WEBHOOK_SECRETS", format!("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX {secret}"));
    Running::start(command.env("PORT", "0"))
}

/// The code of the page's block in this language.
fn documented(language: &str) -> String {
    let page = include_str!("../../../../docs/receiving.md");
    let begin = format!("```{language}\n");
    let (_, rest) = page.split_once(&begin).expect("the page has a receiver in each language");
    rest.split_once("\n```").expect("a block ends").0.to_owned()
}

async fn applied(receiver: &Running) -> Vec<String> {
    let nothing = TestRequest { headers: vec![], body: vec![] };
    let (_, applied) = receiver.call("GET", "/applied", nothing).await;
    serde_json::from_str(&applied).unwrap()
}

async fn survives_the_ordeal(receiver: &Running) {
    let mut sender = TestSender::new(&SECRET);
    let events = [
        sender.event(Some("A"), br#"{"order": "A", "status": "created"}"#),
        sender.event(Some("A"), br#"{"order": "A", "status": "paid"}"#),
        sender.event(Some("caf\u{e9} 1"), br#"{"order": "B", "status": "created"}"#),
        sender.event(None, br#"{"order": "C", "status": "created"}"#),
    ];
    let report = sender
        .ordeal(&events, unix_now(), async |sent| receiver.call("POST", "/hook", sent).await.0)
        .await;
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(applied(receiver).await, ["C created", "B created", "A created", "A paid"]);
    println!(
        "{} requests, {} refused, {} held, 4 applied",
        report.sent, report.refused, report.held
    );
}

/// Skips, redeliveries, new lines, and a gap that nothing closes.
async fn follows_its_lines(receiver: &Running) {
    let mut sender = TestSender::new(&SECRET);
    let mut event = |status: &str| {
        let body = format!(r#"{{"order": "A", "status": "{status}"}}"#);
        sender.event(Some("A"), body.as_bytes())
    };
    let created = event("created");
    let [_, _] = ["skipped", "discarded"].map(&mut event);
    let paid = TestEvent { after: Some(1), ..event("paid") };
    let again = TestEvent { id: created.id.clone(), ..event("created") };
    let [shipped, overtaken, early] = ["shipped", "overtaken", "early"].map(&mut event);
    sender.begin_new_lines();
    let in_new_line = sender.event(Some("A"), br#"{"order": "A", "status": "returned"}"#);
    let wrong = TestEvent { after: Some(2), ..paid.clone() };
    for (event, status) in [
        (&paid, 425),
        (&created, 200),
        (&wrong, 425),
        (&paid, 200),
        (&again, 200),
        (&shipped, 200),
        (&early, 425),
        (&overtaken, 200),
        (&in_new_line, 200),
    ] {
        let sent = sender.request(event, 1, unix_now());
        assert_eq!(receiver.call("POST", "/hook", sent).await.0, status, "{event:?}");
    }
    let expected = ["A created", "A paid", "A shipped", "A overtaken", "A returned"];
    assert_eq!(applied(receiver).await, expected);
}

/// With a timeout of nothing, a gap has been seen for long enough at once.
async fn accepts_a_gap_after_the_timeout(receiver: &Running) {
    let mut sender = TestSender::new(&SECRET);
    let mut event = |status: &str| {
        let body = format!(r#"{{"order": "A", "status": "{status}"}}"#);
        sender.event(Some("A"), body.as_bytes())
    };
    let events = ["forgotten", "kept", "next"].map(&mut event);
    for at in [1, 0, 2] {
        let sent = sender.request(&events[at], 1, unix_now());
        assert_eq!(receiver.call("POST", "/hook", sent).await.0, 200);
    }
    assert_eq!(applied(receiver).await, ["A kept", "A next"], "what was overtaken is stale");
}

/// Each story on a receiver of its own.
async fn runs_the_stories(receiver: impl Fn(&Path) -> Command) {
    let start_new = |gap_timeout: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = receiver(folder.path());
        command.env("GAP_TIMEOUT", gap_timeout);
        (start(command), folder)
    };
    let (running, _folder) = start_new("60");
    survives_the_ordeal(&running).await;
    let (running, _folder) = start_new("60");
    follows_its_lines(&running).await;
    let (running, _folder) = start_new("0");
    accepts_a_gap_after_the_timeout(&running).await;
}

#[tokio::test]
async fn the_documented_python_receiver_survives_the_ordeal_and_follows_its_lines() {
    runs_the_stories(|folder| {
        let script = folder.join("receiver.py");
        std::fs::write(&script, documented("python")).unwrap();
        let mut command = python();
        command.arg(script).env("DATABASE", folder.join("orders.db"));
        command
    })
    .await;
}

#[tokio::test]
async fn the_documented_typescript_receiver_survives_the_ordeal_and_follows_its_lines() {
    runs_the_stories(typescript).await;
}

fn typescript(folder: &Path) -> Command {
    let (source, script) = (folder.join("receiver.ts"), folder.join("receiver.mjs"));
    std::fs::write(&source, documented("typescript")).unwrap();
    let stripped = Command::new(interop_folder().join("node_modules/.bin/esbuild"))
        .args([source.to_str().unwrap(), "--format=esm", "--log-level=error"])
        .arg(format!("--outfile={}", script.display()))
        .status();
    assert!(stripped.unwrap().success());
    let mut command = Command::new("node");
    command.arg(script);
    command
}
