//! The server: everything around the delivery engine that a person or a program talks to.
//!
//! - [`config`]: what can be configured, and where it comes from.
//! - [`serve`]: opens the store, starts the dispatcher, listens, and drains.
//! - [`api`]: the HTTP API as one table of routes; types are its specification.
//! - [`dashboard`]: the pages for people, over the API's own routes.
//! - [`demo`]: the protocol shown live, on loopback.
//! - [`telemetry`]: log lines, metrics, traces.
//! - [`cli`]: the command line, over the API like any other client.
//!
//! It contains no delivery rules: the engine decides, through the dispatcher. It contains no SQL: it uses the
//! store's roles. No static holds state: two servers fit in one process.
//!
//! Start with [`serve::Server`], then [`api::routes`].

pub mod limits;

pub mod config;
pub mod telemetry;
pub mod app;
pub mod api;
pub mod dashboard;
pub mod serve;
pub mod demo;
pub mod cli;

mod client_address;
mod data_dir;
mod loopback;
mod replays;
mod seal;
mod thin;
mod upkeep;
