//! The progress line: one line that changes on a terminal, a line per case elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Instant;

pub(crate) struct Progress {
    terminal: bool,
    begun: Instant,
    total: usize,
    done: usize,
    case: &'static str,
}

impl Progress {
    pub(crate) fn new(total: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, begun: Instant::now(), total, done: 0, case: "" }
    }

    pub(crate) fn begin(&mut self, case: &'static str) {
        self.done += 1;
        self.case = case;
        self.say("starting");
    }

    /// Says what is going on; only a terminal sees it.
    pub(crate) fn say(&self, what: &str) {
        if self.terminal {
            self.write(&format!("\r\x1b[2K{}: {what}", self.head()));
        }
    }

    /// Says how the case ended.
    pub(crate) fn end(&self, how: &str) {
        let start = if self.terminal { "\r\x1b[2K" } else { "" };
        self.write(&format!("{start}{}: {how}\n", self.head()));
    }

    fn head(&self) -> String {
        let seconds = self.begun.elapsed().as_secs();
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        format!("[{minutes}:{seconds:02}] {}/{} {}", self.done, self.total, self.case)
    }

    fn write(&self, text: &str) {
        let mut error = std::io::stderr().lock();
        // A progress line that cannot be written is no failure.
        let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
    }
}
