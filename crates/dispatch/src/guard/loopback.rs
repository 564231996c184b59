//! Receivers on this machine: open while no other machine can reach them through this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether requests may go to this machine's loopback. It may be closed while the guard is in use, and stays closed.
/// Clones are the same.
#[derive(Clone, Debug)]
pub struct Loopback {
    is_open: Arc<AtomicBool>,
    setting: &'static str,
    name: Arc<str>,
}

impl Loopback {
    /// Loopback that is open or not; `setting` is where an operator chooses.
    pub fn new(setting: &'static str, is_open: bool) -> Self {
        Self { is_open: Arc::new(AtomicBool::new(is_open)), setting, name: "loopback".into() }
    }

    /// Whether requests may go there.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Closes it, and says whether it was open.
    pub fn close(&self) -> bool {
        self.is_open.swap(false, Ordering::Relaxed)
    }

    /// What people see by which exception a request went there.
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(super) fn setting(&self) -> &'static str {
        self.setting
    }
}
