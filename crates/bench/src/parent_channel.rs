//! How the parent and its child processes talk: a line of JSON each way, over the child's standard
//! input and output. A child ends when its input does, so none outlives its parent.

use std::io::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

/// A child's end of the conversation.
pub(crate) struct ParentChannel {
    lines: Lines<BufReader<Stdin>>,
}

impl ParentChannel {
    /// Begins by telling the parent where it is reached.
    pub(crate) fn begin(greeting: &impl Serialize) -> Result<Self, String> {
        let commands = Self { lines: BufReader::new(tokio::io::stdin()).lines() };
        commands.answer(greeting)?;
        Ok(commands)
    }

    /// The next order; nothing when the parent is gone.
    pub(crate) async fn next<O: DeserializeOwned>(&mut self) -> Result<Option<O>, String> {
        let line = self.lines.next_line().await.map_err(|error| format!("no order: {error}"))?;
        let order = line.map(|line| {
            serde_json::from_str(&line).map_err(|error| format!("order `{line}`: {error}"))
        });
        order.transpose()
    }

    pub(crate) fn answer(&self, answer: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_vec(answer).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        out.write_all(&line).and_then(|()| out.flush()).map_err(|error| format!("answer: {error}"))
    }
}

/// Threads of the load generator and the sink: half of the cores, so that on two cores each is one
/// busy thread and the server has the rest.
pub(crate) fn worker_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}
