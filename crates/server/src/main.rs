//! The binary `railpost`.

use std::process::ExitCode;

/// An event's way through the server takes a few dozen allocations, freed on other threads than they
/// were made on: the system's allocator spends a tenth of the server's time on that. This links one that
/// takes the place of `malloc` for Rust and C alike.
#[used]
static ALLOCATOR: unsafe extern "C" fn(usize) -> *mut std::ffi::c_void = libmimalloc_sys::mi_malloc;

fn main() -> ExitCode {
    railpost::cli::run()
}
