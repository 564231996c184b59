//! PostgreSQL servers with settings of their own: each in a directory of its own, on a free port of loopback,
//! not as root, gone when the test is.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A running server. Dropping it stops the server and removes its files.
pub(crate) struct Server {
    programs: PathBuf,
    folder: TempDir,
    user: Option<(u32, u32)>,
    pub(crate) port: u16,
}

impl Server {
    /// A server that is set up and not started yet.
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { programs: programs(), folder, user: unprivileged_user(), port };
        server.give_to_server(server.folder.path());
        server.run("initdb", &["-A", "trust", "-U", "railpost", "--no-sync", "--wal-segsize=1"]);
        server
    }

    /// Puts a file among the server's own, for its eyes only.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.folder.path().join("data").join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        self.give_to_server(&path);
    }

    pub(crate) fn start(&self, settings: &[&str]) {
        let mut options = format!("-p {} -c listen_addresses=127.0.0.1 -k ''", self.port);
        for setting in settings {
            options.push_str(&format!(" -c {setting}"));
        }
        let log = self.folder.path().join("log");
        self.run("pg_ctl", &["-w", "-o", &options, "-l", &log.to_string_lossy(), "start"]);
    }

    /// Ends the server without letting it write anything, as a crash of its machine would.
    pub(crate) fn crash(&self) {
        self.run("pg_ctl", &["-w", "-m", "immediate", "stop"]);
    }

    /// Ends the server as an operator does: it ends all sessions, and waits for those that follow its log.
    pub(crate) fn stop(&self) {
        self.run("pg_ctl", &["-w", "-m", "fast", "stop"]);
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://railpost@127.0.0.1:{}/postgres", self.port)
    }

    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn give_to_server(&self, path: &Path) {
        if let Some((uid, gid)) = self.user {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
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
    let complete = |folder: &PathBuf| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).exists())
    };
    let folder = folders.into_iter().find(complete);
    let folder = folder.expect("PostgreSQL's programs are not installed: initdb, pg_ctl, postgres");
    // A link elsewhere would hide the files that the programs look for beside themselves.
    let program = std::fs::canonicalize(folder.join("initdb")).unwrap();
    program.parent().map(Path::to_path_buf).unwrap()
}

/// The server refuses to run as root: then it runs as an unprivileged user.
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
