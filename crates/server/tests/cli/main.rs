//! The command line: the real executable against a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "what is left out is said")]

mod world;

mod offline;
mod errors;
mod tenants;
mod sending;
mod listening;
mod resources;
mod alerts;
mod questions;
mod whereabouts;
mod fixing;
mod upkeep;
mod docs;
