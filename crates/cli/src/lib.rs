//! The command line as a client of the API: every command that talks to a server, `listen`, `send`, offline
//! signatures and schedules, and the demo.
//!
//! It must not reach past the API: it knows no store, no route's type and no server in its own process. The
//! binary adds the commands that run a server or open a store.
//!
//! Results go to stdout, progress and hints to stderr. Exit codes: 0 for done, 1 for failed, 2 for a
//! command line that cannot be followed.
//!
//! Start with [`Command`] and [`run`], then `client.rs`; `audit.rs` is the smallest command.

pub mod limits;

mod system;
mod failure;
mod out;
mod usage;
mod confirm;
mod input;
mod instant;
mod client;
mod list;
mod policy;

mod listen;
mod send;
mod find;
mod endpoints;
mod health;
mod probe;
mod secrets;
mod tenants;
mod event_types;
mod events;
mod story;
mod deliveries;
mod attempts;
mod lanes;
mod dead_letters;
mod replay;
mod report;
mod keys;
mod master_key;
mod alerts;
mod audit;
pub mod outbox;
pub mod upkeep;
mod schedule;
mod signatures;

pub mod demo;

use clap::Subcommand;

pub use client::{Client, Target};
pub use confirm::Confirmation;
pub use failure::{Failure, Outcome};
pub use out::Out;
pub use usage::{with_aliases, with_plain_usage};

/// The commands of a client.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Receive deliveries here: verify them, print them, misbehave on request
    Listen(Box<listen::Arguments>),
    /// Publish events
    Send(Box<send::Arguments>),
    /// Find an event, a delivery, an endpoint, a key by what you know of it
    Find(find::Arguments),
    /// Where events go
    #[command(subcommand, alias = "endpoint")]
    Endpoints(endpoints::Action),
    /// What was published, and what became of it
    #[command(subcommand, alias = "event")]
    Events(events::Action),
    /// Each event on its way to each endpoint
    #[command(subcommand, alias = "delivery")]
    Deliveries(deliveries::Action),
    /// Keys with deliveries that wait, and what they wait for
    #[command(subcommand, alias = "lane")]
    Lanes(lanes::Action),
    /// Deliveries that failed for good
    #[command(subcommand, alias = "dead-letter")]
    DeadLetters(dead_letters::Action),
    /// Send again, skip or discard many deliveries, as a job
    #[command(alias = "replays")]
    Replay(replay::Arguments),
    /// What holds that people should know, who is told of it, silences
    #[command(subcommand, alias = "alert")]
    Alerts(alerts::Action),
    /// How the objective was met in a period, with incidents and each endpoint
    Report(report::Arguments),
    /// Who changed what
    #[command(subcommand)]
    Audit(audit::Action),
    /// Print the planned attempts of a retry policy
    Schedule(schedule::Arguments),
    /// Sign a body, print the headers
    Sign(signatures::SignArguments),
    /// Check the signature of a request
    Verify(signatures::VerifyArguments),
    /// Owners of events and endpoints
    #[command(subcommand, alias = "tenant")]
    Tenants(tenants::Action),
    /// JSON Schemas for payloads
    #[command(subcommand, alias = "event-type")]
    EventTypes(event_types::Action),
    /// API keys and their scopes
    #[command(subcommand, alias = "key")]
    Keys(keys::Action),
    /// What this API key may do
    Whoami,
    /// Delete data past its retention
    Prune,
    /// Re-encrypt everything under a new master key, while the server runs
    RotateMasterKey(master_key::Arguments),
}

/// What a command that talks to a server has at hand.
#[derive(Clone, Debug)]
pub struct Session {
    client: Client,
    out: Out,
}

impl Session {
    /// A session with this server.
    pub fn new(target: &Target, out: Out) -> Outcome<Self> {
        Ok(Self { client: Client::new(target)?, out })
    }
}

/// Does what the command line says.
pub fn run(command: Command, target: &Target, out: Out) -> Outcome {
    let session = || Session::new(target, out);
    match command {
        Command::Schedule(arguments) => schedule::run(&arguments, out, &session),
        Command::Sign(arguments) => signatures::sign(&arguments, out),
        Command::Verify(arguments) => signatures::verify(&arguments, out),
        Command::Listen(arguments) => listen::run(*arguments, &session()?),
        Command::Send(arguments) => send::run(&arguments, &session()?),
        Command::Find(arguments) => find::run(&arguments, &session()?),
        Command::Endpoints(action) => endpoints::run(action, &session()?),
        Command::Events(action) => events::run(action, &session()?),
        Command::Deliveries(action) => deliveries::run(action, &session()?),
        Command::Lanes(action) => lanes::run(action, &session()?),
        Command::DeadLetters(action) => dead_letters::run(action, &session()?),
        Command::Replay(arguments) => replay::run(arguments, &session()?),
        Command::Alerts(action) => alerts::run(action, &session()?),
        Command::Report(arguments) => report::run(&arguments, &session()?),
        Command::Audit(action) => audit::run(action, &session()?),
        Command::Tenants(action) => tenants::run(action, &session()?),
        Command::EventTypes(action) => event_types::run(action, &session()?),
        Command::Keys(action) => keys::run(action, &session()?),
        Command::Whoami => keys::whoami(&session()?),
        Command::Prune => upkeep::prune(&session()?),
        Command::RotateMasterKey(arguments) => master_key::run(&arguments, &session()?),
    }
}
