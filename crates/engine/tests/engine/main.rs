//! The engine's rules, told through its inputs and effects alone.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod harness;

mod ordering;
mod follows;
mod retries;
mod guarantees;
mod containment;
mod health;
mod fairness;
mod commands;
mod loading;
mod endpoints;
mod look_ahead;
mod open_lanes;
mod any_input;
