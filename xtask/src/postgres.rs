//! A throwaway PostgreSQL server for the tests: in a temp directory, on a free port of loopback, not
//! as root, gone when the tests are.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::{free_port, install};

/// What the tests of logical replication and of the relay need: each has a slot and a session or two,
/// some have sixteen writers, and one reads in the order of commits.
const REPLICATION: &str = "-c wal_level=logical -c max_replication_slots=64 -c max_wal_senders=64 \
                           -c max_connections=400 -c track_commit_timestamp=on";

/// A running server. Dropping it stops the server and removes its files.
pub(crate) struct Postgres {
    bin: PathBuf,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
}

impl Postgres {
    pub(crate) fn start() -> Result<Self, String> {
        let bin = find_or_install()?;
        let folder = std::env::temp_dir().join(format!("railpost-postgres-{}", std::process::id()));
        let server = Self { bin, folder, user: unprivileged_user()?, port: free_port()? };
        server.make_folder()?;
        server.run("initdb", ["-A", "trust", "-U", "railpost", "--no-sync", "-E", "UTF8"])?;
        let options =
            format!("-p {} -c listen_addresses=127.0.0.1 -k '' {REPLICATION}", server.port);
        let log = server.folder.join("log");
        let start = ["-w", "-t", "60", "-o", &options, "-l", &log.to_string_lossy(), "start"];
        server.run("pg_ctl", start).map_err(|problem| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            format!("{problem}\n{log}")
        })?;
        Ok(server)
    }

    /// A program that restarts the server without letting it write anything, as a crash would.
    pub(crate) fn restart_program(&self) -> Result<PathBuf, String> {
        let program = self.folder.join("restart");
        let user = self.user.map_or(String::new(), |(uid, gid)| {
            format!("setpriv --reuid={uid} --regid={gid} --clear-groups ")
        });
        let (pg_ctl, data) = (self.bin.join("pg_ctl"), self.data());
        let log = self.folder.join("log");
        let script = format!(
            "#!/bin/sh\ncd {} && exec {user}{} -D {} -l {} -m immediate -w -t 60 restart\n",
            self.folder.display(),
            pg_ctl.display(),
            data.display(),
            log.display(),
        );
        let written = fs::write(&program, script)
            .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)));
        written.map_err(|error| format!("{} could not be written: {error}", program.display()))?;
        Ok(program)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://railpost@127.0.0.1:{}/postgres", self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn make_folder(&self) -> Result<(), String> {
        let made = fs::create_dir_all(&self.folder).and_then(|()| match self.user {
            Some((uid, gid)) => chown(&self.folder, Some(uid), Some(gid)),
            None => Ok(()),
        });
        made.map_err(|error| format!("{} could not be made: {error}", self.folder.display()))
    }

    /// Runs one of the server's programs on its data, as the user that may.
    fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<(), String> {
        let mut command = Command::new(self.bin.join(program));
        command.arg("-D").arg(self.data()).args(args).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid);
        }
        let status = command.status().map_err(|error| format!("{program}: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("{program} ended with {status}")) }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let stopped = self.run("pg_ctl", ["-w", "-m", "immediate", "stop"]);
        if let Err(problem) = stopped {
            eprintln!("xtask: the PostgreSQL server did not stop: {problem}");
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn find_or_install() -> Result<PathBuf, String> {
    if find().is_none() {
        install("postgresql")?;
    }
    find().ok_or_else(|| "PostgreSQL's programs were not found even after installing it".into())
}

/// The folder of the server's programs: on the path, or where Debian puts them.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(debian.map(|version| version.path().join("bin")));
    let complete = |folder: &PathBuf| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).exists())
    };
    let folder = folders.into_iter().find(complete)?;
    // A link elsewhere would hide the files that the programs look for beside themselves.
    fs::canonicalize(folder.join("initdb")).ok()?.parent().map(Path::to_path_buf)
}

/// PostgreSQL refuses to run as root: then it runs as a user without files.
fn unprivileged_user() -> Result<Option<(u32, u32)>, String> {
    if id(&["-u"])? != 0 {
        return Ok(None);
    }
    let user = if id(&["-u", "postgres"]).is_ok() { "postgres" } else { "nobody" };
    Ok(Some((id(&["-u", user])?, id(&["-g", user])?)))
}

fn id(args: &[&str]) -> Result<u32, String> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("id could not be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| format!("`id {}` printed no number", args.join(" ")))
}
