//! A throwaway PostgreSQL server with its own defaults: in the run's folder, on a free port of
//! loopback, not as root, gone when the run is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::server::free_port;

/// A running server. Dropping it stops the server; its files go with the run's folder.
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    port: u16,
    pid: u32,
}

impl Postgres {
    /// Starts one in a folder of this name under `parent`, which its user must be able to enter, with more
    /// settings than its defaults.
    pub(crate) fn start(parent: &Path, name: &str, settings: &str) -> Result<Self, String> {
        let programs = find().ok_or("PostgreSQL's programs (initdb, pg_ctl) are not installed")?;
        let folder = parent.join(name);
        let mut server =
            Self { programs, folder, user: unprivileged_user()?, port: free_port()?, pid: 0 };
        server.make_folder()?;
        server.on_data("initdb", ["-A", "trust", "-U", "railpost", "-E", "UTF8"])?;
        let options = format!("-p {} -c listen_addresses=127.0.0.1 -k '' {settings}", server.port);
        let log = server.folder.join("log");
        let log_shown = log.to_string_lossy();
        server
            .on_data("pg_ctl", ["-w", "-t", "60", "-o", &options, "-l", &log_shown, "start"])
            .map_err(|problem| {
                format!("{problem}\n{}", fs::read_to_string(&log).unwrap_or_default())
            })?;
        server.pid = server.read_pid()?;
        Ok(server)
    }

    /// The process whose children are the whole server.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes an empty database and says where it is.
    pub(crate) fn database(&self, name: &str) -> Result<String, String> {
        let port = self.port.to_string();
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "railpost", "--maintenance-db=postgres"];
        let mut command = self.command("createdb");
        run("createdb", command.args(args).arg(name))?;
        Ok(format!("postgres://railpost@127.0.0.1:{port}/{name}"))
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

    fn read_pid(&self) -> Result<u32, String> {
        let path = self.data().join("postmaster.pid");
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let first = text.lines().next().and_then(|line| line.trim().parse().ok());
        first.ok_or_else(|| format!("{} names no process", path.display()))
    }

    fn on_data<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Result<(), String> {
        run(program, self.command(program).arg("-D").arg(self.data()).args(args))
    }

    /// One of the server's programs, as the user that may run it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A server that did not start need not be stopped.
        let _ = self.on_data("pg_ctl", ["-w", "-m", "immediate", "stop"]);
    }
}

fn run(program: &str, command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} ended with {status}")) }
}

/// The folder of the server's programs: on the path, or where Debian puts them.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(debian.map(|version| version.path().join("bin")));
    let programs = ["initdb", "pg_ctl", "postgres", "createdb"];
    let complete = |folder: &PathBuf| programs.iter().all(|program| folder.join(program).exists());
    let folder = folders.into_iter().find(complete)?;
    // A link elsewhere would hide the files that the programs look for beside themselves.
    fs::canonicalize(folder.join("initdb")).ok()?.parent().map(Path::to_path_buf)
}

/// The server refuses to run as root: then it runs as a user that owns nothing.
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
