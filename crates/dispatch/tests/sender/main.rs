//! The sender against real sockets: what it sends, and what it makes of what comes back.

#![allow(clippy::unwrap_used, reason = "what tests share fails by panicking, as they do")]

mod support;

mod answers;
mod failures;
mod outbound;
mod reuse;
mod reuse_h2;
mod tls;
