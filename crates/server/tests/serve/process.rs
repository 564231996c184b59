//! A process of the executable, and a client to talk to it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

/// Longest that a test waits for something that must come. Far longer than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An admin key of the test's choosing.
pub(crate) const ADMIN_KEY: &str = "rp_a-key-of-the-tests-choosing-0123456789";

/// The executable in this folder, with nothing of this process's own configuration.
pub(crate) fn railpost(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_railpost"));
    command.current_dir(folder).args(arguments);
    let own = |name: &str| name.starts_with("RAILPOST_") || name == "CARGO";
    for (name, _) in std::env::vars().filter(|(name, _)| own(name)) {
        command.env_remove(name);
    }
    command
}

/// What the executable says and how it ends, for commands that end by themselves.
pub(crate) fn output(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = railpost(folder, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A server that runs. It ends with the test.
pub(crate) struct Running {
    child: Child,
    pub(crate) greeting: String,
    url: String,
    lines: Receiver<String>,
    log: String,
}

impl Running {
    /// A server on a port of its own.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    pub(crate) fn start_with(folder: &Path, arguments: &[&str], set: &[(&str, &str)]) -> Self {
        let arguments = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut command = railpost(folder, &arguments);
        command.envs(set.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (outbox, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| outbox.send(line))
        });
        let greeting = read_greeting(&mut child).unwrap_or_else(|said| {
            let log: Vec<String> = lines.iter().collect();
            panic!("it did not start: {said}{}", log.join("\n"))
        });
        let url = greeting.lines().find_map(|line| line.trim().strip_prefix("API "));
        let url = url.expect(&greeting).trim().trim_end_matches("/v1").to_owned();
        Self { child, greeting, url, lines, log: String::new() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The key that the greeting told, if it told one.
    pub(crate) fn key(&self) -> Option<&str> {
        self.greeting.lines().find_map(|line| line.trim().strip_prefix("export RAILPOST_API_KEY="))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for a log line with this event.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, event: &str) -> Value {
        self.wait_for_any(&[event])
    }

    /// Waits for a log line with one of these events.
    #[track_caller]
    pub(crate) fn wait_for_any(&mut self, events: &[&str]) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the line should have come");
            self.log.push_str(&line);
            self.log.push('\n');
            let json: Value = serde_json::from_str(&line).unwrap_or_default();
            if events.iter().any(|event| json["event"] == *event) {
                return json;
            }
        }
    }

    /// Waits for the end: the exit code, and all that was logged.
    #[track_caller]
    pub(crate) fn ended(mut self) -> (i32, String) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.log.push_str(&format!("{line}\n")),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it did not end"),
            }
        }
        (self.child.wait().unwrap().code().unwrap_or(-1), std::mem::take(&mut self.log))
    }

    /// Stops it and waits for the end.
    #[track_caller]
    pub(crate) fn stopped(self) -> (i32, String) {
        self.signal("TERM");
        self.ended()
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> (u16, String) {
        let request = http::Request::get(self.url(path));
        call(request.header("authorization", format!("Bearer {key}")).body(Vec::new()).unwrap())
    }

    /// Posts JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = http::Request::post(self.url(path))
            .header("authorization", format!("Bearer {ADMIN_KEY}"))
            .header("content-type", "application/json");
        let (status, text) = call(request.body(body.to_string().into_bytes()).unwrap());
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Publishes an event of the default tenant.
    #[track_caller]
    pub(crate) fn publish(&self, event: &Value) {
        self.publish_with(event, &[]);
    }

    #[track_caller]
    pub(crate) fn publish_with(&self, event: &Value, headers: &[(&str, &str)]) {
        let mut request = http::Request::post(self.url("/v1/tenants/default/events"))
            .header("authorization", format!("Bearer {ADMIN_KEY}"))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (status, text) = call(request.body(event.to_string().into_bytes()).unwrap());
        assert_eq!(status, 202, "{text}");
    }
}

/// What a server says once it has started; an error with all that it said if it ended instead.
fn read_greeting(child: &mut Child) -> Result<String, String> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut greeting = String::new();
    while !greeting.contains(" send order.paid") {
        if stdout.read_line(&mut greeting).unwrap() == 0 {
            let mut rest = String::new();
            let _ = stdout.read_to_string(&mut rest);
            return Err(format!("{greeting}{rest}"));
        }
    }
    Ok(greeting)
}

pub(crate) fn call(request: http::Request<Vec<u8>>) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.build().into();
    let mut response = agent.run(request).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
