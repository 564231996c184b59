//! The command line: the server, and everything about it over the API, like any other client.
//!
//! Results go to stdout, progress and hints to stderr. Exit codes: 0 for done, 1 for failed, 2 for an invalid
//! command line.

mod failure;
mod out;
mod input;
mod client;
mod list;
mod policy;

mod config;
mod demo;
mod serve;
mod listen;
mod send;
mod endpoints;
mod secrets;
mod tenants;
mod event_types;
mod events;
mod deliveries;
mod lanes;
mod dead_letters;
mod replay;
mod keys;
mod audit;
mod upkeep;
mod restore;
mod schedule;
mod signatures;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use client::{Client, Target};
use failure::Outcome;
use out::Out;

const HELP: &str = "\
{about}

{usage-heading} {usage}

Getting started:
  demo          Watch the protocol live, on loopback
  serve         Run the server; no configuration is needed
  listen        Receive deliveries here: verify them, print them, misbehave on request
  send          Publish events

Inspect:
  endpoints     Where events go: list, create, pause, rotate secrets …
  events        What was published
  deliveries    Each event on its way to each endpoint, with its attempts
  lanes         Keys that wait behind a dead letter
  dead-letters  Deliveries that failed for good
  audit         Who changed what

Fix:
  replay        Send again, skip or discard many deliveries, as a job

Offline (no server needed):
  schedule      Print the planned attempts of a retry policy
  sign          Sign a body, print the headers
  verify        Check the signature of a request
  openapi       Print the API's specification
  completions   Print completions for a shell

Administration:
  tenants       Owners of events and endpoints
  event-types   JSON Schemas for payloads
  keys          API keys and their scopes
  whoami        What this API key may do
  backup        Write a copy of the store
  restore       Replace the store by a backup; the server must be stopped
  store         Check the store for damage
  lines         Begin new lines after the store was restored by other means
  prune         Delete data past its retention
  config        Check and show the server's configuration

Options:
{options}

Examples:
  railpost serve                                            run a server in ./railpost-data
  railpost listen --register                                receive deliveries in this terminal
  railpost send order.paid --key 42 --data '{\"total\": 12}'  publish an event

`railpost COMMAND --help` explains a command. Everything that talks to a server takes --json.
";

/// Webhook delivery: at least once, in order within a key.
#[derive(Debug, Parser)]
#[command(name = "railpost", bin_name = "railpost", version, help_template = HELP, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    target: Target,
    /// Print JSON for machines
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Arguments),
    /// Watch the protocol live, on loopback
    Demo(demo::Arguments),
    /// Receive deliveries here: verify them, print them, misbehave on request
    Listen(Box<listen::Arguments>),
    /// Publish events
    Send(Box<send::Arguments>),
    /// Where events go
    #[command(subcommand)]
    Endpoints(endpoints::Action),
    /// What was published
    #[command(subcommand)]
    Events(events::Action),
    /// Each event on its way to each endpoint
    #[command(subcommand)]
    Deliveries(deliveries::Action),
    /// Keys that wait behind a dead letter
    #[command(subcommand)]
    Lanes(lanes::Action),
    /// Deliveries that failed for good
    #[command(subcommand)]
    DeadLetters(dead_letters::Action),
    /// Send again, skip or discard many deliveries, as a job
    Replay(replay::Arguments),
    /// Who changed what
    #[command(subcommand)]
    Audit(audit::Action),
    /// Print the planned attempts of a retry policy
    Schedule(schedule::Arguments),
    /// Sign a body, print the headers
    Sign(signatures::SignArguments),
    /// Check the signature of a request
    Verify(signatures::VerifyArguments),
    /// Print the API's specification
    Openapi,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Owners of events and endpoints
    #[command(subcommand)]
    Tenants(tenants::Action),
    /// JSON Schemas for payloads
    #[command(subcommand)]
    EventTypes(event_types::Action),
    /// API keys and their scopes
    #[command(subcommand)]
    Keys(keys::Action),
    /// What this API key may do
    Whoami,
    /// Write a copy of the store
    Backup(upkeep::BackupArguments),
    /// Replace the store by a backup
    Restore(restore::Arguments),
    /// Check the store for damage
    #[command(subcommand)]
    Store(upkeep::StoreAction),
    /// Runs of sequence numbers (`X-Lane`)
    #[command(subcommand)]
    Lines(upkeep::LinesAction),
    /// Delete data past its retention
    Prune,
    /// Check and show the server's configuration
    #[command(subcommand)]
    Config(config::Action),
}

/// What a command that talks to a server has at hand.
#[derive(Clone, Debug)]
struct Session {
    client: Client,
    out: Out,
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    let Arguments { command, target, json } = Arguments::parse();
    let out = Out::new(json);
    let session = || Ok(Session { client: Client::new(&target)?, out });
    let outcome = match command {
        Command::Serve(arguments) => return serve::run(arguments),
        Command::Demo(arguments) => return demo::run(&arguments),
        Command::Config(action) => return config::run(&action),
        Command::Schedule(arguments) => schedule::run(&arguments, out, &session),
        Command::Sign(arguments) => signatures::sign(&arguments, out),
        Command::Verify(arguments) => signatures::verify(&arguments, out),
        Command::Restore(arguments) => restore::run(arguments, out),
        Command::Store(upkeep::StoreAction::Verify(how)) if how.offline => {
            restore::verify(how.place, out)
        }
        Command::Lines(upkeep::LinesAction::Renew(how)) if how.access.offline => {
            restore::renew_lines(how, out)
        }
        Command::Openapi => out.bytes(crate::api::openapi_text().as_bytes()),
        Command::Completions { shell } => completions(shell, out),
        online => session().and_then(|session| run_online(online, &session)),
    };
    outcome.map_or_else(|failure| failure.report(json), |()| ExitCode::SUCCESS)
}

fn run_online(command: Command, session: &Session) -> Outcome {
    match command {
        Command::Listen(arguments) => listen::run(*arguments, session),
        Command::Send(arguments) => send::run(&arguments, session),
        Command::Endpoints(action) => endpoints::run(action, session),
        Command::Events(action) => events::run(action, session),
        Command::Deliveries(action) => deliveries::run(action, session),
        Command::Lanes(action) => lanes::run(action, session),
        Command::DeadLetters(action) => dead_letters::run(action, session),
        Command::Replay(arguments) => replay::run(arguments, session),
        Command::Audit(action) => audit::run(action, session),
        Command::Tenants(action) => tenants::run(action, session),
        Command::EventTypes(action) => event_types::run(action, session),
        Command::Keys(action) => keys::run(action, session),
        Command::Whoami => keys::whoami(session),
        Command::Backup(arguments) => upkeep::backup(&arguments, session),
        Command::Store(upkeep::StoreAction::Verify(_)) => upkeep::verify(session),
        Command::Lines(upkeep::LinesAction::Renew(how)) => upkeep::renew_lines(session, how.yes),
        Command::Prune => upkeep::prune(session),
        Command::Serve(_)
        | Command::Demo(_)
        | Command::Config(_)
        | Command::Schedule(_)
        | Command::Sign(_)
        | Command::Verify(_)
        | Command::Restore(_)
        | Command::Openapi
        | Command::Completions { .. } => unreachable!("these need no session"),
    }
}

fn completions(shell: clap_complete::Shell, out: Out) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "railpost", &mut text);
    out.bytes(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_commands_that_the_docs_name_exist() {
        let pages = [
            include_str!("../../../docs/operating.md"),
            include_str!("../../../docs/reference/cli.md"),
            include_str!("../../../docs/guarantees.md"),
            include_str!("../../../docs/wire.md"),
        ];
        let quoted = pages.iter().flat_map(|page| page.split('`').skip(1).step_by(2));
        for line in quoted.filter(|line| line.starts_with("railpost ")) {
            let mut command = Arguments::command();
            for word in line.split_whitespace().skip(1) {
                if !command.has_subcommands() || word.starts_with('-') || word == "COMMAND" {
                    break;
                }
                let next = command.find_subcommand(word).cloned();
                let may_end = !command.is_subcommand_required_set();
                match next {
                    Some(next) => command = next,
                    None if may_end => break,
                    None => panic!("`{line}`: there is no command `{word}`"),
                }
            }
        }
    }

    #[test]
    fn the_help_text_names_every_command_once() {
        for command in Arguments::command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(HELP.matches(&line).count(), 1, "{}", command.get_name());
        }
    }
}
