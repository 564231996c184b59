//! Every command in README.md and docs/start.md is run.
//!
//! In a block of `sh`, `# -> TEXT` says what the command above it prints, and `# listen -> TEXT` what
//! the receiver prints meanwhile. A text that begins with `error:` says that the command fails.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::world::railpost;

const CARGO_RUN: &str = "cargo run --release -- ";

/// Longest that a test waits for something that must come. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command, and what it is said to print.
#[derive(Debug)]
struct Step {
    line: String,
    prints: Vec<String>,
    listener_prints: Vec<String>,
}

fn steps(document: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("# -> "), line.strip_prefix("# listen -> ")) {
                (Some(text), _) => steps.last_mut().unwrap().prints.push(text.to_owned()),
                (_, Some(text)) => steps.last_mut().unwrap().listener_prints.push(text.to_owned()),
                _ => steps.push(Step {
                    line: line.to_owned(),
                    prints: Vec::new(),
                    listener_prints: Vec::new(),
                }),
            },
        }
    }
    steps
}

/// A process in the background, and its lines. It ends, by its id, with this.
struct Background {
    child: std::process::Child,
    lines: Receiver<String>,
}

impl Background {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = channel();
        let reader = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            reader.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The next line that contains this.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with `{text}` came"));
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        let _ = self.child.wait();
    }
}

/// Three terminals: one serves, one listens, one is typed into.
struct Terminals {
    folder: tempfile::TempDir,
    url: String,
    key: String,
    server: Option<Background>,
    listener: Option<Background>,
    /// The last delivery that a list showed.
    delivery: String,
}

impl Terminals {
    fn new() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self {
            folder: tempfile::tempdir().unwrap(),
            url: format!("http://127.0.0.1:{port}"),
            key: String::new(),
            server: None,
            listener: None,
            delivery: String::new(),
        }
    }

    /// The command as a shell would run it, with the executable in place of cargo.
    fn command(&self, line: &str, more: &str) -> Command {
        let arguments = line.strip_prefix(CARGO_RUN).unwrap_or_else(|| panic!("unknown: {line}"));
        let script = format!("exec \"$RAILPOST\" {arguments} {more}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, value) in railpost().get_envs() {
            assert!(value.is_none(), "{name:?} is taken away");
            command.env_remove(name);
        }
        command
            .env("RAILPOST", env!("CARGO_BIN_EXE_railpost"))
            .env("RAILPOST_URL", &self.url)
            .env("RAILPOST_API_KEY", &self.key)
            .env("RAILPOST_SERVER_LISTEN", self.url.trim_start_matches("http://"));
        command
    }

    fn run(&mut self, step: &Step) {
        let line = step.line.replace("DELIVERY", &self.delivery);
        let run_elsewhere = ["cargo xtask test", "-p railpost-sim", "-p railpost-bench"];
        if run_elsewhere.iter().any(|other| line.contains(other)) {
            eprintln!("not run here: {line}");
        } else if line.starts_with(&format!("{CARGO_RUN}serve")) {
            self.serve(&line);
        } else if line.starts_with(&format!("{CARGO_RUN}listen")) {
            self.listen(&line, step);
        } else {
            self.run_to_its_end(&line, step);
        }
        for text in &step.listener_prints {
            self.listener.as_ref().unwrap().wait_for(text);
        }
    }

    fn serve(&mut self, line: &str) {
        let server = Background::start(self.command(line, ""));
        let export = server.wait_for("export RAILPOST_API_KEY=");
        self.key = export.split_once('=').unwrap().1.trim().to_owned();
        self.server = Some(server);
    }

    fn listen(&mut self, line: &str, step: &Step) {
        // Ctrl-C ends the one before, which deletes its endpoint.
        self.listener = None;
        let listener = Background::start(self.command(line, "--port 0"));
        for text in &step.prints {
            listener.wait_for(text);
        }
        listener.wait_for("registered as");
        self.listener = Some(listener);
    }

    fn run_to_its_end(&mut self, line: &str, step: &Step) {
        let mut command = self.command(line, "2>&1");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let fails = step.prints.iter().any(|text| text.starts_with("error:"));
        assert_eq!(child.wait().unwrap().success(), !fails, "{line}\n{printed}");
        for text in &step.prints {
            assert!(printed.contains(text), "{line} does not print `{text}`:\n{printed}");
        }
        let delivery = printed.split_whitespace().find(|word| word.starts_with("dlv_"));
        self.delivery = delivery.map_or_else(|| self.delivery.clone(), str::to_owned);
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        // The receiver goes first: it deletes its endpoint at the server.
        self.listener = None;
        self.server = None;
    }
}

#[track_caller]
fn every_command_runs(document: &str, at_least: usize) {
    let steps = steps(document);
    assert!(steps.len() >= at_least, "{steps:?}");
    let mut terminals = Terminals::new();
    for step in &steps {
        terminals.run(step);
    }
}

#[test]
fn every_command_in_the_readme_runs() {
    every_command_runs(include_str!("../../../../README.md"), 5);
}

#[test]
fn every_command_in_the_start_page_runs() {
    every_command_runs(include_str!("../../../../docs/start.md"), 10);
}

#[test]
fn the_readme_has_a_first_webhook_before_line_40() {
    let readme = include_str!("../../../../README.md");
    assert!(readme.lines().take(40).any(|line| line.contains("send order.paid")));
}
