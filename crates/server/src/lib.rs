//! The binary `railpost`: configuration, listening, background jobs and wiring.
//!
//! - [`config`]: what can be configured, and where it comes from.
//! - [`serve`]: opens the store, starts the dispatcher, listens, and drains.
//! - [`demo`]: a server of its own for the demo.
//! - [`cli`]: the command line: the commands of `railpost_cli`, and those that run a server or open a store.
//!
//! It must not hold delivery rules, routes, pages or SQL: what happens next to a delivery, the engine says; what is
//! answered, `railpost_api` and `railpost_dashboard` say. No static holds state: two servers fit in one process.
//!
//! Start with [`serve::Server`].

pub mod limits;

pub mod config;
pub mod serve;
pub mod demo;
pub mod cli;

mod alerts;
mod data_dir;
mod master_key;
mod loopback;
mod notices;
mod objective;
mod outbox;
mod replays;
mod running_alerts;
mod upkeep;
mod secret_rotation;
mod key_rotation;
