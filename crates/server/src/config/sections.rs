//! Sections that stand in the file several times, such as `[[outbox]]`: how they are read, and where a mistake is.

use serde::de::DeserializeOwned;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// What is wrong with a section.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SectionError {
    /// The place of the section; nothing if there are no sections.
    pub(super) index: Option<usize>,
    /// The field of it, if that is known.
    pub(super) field: String,
    /// What is wrong, with the path of the field.
    pub(super) problem: String,
}

impl SectionError {
    /// What is wrong with a field of a section.
    pub(super) fn of(name: &str, index: usize, field: &str, problem: &str) -> Self {
        let problem = format!("{name}[{index}].{field}: {problem}");
        Self { index: Some(index), field: field.to_owned(), problem }
    }
}

/// Reads the sections of this name, or lists what is wrong with them: with the first mistake of each section.
pub(super) fn read<T: DeserializeOwned>(
    name: &str,
    value: Value,
) -> Result<Vec<T>, Vec<SectionError>> {
    let Value::Array(values) = value else {
        let problem = format!("{name}: expected sections `[[{name}]]`");
        return Err(vec![SectionError { index: None, field: String::new(), problem }]);
    };
    let (mut sections, mut errors) = (Vec::new(), Vec::new());
    for (index, value) in values.into_iter().enumerate() {
        match serde_path_to_error::deserialize(value) {
            Ok(section) => sections.push(section),
            Err(error) => errors.push(unreadable(name, index, &error)),
        }
    }
    if errors.is_empty() { Ok(sections) } else { Err(errors) }
}

fn unreadable(
    name: &str,
    index: usize,
    error: &serde_path_to_error::Error<toml::de::Error>,
) -> SectionError {
    let message = error.inner().message().trim().to_owned();
    let path = match error.path().to_string().as_str() {
        "." => String::new(),
        path => path.to_owned(),
    };
    // serde names a field that is missing in its words alone.
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let field = missing.map_or(path, str::to_owned);
    let dot = if field.is_empty() { "" } else { "." };
    SectionError {
        index: Some(index),
        problem: format!("{name}[{index}]{dot}{field}: {message}"),
        field,
    }
}

/// The line on which a field of a section stands; that of the section if it is missing.
pub(super) fn line_of(text: &str, name: &str, index: Option<usize>, field: &str) -> usize {
    let offset = DeTable::parse(text).ok().and_then(|document| {
        let (key, sections) = document.get_ref().iter().find(|(key, _)| key.get_ref() == name)?;
        let section = match (sections.get_ref(), index) {
            (DeValue::Array(sections), Some(index)) => sections.get(index)?,
            _ => return Some(key.span().start),
        };
        let mut span = section.span();
        let mut value = section.get_ref();
        for name in field.split('.') {
            let DeValue::Table(fields) = value else { break };
            let Some((key, inner)) = fields.iter().find(|(key, _)| key.get_ref() == name) else {
                break;
            };
            (span, value) = (key.span(), inner.get_ref());
        }
        Some(span.start)
    });
    super::load::line_at(text, offset.unwrap_or(0))
}
