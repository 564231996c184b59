//! The command line of the binary: the client's commands, and those that run a server or open a store.

mod config;
mod demo;
mod man;
mod serve;
mod offline;
mod outbox;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use railpost_cli::{Out, Outcome, Session, Target, upkeep, with_aliases, with_plain_usage};

use offline::{BackupAction, BackupCommand, LinesAction, StoreAction};
use outbox::OutboxAction;

const HELP: &str = "\
{about}

{usage-heading} {usage}

Getting started:
  demo          Watch the protocol live, on loopback
  serve         Run the server; no configuration is needed
  listen        Receive deliveries here: verify them, print them, misbehave on request
  send          Publish events

Inspect:
  find          Find an event, a delivery, an endpoint, a key by what you know of it
  endpoints     Where events go: list, create, pause, probe, rotate secrets …
  events        What was published; `events story ID` tells what became of it
  deliveries    Each event on its way to each endpoint, with its attempts
  lanes         Keys with deliveries that wait, and what they wait for
  dead-letters  Deliveries that failed for good
  alerts        What people should know: list, show, silence, rules, test
  report        How the objective was met in a period, with incidents and each endpoint
  audit         Who changed what

Fix:
  replay        Send again, skip or discard many deliveries, as a job

Offline (no server needed):
  schedule      Print the planned attempts of a retry policy
  sign          Sign a body, print the headers
  verify        Check the signature of a request
  openapi       Print the API's specification
  completions   Print completions for a shell
  man           Print the manual page, or write those of all commands

Administration:
  tenants       Owners of events and endpoints
  event-types   JSON Schemas for payloads
  keys          API keys and their scopes
  outbox        Databases that events are relayed from, and rows that were refused
  whoami        What this API key may do
  backup        Write a copy of the store, once or every few hours; verify a copy
  restore       Replace the store by a backup, once the server has ended
  store         Check the store for damage
  lines         Begin new lines after the store was restored by other means
  prune         Delete data past its retention
  rotate-master-key  Re-encrypt everything under a new master key
  config        Check and show the server's configuration

Options:
{options}

Examples:
  railpost serve                                            run a server in ./railpost-data
  railpost listen --register                                receive deliveries in this terminal
  railpost send order.paid --key 42 --data '{\"total\": 12}'  publish an event
  railpost events story EVENT                               see what became of it

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
    #[command(flatten)]
    Client(railpost_cli::Command),
    /// Print the API's specification
    Openapi,
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands
    Man(man::Arguments),
    /// Write a copy of the store, once or every few hours; verify a copy
    Backup(offline::BackupCommand),
    /// Replace the store by a backup: stop the server and wait until the process has ended
    Restore(offline::Arguments),
    /// Check the store for damage
    #[command(subcommand)]
    Store(StoreAction),
    /// Runs of sequence numbers (`X-Lane`)
    #[command(subcommand)]
    Lines(LinesAction),
    /// Databases that events are relayed from, and rows that were refused
    #[command(subcommand)]
    Outbox(OutboxAction),
    /// Check and show the server's configuration
    #[command(subcommand)]
    Config(config::Action),
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    let Arguments { command, target, json } = parse();
    let out = Out::new(json);
    let session = || Session::new(&target, out);
    let outcome = match command {
        Command::Serve(arguments) => return serve::run(arguments),
        Command::Demo(arguments) => return demo::run(&arguments),
        Command::Config(action) => return config::run(&action),
        Command::Client(command) => railpost_cli::run(command, &target, out),
        Command::Backup(BackupCommand { action: Some(BackupAction::Verify(how)), .. }) => {
            offline::verify_backup(how, out)
        }
        Command::Backup(BackupCommand { action: None, new }) => {
            session().and_then(|session| upkeep::backup(&new, &session))
        }
        Command::Restore(arguments) => offline::run(arguments, out),
        Command::Store(StoreAction::Verify(how)) if how.offline => offline::verify(how.place, out),
        Command::Store(StoreAction::Verify(_)) => {
            session().and_then(|session| upkeep::verify(&session))
        }
        Command::Lines(LinesAction::Renew(how)) if how.access.offline => {
            offline::renew_lines(how, out)
        }
        Command::Lines(LinesAction::Renew(how)) => {
            session().and_then(|session| upkeep::renew_lines(&session, how.confirmation))
        }
        Command::Outbox(OutboxAction::Init(arguments)) => outbox::init(arguments, out),
        Command::Outbox(OutboxAction::Drop(arguments)) => outbox::drop(arguments, out),
        Command::Outbox(OutboxAction::Client(action)) => {
            session().and_then(|session| railpost_cli::outbox::run(action, &session))
        }
        Command::Openapi => out.bytes(railpost_api::openapi_text().as_bytes()),
        Command::Completions { shell } => completions(shell, out),
        Command::Man(arguments) => man::run(&arguments, Arguments::command(), out),
    };
    outcome.map_or_else(|failure| failure.report(json), |()| ExitCode::SUCCESS)
}

/// The command line, or its usage error and the end of the process.
fn parse() -> Arguments {
    let matches = command().try_get_matches();
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
        with_plain_usage(error, command(), words).exit()
    })
}

/// All commands with their other names.
fn command() -> clap::Command {
    with_aliases(Arguments::command())
}

fn completions(shell: clap_complete::Shell, out: Out) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "railpost", &mut text);
    out.bytes(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    /// Calls `look` with every command and the words that name it.
    fn walk(command: &clap::Command, words: &str, look: &mut dyn FnMut(&str, &clap::Command)) {
        for below in command.get_subcommands() {
            let words = format!("{words} {}", below.get_name());
            look(&words, below);
            walk(below, &words, look);
        }
    }

    #[test]
    fn every_resource_knows_the_obvious_names_of_its_commands() {
        let mut seen = 0;
        walk(&command(), "railpost", &mut |words, command| {
            let wanted: &[&str] = match command.get_name() {
                "list" => &["ls"],
                "show" => &["get"],
                "create" => &["add"],
                "update" => &["edit"],
                "delete" => &["rm", "remove"],
                _ => return,
            };
            seen += 1;
            for alias in wanted {
                assert!(command.get_all_aliases().any(|known| known == *alias), "{words}: {alias}");
            }
        });
        assert!(seen > 20, "{seen} commands were looked at");
    }

    #[test]
    fn every_command_that_takes_something_away_asks() {
        let mut seen = 0;
        walk(&command(), "railpost", &mut |words, command| {
            let name = command.get_name();
            if ["delete", "discard", "skip", "revoke", "rotate"].contains(&name) {
                seen += 1;
                let has_yes = command.get_arguments().any(|argument| argument.get_id() == "yes");
                assert!(has_yes, "{words}");
            }
        });
        assert!(seen >= 10, "{seen} commands were looked at");
    }

    #[test]
    fn the_commands_that_the_docs_name_exist() {
        let pages = [
            include_str!("../../../docs/operating.md"),
            include_str!("../../../docs/reference/cli.md"),
            include_str!("../../../docs/guarantees.md"),
            include_str!("../../../docs/wire.md"),
            include_str!("../../../docs/outbox.md"),
            include_str!("../../../docs/installing.md"),
            include_str!("../../../deploy/README.md"),
        ];
        let quoted = pages.iter().flat_map(|page| page.split('`').skip(1).step_by(2));
        for line in quoted.filter(|line| line.starts_with("railpost ")) {
            let mut command = command();
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
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().expect("a folder");
        clap_mangen::generate_to(Arguments::command(), folder.path()).expect("pages");
        let mut commands = vec![("railpost".to_owned(), Arguments::command())];
        let mut pages = 0;
        while let Some((name, command)) = commands.pop() {
            let page = std::fs::read_to_string(folder.path().join(format!("{name}.1")));
            let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH DESCRIPTION"), "{name}");
            let below = command.get_subcommands().cloned();
            commands.extend(below.map(|below| (format!("{name}-{}", below.get_name()), below)));
            pages += 1;
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), pages);
    }

    #[test]
    fn the_help_text_names_every_command_once() {
        for command in Arguments::command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(HELP.matches(&line).count(), 1, "{}", command.get_name());
        }
    }
}
