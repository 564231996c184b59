//! The first start, and those after it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::process::{ADMIN_KEY, Running};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_prints_a_key_that_works_and_the_second_prints_none() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), &[]);
    let key = first.key().expect(&first.greeting).to_owned();
    for expected in ["/v1\n", "/docs\n", "/dashboard\n", "railpost-data/railpost.db", "are allowed"]
    {
        assert!(first.greeting.contains(expected), "{expected} not in {}", first.greeting);
    }
    assert_eq!(first.get("/v1/tenants/default", &key).0, 200);
    assert_eq!(first.get("/v1/tenants/default", ADMIN_KEY).0, 401);
    assert_eq!(first.get("/health/ready", "").0, 200);
    let data = folder.path().join("railpost-data");
    assert_eq!((mode(&data), mode(&data.join("master.key"))), (0o700, 0o600));
    let master = std::fs::read(data.join("master.key")).unwrap();
    let (code, log) = first.stopped();
    assert_eq!(code, 0, "{log}");

    let second = Running::start(folder.path(), &[]);
    assert_eq!(second.key(), None);
    assert_eq!(second.get("/v1/tenants/default", &key).0, 200);
    assert_eq!(std::fs::read(data.join("master.key")).unwrap(), master);
}

#[test]
fn what_the_greeting_says_to_run_can_be_run() {
    let folder = tempfile::tempdir().unwrap();
    for (set, said) in [
        (&[][..], "\n  railpost listen --register\n"),
        (&[("CARGO", "cargo")], "\n  cargo run --release -- listen --register\n"),
    ] {
        let server = Running::start_with(folder.path(), &["--ephemeral"], set);
        assert!(server.greeting.contains(said), "{}", server.greeting);
    }
}

#[test]
fn an_ephemeral_server_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path(), &["--ephemeral"]);
    assert!(server.greeting.contains("gone when the server stops"), "{}", server.greeting);
    let key = server.key().unwrap().to_owned();
    assert_eq!(server.get("/v1/tenants/default", &key).0, 200);
    assert_eq!(server.stopped().0, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// To clear one takes milliseconds, in which nothing else gets on.
#[cfg(target_os = "linux")]
#[test]
fn the_server_has_no_huge_pages() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(folder.path(), &["--ephemeral"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains("THP_enabled:\t0\n"), "{status}");
}

#[test]
fn a_key_of_the_operators_choosing_is_known_on_every_start() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let set = [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)];
        let server = Running::start_with(folder.path(), &[], &set);
        assert_eq!(server.key(), None);
        assert_eq!(server.get("/v1/tenants/default", ADMIN_KEY).0, 200);
        server.stopped();
    }
}

#[test]
fn store_and_master_key_may_lie_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("elsewhere")).unwrap();
    let set = [("RAILPOST_STORE_MASTER_KEY_FILE", "elsewhere/key")];
    let server = Running::start_with(folder.path(), &["--store", "sqlite:elsewhere/db"], &set);
    assert!(server.greeting.contains("elsewhere/db"), "{}", server.greeting);
    assert!(folder.path().join("elsewhere/db").exists());
    assert_eq!(mode(&folder.path().join("elsewhere/key")), 0o600);
}

#[test]
fn a_public_url_is_what_people_are_told_and_shuts_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--ephemeral", "--public-url", "https://hooks.example.com/"];
    let server = Running::start(folder.path(), &arguments);
    assert!(server.greeting.contains("https://hooks.example.com/docs\n"), "{}", server.greeting);
    assert!(server.greeting.contains("are blocked"), "{}", server.greeting);
}

#[test]
fn with_a_certificate_it_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let set = [
        ("RAILPOST_SERVER_TLS_CERTIFICATE", certificate.to_str().unwrap()),
        ("RAILPOST_SERVER_TLS_KEY", key.to_str().unwrap()),
    ];
    let server = Running::start_with(folder.path(), &["--ephemeral"], &set);
    assert!(server.url("").starts_with("https://"), "{}", server.url(""));
    let roots = vec![Certificate::from_pem(made.cert.pem().as_bytes()).unwrap().to_owned()];
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
    let agent: ureq::Agent = ureq::Agent::config_builder().tls_config(tls).build().into();
    let response = agent.get(server.url("/health/live")).call().unwrap();
    assert_eq!(response.status().as_u16(), 200);
}

#[test]
fn past_the_bound_a_connection_waits_until_another_closes() {
    let folder = tempfile::tempdir().unwrap();
    let set = [("RAILPOST_LIMITS_CONNECTIONS_MAX", "1")];
    let server = Running::start_with(folder.path(), &["--ephemeral"], &set);
    let address = server.url("").replace("http://", "");
    let ask = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        stream
    };
    let mut byte = [0];
    let mut first = ask();
    first.read_exact(&mut byte).unwrap();
    let mut second = ask();
    second.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(second.read_exact(&mut byte).is_err(), "it was answered beside the first");
    drop(first);
    second.set_read_timeout(Some(super::process::PATIENCE)).unwrap();
    second.read_exact(&mut byte).unwrap();
}
