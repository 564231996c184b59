//! What the user asked for.

use std::path::PathBuf;

use crate::cases::Case;

pub(crate) const HELP: &str = "\
Railpost's speed beside what two plain HTTP hops can do, on this machine, in one run.

  railpost-bench                  everything: a few minutes
  railpost-bench --quick          a tenth of it, to see that it works
  railpost-bench --only NAME      one case, or all whose names begin with `NAME-`; may be repeated
  railpost-bench --list           the cases
  railpost-bench hostile          what a good producer feels of a hostile client: takes --quick, --railpost, --work-dir

  --railpost PATH   measure this binary instead of building one
  --events N        at most N events per case
  --json PATH       write the figures there instead of under the target directory
  --plots DIR       draw there; a whole run draws into docs/images without being asked
  --own-disk        put the stores' files on a file system of their own, in a file, so that nobody else's bytes are
                    counted: takes root, mkfs.ext4 and loop devices
  --work-dir DIR    where the stores' files go (default: /var/tmp, which is a disk and not memory)

Exits with 0 if every case kept its promises, with 1 if one failed, with 2 if it was misused.
";

/// The roles of child processes; they are no concern of a user's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    List,
    Run(Options),
    Hostile(Options),
    Sink { endpoints: usize },
    Forward { to_port: u16 },
    Load,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) only: Vec<String>,
    pub(crate) railpost: Option<PathBuf>,
    pub(crate) events: Option<u64>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plots: Option<PathBuf>,
    pub(crate) own_disk: bool,
    pub(crate) work_dir: PathBuf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            only: Vec::new(),
            railpost: None,
            events: None,
            json: None,
            plots: None,
            own_disk: false,
            // Unlike /tmp it is never held in memory, where a durable write would cost nothing.
            work_dir: PathBuf::from("/var/tmp"),
        }
    }
}

impl Options {
    /// Whether the figures are those of a whole run, and worth keeping in the docs.
    pub(crate) fn is_whole(&self) -> bool {
        !self.quick && self.only.is_empty() && self.events.is_none()
    }

    /// The cases that were asked for.
    pub(crate) fn pick(&self, cases: Vec<Case>) -> Result<Vec<Case>, String> {
        if self.only.is_empty() {
            return Ok(cases);
        }
        if let Some(unknown) = self.only.iter().find(|name| !known(name, &cases)) {
            return Err(format!("there is no case `{unknown}`: --list says which there are"));
        }
        let wanted = |case: &Case| self.only.iter().any(|name| matches(name, case, &cases));
        Ok(cases.iter().filter(|case| wanted(case)).copied().collect())
    }
}

fn known(name: &str, cases: &[Case]) -> bool {
    cases.iter().any(|case| matches(name, case, cases))
}

/// A name means the case that has it; failing that, the cases it begins.
fn matches(name: &str, case: &Case, cases: &[Case]) -> bool {
    if cases.iter().any(|case| case.name == name) {
        return case.name == name;
    }
    case.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
}

pub(crate) fn parse(given: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut given = given.peekable();
    let role = match given.peek().map(String::as_str) {
        Some("sink") => |value| Ok(Command::Sink { endpoints: number("sink", value)? }),
        Some("forward") => |value| Ok(Command::Forward { to_port: number("forward", value)? }),
        Some("load") => |_| Ok(Command::Load),
        Some("hostile") => return parse_options(given.skip(1)).map(hostile),
        _ => return parse_options(given),
    };
    role(given.nth(1))
}

fn hostile(command: Command) -> Command {
    match command {
        Command::Run(options) => Command::Hostile(options),
        other => other,
    }
}

fn parse_options(mut given: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut options = Options::default();
    while let Some(arg) = given.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--quick" => options.quick = true,
            "--own-disk" => options.own_disk = true,
            "--only" => options.only.push(value(&arg, given.next())?),
            "--railpost" => options.railpost = Some(value(&arg, given.next())?.into()),
            "--events" => options.events = Some(number(&arg, given.next())?),
            "--json" => options.json = Some(value(&arg, given.next())?.into()),
            "--plots" => options.plots = Some(value(&arg, given.next())?.into()),
            "--work-dir" => options.work_dir = value(&arg, given.next())?.into(),
            unknown => return Err(format!("unknown argument `{unknown}`")),
        }
    }
    Ok(Command::Run(options))
}

fn value(arg: &str, value: Option<String>) -> Result<String, String> {
    value.ok_or_else(|| format!("`{arg}` needs a value"))
}

fn number<N: std::str::FromStr>(arg: &str, given: Option<String>) -> Result<N, String> {
    let given = value(arg, given)?;
    given.parse().map_err(|_| format!("`{arg}` needs a number, not `{given}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn parsed(text: &str) -> Result<Command, String> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    fn run(options: Options) -> Result<Command, String> {
        Ok(Command::Run(options))
    }

    #[test]
    fn arguments_are_understood_or_refused_by_name() {
        let quick = Options { quick: true, ..Options::default() };
        let only = Options {
            only: vec!["hop".to_owned(), "forward".to_owned()],
            events: Some(9),
            ..Options::default()
        };
        for (text, expected) in [
            ("", run(Options::default())),
            ("--quick", run(quick)),
            ("--only hop --events 9 --only forward", run(only)),
            ("--help", Ok(Command::Help)),
            ("--list", Ok(Command::List)),
            ("sink 3", Ok(Command::Sink { endpoints: 3 })),
            ("forward 8080", Ok(Command::Forward { to_port: 8080 })),
            ("load", Ok(Command::Load)),
            ("hostile", Ok(Command::Hostile(Options::default()))),
            (
                "hostile --quick",
                Ok(Command::Hostile(Options { quick: true, ..Options::default() })),
            ),
            ("forward 80800", Err("`forward` needs a number, not `80800`".to_owned())),
            ("--events", Err("`--events` needs a value".to_owned())),
            ("--events x", Err("`--events` needs a number, not `x`".to_owned())),
            ("--fast", Err("unknown argument `--fast`".to_owned())),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn a_name_means_one_case_or_a_family() {
        for (only, expected) in [
            (vec!["hop"], Ok(1)),
            (vec!["hop", "forward-8k"], Ok(2)),
            (vec!["sqlite"], Ok(10)),
            (vec![], Ok(cases::all().len())),
            (vec!["sqlit"], Err(())),
        ] {
            let only: Vec<String> = only.into_iter().map(str::to_owned).collect();
            let options = Options { only, ..Options::default() };
            let found = options.pick(cases::all()).map(|cases| cases.len()).map_err(drop);
            assert_eq!(found, expected, "{:?}", options.only);
        }
    }
}
