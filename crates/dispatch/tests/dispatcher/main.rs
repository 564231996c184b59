//! The dispatcher end to end: a store, real HTTP, and a receiver that listens.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[allow(dead_code, reason = "the tests of the API use more of it")]
mod flaky;
mod harness;
mod receiver;

mod outcomes;
mod requests;
mod settings;
mod order;
mod endpoints;
mod stops;
mod trouble;
mod reconciler;
mod signing;
mod behind;
