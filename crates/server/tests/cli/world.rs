//! A server of a test's own, and the executable that talks to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use railpost::config::Config;
use railpost::serve::Server;
use railpost_store::{Alert, Severity, Told};
use railpost_telemetry::{Level, Log};
use railpost_wire::AlertId;
use serde_json::Value;
use tokio::runtime::Runtime;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// What it printed, if it ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("no JSON: {}", self.out))
    }
}

/// The executable, without what the surroundings say about servers and keys.
pub(crate) fn railpost() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_railpost"));
    for name in ["RAILPOST_URL", "RAILPOST_API_KEY", "RAILPOST_TENANT", "RAILPOST_SECRET"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end, with this on its stdin.
pub(crate) fn run_with(mut command: Command, stdin: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that ends without reading all of it is no failure.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the executable without any server.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    let mut command = railpost();
    command.args(arguments);
    run_with(command, b"")
}

/// Runs a command on a terminal of its own.
const ON_TERMINAL: &str = "import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

/// A server in memory with a data folder of its own. It ends with the test.
pub(crate) struct World {
    runtime: Runtime,
    server: Option<Server>,
    admin: String,
    pub(crate) folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.server.data_dir = folder.path().to_owned();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        let runtime = Runtime::new().unwrap();
        let log = Log::new(Level::Error, std::io::sink());
        let server = runtime.block_on(Server::start(config, log)).unwrap();
        let admin = server.admin_key().unwrap().to_owned();
        Self { runtime, server: Some(server), admin, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.as_ref().unwrap().address())
    }

    /// The executable, told of this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = railpost();
        command.env("RAILPOST_URL", self.url()).env("RAILPOST_API_KEY", &self.admin);
        command.args(arguments);
        command
    }

    /// Puts an alert of the server itself on record. Answers its id.
    pub(crate) fn fire(&self) -> String {
        let app = self.server.as_ref().unwrap().app();
        let now = app.source.now();
        let alert = Alert {
            id: AlertId::generate(now.as_millis(), app.random()),
            rule: "disk".to_owned(),
            tenant: None,
            subject: String::new(),
            severity: Severity::Critical,
            summary: "The disk is nearly full.".to_owned(),
            details: serde_json::json!({}),
            fired_at: now,
            last_held_at: now,
            resolved_at: None,
            told: Told::Nothing,
        };
        self.runtime.block_on(app.store.save_alerts(vec![alert.clone()])).unwrap();
        alert.id.to_string()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        run_with(self.command(arguments), b"")
    }

    /// Runs a command on a terminal, where this is typed. What it prints is all in `out`.
    pub(crate) fn run_on_terminal(&self, arguments: &[&str], typed: &str) -> Ran {
        let mut command = Command::new("python3");
        command.args(["-c", ON_TERMINAL, env!("CARGO_BIN_EXE_railpost")]).args(arguments);
        command.env("RAILPOST_URL", self.url()).env("RAILPOST_API_KEY", &self.admin);
        command.env_remove("RAILPOST_TENANT").env("NO_COLOR", "1");
        run_with(command, typed.as_bytes())
    }

    /// What a command prints with `--json`, after it went well.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        self.run(&[arguments, &["--json"]].concat()).expect(0).json()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.drain());
        }
    }
}

/// A command that runs until it is told to stop. It ends with the test.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line it prints.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut err = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("it ended: {err}");
        }
        line.trim_end().to_owned()
    }

    /// The next line, as JSON.
    #[track_caller]
    pub(crate) fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// Asks it to stop, as Ctrl-C does, and answers its exit code.
    pub(crate) fn interrupt(mut self) -> i32 {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status().unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
