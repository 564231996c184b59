//! The terminals of a person who follows a page: one serves, one listens, one is typed into.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::page::{Part, Program, Step};
use crate::world::railpost;

/// How pages write the executable that they have just built.
const CARGO_RUN: &str = "cargo run --release -- ";

/// Longest wait for something that must come. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Words in commands that stand for an id, and how such ids begin.
const PLACEHOLDERS: [(&str, &str); 4] =
    [("DELIVERY", "dlv_"), ("ENDPOINT", "ep_"), ("EVENT", "evt_"), ("SECRET_ID", "sec_")];

/// A process in the background, and its lines. It ends, by its id, with this.
struct Background {
    child: Child,
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

    /// The next line that has this.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|why| panic!("no line with `{text}` came: {why}"));
            if has(&line, text) {
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

/// Whether a line of the text has this; `…` stands for anything.
fn has(text: &str, wanted: &str) -> bool {
    let in_line = |line: &str| {
        let mut rest = Some(line);
        for piece in wanted.split('…') {
            rest = rest.and_then(|rest| rest.split_once(piece)).map(|(_, after)| after);
        }
        rest.is_some()
    };
    text.lines().any(in_line)
}

/// A port that no other page gets, and that the system gives to no connection meanwhile: those ports begin at
/// 32768.
fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Tests of another process begin elsewhere.
    let begin = std::process::id().wrapping_mul(101);
    loop {
        let number = begin.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) struct Terminals {
    folder: tempfile::TempDir,
    server_port: u16,
    receiver_port: u16,
    key: String,
    server: Option<Background>,
    listener: Option<Background>,
    /// What the placeholders stand for: what a command printed last.
    ids: BTreeMap<&'static str, String>,
    /// What was not run, and why.
    pub(crate) skipped: Vec<String>,
}

impl Terminals {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let executable = env!("CARGO_BIN_EXE_railpost");
        std::os::unix::fs::symlink(executable, bin.join("railpost")).unwrap();
        let [server_port, receiver_port] = [(); 2].map(|()| free_port());
        Self {
            folder,
            server_port,
            receiver_port,
            key: String::new(),
            server: None,
            listener: None,
            ids: BTreeMap::new(),
            skipped: Vec::new(),
        }
    }

    pub(crate) fn follow(&mut self, page: &str, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Scene(scene) => self.set(scene),
                Part::Stop(what) => self.stop(what),
                Part::Shell(steps) => steps.iter().for_each(|step| self.run(step)),
                Part::Program(program) => self.run_program(page, program),
                Part::NotRun { line, reason } => {
                    self.skipped.push(format!("{page}:{line}: {reason}"));
                }
            }
        }
    }

    /// Makes what the commands of a page find.
    fn set(&mut self, scene: &str) {
        let run = |terminals: &mut Self, command: &str| {
            let fails = command.ends_with("--wait");
            let prints = if fails { vec!["error:".to_owned()] } else { Vec::new() };
            let command = command.to_owned();
            terminals.run(&Step { command, prints, ..Step::default() });
        };
        match scene {
            "receiver" => {
                run(self, "railpost serve");
                run(self, "railpost listen --register");
            }
            "held lanes" => {
                run(self, "railpost serve");
                run(self, "railpost listen --register --fail-first 3 --retry-max-attempts 1");
                for key in [1, 2, 3] {
                    run(self, &format!("railpost send order.placed --key {key} --wait"));
                }
                run(self, "railpost send order.paid --key 1");
            }
            "open breaker" => {
                run(self, "railpost serve");
                run(self, "railpost listen --register --fail-first 10 --retry-max-attempts 1");
                for _ in 0..10 {
                    run(self, "railpost send order.placed --wait");
                }
            }
            "quarantined" => {
                run(self, "railpost serve");
                run(self, "railpost listen --register --fail-first 5 --status 400");
                for key in [1, 2, 3, 4, 5] {
                    run(self, &format!("railpost send order.placed --key {key} --wait"));
                }
            }
            "404 twice" => {
                run(self, "railpost serve");
                run(
                    self,
                    "railpost listen --register --fail-first 2 --status 404 --retry-base 100ms",
                );
            }
            other => panic!("unknown scene `{other}`"),
        }
    }

    fn stop(&mut self, what: &str) {
        match what {
            "server" => self.server = None,
            "receiver" => self.listener = None,
            other => panic!("unknown process `{other}`"),
        }
    }

    fn run(&mut self, step: &Step) {
        let command = self.own(&step.command);
        match command.split_whitespace().nth(1) {
            Some("serve") => self.serve(&command),
            Some("listen") => self.listen(&command, step),
            _ => self.run_to_its_end(&command, step),
        }
        for text in &step.listener_prints {
            self.listener.as_ref().expect("a receiver listens").wait_for(text);
        }
    }

    /// The text as this person types it: with this page's ports, and ids in place of the placeholders.
    fn own(&self, text: &str) -> String {
        let mut text = text
            .replace(CARGO_RUN, "railpost ")
            .replace("127.0.0.1:8087", &format!("127.0.0.1:{}", self.server_port))
            .replace("127.0.0.1:9000", &format!("127.0.0.1:{}", self.receiver_port));
        let known = PLACEHOLDERS.iter().map(|(name, _)| *name).chain(["LANE"]);
        for name in known {
            let words: Vec<&str> = text.split(' ').collect();
            if words.contains(&name) {
                let id = self.ids.get(name).unwrap_or_else(|| panic!("no {name} known: {text}"));
                text = words
                    .iter()
                    .map(|word| if *word == name { id } else { *word })
                    .collect::<Vec<_>>()
                    .join(" ");
            }
        }
        text
    }

    /// The command in a shell. One that hangs is ended, so that its page fails and says where.
    fn bounded_shell(&self, script: &str) -> Command {
        let seconds = PATIENCE.as_secs().to_string();
        self.shell(&["timeout", &seconds, "sh"], script)
    }

    /// A shell that knows the variables which earlier commands set.
    fn shell(&self, shell: &[&str], script: &str) -> Command {
        let address = format!("127.0.0.1:{}", self.server_port);
        let bin = self.folder.path().join("bin");
        let mut command = Command::new(shell[0]);
        for (name, value) in railpost().get_envs() {
            assert!(value.is_none(), "{name:?} is taken away");
            command.env_remove(name);
        }
        let script = format!(
            "set -a; [ -f .state ] && . ./.state; RAILPOST_URL=http://{address}; \
             RAILPOST_API_KEY={}; {script}",
            self.key
        );
        command
            .args(&shell[1..])
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        command.env("PATH", path).env("RAILPOST_SERVER_LISTEN", &address);
        command
    }

    fn serve(&mut self, command: &str) {
        self.server = None;
        let server = Background::start(self.shell(&["sh"], &format!("exec {command}")));
        server.wait_for("is running");
        if self.key.is_empty() {
            let export = server.wait_for("export RAILPOST_API_KEY=");
            self.key = export.split_once('=').unwrap().1.trim().to_owned();
        }
        self.server = Some(server);
    }

    fn listen(&mut self, command: &str, step: &Step) {
        // Ctrl-C ends the one before, which deletes its endpoint.
        self.listener = None;
        let port = self.receiver_port;
        let listener =
            Background::start(self.shell(&["sh"], &format!("exec {command} --port {port}")));
        for text in &step.prints {
            listener.wait_for(text);
        }
        let is_up = if command.contains("--register") { "registered as" } else { "listening on" };
        if !step.prints.iter().any(|text| text == is_up) {
            listener.wait_for(is_up);
        }
        self.listener = Some(listener);
    }

    fn run_to_its_end(&mut self, command: &str, step: &Step) {
        let script = format!("{{ {command}\n}} 2>&1; ended=$?; export -p > .state; exit $ended");
        self.check(self.bounded_shell(&script), command, &step.prints);
    }

    fn run_program(&mut self, page: &str, program: &Program) {
        let (file, tool) = match program.language.as_str() {
            "python" => ("example.py", "python3"),
            "js" => ("example.mjs", "node"),
            "go" => ("example.go", "go"),
            other => panic!("no tool for `{other}`"),
        };
        let installed = Command::new(tool).arg("--help").output().is_ok();
        if !installed {
            assert!(program.optional, "{page}: `{tool}` is not installed");
            self.skipped.push(format!("{page}: `{tool}` is not installed"));
            return;
        }
        std::fs::write(self.folder.path().join(file), self.own(&program.text)).unwrap();
        let run = if tool == "go" { "go run" } else { tool };
        self.check(self.bounded_shell(&format!("{run} {file} 2>&1")), file, &program.prints);
    }

    /// Runs it to its end, compares what it prints, and remembers the ids in that.
    fn check(&mut self, mut command: Command, shown: &str, prints: &[String]) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let fails = prints.iter().any(|text| text.starts_with("error:"));
        assert_eq!(child.wait().unwrap().success(), !fails, "{shown}\n{printed}");
        for text in prints {
            assert!(has(&printed, text), "{shown} does not print `{text}`:\n{printed}");
        }
        self.remember(&printed);
    }

    fn remember(&mut self, printed: &str) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = || printed.split(|c| !is_part(c));
        for (name, begins) in PLACEHOLDERS {
            if let Some(id) = words().find(|word| word.starts_with(begins)) {
                self.ids.insert(name, id.to_owned());
            }
        }
        // A table of lanes has their numbers in its first column.
        let mut rows = printed.lines().skip_while(|line| !line.starts_with("LANE"));
        if let Some(row) = rows.nth(1) {
            let lane = row.split_whitespace().next().unwrap_or_default();
            self.ids.insert("LANE", lane.to_owned());
        }
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        // The receiver goes first: it deletes its endpoint at the server.
        self.listener = None;
        self.server = None;
    }
}
