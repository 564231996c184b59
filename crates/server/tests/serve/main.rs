//! The real executable: how it starts, what it says, how it stops, and what operators see of it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod process;
mod promql;
mod receiver;
mod seeded;

mod admin_key;
mod alerts;
mod configuration;
mod deployed;
mod erasing;
mod errors;
mod key_rotation;
mod loopback;
mod notices;
mod outbox;
mod pooler;
mod postgres;
mod restoring;
mod settings;
mod starting;
mod stopping;
mod telemetry;
mod upkeep;
