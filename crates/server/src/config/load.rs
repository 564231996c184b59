//! Reads a configuration from file, environment and flags, or lists all errors in them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use railpost_relay::SourceSection;
use toml::{Table, Value};

use super::fields::{FIELDS, Field};
use super::{Config, NoticeSection, kubernetes, notices, outbox, sections, show};

/// The sources of a configuration, besides the defaults.
#[derive(Clone, Debug, Default)]
pub struct ConfigInputs {
    /// The file's path and content, if there is one.
    pub file: Option<(PathBuf, String)>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Flags: the flag, the field it sets, and the value's text.
    pub flags: Vec<(&'static str, &'static str, String)>,
}

/// A configuration, and where each field that is not its default comes from.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// What is in force.
    pub config: Config,
    /// Where fields come from, by path.
    pub sources: BTreeMap<&'static str, ValueSource>,
    /// Variables that look like fields and were set by Kubernetes.
    pub ignored: Vec<String>,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A line of a file.
    File(PathBuf, usize),
    /// A variable of the environment.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::File(path, line) => write!(f, "{}, line {line}", path.display()),
            ValueSource::Variable(name) => f.write_str(name),
            ValueSource::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    source: Option<ValueSource>,
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{source}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// All that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

/// Variables that are no fields: the command line's own.
const OTHER_VARIABLES: [&str; 5] =
    ["RAILPOST_URL", "RAILPOST_API_KEY", "RAILPOST_TENANT", "RAILPOST_SECRET", "RAILPOST_CONFIG"];

impl Config {
    /// Makes a configuration of all inputs, or says everything that is wrong with them.
    pub fn load(inputs: &ConfigInputs) -> Result<LoadedConfig, ConfigErrors> {
        let mut layers = ConfigLayers::default();
        if let Some((path, text)) = &inputs.file {
            layers.add_file(path, text);
        }
        for (name, value) in &inputs.environment {
            layers.add_variable(name, value);
        }
        for (flag, path, text) in &inputs.flags {
            let field = FIELDS.iter().find(|field| field.path == *path);
            let field = field.expect("a flag sets a field that exists");
            layers.set(field, field.kind.of_text(text), ValueSource::Flag(flag));
        }
        layers.finish()
    }
}

/// What has been set so far, and what was wrong with it.
#[derive(Debug, Default)]
struct ConfigLayers {
    values: BTreeMap<&'static str, (Value, ValueSource)>,
    outbox: Vec<SourceSection>,
    notices: Vec<NoticeSection>,
    ignored: Vec<String>,
    errors: Vec<ConfigError>,
}

impl ConfigLayers {
    fn add_file(&mut self, path: &Path, text: &str) {
        let at = |line| ValueSource::File(path.to_owned(), line);
        let table = match text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(1, |span| line_at(text, span.start));
                return self.refuse(at(line), error.message().to_owned());
            }
        };
        for (section, value) in table {
            match section.as_str() {
                outbox::SECTION => {
                    let read = outbox::read(value);
                    self.outbox = self.sections(outbox::SECTION, read, path, text);
                    continue;
                }
                notices::SECTION => {
                    let read = notices::read(value);
                    self.notices = self.sections(notices::SECTION, read, path, text);
                    continue;
                }
                _ => {}
            }
            let Value::Table(fields) = value else {
                let line = line_of_key(text, &section);
                self.refuse(at(line), unknown(&section));
                continue;
            };
            self.add_section((path, text), &section, fields);
        }
    }

    /// The fields of a section, and of the sections in it.
    fn add_section(&mut self, file: (&Path, &str), section: &str, fields: Table) {
        for (name, value) in fields {
            let key = format!("{section}.{name}");
            match value {
                Value::Table(fields) if is_section(&key) => self.add_section(file, &key, fields),
                value => {
                    let (path, text) = file;
                    let line = line_of_key(text, &key);
                    self.add_key(&key, value, ValueSource::File(path.to_owned(), line));
                }
            }
        }
    }

    /// The sections that were read; none if there is something wrong with them.
    fn sections<T>(
        &mut self,
        name: &str,
        read: Result<Vec<T>, Vec<sections::SectionError>>,
        path: &Path,
        text: &str,
    ) -> Vec<T> {
        let errors = match read {
            Ok(sections) => return sections,
            Err(errors) => errors,
        };
        for error in errors {
            let line = sections::line_of(text, name, error.index, &error.field);
            self.refuse(ValueSource::File(path.to_owned(), line), error.problem);
        }
        Vec::new()
    }

    fn add_key(&mut self, path: &str, value: Value, source: ValueSource) {
        match FIELDS.iter().find(|field| field.path == path) {
            Some(field) => self.set(field, value, source),
            None => self.refuse(source, unknown(path)),
        }
    }

    fn add_variable(&mut self, name: &str, text: &str) {
        let ours = name.starts_with("RAILPOST_") && !name.starts_with("RAILPOST_TEST_");
        if !ours || OTHER_VARIABLES.contains(&name) {
            return;
        }
        let source = ValueSource::Variable(name.to_owned());
        match FIELDS.iter().find(|field| field.variable() == name) {
            Some(field) => self.set(field, field.kind.of_text(text), source),
            None if kubernetes::is_service_variable(&name["RAILPOST_".len()..], text) => {
                self.ignored.push(name.to_owned());
            }
            None => {
                let fields = FIELDS.iter().map(Field::variable);
                let known = fields.chain(OTHER_VARIABLES.map(str::to_owned));
                let problem = format!("unknown variable{}", hint(name, known));
                self.refuse(source, problem);
            }
        }
    }

    fn set(&mut self, field: &Field, value: Value, source: ValueSource) {
        if field.kind.allows(&value) {
            self.values.insert(field.path, (value, source));
            return;
        }
        let shown = show::value(field, &value);
        let problem = format!("{} = {shown}: expected {}", field.path, field.kind);
        self.refuse(source, problem);
    }

    fn refuse(&mut self, source: ValueSource, problem: String) {
        self.errors.push(ConfigError { source: Some(source), problem });
    }

    fn finish(mut self) -> Result<LoadedConfig, ConfigErrors> {
        let mut table = Table::new();
        for (path, (value, _)) in &self.values {
            put(&mut table, path, value.clone());
        }
        let mut config: Config = match table.try_into() {
            Ok(config) => config,
            Err(error) => {
                let error = ConfigError { source: None, problem: error.to_string() };
                self.errors.push(error);
                return Err(ConfigErrors(self.errors));
            }
        };
        config.outbox = std::mem::take(&mut self.outbox);
        config.notices = std::mem::take(&mut self.notices);
        self.check_together(&config);
        if !self.errors.is_empty() {
            return Err(ConfigErrors(self.errors));
        }
        let sources = self.values.into_iter().map(|(path, (_, source))| (path, source)).collect();
        Ok(LoadedConfig { config, sources, ignored: self.ignored })
    }

    /// What no field can say alone.
    fn check_together(&mut self, config: &Config) {
        let (certificate, key) = (&config.server.tls_certificate, &config.server.tls_key);
        if certificate.is_empty() != key.is_empty() {
            let problem = "server.tls_certificate and server.tls_key: expected both or neither";
            self.errors.push(ConfigError { source: None, problem: problem.to_owned() });
        }
    }
}

/// Whether fields have this path and a name.
fn is_section(path: &str) -> bool {
    let rest =
        |field: &Field| field.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    FIELDS.iter().any(rest)
}

/// Puts a value at a path, and makes the sections on the way.
fn put(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((section, rest)) => {
            let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                put(section, rest, value);
            }
        }
    }
}

fn unknown(path: &str) -> String {
    let known = FIELDS.iter().map(|field| field.path.to_owned());
    format!("{path}: unknown field{}", hint(path, known))
}

/// The known name that was probably meant.
fn hint(name: &str, known: impl Iterator<Item = String>) -> String {
    let near = known.map(|candidate| (distance(name, &candidate), candidate)).min();
    match near {
        Some((distance, candidate)) if distance <= (name.len() / 4).max(2) => {
            format!("; did you mean {candidate}?")
        }
        _ => String::new(),
    }
}

/// How many letters have to be put in, taken out or changed to make one text of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line on which a section, or a field of it, stands; the first if that cannot be told.
fn line_of_key(text: &str, path: &str) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else { return 1 };
    let (mut table, mut start) = (document.get_ref(), 0);
    for name in path.split('.') {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else { break };
        start = key.span().start;
        let toml::de::DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    line_at(text, start)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn load(file: &str, environment: &[(&str, &str)]) -> Result<LoadedConfig, ConfigErrors> {
        let pair = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Config::load(&ConfigInputs {
            file: Some(("railpost.toml".into(), file.to_owned())),
            environment: environment.iter().map(pair).collect(),
            flags: Vec::new(),
        })
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = "[limits]\nrequests_burst = 1\nrequests_per_second = 1\nconnections_max = 1\n";
        let inputs = ConfigInputs {
            file: Some(("railpost.toml".into(), file.to_owned())),
            environment: vec![
                ("RAILPOST_LIMITS_REQUESTS_BURST".to_owned(), "2".to_owned()),
                ("RAILPOST_LIMITS_CONNECTIONS_MAX".to_owned(), "2".to_owned()),
            ],
            flags: vec![("--connections", "limits.connections_max", "3".to_owned())],
        };
        let loaded = Config::load(&inputs).unwrap();
        let limits = &loaded.config.limits;
        let seen = [limits.requests_per_second, limits.requests_burst, limits.connections_max];
        assert_eq!(seen, [1, 2, 3]);
        let source = |path| loaded.sources[path].to_string();
        assert_eq!(source("limits.requests_per_second"), "railpost.toml, line 3");
        assert_eq!(source("limits.requests_burst"), "RAILPOST_LIMITS_REQUESTS_BURST");
        assert_eq!(source("limits.connections_max"), "--connections");
    }

    #[test]
    fn every_mistake_is_named_with_path_value_range_and_source() {
        let file = "[server]\nlisten = \"here\"\n\n[limits]\nbody_bytes_max = 5\nbody_byte_max = 7\n[lmits]\na = 1\n";
        let errors = load(file, &[("RAILPOST_LOG_LEVEL", "loud"), ("RAILPOST_LOG_LEVLE", "info")]);
        let text = errors.unwrap_err().to_string();
        for expected in [
            "railpost.toml, line 2: server.listen = \"here\": expected an address and a port",
            "railpost.toml, line 5: limits.body_bytes_max = 5: expected a whole number from 1024 to 67108864",
            "railpost.toml, line 6: limits.body_byte_max: unknown field; did you mean limits.body_bytes_max?",
            "railpost.toml, line 8: lmits.a: unknown field",
            "RAILPOST_LOG_LEVEL: log.level = \"loud\": expected one of \"debug\", \"info\", \"warn\", \"error\"",
            "RAILPOST_LOG_LEVLE: unknown variable; did you mean RAILPOST_LOG_LEVEL?",
        ] {
            assert!(text.contains(expected), "{expected}\nnot in\n{text}");
        }
        assert_eq!(text.lines().count(), 6, "{text}");
    }

    #[test]
    fn a_secret_is_not_shown_even_when_it_is_wrong() {
        let text = load("", &[("RAILPOST_SERVER_ADMIN_KEY", "hunter2")]).unwrap_err().to_string();
        assert!(text.contains("server.admin_key") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_toml_says_where() {
        let text = load("[server]\nlisten = \n", &[]).unwrap_err().to_string();
        assert!(text.starts_with("railpost.toml, line 2: "), "{text}");
    }

    #[test]
    fn variables_of_the_command_line_and_of_tests_are_left_alone() {
        let loaded = load("", &[("RAILPOST_URL", "x"), ("RAILPOST_TEST_X", "y"), ("PATH", "z")]);
        assert_eq!(loaded.unwrap().config, Config::default());
    }

    #[test]
    fn variables_of_a_kubernetes_service_are_ignored_and_a_typo_is_not() {
        let service =
            [("RAILPOST_PORT", "tcp://10.96.0.7:8087"), ("RAILPOST_SERVICE_PORT", "8087")];
        let loaded = load("", &service).unwrap();
        assert_eq!(loaded.config, Config::default());
        assert_eq!(loaded.ignored, ["RAILPOST_PORT", "RAILPOST_SERVICE_PORT"]);
        let text = load("", &[("RAILPOST_PORT", "8087")]).unwrap_err().to_string();
        assert!(text.contains("RAILPOST_PORT: unknown variable"), "{text}");
    }

    #[test]
    fn tls_needs_certificate_and_key() {
        let text = load("[server]\ntls_key = \"key.pem\"\n", &[]).unwrap_err().to_string();
        assert!(text.contains("both or neither"), "{text}");
    }
}
