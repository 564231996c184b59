//! The receivers of docs/receiving.md, run as they stand there and put through the ordeal.

use crate::running::Running;
use crate::support::interop_folder;
use crate::tools::python;
use railpost_receiver::door::unix_now;
use railpost_receiver::testing::{TestRequest, TestSender};
use railpost_receiver::wire::Secret;
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

async fn survives_the_ordeal(receiver: Running) {
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
    let nothing = TestRequest { headers: vec![], body: vec![] };
    let (_, applied) = receiver.call("GET", "/applied", nothing).await;
    let applied: Vec<String> = serde_json::from_str(&applied).unwrap();
    assert_eq!(applied, ["C created", "B created", "A created", "A paid"]);
    println!(
        "{} requests, {} refused, {} held, 4 applied",
        report.sent, report.refused, report.held
    );
}

#[tokio::test]
async fn the_documented_python_receiver_survives_the_ordeal() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("receiver.py");
    std::fs::write(&script, documented("python")).unwrap();
    let mut command = python();
    command.arg(script).env("DATABASE", folder.path().join("orders.db"));
    survives_the_ordeal(start(command)).await;
}

#[tokio::test]
async fn the_documented_typescript_receiver_survives_the_ordeal() {
    let folder = tempfile::tempdir().unwrap();
    let (source, script) = (folder.path().join("receiver.ts"), folder.path().join("receiver.mjs"));
    std::fs::write(&source, documented("typescript")).unwrap();
    let stripped = Command::new(interop_folder().join("node_modules/.bin/esbuild"))
        .args([source.to_str().unwrap(), "--format=esm", "--log-level=error"])
        .arg(format!("--outfile={}", script.display()))
        .status();
    assert!(stripped.unwrap().success());
    let mut command = Command::new("node");
    command.arg(script);
    survives_the_ordeal(start(command)).await;
}
