//! The configuration, from the command line.

use super::process::{Running, output, railpost};

#[test]
fn the_default_file_is_printed_and_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let (code, text, _) = output(folder.path(), &["config", "default"]);
    assert_eq!((code, text.as_str()), (0, railpost::config::DEFAULT_TOML));
    std::fs::write(folder.path().join("other.toml"), text).unwrap();
    let (code, text, _) = output(folder.path(), &["config", "check", "--config", "other.toml"]);
    assert_eq!(code, 0, "{text}");
    let lines = railpost::config::DEFAULT_TOML.lines();
    let line = lines.take_while(|line| !line.starts_with("listen =")).count() + 1;
    let expected = format!("server.listen = \"127.0.0.1:8087\"  (other.toml, line {line})");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn what_is_in_force_is_said_with_where_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("railpost.toml"), "[log]\nlevel = \"warn\"\n").unwrap();
    let mut command = railpost(folder.path(), &["config", "check"]);
    command.env("RAILPOST_SERVER_ADMIN_KEY", super::process::ADMIN_KEY);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.contains("log.level = \"warn\"  (railpost.toml, line 2)"), "{text}");
    assert!(text.contains("server.admin_key = \"…\"  (RAILPOST_SERVER_ADMIN_KEY)"), "{text}");
    let (code, shown, _) = output(folder.path(), &["config", "show"]);
    assert_eq!(code, 0);
    assert!(shown.contains("[log]\nformat = \"auto\"\nlevel = \"warn\"\n"), "{shown}");
}

#[test]
fn every_mistake_is_said_at_once_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("railpost.toml");
    std::fs::write(file, "[limits]\nbody_bytes_max = 5\n[log]\nlevle = \"info\"\n").unwrap();
    for command in [&["config", "check"][..], &["config", "show"], &["serve"]] {
        let (code, stdout, stderr) = output(folder.path(), command);
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains("railpost.toml, line 2: limits.body_bytes_max = 5"), "{stderr}");
        assert!(stderr.contains("did you mean log.level?"), "{stderr}");
    }
    assert!(!folder.path().join("railpost-data").exists());
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = output(folder.path(), &["serve", "--config", "no.toml"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("no.toml: cannot read the configuration"), "{stderr}");
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_are_ignored_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let service = [
        ("RAILPOST_PORT", "tcp://10.96.0.7:8087"),
        ("RAILPOST_SERVICE_HOST", "10.96.0.7"),
        ("RAILPOST_SERVICE_PORT", "8087"),
        ("RAILPOST_SERVICE_PORT_HTTP", "8087"),
        ("RAILPOST_PORT_8087_TCP", "tcp://10.96.0.7:8087"),
        ("RAILPOST_PORT_8087_TCP_ADDR", "10.96.0.7"),
        ("RAILPOST_PORT_8087_TCP_PORT", "8087"),
        ("RAILPOST_PORT_8087_TCP_PROTO", "tcp"),
    ];
    let mut server = Running::start_with(folder.path(), &["--ephemeral"], &service);
    let told = server.wait_for("environment_ignored")["variables"].as_str().unwrap().to_owned();
    for (name, _) in service {
        assert!(told.split(", ").any(|told| told == name), "{name} not in {told}");
    }
    let mut check = railpost(folder.path(), &["config", "check"]);
    let output = check.envs(service).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Kubernetes") && text.contains("RAILPOST_SERVICE_HOST"), "{text}");
    let mut typo = railpost(folder.path(), &["serve"]);
    let output = typo.env("RAILPOST_SERVICE_PORT", "http").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
