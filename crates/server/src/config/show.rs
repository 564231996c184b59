//! A configuration as a person reads it.

use toml::{Table, Value};

use super::Config;
use super::fields::{FIELDS, Field, Kind};
use super::{notices, outbox};

/// The default configuration with a comment on every field.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// The configuration as TOML. Secrets are left out.
pub fn show(config: &Config) -> String {
    let table = Table::try_from(config).expect("a configuration is a table");
    let mut text = String::new();
    let mut current = "";
    for field in FIELDS {
        let (section, name) = field.path.rsplit_once('.').expect("a path has a section");
        if section != current {
            let gap = if current.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{section}]\n"));
            current = section;
        }
        let fields = section.split('.').fold(&table, |table, name| as_table(&table[name]));
        text.push_str(&format!("{name} = {}\n", value(field, &fields[name])));
    }
    text + &outbox::show(&config.outbox) + &notices::show(&config.notices)
}

fn as_table(value: &Value) -> &Table {
    value.as_table().expect("a section is a table")
}

/// A field's value as TOML; what is secret of it as `…`.
pub(super) fn value(field: &Field, value: &Value) -> String {
    match (field.kind, value) {
        (Kind::AdminKey | Kind::SecretHeaders, Value::String(text)) if !text.is_empty() => {
            "\"…\"".to_owned()
        }
        (Kind::StoreUrl | Kind::Url, Value::String(url)) => {
            Value::String(show_url(url)).to_string()
        }
        _ => value.to_string(),
    }
}

/// A URL without its password.
pub(crate) fn show_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = show_path(path);
    match authority.rsplit_once('@').map(|(user, host)| (user.split_once(':'), host)) {
        Some((Some((user, _)), host)) => format!("{scheme}://{user}:…@{host}{path}"),
        _ => format!("{scheme}://{authority}{path}"),
    }
}

/// The rest of a URL: PostgreSQL takes a password as a parameter, too.
fn show_path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let parameters = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some(("password", _)) => "password=…",
        _ => parameter,
    });
    format!("{path}?{}", parameters.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::config::ConfigInputs;

    fn leaves(table: &Table) -> Vec<String> {
        let section = |(name, value): (&String, &Value)| match value {
            Value::Table(fields) => {
                leaves(fields).iter().map(|field| format!("{name}.{field}")).collect()
            }
            _ => vec![name.clone()],
        };
        let mut leaves: Vec<_> = table.iter().flat_map(section).collect();
        leaves.sort();
        leaves
    }

    #[test]
    fn the_default_file_is_the_defaults() {
        let file = Some(("default.toml".into(), DEFAULT_TOML.to_owned()));
        let loaded = Config::load(&ConfigInputs { file, ..ConfigInputs::default() }).unwrap();
        assert_eq!(loaded.config, Config::default());
    }

    #[test]
    fn file_fields_and_types_name_the_same_fields() {
        let file = leaves(&DEFAULT_TOML.parse().unwrap());
        let types = leaves(&Table::try_from(Config::default()).unwrap());
        let mut table: Vec<_> = FIELDS.iter().map(|field| field.path.to_owned()).collect();
        table.sort();
        assert_eq!(file, types);
        assert_eq!(table, types);
    }

    #[test]
    fn what_is_shown_reads_back() {
        let file = Some(("shown.toml".into(), show(&Config::default())));
        let loaded = Config::load(&ConfigInputs { file, ..ConfigInputs::default() }).unwrap();
        assert_eq!(loaded.config, Config::default());
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = Config::default();
        config.server.admin_key = "rp_0123456789abcdefghijABCDEFGHIJ-_".to_owned();
        config.store.url = "postgres://me:hunter2@db.example.com:5432/railpost?a=b".to_owned();
        config.telemetry.otlp_headers = "authorization=hunter2".to_owned();
        let shown = show(&config);
        assert!(shown.contains("otlp_headers = \"…\""), "{shown}");
        assert!(shown.contains("admin_key = \"…\""), "{shown}");
        assert!(shown.contains("postgres://me:…@db.example.com:5432/railpost?a=b"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("0123456789"), "{shown}");
    }

    #[test]
    fn the_page_of_the_configuration_is_the_default_file() {
        let page = include_str!("../../../../docs/reference/configuration.md");
        let (_, after) = page.split_once("```toml\n").unwrap();
        let (file, _) = after.split_once("```").unwrap();
        assert_eq!(file, DEFAULT_TOML, "copy default.toml to docs/reference/configuration.md");
    }
}
