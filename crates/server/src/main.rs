//! The binary `railpost`.

use std::process::ExitCode;

/// An event takes a few dozen allocations, freed on other threads than they were made on. The system's
/// allocator spends 10 % of the server's CPU time on that. This links an allocator that replaces `malloc` for
/// Rust and C.
#[used]
static ALLOCATOR: unsafe extern "C" fn(usize) -> *mut std::ffi::c_void = libmimalloc_sys::mi_malloc;

fn main() -> ExitCode {
    without_huge_pages();
    railpost::cli::run()
}

/// The kernel clears a page of 2 MiB as a whole when a thread first touches it: up to ten milliseconds on a
/// virtual machine, during which requests wait. Small pages take slightly more CPU time and half the memory.
#[cfg(target_os = "linux")]
fn without_huge_pages() {
    // Where this fails, some requests are slower.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
fn without_huge_pages() {}
