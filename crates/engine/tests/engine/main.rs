//! The engine's rules, told through its inputs and effects alone.

mod harness;

mod ordering;
mod retries;
mod guarantees;
mod containment;
mod fairness;
mod commands;
mod loading;
mod endpoints;
mod any_input;
