//! Sessions with a real server: who may log in, with which password, over which TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::time::Duration;

use railpost_replication::{Connection, Error, ErrorKind, Lsn, NewSlot, Start, Target};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use support::server::Server;
use support::source::transaction;

/// Every user has its own way to log in; the password of each is `sesame`.
const HBA: &str = "\
host    all railpost 127.0.0.1/32 trust
host    all scram    127.0.0.1/32 scram-sha-256
host    all hash     127.0.0.1/32 md5
host    all clear    127.0.0.1/32 password
host    all plain    127.0.0.1/32 trust
hostssl all secret   127.0.0.1/32 scram-sha-256
";

const USERS: &str = "\
CREATE ROLE scram LOGIN REPLICATION PASSWORD 'sesame';
CREATE ROLE secret LOGIN REPLICATION PASSWORD 'sesame';
CREATE ROLE clear LOGIN REPLICATION PASSWORD 'sesame';
CREATE ROLE plain LOGIN;
SET password_encryption = 'md5';
CREATE ROLE hash LOGIN REPLICATION PASSWORD 'sesame';
";

async fn log_in(url: &str, roots_pem: Option<&str>) -> Result<Connection, Error> {
    let target = Target::new(url, roots_pem.map(str::as_bytes))?;
    Connection::connect(&target).await
}

#[tokio::test]
async fn a_session_needs_the_right_user_password_and_database() {
    use ErrorKind::{Authentication, Permission, Tls, Unreachable};
    let server = Server::new();
    server.write("pg_hba.conf", HBA);
    server.start(&["wal_level=replica"]);
    server.client().await.batch_execute(USERS).await.unwrap();
    let port = server.port;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (url, kind, words) in [
        (format!("scram:sesame@127.0.0.1:{port}/postgres"), None, ""),
        (format!("hash:sesame@127.0.0.1:{port}/postgres"), None, ""),
        (format!("scram:wrong@127.0.0.1:{port}/postgres"), Some(Authentication), "28P01"),
        (format!("hash:wrong@127.0.0.1:{port}/postgres"), Some(Authentication), "28P01"),
        (format!("scram@127.0.0.1:{port}/postgres"), Some(Authentication), "there is none"),
        (format!("clear:sesame@127.0.0.1:{port}/postgres"), Some(Authentication), "clear text"),
        (format!("secret:sesame@127.0.0.1:{port}/postgres"), Some(Authentication), "28000"),
        (format!("nobody:sesame@127.0.0.1:{port}/postgres"), Some(Authentication), "28000"),
        (format!("scram:sesame@127.0.0.1:{port}/missing"), Some(Authentication), "3D000"),
        (format!("plain@127.0.0.1:{port}/postgres"), Some(Permission), "42501"),
        (format!("scram:sesame@127.0.0.1:{port}/postgres?sslmode=require"), Some(Tls), "no TLS"),
        (
            format!("scram:sesame@127.0.0.1:{port}/postgres?channel_binding=require"),
            Some(Authentication),
            "require",
        ),
        (format!("scram:sesame@127.0.0.1:{closed}/postgres"), Some(Unreachable), "no connection"),
        // The second host answers.
        (
            format!(
                "scram:sesame@127.0.0.1:{closed},127.0.0.1:{port}/postgres?target_session_attrs=read-write"
            ),
            None,
            "",
        ),
        (
            format!("scram:sesame@127.0.0.1:{port}/postgres?target_session_attrs=read-only"),
            Some(Unreachable),
            "wants",
        ),
    ] {
        let error = log_in(&format!("postgres://{url}"), None).await.err();
        assert_eq!(error.as_ref().map(Error::kind), kind, "{url}: {error:?}");
        let error = error.map_or(String::new(), |error| error.to_string());
        assert!(error.contains(words) && !error.contains("sesame"), "{url}: {error}");
    }
    slots_need_a_logical_log(port).await;
}

async fn slots_need_a_logical_log(port: u16) {
    let url = format!("postgres://scram:sesame@127.0.0.1:{port}/postgres");
    let mut connection = log_in(&url, None).await.unwrap();
    let slot = NewSlot { name: "shop", failover: false, wait_max: Duration::from_secs(30) };
    let error = connection.create_slot(&slot).await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::WalLevel, Some("55000")));
    assert!(error.to_string().contains("wal_level = logical"), "{error}");
}

/// A root and a server's certificate and key for `name`, all in PEM.
struct Certificates {
    root: String,
    server: String,
    key: String,
}

impl Certificates {
    fn new(name: &str) -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&root_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let issuer = Issuer::from_params(&params, &root_key);
        let server = server.signed_by(&key, &issuer).unwrap().pem();
        Self { root, server, key: key.serialize_pem() }
    }
}

#[tokio::test]
async fn tls_means_that_the_certificate_and_the_name_are_verified() {
    use ErrorKind::{Authentication, Tls};
    let (right, wrong) = (Certificates::new("127.0.0.1"), Certificates::new("127.0.0.1"));
    let server = Server::new();
    server.write("pg_hba.conf", HBA);
    server.write("server.crt", &right.server);
    server.write("server.key", &right.key);
    server.start(&["wal_level=logical", "ssl=on"]);
    server.client().await.batch_execute(USERS).await.unwrap();
    for (user, host, options, roots, kind) in [
        ("secret:sesame", "127.0.0.1", "sslmode=require", Some(&right.root), None),
        (
            "secret:sesame",
            "127.0.0.1",
            "sslmode=require&channel_binding=require",
            Some(&right.root),
            None,
        ),
        (
            "secret:sesame",
            "127.0.0.1",
            "sslmode=require&channel_binding=disable",
            Some(&right.root),
            None,
        ),
        ("secret:wrong", "127.0.0.1", "sslmode=require", Some(&right.root), Some(Authentication)),
        ("secret:sesame", "127.0.0.1", "sslmode=prefer", None, Some(Authentication)),
        ("clear:sesame", "127.0.0.1", "sslmode=require", Some(&right.root), None),
        ("hash:sesame", "127.0.0.1", "sslmode=require", Some(&right.root), None),
        (
            "hash:sesame",
            "127.0.0.1",
            "sslmode=require&channel_binding=require",
            Some(&right.root),
            Some(Authentication),
        ),
        ("secret:sesame", "127.0.0.1", "sslmode=require", Some(&wrong.root), Some(Tls)),
        ("secret:sesame", "127.0.0.1", "sslmode=require", None, Some(Tls)),
        ("secret:sesame", "localhost", "sslmode=require", Some(&right.root), Some(Tls)),
    ] {
        let url = format!("postgres://{user}@{host}:{}/postgres?{options}", server.port);
        let error = log_in(&url, roots.map(String::as_str)).await.err();
        assert_eq!(error.as_ref().map(Error::kind), kind, "{url}: {error:?}");
    }
    a_stream_runs_over_tls(&server, &right.root).await;
}

async fn a_stream_runs_over_tls(server: &Server, root: &str) {
    let client = server.client().await;
    let setup = "CREATE TABLE outbox (seq bigint, payload text); CREATE PUBLICATION outbox FOR TABLE outbox";
    client.batch_execute(setup).await.unwrap();
    let url =
        format!("postgres://secret:sesame@127.0.0.1:{}/postgres?sslmode=require", server.port);
    let mut connection = log_in(&url, Some(root)).await.unwrap();
    let slot = NewSlot { name: "shop", failover: false, wait_max: Duration::from_secs(30) };
    connection.create_slot(&slot).await.unwrap();
    let start = Start { slot: "shop", from: Lsn::ZERO, publications: &["outbox"], messages: false };
    let mut stream = connection.start(&start).await.unwrap();
    let insert = "INSERT INTO outbox SELECT n, repeat('x', 100000) FROM generate_series(1, 200) n";
    client.batch_execute(insert).await.unwrap();
    let (rows, end) = transaction(&mut stream).await.unwrap();
    assert_eq!((rows.len(), rows[199].len()), (200, 100_000));
    stream.confirm(end);
    stream.stop().await;
    let confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots";
    let confirmed: String = client.query_one(confirmed, &[]).await.unwrap().get(0);
    assert_eq!(confirmed, end.to_string());
}
