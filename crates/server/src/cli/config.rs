//! `railpost config`: the values in use and their sources. Also finds the inputs for `serve`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use crate::config::{Config, ConfigInputs, DEFAULT_TOML, FIELDS, LoadedConfig, show, show_url};
use crate::loopback;

/// The exit code when the configuration, or the command line, cannot be followed.
pub(super) const EXIT_CONFIG: u8 = 2;

/// The file that counts if no other is named.
const DEFAULT_FILE: &str = "railpost.toml";

/// What may be asked about the configuration.
#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Show the values in use and their sources, or list all errors
    Check(ConfigFileArgument),
    /// Print the configuration in use as TOML, without secrets
    Show(ConfigFileArgument),
    /// Print the default configuration, with a comment on every field
    Default,
}

/// Which file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConfigFileArgument {
    /// The configuration file [default: ./railpost.toml if it exists]
    #[arg(long, env = "RAILPOST_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command of the command line")]
pub(super) fn run(action: &Action) -> ExitCode {
    let (Action::Check(file) | Action::Show(file)) = action else {
        print!("{DEFAULT_TOML}");
        return ExitCode::SUCCESS;
    };
    match load(file, Vec::new()) {
        Ok(loaded) if matches!(action, Action::Show(_)) => print!("{}", show(&loaded.config)),
        Ok(loaded) => print!("{}", checked(&loaded)),
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(EXIT_CONFIG);
        }
    }
    ExitCode::SUCCESS
}

/// The configuration made of file, environment and flags.
pub(super) fn load(
    file: &ConfigFileArgument,
    flags: Vec<(&'static str, &'static str, String)>,
) -> Result<LoadedConfig, String> {
    let environment = std::env::vars_os();
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let inputs = ConfigInputs {
        file: read(file)?,
        environment: environment.filter_map(text).collect(),
        flags,
    };
    Config::load(&inputs).map_err(|errors| errors.to_string())
}

fn read(file: &ConfigFileArgument) -> Result<Option<(PathBuf, String)>, String> {
    let path = match &file.config {
        Some(path) => path.clone(),
        None if Path::new(DEFAULT_FILE).exists() => DEFAULT_FILE.into(),
        None => return Ok(None),
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) => Err(format!("{}: cannot read the configuration: {error}", path.display())),
    }
}

fn checked(loaded: &LoadedConfig) -> String {
    let mut text = "The configuration is good.\n".to_owned();
    if loaded.sources.is_empty() && loaded.config.outbox.is_empty() {
        text.push_str("Every field has its default.\n");
    }
    let lines = show(&loaded.config);
    let values = lines.lines().filter(|line| line.contains(" = "));
    for (field, value) in FIELDS.iter().zip(values) {
        if let Some(source) = loaded.sources.get(field.path) {
            let (_, value) = value.split_once(" = ").unwrap_or_default();
            text.push_str(&format!("{} = {value}  ({source})\n", field.path));
        }
    }
    for source in &loaded.config.outbox {
        let (name, mode, url) = (&source.name, source.mode, show_url(&source.url));
        text.push_str(&format!("outbox {name}: {mode} {url}\n"));
    }
    if !loaded.ignored.is_empty() {
        let names = loaded.ignored.join(", ");
        text.push_str(&format!("Ignored, as Kubernetes sets them for a Service: {names}\n"));
    }
    text.push_str(&loopback::start_message(&loaded.config, loopback::closed_by(&loaded.config)));
    text.push('\n');
    text
}
