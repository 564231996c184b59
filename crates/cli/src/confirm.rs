//! Asking before something is taken away.

use std::io::{BufRead, IsTerminal, Write};

use super::failure::{Failure, Outcome};
use super::out::Out;

/// The answer that is given beforehand.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Confirmation {
    /// Do not ask; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
}

impl Confirmation {
    /// Says what is about to happen, and asks whether it shall.
    pub fn ask(self, out: Out, effect: &str) -> Outcome {
        if self.yes {
            return Ok(());
        }
        if !can_ask(out) {
            let next = "nothing was done, as there is no terminal to ask on: add --yes to do it";
            return Err(Failure::usage(effect).next(next));
        }
        match ask(&format!("{effect}\nGo on?"))? {
            true => Ok(()),
            false => Err(Failure::new("nothing was done")),
        }
    }

    /// Whether it was answered beforehand.
    pub(super) fn is_given(self) -> bool {
        self.yes
    }
}

/// Whether a question reaches a person who can answer it.
pub(super) fn can_ask(out: Out) -> bool {
    !out.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a question on the terminal. Enter alone means no.
#[allow(clippy::print_stderr, reason = "a question is not a result")]
pub(super) fn ask(question: &str) -> Outcome<bool> {
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A count with its noun.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}
