//! How a command line is read: other names of commands, and usage errors that show what is required.

use clap::Command;
use clap::error::{ContextKind, ContextValue};

/// Other names of commands, the same for every resource.
const ALIASES: [(&str, &[&str]); 5] = [
    ("list", &["ls"]),
    ("show", &["get"]),
    ("create", &["add"]),
    ("update", &["edit"]),
    ("delete", &["rm", "remove"]),
];

/// The command, and all below it, with the other names.
#[must_use]
pub fn with_aliases(command: Command) -> Command {
    command.mut_subcommands(|command| {
        let known = ALIASES.iter().find(|(name, _)| *name == command.get_name());
        let aliases = known.map_or(&[][..], |(_, aliases)| aliases);
        with_aliases(command.visible_aliases(aliases.iter().copied()))
    })
}

/// The error with the usage of the command alone. The usage of clap counts every flag that the environment
/// sets as required.
#[must_use]
pub fn with_plain_usage(
    mut error: clap::Error,
    mut command: Command,
    words: impl IntoIterator<Item = String>,
) -> clap::Error {
    if error.get(ContextKind::Usage).is_none() {
        return error;
    }
    command.build();
    let mut named = &mut command;
    for word in words {
        if named.find_subcommand(&word).is_some() {
            named = named.find_subcommand_mut(&word).expect("it was found");
        }
    }
    let usage = ContextValue::StyledStr(named.render_usage());
    error.insert(ContextKind::Usage, usage);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let show = Command::new("show").arg(clap::arg!(<ID>));
        let things = Command::new("things").subcommand(show).subcommand(Command::new("pause"));
        let server = clap::arg!(--server <URL>).global(true).required(false);
        Command::new("railpost").arg(server).subcommand(things)
    }

    #[test]
    fn a_command_has_its_other_names_at_every_depth() {
        let command = with_aliases(command());
        let matches = command.try_get_matches_from(["railpost", "things", "get", "x"]);
        let matches = matches.expect("`get` is another name of `show`");
        let (_, things) = matches.subcommand().expect("there is one");
        assert_eq!(things.subcommand_name(), Some("show"));
    }

    #[test]
    fn a_usage_error_shows_what_is_required_and_nothing_else() {
        let words = ["railpost", "things", "show", "--server", "x"];
        let error = command().try_get_matches_from(words).expect_err("no id was given");
        assert!(error.to_string().contains("show --server"), "{error}");
        let error = with_plain_usage(error, command(), words.map(str::to_owned));
        let text = error.to_string();
        assert!(text.contains("Usage: railpost things show [OPTIONS] <ID>"), "{text}");
    }
}
