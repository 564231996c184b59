//! The parent's end of its child processes: the sink, the load generators, the forwarder. Each role
//! is a process of its own, so that its CPU is its own too.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::{LOOK_EVERY, PATIENCE};
use crate::load::Report;
use crate::load::plan::Plan;
use crate::sink::ledger::Figures;
use crate::sink::{Greeting, Order};
use crate::{forward, sink};

/// A child process in one role. Dropping it ends it.
pub(crate) struct Role {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Role {
    /// Starts this program in a role and hears its greeting.
    fn start<G: DeserializeOwned>(args: &[String]) -> Result<(Self, G), String> {
        let name = args.first().cloned().unwrap_or_default();
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} could not be started: {error}"))?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{name} has no pipes"));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut role = Self { name, child, orders, answers };
        let greeting = role.hear(PATIENCE, || {})?;
        Ok((role, greeting))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tell(&mut self, order: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let told = self.orders.write_all(&line).and_then(|()| self.orders.flush());
        told.map_err(|error| format!("{} takes no orders: {error}", self.name))
    }

    /// Waits for an answer, and calls `meanwhile` now and then.
    fn hear<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Result<T, String> {
        let until = Instant::now() + patience;
        loop {
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|error| format!("{} answered `{line}`: {error}", self.name));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => meanwhile(),
                Err(_) => return Err(format!("{} did not answer within {patience:?}", self.name)),
            }
        }
    }

    fn ask<T: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<T, String> {
        self.tell(order)?;
        self.hear(PATIENCE, || {})
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sink, with a port per endpoint.
pub(crate) struct Sink {
    role: Role,
    pub(crate) ports: Vec<u16>,
}

impl Sink {
    pub(crate) fn start(endpoints: usize) -> Result<Self, String> {
        let (role, sink::Greeting { ports }): (_, Greeting) =
            Role::start(&["sink".to_owned(), endpoints.to_string()])?;
        Ok(Self { role, ports })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.role.pid()
    }

    pub(crate) fn order(&mut self, order: &Order) -> Result<(), String> {
        self.role.ask(order)
    }

    pub(crate) fn counts(&mut self) -> Result<Vec<u64>, String> {
        self.role.ask(&Order::Counts)
    }

    pub(crate) fn report(&mut self) -> Result<Vec<Figures>, String> {
        self.role.ask(&Order::Report)
    }
}

/// A load generator.
pub(crate) struct Load {
    role: Role,
}

impl Load {
    pub(crate) fn start() -> Result<Self, String> {
        let (role, ()) = Role::start(&["load".to_owned()])?;
        Ok(Self { role })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.role.pid()
    }

    pub(crate) fn begin(&mut self, plan: &Plan) -> Result<(), String> {
        self.role.tell(plan)
    }

    /// Waits until the plan is done; it ends by its own time limit.
    pub(crate) fn end(&mut self, plan: &Plan, meanwhile: impl FnMut()) -> Result<Report, String> {
        self.role.hear(Duration::from_millis(plan.millis) + PATIENCE, meanwhile)
    }
}

/// The plain forwarder.
pub(crate) struct Forwarder {
    role: Role,
    pub(crate) port: u16,
}

impl Forwarder {
    pub(crate) fn start(to_port: u16) -> Result<Self, String> {
        let (role, forward::Greeting { port }) =
            Role::start(&["forward".to_owned(), to_port.to_string()])?;
        Ok(Self { role, port })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.role.pid()
    }
}
