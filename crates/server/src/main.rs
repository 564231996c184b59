//! The binary `railpost`.

use std::process::ExitCode;

fn main() -> ExitCode {
    railpost::cli::run()
}
