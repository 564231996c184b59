//! Why a command failed, and what to do next.

use std::fmt;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    next: Option<String>,
    problem: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Failed,
    Usage,
    /// The reader of our output has closed the pipe.
    ClosedPipe,
}

/// What a command comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The request, or the work, failed.
    pub fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { kind: Kind::Failed, message, next: None, problem: None }
    }

    /// The command line cannot be followed.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Usage, ..Self::new(message) }
    }

    /// With what to do next.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }

    /// With what to do next, if anything is known.
    #[must_use]
    pub(super) fn next_if(self, next: Option<String>) -> Self {
        Self { next: next.or(self.next), ..self }
    }

    /// With the server's own words, for machines.
    #[must_use]
    pub(super) fn problem(self, problem: Value) -> Self {
        Self { problem: Some(problem), ..self }
    }

    /// Whether the server knows of no such thing.
    pub(super) fn is_not_found(&self) -> bool {
        self.problem.as_ref().is_some_and(|problem| problem["code"] == "not_found")
    }

    /// Whether the server knows of no such thing of this kind.
    pub(super) fn is_missing(&self, kind: &str) -> bool {
        let detail = self.problem.as_ref().and_then(|problem| problem["detail"].as_str());
        self.is_not_found()
            && detail.is_some_and(|text| text.starts_with(&format!("no such {kind}")))
    }

    /// Whether the reader of our output is gone.
    pub(super) fn is_closed_pipe(&self) -> bool {
        self.kind == Kind::ClosedPipe
    }

    /// Prints the error, and returns the exit code of the command.
    #[allow(clippy::print_stderr, reason = "errors are for the user who started the command")]
    pub fn report(self, as_json: bool) -> ExitCode {
        match self.kind {
            Kind::ClosedPipe => return ExitCode::SUCCESS,
            _ if as_json => eprintln!("{}", self.as_json()),
            _ => eprintln!("{self}"),
        }
        ExitCode::from(if self.kind == Kind::Usage { 2 } else { 1 })
    }

    fn as_json(&self) -> Value {
        json!({ "error": self.message, "next": self.next, "problem": self.problem })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        self.next.as_ref().map_or(Ok(()), |next| write!(f, "\n next: {next}"))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let failure = Self::new(&error);
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self { kind: Kind::ClosedPipe, ..failure },
            _ => failure,
        }
    }
}
