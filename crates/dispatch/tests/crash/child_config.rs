//! How the parent configures its children: by their environment.

use std::process::Stdio;

use tokio::process::{Child, Command};

/// How a sender runs.
#[derive(Clone)]
pub(crate) struct SenderChildConfig {
    /// Which life of the process this is.
    pub(crate) run: u32,
    pub(crate) store: String,
    /// The receiver's port.
    pub(crate) receiver: u16,
    /// How many events to accept at the most.
    pub(crate) events: u32,
}

/// How a receiver runs.
#[derive(Clone)]
pub(crate) struct ReceiverChildConfig {
    pub(crate) port: u16,
    /// Its database: a file.
    pub(crate) database: String,
}

fn get(name: &str) -> Option<String> {
    std::env::var(format!("RAILPOST_CRASH_CHILD_{name}")).ok()
}

impl SenderChildConfig {
    pub(crate) fn from_environment() -> Option<Self> {
        Some(Self {
            run: get("RUN")?.parse().unwrap(),
            store: get("STORE")?,
            receiver: get("RECEIVER")?.parse().unwrap(),
            events: get("EVENTS")?.parse().unwrap(),
        })
    }

    pub(crate) fn spawn(&self) -> Child {
        spawn(&[
            ("RUN", self.run.to_string()),
            ("STORE", self.store.clone()),
            ("RECEIVER", self.receiver.to_string()),
            ("EVENTS", self.events.to_string()),
        ])
    }
}

impl ReceiverChildConfig {
    pub(crate) fn from_environment() -> Option<Self> {
        Some(Self { port: get("PORT")?.parse().unwrap(), database: get("DATABASE")? })
    }

    pub(crate) fn spawn(&self) -> Child {
        spawn(&[("PORT", self.port.to_string()), ("DATABASE", self.database.clone())])
    }
}

fn spawn(config: &[(&str, String)]) -> Child {
    let names = config.iter().map(|(name, value)| (format!("RAILPOST_CRASH_CHILD_{name}"), value));
    Command::new(std::env::current_exe().unwrap())
        .envs(names)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}
