//! Sections `[[notices]]`: who is told what people should know. Only a file can have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use railpost_store::Severity;
use railpost_wire::{Envelope, EventTypeFilter, Template};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::sections::{self, SectionError};
use crate::limits::{NOTICE_NAME_LEN_MAX, NOTICE_SECTIONS_MAX};

/// The name of a section.
pub(super) const SECTION: &str = "notices";

/// Who is told: an endpoint of the reserved tenant. `url`, `routing_key`, `template` and the values of `headers` may
/// be `env:NAME` or `file:PATH`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoticeSection {
    /// Its name in the file.
    pub name: String,
    /// Where notices go.
    pub url: String,
    /// How they are written.
    #[serde(default = "event_envelope")]
    pub envelope: Envelope,
    /// Which PagerDuty service they are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
    /// The body of the envelope `template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Headers of every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The least severity that is told; everything if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// The types of notices that are told, instead of a severity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<EventTypeFilter>,
}

fn event_envelope() -> Envelope {
    Envelope::Event
}

impl fmt::Debug for NoticeSection {
    /// Without the URL, the headers and the key: they are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoticeSection").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Reads the sections, or lists what is wrong with them: with the first mistake of each section.
pub(super) fn read(value: Value) -> Result<Vec<NoticeSection>, Vec<SectionError>> {
    let sections: Vec<NoticeSection> = sections::read(SECTION, value)?;
    let numbered = || sections.iter().enumerate();
    let wrong = |(index, section): (usize, &NoticeSection)| {
        let (field, problem) = section.check().err()?;
        Some(SectionError::of(SECTION, index, field, &problem))
    };
    let mut errors: Vec<_> = numbered().filter_map(wrong).collect();
    let mut names = BTreeSet::new();
    if let Some((index, section)) = numbered().find(|(_, section)| !names.insert(&section.name)) {
        let problem = format!("expected a name of its own; `{}` stands twice", section.name);
        errors.push(SectionError::of(SECTION, index, "name", &problem));
    }
    if sections.len() > NOTICE_SECTIONS_MAX {
        let got = sections.len();
        let problem =
            format!("notices: expected at most {NOTICE_SECTIONS_MAX} sections; got {got}");
        errors.push(SectionError { index: None, field: String::new(), problem });
    }
    if errors.is_empty() { Ok(sections) } else { Err(errors) }
}

impl NoticeSection {
    /// What can be checked without reading variables and files: the field that is wrong, and why.
    fn check(&self) -> Result<(), (&'static str, String)> {
        self.check_name()?;
        let is_reference = |text: &str| text.starts_with("env:") || text.starts_with("file:");
        let is_url = self.url.starts_with("https://") || self.url.starts_with("http://");
        if !is_url && !is_reference(&self.url) {
            let expected = "expected `https://…`, `http://…`, `env:NAME` or `file:PATH`";
            return Err(("url", expected.to_owned()));
        }
        self.check_envelope()?;
        if let Some(template) = self.template.as_deref().filter(|text| !is_reference(text)) {
            template.parse::<Template>().map_err(|error| ("template", error.to_string()))?;
        }
        if self.severity.is_some() && !self.types.is_empty() {
            return Err(("types", "expected `severity` or `types`, not both".to_owned()));
        }
        let foreign = self.types.iter().find(|filter| !filter.as_str().starts_with("railpost."));
        if let Some(foreign) = foreign {
            let expected =
                "expected types that begin with `railpost.`, such as `railpost.breaker.*`";
            return Err(("types", format!("{expected}; got `{foreign}`")));
        }
        Ok(())
    }

    fn check_name(&self) -> Result<(), (&'static str, String)> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_-".contains(&c);
        let fits = (1..=NOTICE_NAME_LEN_MAX).contains(&self.name.len());
        if fits && self.name.bytes().all(allowed) {
            return Ok(());
        }
        let expected =
            format!("expected 1 to {NOTICE_NAME_LEN_MAX} lowercase letters, digits, `_` and `-`");
        Err(("name", format!("{expected}; got {:?}", self.name)))
    }

    /// Each envelope has the fields that it needs, and none of another.
    fn check_envelope(&self) -> Result<(), (&'static str, String)> {
        let of = |envelope: Envelope| self.envelope == envelope;
        for (field, is_given, is_needed, envelope) in [
            ("routing_key", self.routing_key.is_some(), of(Envelope::Pagerduty), "pagerduty"),
            ("template", self.template.is_some(), of(Envelope::Template), "template"),
        ] {
            if is_needed && !is_given {
                return Err((field, format!("the envelope \"{envelope}\" needs one")));
            }
            if is_given && !is_needed {
                return Err((field, format!("only the envelope \"{envelope}\" has one")));
            }
        }
        match self.envelope {
            Envelope::Thin => {
                Err(("envelope", "expected another: a thin one has nothing to show".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// The sections as TOML, without what is secret: a URL of Slack or Teams is a secret as a whole.
pub(super) fn show(sections: &[NoticeSection]) -> String {
    #[derive(Serialize)]
    struct Shown {
        notices: Vec<NoticeSection>,
    }
    if sections.is_empty() {
        return String::new();
    }
    let shown = Shown { notices: sections.iter().map(without_secrets).collect() };
    format!("\n{}", toml::to_string(&shown).expect("sections are TOML"))
}

fn without_secrets(section: &NoticeSection) -> NoticeSection {
    let hidden = |text: &String| match text.starts_with("env:") || text.starts_with("file:") {
        true => text.clone(),
        false => "…".to_owned(),
    };
    NoticeSection {
        url: match section.url.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}/…", rest.split(['/', '?']).next().unwrap_or_default())
            }
            None => section.url.clone(),
        },
        routing_key: section.routing_key.as_ref().map(hidden),
        headers: section
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), hidden(value)))
            .collect(),
        ..section.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::config::{Config, ConfigInputs, DEFAULT_TOML, LoadedConfig, show};

    fn load(text: &str) -> Result<LoadedConfig, String> {
        let file = Some(("railpost.toml".into(), text.to_owned()));
        Config::load(&ConfigInputs { file, ..ConfigInputs::default() })
            .map_err(|errors| errors.to_string())
    }

    const GOOD: &str = "[[notices]]\nname = \"chat\"\nurl = \"https://hooks.slack.example/T/secret\"\n\
                        envelope = \"slack\"\n";

    #[test]
    fn a_mistake_names_the_field_and_the_line() {
        let pager = "name = \"b\"\nurl = \"https://a.example\"\nenvelope = \"pagerduty\"";
        for (section, expected) in [
            ("name = \"chat\"\nurl = \"https://a.example\"".to_owned(), "line 7: notices[1].name: expected a name of its own"),
            ("name = \"B\"\nurl = \"https://a.example\"".to_owned(), "line 7: notices[1].name: expected 1 to 32 lowercase"),
            ("name = \"b\"".to_owned(), "line 6: notices[1].url: missing field `url`"),
            ("name = \"b\"\nurl = \"a.example\"".to_owned(), "line 8: notices[1].url: expected `https://…`"),
            (pager.to_owned(), "line 6: notices[1].routing_key: the envelope \"pagerduty\" needs one"),
            (
                "name = \"b\"\nurl = \"https://a.example\"\nrouting_key = \"x\"".to_owned(),
                "line 9: notices[1].routing_key: only the envelope \"pagerduty\" has one",
            ),
            (
                "name = \"b\"\nurl = \"https://a.example\"\nenvelope = \"template\"\ntemplate = \"{\"".to_owned(),
                "line 10: notices[1].template: expected JSON with places",
            ),
            (
                format!("{pager}\nrouting_key = \"env:KEY\"\nseverity = \"bad\""),
                "line 11: notices[1].severity: unknown variant `bad`",
            ),
            (
                format!("{pager}\nrouting_key = \"env:KEY\"\ntypes = [\"order.*\"]"),
                "line 11: notices[1].types: expected types that begin with `railpost.`",
            ),
            ("name = \"b\"\nurl = \"https://a.example\"\nenvelop = 1".to_owned(), "line 9: notices[1].envelop: unknown field"),
        ] {
            let text = load(&format!("{GOOD}\n[[notices]]\n{section}\n")).unwrap_err();
            assert!(text.starts_with(&format!("railpost.toml, {expected}")), "{expected}\n{text}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secrets_and_names_its_references() {
        let file = format!(
            "{GOOD}[[notices]]\nname = \"oncall\"\nurl = \"env:PAGER_URL\"\nenvelope = \"pagerduty\"\n\
             routing_key = \"hunter2\"\nseverity = \"critical\"\n[notices.headers]\nauthorization = \"hunter3\"\n"
        );
        let shown = show(&load(&file).unwrap().config);
        assert!(shown.contains("url = \"https://hooks.slack.example/…\""), "{shown}");
        assert!(shown.contains("url = \"env:PAGER_URL\""), "{shown}");
        assert!(!shown.contains("hunter") && !shown.contains("T/secret"), "{shown}");
        let again = load(&shown).unwrap().config;
        assert_eq!(again.notices[1].severity, Some(Severity::Critical));
    }

    #[test]
    fn the_default_file_names_every_field_of_a_section() {
        let (_, after) = DEFAULT_TOML.split_once("\n# [[notices]]\n").unwrap();
        let (section, _) = after.split_once("\n\n").unwrap_or((after, ""));
        let names = section.lines().filter_map(|line| line.strip_prefix("# "));
        let names = names.filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
        let names: BTreeSet<_> = names.filter(|name| !name.contains([' ', '#'])).collect();
        let error = load("[[notices]]\nnone = 1\n").unwrap_err();
        let (_, known) = error.split_once("expected one of ").unwrap();
        let known: BTreeSet<_> = known.split('`').skip(1).step_by(2).collect();
        assert_eq!(names, known);
    }
}
