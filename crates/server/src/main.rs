//! The binary `railpost`.

use std::process::ExitCode;

/// An event's way through the server takes a few dozen allocations, freed on other threads than they
/// were made on: the system's allocator spends a tenth of the server's time on that. This links one that
/// takes the place of `malloc` for Rust and C alike.
#[used]
static ALLOCATOR: unsafe extern "C" fn(usize) -> *mut std::ffi::c_void = libmimalloc_sys::mi_malloc;

fn main() -> ExitCode {
    without_huge_pages();
    railpost::cli::run()
}

/// A page of 2 MiB is cleared as a whole when it is first touched, by whoever touches it: up to ten
/// milliseconds on a virtual machine, for which all that is under way waits. Small pages take a little more
/// of the processor's time, and half the memory.
#[cfg(target_os = "linux")]
fn without_huge_pages() {
    // A system that cannot is slower now and then, and nothing else.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
fn without_huge_pages() {}
