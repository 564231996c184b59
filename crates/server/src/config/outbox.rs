//! Sections `[[outbox]]`: sources that events are relayed from. Only a file can have them.

use railpost_relay::SourceSection;
use serde::Serialize;
use toml::Value;

use super::sections::{self, SectionError};
use super::show::show_url;

/// Reads the sections, or lists what is wrong with them: with the first mistake of each section.
pub(super) fn read(value: Value) -> Result<Vec<SourceSection>, Vec<SectionError>> {
    let sections: Vec<SourceSection> = sections::read(SECTION, value)?;
    let refused = railpost_relay::check_all(&sections).err().map(|error| refused(&error));
    let errors: Vec<_> = refused.into_iter().chain(reserved(&sections)).collect();
    if errors.is_empty() { Ok(sections) } else { Err(errors) }
}

/// The name of a section.
pub(super) const SECTION: &str = "outbox";

/// A source is a path of the API, and so are the grants.
fn reserved(sections: &[SourceSection]) -> Option<SectionError> {
    let index = sections.iter().position(|section| section.name == RESERVED_NAME)?;
    let problem = format!("`{RESERVED_NAME}` is reserved; choose another");
    Some(SectionError::of(SECTION, index, "name", &problem))
}

const RESERVED_NAME: &str = "grants";

/// The relay names a field as `outbox[0].url`.
fn refused(error: &railpost_relay::ConfigError) -> SectionError {
    let place = error.field.strip_prefix("outbox[").and_then(|rest| rest.split_once(']'));
    let index = place.and_then(|(index, _)| index.parse().ok());
    let field = place.map_or("", |(_, field)| field.trim_start_matches('.'));
    SectionError { index, field: field.to_owned(), problem: error.to_string() }
}

/// The sections as TOML, without passwords.
pub(super) fn show(sections: &[SourceSection]) -> String {
    #[derive(Serialize)]
    struct Shown {
        outbox: Vec<SourceSection>,
    }
    if sections.is_empty() {
        return String::new();
    }
    let without_password =
        |section: &SourceSection| SourceSection { url: show_url(&section.url), ..section.clone() };
    let shown = Shown { outbox: sections.iter().map(without_password).collect() };
    format!("\n{}", toml::to_string(&shown).expect("sections are TOML"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Config, ConfigInputs, DEFAULT_TOML, LoadedConfig, show};

    fn load(text: &str) -> Result<LoadedConfig, String> {
        let file = Some(("railpost.toml".into(), text.to_owned()));
        Config::load(&ConfigInputs { file, ..ConfigInputs::default() })
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_mistake_names_the_field_and_the_line() {
        let good = "[log]\nlevel = \"warn\"\n\n[[outbox]]\nname = \"shop\"\nurl = \"store\"\n";
        for (section, expected) in [
            (
                "name = \"shop\"\nurl = \"store\"",
                "line 9: outbox[1].name: expected a name of its own",
            ),
            (
                "name = \"grants\"\nurl = \"store\"",
                "line 9: outbox[1].name: `grants` is reserved; choose another",
            ),
            ("name = \"b\"", "line 8: outbox[1].url: missing field `url`"),
            (
                "name = \"b\"\nurl = \"mysql://x\"",
                "line 10: outbox[1].url: expected `postgres://…`",
            ),
            (
                "name = \"b\"\nurl = \"store\"\nmode = \"pol\"",
                "line 11: outbox[1].mode: unknown variant `pol`, expected one of `poll`",
            ),
            (
                "name = \"b\"\nurl = \"store\"\nbatch = 0",
                "line 11: outbox[1].batch: expected 1 to 1000 rows; got 0",
            ),
            (
                "name = \"b\"\nurl = \"store\"\nbatch = \"many\"",
                "line 11: outbox[1].batch: invalid type: string \"many\", expected i64",
            ),
            (
                "name = \"b\"\nurl = \"store\"\ntabel = \"x\"",
                "line 11: outbox[1].tabel: unknown field `tabel`, expected one of `name`",
            ),
            (
                "name = \"b\"\nurl = \"sqlite:a.db\"\n[outbox.columns]\nidd = \"x\"",
                "line 12: outbox[1].columns.idd: unknown field `idd`, expected one of `id`",
            ),
        ] {
            let text = load(&format!("{good}\n[[outbox]]\n{section}\n")).unwrap_err();
            assert!(text.starts_with(&format!("railpost.toml, {expected}")), "{text}");
        }
        let text = load("outbox = 1\n").unwrap_err();
        assert!(text.contains("line 1: outbox: expected sections `[[outbox]]`"), "{text}");
    }

    #[test]
    fn what_is_shown_reads_back_but_for_passwords() {
        let file = "[[outbox]]\nname = \"shop\"\nurl = \"postgres://me:hunter2@db/shop?password=hunter3\"\n\
                    shape = \"custom\"\ntable = \"mail\"\n[outbox.columns]\nid = \"'a' || id\"\ntenant = \"t\"\n\
                    type = \"kind\"\npayload = \"body\"\norder = \"id\"\n\n\
                    [[outbox]]\nname = \"app\"\nurl = \"sqlite:/var/lib/app.db\"\n";
        let config = load(file).unwrap().config;
        let shown = show(&config);
        assert!(shown.contains("postgres://me:…@db/shop?password=…"), "{shown}");
        assert!(!shown.contains("hunter"), "{shown}");
        let mut again = load(&shown).unwrap().config;
        again.outbox[0].url = config.outbox[0].url.clone();
        assert_eq!(again, config);
    }

    /// The commented section of the default file, without its comment signs.
    fn default_section() -> String {
        let (_, after) = DEFAULT_TOML.split_once("\n# [[outbox]]\n").unwrap();
        let fields = after.lines().filter_map(|line| line.strip_prefix("# "));
        let fields = fields.filter(|line| {
            let name = line.split(" = ").next().unwrap_or_default();
            line.contains(" = ")
                && name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_' || c == b'.')
        });
        format!("[[outbox]]\n{}\n", fields.collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn the_default_file_names_every_field_of_a_section_with_its_default() {
        let text = default_section();
        let written: Value = toml::from_str(&text).unwrap();
        let fields = written["outbox"][0].as_table().unwrap();
        let names: BTreeSet<_> = fields.keys().map(String::as_str).collect();
        let error = load("[[outbox]]\nnone = 1\n").unwrap_err();
        let (_, known) = error.split_once("expected one of ").unwrap();
        let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).collect();
        assert_eq!(names, known);
        // What only other sources may have is left out.
        let mut polled = fields.clone();
        for other in ["slot", "failover", "root_certificates"] {
            polled.remove(other);
        }
        let polled: SourceSection = Value::Table(polled).try_into().unwrap();
        let mut shortest = fields.clone();
        shortest.retain(|name, _| ["name", "url", "tenant"].contains(&name));
        let shortest: SourceSection = Value::Table(shortest).try_into().unwrap();
        assert_eq!(polled.check().unwrap(), shortest.check().unwrap());
    }
}
