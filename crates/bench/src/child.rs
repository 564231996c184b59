//! The parent's end of its child processes: the sink, the load generators, the forwarder. Each role
//! is a process of its own, so that its CPU is its own too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::forward;
use crate::limits::{ANSWER_TIMEOUT, LOOK_EVERY};
use crate::load::Report;
use crate::load::plan::Plan;
use crate::sink::ledger::ArrivalFigures;
use crate::sink::{SinkCommand, SinkReady};

/// A child process in one role. Dropping it ends it.
pub(crate) struct ChildProcess {
    name: String,
    child: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
}

impl ChildProcess {
    /// Starts this program in a role and waits for its first line.
    fn start<G: DeserializeOwned>(args: &[String]) -> Result<(Self, G), String> {
        let name = args.first().cloned().unwrap_or_default();
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} could not be started: {error}"))?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} has no pipes"));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut process = Self { name, child, commands, answers };
        let greeting = process.receive(ANSWER_TIMEOUT, || {})?;
        Ok((process, greeting))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn send(&mut self, command: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(command).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let sent = self.commands.write_all(&line).and_then(|()| self.commands.flush());
        sent.map_err(|error| format!("{} takes no commands: {error}", self.name))
    }

    /// Waits for an answer, and calls `meanwhile` now and then.
    fn receive<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Result<T, String> {
        let until = Instant::now() + timeout;
        loop {
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|error| format!("{} answered `{line}`: {error}", self.name));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => meanwhile(),
                Err(_) => return Err(format!("{} did not answer within {timeout:?}", self.name)),
            }
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &impl Serialize) -> Result<T, String> {
        self.send(command)?;
        self.receive(ANSWER_TIMEOUT, || {})
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sink, with a port per endpoint.
pub(crate) struct Sink {
    process: ChildProcess,
    pub(crate) ports: Vec<u16>,
}

impl Sink {
    pub(crate) fn start(endpoints: usize) -> Result<Self, String> {
        let (process, SinkReady { ports }): (_, SinkReady) =
            ChildProcess::start(&["sink".to_owned(), endpoints.to_string()])?;
        Ok(Self { process, ports })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn command(&mut self, command: &SinkCommand) -> Result<(), String> {
        self.process.ask(command)
    }

    pub(crate) fn counts(&mut self) -> Result<Vec<u64>, String> {
        self.process.ask(&SinkCommand::Counts)
    }

    /// The number and time of each fresh delivery of an endpoint, since this was asked last.
    pub(crate) fn times(&mut self, endpoint: usize) -> Result<Vec<(u64, u64)>, String> {
        self.process.ask(&SinkCommand::Times { endpoint })
    }

    pub(crate) fn report(&mut self) -> Result<Vec<ArrivalFigures>, String> {
        self.process.ask(&SinkCommand::Report)
    }
}

/// A load generator.
pub(crate) struct Load {
    process: ChildProcess,
}

impl Load {
    pub(crate) fn start() -> Result<Self, String> {
        let (process, ()) = ChildProcess::start(&["load".to_owned()])?;
        Ok(Self { process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn begin(&mut self, plan: &Plan) -> Result<(), String> {
        self.process.send(plan)
    }

    /// Waits until the plan is done; it ends by its own time limit.
    pub(crate) fn end(&mut self, plan: &Plan, meanwhile: impl FnMut()) -> Result<Report, String> {
        self.process.receive(Duration::from_millis(plan.millis) + ANSWER_TIMEOUT, meanwhile)
    }
}

/// The plain forwarder.
pub(crate) struct Forwarder {
    process: ChildProcess,
    pub(crate) port: u16,
}

impl Forwarder {
    pub(crate) fn start(to_port: u16) -> Result<Self, String> {
        let (process, forward::ForwarderReady { port }) =
            ChildProcess::start(&["forward".to_owned(), to_port.to_string()])?;
        Ok(Self { process, port })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
