//! What needs no server.

use serde_json::{Value, json};

use crate::world::{railpost, run, run_with};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const BODY: &str = r#"{"test": 2432232314}"#;

fn vectors() -> Vec<Value> {
    let text = include_str!("../../../../vectors/signatures.json");
    let vectors: Value = serde_json::from_str(text).unwrap();
    vectors["cases"].as_array().unwrap().clone()
}

#[test]
fn sign_makes_the_signatures_of_the_vectors() {
    let mut count = 0;
    for case in vectors() {
        let text = |name: &str| case[name].as_str().map(str::to_owned);
        let (Some(id), Some(body)) = (text("id"), text("body")) else { continue };
        let mut command = railpost();
        command.args(["sign", "--json", "--id", &id, "--timestamp"]);
        command.arg(case["timestamp"].to_string());
        for signer in case["signers"].as_array().unwrap() {
            command.args(["--secret", signer.as_str().unwrap()]);
        }
        let signed = run_with(command, body.as_bytes()).expect(0).json();
        assert_eq!(signed["webhook-signature"], case["webhook_signature"], "{}", case["name"]);
        assert_eq!(
            signed.get("X-Webhook-Signature").unwrap_or(&Value::Null),
            &case["x_webhook_signature"]
        );
        count += 1;
    }
    assert!(count >= 4, "{count} vectors were run");
}

fn verify(headers: &[(&str, &str)], body: &str, more: &[&str]) -> crate::world::Ran {
    let mut command = railpost();
    command.args(["verify", "--secret", SECRET]).args(more);
    for (name, value) in headers {
        command.args(["-H", &format!("{name}: {value}")]);
    }
    run_with(command, body.as_bytes())
}

#[test]
fn verify_takes_what_is_authentic_and_says_why_it_refuses_the_rest() {
    let good = [
        ("webhook-id", ID),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let then = ["--now", "1614265330"];
    assert!(verify(&good, BODY, &then).expect(0).out.starts_with("verified"));
    assert_eq!(
        verify(&good, BODY, &["--now", "1614265330", "--json"]).expect(0).json()["verified"],
        true
    );
    for (headers, body, more, reason) in [
        (&good[..], "{}", &then[..], "no signature matches"),
        (&good[..], BODY, &[][..], "too old"),
        (&good[..], BODY, &["--now", "1614265000"][..], "too far ahead"),
        (&good[1..], BODY, &then[..], "`webhook-id`"),
        (&[][..], BODY, &then[..], "`webhook-signature`"),
    ] {
        let refused = verify(headers, body, more).expect(1);
        assert!(refused.err.contains(reason) && refused.err.contains("next:"), "{}", refused.err);
    }
}

#[test]
fn a_bad_secret_is_refused_and_not_shown() {
    let refused = run(&["sign", "--secret", "whsec_hunter2"]).expect(2);
    assert!(
        refused.err.contains("--secret") && !refused.err.contains("hunter2"),
        "{}",
        refused.err
    );
}

#[test]
fn schedule_prints_the_planned_attempts_of_what_the_flags_say() {
    let fixed = ["schedule", "--retry-fixed", "90s", "--attempts", "3"];
    let printed = run(&fixed).expect(0).out;
    assert_eq!(
        printed,
        "attempt   1  at +00:00:00\nattempt   2  at +00:01:30\nattempt   3  at +00:03:00\n"
    );
    let plan = run(&[&fixed[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(plan["attempts"][2], json!({"number": 3, "earliest": "3m", "latest": "3m"}));
    let listed = run(&["schedule", "--retry-schedule", "5s,1m"]).expect(0).out;
    assert_eq!(listed.lines().count(), 3);
    assert!(listed.ends_with("+00:01:05\n"), "{listed}");
    let policy = r#"{"retry": {"max_attempts": 2}}"#;
    assert_eq!(run(&["schedule", "--policy", policy]).expect(0).out.lines().count(), 2);
}

#[test]
fn a_bad_policy_names_the_field_before_any_request() {
    let refused = run(&["schedule", "--retry-max-attempts", "0"]).expect(2);
    assert!(refused.err.contains("retry.max_attempts"), "{}", refused.err);
    let refused = run(&["schedule", "--policy", r#"{"retries": 3}"#]).expect(2);
    assert!(refused.err.contains("retries"), "{}", refused.err);
}

#[test]
fn openapi_is_the_document_of_this_executable_and_always_the_same() {
    let document = run(&["openapi"]).expect(0);
    assert_eq!(document.json(), railpost_api::openapi());
    assert_eq!(document.out, run(&["openapi"]).out);
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).expect(0).out;
        assert!(script.contains("dead-letters"), "{shell}");
    }
}

#[test]
fn help_groups_the_commands_and_shows_examples() {
    let help = run(&["--help"]).expect(0).out;
    for part in
        ["Getting started:", "Looking:", "Fixing:", "Offline", "Administration:", "Examples:"]
    {
        assert!(help.contains(part), "{part}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn a_command_line_that_cannot_be_followed_ends_with_2() {
    for arguments in [&["sned"][..], &["send"], &["endpoints"], &["schedule", "--retry-fixed", "x"]]
    {
        run(arguments).expect(2);
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut command = railpost();
    let mut child = command
        .arg("openapi")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
