//! The binary `railpost`.

use std::process::ExitCode;

/// An event's way through the server takes a few dozen allocations, freed on other threads than they
/// were made on: the system's allocator spends a tenth of the server's time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    railpost::cli::run()
}
