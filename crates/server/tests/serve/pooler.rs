//! Sources behind a connection pooler in transaction mode, which has no sessions to read by.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::outbox::{
    arrives, ask, configure, fresh_database, source, sql, start_with_receiver, until, until_reading,
};
use super::postgres::database;
use super::process::{PATIENCE, output};

/// A running PgBouncer in front of the test server. It ends with the test.
struct PgBouncer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts one with more settings than the mode.
    fn start(settings: &str) -> Self {
        let program = std::env::var("RAILPOST_TEST_PGBOUNCER").expect(
            "RAILPOST_TEST_PGBOUNCER is not set: run `cargo xtask test`, which looks for PgBouncer",
        );
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let users = folder.path().join("users");
        std::fs::write(&users, "\"railpost\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\npool_mode = transaction\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n\
             auth_file = {}\n{settings}\n",
            server_port(),
            users.display()
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new(program);
        command.arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        // It refuses to run as root.
        if let Some((uid, gid)) = unprivileged_user() {
            for path in [folder.path(), &file, &users] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
            command.gid(gid).uid(uid);
        }
        let child = command.spawn().unwrap();
        let pooler = Self { child, port, _folder: folder };
        pooler.wait_until_it_listens();
        pooler
    }

    fn wait_until_it_listens(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "PgBouncer does not listen");
        }
    }

    /// The same database through the pooler.
    fn url(&self, direct: &str) -> String {
        direct.replace(&format!(":{}/", server_port()), &format!(":{}/", self.port))
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port of the test server.
fn server_port() -> u16 {
    let config: tokio_postgres::Config = database().parse().unwrap();
    config.get_ports()[0]
}

fn unprivileged_user() -> Option<(u32, u32)> {
    let id = |args: &[&str]| {
        let output = Command::new("id").args(args).stderr(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let user = if id(&["-u", "postgres"]).is_some() { "postgres" } else { "nobody" };
    id(&["-u", user]).zip(id(&["-g", user]))
}

#[test]
fn a_source_behind_a_pooler_is_refused_with_what_to_do_and_everything_else_works() {
    let folder = tempfile::tempdir().unwrap();
    let shop = fresh_database("pooled");
    // One refuses the settings that a session begins with, the other drops them.
    let strict = PgBouncer::start("");
    let lenient = PgBouncer::start("ignore_startup_parameters = options");
    let section = |name: &str, url: &str, mode: &str| {
        format!("name = \"{name}\"\nurl = \"{url}\"\nmode = \"{mode}\"\ntenant = \"default\"")
    };
    let behind = [
        ("strict", strict.url(&shop), "poll", "unsupported startup parameter"),
        ("strict-log", strict.url(&shop), "tail", "unsupported startup parameter"),
        ("lenient", lenient.url(&shop), "poll", "the settings of the session were dropped"),
        ("lenient-log", lenient.url(&shop), "tail", "the settings of the session were dropped"),
    ];
    let mut sections: Vec<String> =
        behind.iter().map(|(name, url, mode, _)| section(name, url, mode)).collect();
    sections.push(section("direct", &shop, "poll"));
    configure(folder.path(), &sections);
    assert_eq!(output(folder.path(), &["outbox", "init", "direct"]).0, 0);
    let (server, receiver) = start_with_receiver(folder.path(), &[]);
    until_reading(&server, "direct");
    for (name, _, _, sign) in &behind {
        let found = until(&server, name, |source| source["state"] == "trouble");
        let problem = format!("PostgreSQL is behind a connection pooler: {sign}");
        let said = found["trouble"]["problem"].as_str().unwrap();
        assert!(said.starts_with(&problem), "{found:#}");
        let fix = found["trouble"]["fix"].as_str().unwrap();
        assert!(fix.starts_with("name PostgreSQL itself in `url`"), "{found:#}");
        let (code, out, err) = ask(folder.path(), &server, &["outbox", "check", name]);
        assert_eq!(code, 1, "{out}{err}");
        assert!(out.contains(&problem) && out.contains("name PostgreSQL itself"), "{out}");
    }
    assert_eq!(server.get("/health/ready", "").0, 200);

    // Writing through a pooler is fine: a transaction is all that it takes.
    sql(&lenient.url(&shop), "BEGIN; SELECT railpost_emit('a.b', '\"pooled\"'); COMMIT");
    arrives(&receiver, "\"pooled\"");
    let relayed: Vec<Value> = behind.iter().map(|(name, ..)| source(&server, name)).collect();
    assert!(relayed.iter().all(|source| source["relayed"] == 0), "{relayed:#?}");
    assert_eq!(server.stopped().0, 0);
}
