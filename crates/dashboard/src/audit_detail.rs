//! The detail of an audit entry, line by line.

use std::fmt;

use serde_json::Value;

/// One line of an entry's detail for people: a field that changed, or something else worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetailLine {
    pub(super) field: String,
    /// What it was, if it changed.
    pub(super) from: Option<DetailValue>,
    pub(super) to: DetailValue,
}

/// A value for people; nothing where there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetailValue(pub(super) Option<String>);

impl fmt::Display for DetailValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("nothing"))
    }
}

/// The detail of an entry for people, with values of at most `most` characters.
pub(super) fn detail_lines(detail: &Value, most: usize) -> Vec<DetailLine> {
    let changes = detail["changes"].as_object().into_iter().flatten();
    let changed = changes.map(|(field, change)| DetailLine {
        field: field.clone(),
        from: Some(shown(&change["from"], most)),
        to: shown(&change["to"], most),
    });
    let mut lines: Vec<_> = changed.collect();
    for (name, value) in detail.as_object().into_iter().flatten() {
        if name != "changes" {
            add_lines(&mut lines, name, value, most);
        }
    }
    lines
}

/// Adds what is said beside the changes, without what is not said.
fn add_lines(lines: &mut Vec<DetailLine>, field: &str, value: &Value, most: usize) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, value)| add_lines(lines, &inside(field, name), value, most));
        }
        value => {
            let field = field.replace('_', " ");
            lines.push(DetailLine { field, from: None, to: shown(value, most) });
        }
    }
}

fn shown(value: &Value, most: usize) -> DetailValue {
    let text = match value {
        Value::Null => return DetailValue(None),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => plain(other),
    };
    let text = text.replace(['\r', '\n'], " ");
    DetailValue(match text.char_indices().nth(most) {
        _ if text.is_empty() => None,
        Some((end, _)) => Some(format!("{}…", &text[..end])),
        None => Some(text),
    })
}

fn inside(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_detail_is_read_line_by_line_with_long_values_cut() {
        let detail = json!({
            "changes": {
                "url": {"from": "", "to": "https://example.com"},
                "types": {"from": ["*"], "to": ["a", "b"]},
                "a.b": {"from": 1, "to": {"c": 2}},
            },
            "filter": {"state": "dead", "key": null},
            "open_deliveries": 3,
        });
        let value = |text: &str| DetailValue((!text.is_empty()).then(|| text.to_owned()));
        let line = |field: &str, from: Option<&str>, to: &str| DetailLine {
            field: field.to_owned(),
            from: from.map(value),
            to: value(to),
        };
        let lines = [
            line("a.b", Some("1"), "{\"c\":2}"),
            line("types", Some("*"), "a, b"),
            line("url", Some(""), "https://ex…"),
            line("filter.state", None, "dead"),
            line("open deliveries", None, "3"),
        ];
        assert_eq!(detail_lines(&detail, 10), lines);
        assert_eq!(detail_lines(&Value::Null, 10), []);
        assert_eq!(value("").to_string(), "nothing");
    }
}
