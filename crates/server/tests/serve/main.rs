//! The real executable: how it starts, what it says, how it stops, and what operators see of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod process;
mod receiver;
mod seeded;

mod configuration;
mod erasing;
mod errors;
mod postgres;
mod restoring;
mod settings;
mod starting;
mod stopping;
mod telemetry;
mod upkeep;
