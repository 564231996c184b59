//! What several test files need. Not each of them needs all of it.

#![allow(dead_code, missing_docs, clippy::unwrap_used, reason = "each test binary uses its part")]

pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod source;
