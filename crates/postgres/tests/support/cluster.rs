//! PostgreSQL servers that a test may crash, promote or demote: each in a directory of its own, on a free
//! port of loopback, not as root, gone when the test is.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use railpost_postgres::PostgresAddress;
use tempfile::TempDir;

/// A running server. Dropping it stops the server and removes its files.
pub(crate) struct Server {
    programs: PathBuf,
    folder: TempDir,
    user: Option<(u32, u32)>,
    pub(crate) port: u16,
}

impl Server {
    /// A new one with these settings, such as `fsync=off`.
    pub(crate) fn start(settings: &[&str]) -> Self {
        let server = Self::new();
        server.run("initdb", &["-A", "trust", "-U", "railpost", "--no-sync", "-E", "UTF8"]);
        server.set(settings);
        server.start_again();
        server
    }

    /// A standby that follows another one.
    pub(crate) fn standby_of(primary: &Server) -> Self {
        let server = Self::new();
        let port = primary.port.to_string();
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", "railpost", "-c", "fast", "-R"];
        server.run("pg_basebackup", &from);
        server.start_again();
        server
    }

    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid)).unwrap();
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { programs: programs(), folder, user, port }
    }

    /// Adds settings, which count from the next start on.
    pub(crate) fn set(&self, settings: &[&str]) {
        let path = self.folder.path().join("data/postgresql.auto.conf");
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{before}\n{}\n", settings.join("\n"))).unwrap();
    }

    pub(crate) fn start_again(&self) {
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -k ''", self.port);
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["-w", "-o", &options, "-l", &log.to_string_lossy(), "start"]);
    }

    /// Stops without writing anything that was not written yet, as in a crash.
    pub(crate) fn crash(&self) {
        self.run("pg_ctl", &["-w", "-m", "immediate", "stop"]);
    }

    /// A standby takes over.
    pub(crate) fn promote(&self) {
        self.run("pg_ctl", &["-w", "promote"]);
    }

    /// Its own database, or whichever of several servers may be written.
    pub(crate) fn address(servers: &[&Server]) -> PostgresAddress {
        let hosts: Vec<_> =
            servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        let attributes = if servers.len() > 1 { "?target_session_attrs=read-write" } else { "" };
        let url = format!("postgres://railpost@{}/postgres{attributes}", hosts.join(","));
        PostgresAddress::from(url.as_str())
    }

    fn run(&self, program: &str, args: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-D").arg(self.folder.path().join("data")).args(args);
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid);
        }
        let status = command.status().unwrap();
        let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        assert!(status.success(), "{program} {args:?}: {status}\n{}", log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.folder.path().join("data/postmaster.pid").exists() {
            self.crash();
        }
    }
}

/// The folder of the server's programs: on the path, or where Debian puts them.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(debian.map(|version| version.path().join("bin")));
    let needed = ["initdb", "pg_ctl", "postgres", "pg_basebackup"];
    let complete = |folder: &PathBuf| needed.iter().all(|program| folder.join(program).exists());
    let folder = folders.into_iter().find(complete);
    let folder =
        folder.expect("PostgreSQL's programs are not installed: initdb, pg_ctl, pg_basebackup");
    // A link elsewhere would hide the files that the programs look for beside themselves.
    let program = std::fs::canonicalize(folder.join("initdb")).unwrap();
    program.parent().map(Path::to_path_buf).unwrap()
}

/// The server refuses to run as root: then it runs as a user without files.
fn unprivileged_user() -> Option<(u32, u32)> {
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let user = if id(&["-u", "postgres"]).is_some() { "postgres" } else { "nobody" };
    id(&["-u", user]).zip(id(&["-g", user]))
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}
