//! Bodies by a template: JSON of the endpoint's owner, with values of the notice in its strings.

use super::Event;
use super::notice::{Notice, fields};
use crate::limits::{TEMPLATE_LEN_MAX, TEMPLATE_PLACES_MAX, TEMPLATE_VALUE_CHARS_MAX};
use crate::rfc3339;
use serde_json::Value;
use std::{fmt, str::FromStr};

/// A JSON text with places such as `{{summary}}` inside of its strings. Whatever the values are, it gives JSON.
///
/// A place names a field of the event's payload (`{{details.failed}}`, `{{links.0.href}}`), or of the event
/// (`{{event.id}}`, `{{event.type}}`, `{{event.key}}`, `{{event.time}}`). `summary`, `severity`, `status` and
/// `dedup_key` have a value for every event. A field that is not there is an empty text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Place(String),
}

/// A text is no template, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTemplate(String);

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTemplate {}

impl Default for Template {
    fn default() -> Self {
        r#"{"text": "{{summary}}"}"#.parse().expect("it is a template")
    }
}

impl FromStr for Template {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, BadTemplate> {
        if text.len() > TEMPLATE_LEN_MAX {
            let got = text.len();
            return Err(BadTemplate(format!(
                "expected at most {TEMPLATE_LEN_MAX} bytes; got {got}"
            )));
        }
        let parts = parts(text)?;
        let places = parts.iter().filter(|part| matches!(part, Part::Place(_))).count();
        if places > TEMPLATE_PLACES_MAX {
            let max = TEMPLATE_PLACES_MAX;
            return Err(BadTemplate(format!("expected at most {max} places; got {places}")));
        }
        let template = Self(parts);
        template.check_json()?;
        Ok(template)
    }
}

impl Template {
    /// A letter is no JSON but inside of a string, and there not in the middle of an escape. So if a letter fits
    /// into every place, any escaped text does.
    fn check_json(&self) -> Result<(), BadTemplate> {
        let body = self.fill(|_| "x".to_owned());
        let parsed: Result<Value, _> = serde_json::from_str(&body);
        parsed.map(drop).map_err(|error| {
            BadTemplate(format!(
                "expected JSON with places such as {{{{summary}}}} inside of strings: {error}"
            ))
        })
    }

    /// The body for `event`.
    pub(super) fn body(&self, event: &Event<'_>) -> Vec<u8> {
        let values = Values { event, fields: fields(event), notice: Notice::of(event) };
        self.fill(|path| values.value(path)).into_bytes()
    }

    fn fill(&self, value: impl Fn(&str) -> String) -> String {
        let mut body = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => body.push_str(text),
                Part::Place(path) => body.push_str(&string_content(&value(path))),
            }
        }
        body
    }
}

fn parts(text: &str) -> Result<Vec<Part>, BadTemplate> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (path, behind) = after
            .split_once("}}")
            .ok_or_else(|| BadTemplate("expected `}}` behind every `{{`".to_owned()))?;
        parts.push(Part::Text(before.to_owned()));
        parts.push(Part::Place(checked_path(path.trim())?));
        rest = behind;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

fn checked_path(path: &str) -> Result<String, BadTemplate> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_name = |name: &str| !name.is_empty() && name.chars().all(allowed);
    if path.split('.').all(is_name) {
        return Ok(path.to_owned());
    }
    let shown: String = path.chars().take(48).flat_map(char::escape_debug).collect();
    Err(BadTemplate(format!(
        "expected a name such as `summary` or `details.failed`; got `{shown}`"
    )))
}

/// The text as it stands between the quotes of a JSON string.
fn string_content(text: &str) -> String {
    let cut: String = text.chars().take(TEMPLATE_VALUE_CHARS_MAX).collect();
    let quoted = Value::from(cut).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// What the places of a template can name.
struct Values<'a> {
    event: &'a Event<'a>,
    fields: Value,
    notice: Notice,
}

impl Values<'_> {
    fn value(&self, path: &str) -> String {
        if let Some(name) = path.strip_prefix("event.") {
            return self.of_event(name);
        }
        match path {
            "notice" => return self.notice.name.clone(),
            "status" => return self.notice.status.name().to_owned(),
            "severity" => return self.notice.severity.to_owned(),
            "summary" => return self.notice.summary.clone(),
            "dedup_key" => return self.notice.dedup_key.clone(),
            _ => {}
        }
        let field = path.split('.').try_fold(&self.fields, |value, name| match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            value => value.get(name),
        });
        match field {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }

    fn of_event(&self, name: &str) -> String {
        match name {
            "id" => self.event.id.to_string(),
            "type" => self.event.event_type.to_string(),
            "key" => self.event.key.map(ToString::to_string).unwrap_or_default(),
            "time" => rfc3339::format(self.event.unix_ms).unwrap_or_default(),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_stands_inside_of_a_string_and_nowhere_else() {
        for (text, good) in [
            (r#"{"a": "{{summary}}"}"#, true),
            (r#"{"a": "x {{ details.a-b.0 }} y", "{{event.type}}": [1]}"#, true),
            (r#"["{{a}}{{b}}"]"#, true),
            ("{}", true),
            (r#"{"a": {{summary}}}"#, false),
            ("[{{summary}}]", false),
            ("{{summary}}", false),
            (r#"{"a": 1{{x}}}"#, false),
            (r#"{"a": "\u00{{x}}41"}"#, false),
            (r#"{"a": "\{{x}}"}"#, false),
            (r#"{"a": "{{x"}"#, false),
            (r#"{"a": "{{}}"}"#, false),
            (r#"{"a": "{{a b}}"}"#, false),
            (r#"{"a": "#, false),
            ("", false),
        ] {
            assert_eq!(text.parse::<Template>().is_ok(), good, "{text}");
        }
        let long = format!(r#"{{"a": "{}"}}"#, "x".repeat(TEMPLATE_LEN_MAX));
        assert!(long.parse::<Template>().is_err());
        let many = format!(r#"{{"a": "{}"}}"#, "{{x}}".repeat(TEMPLATE_PLACES_MAX + 1));
        assert!(many.parse::<Template>().is_err());
    }
}
