//! Every inbox by one suite, and what is particular to each.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../support/mod.rs"]
mod support;

mod suite;
mod memory;
mod sqlite;
mod migration;
mod postgres;
mod session;
mod pool;
mod redis;
mod queues;
