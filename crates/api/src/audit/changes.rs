//! The changed fields of a change, with their old and new values.

use std::collections::BTreeSet;

use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::limits::{AUDIT_CHANGES_LEN_MAX, AUDIT_VALUE_CHARS_MAX};

/// The fields that differ, by their paths. Secrets are in it by their names alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    fields: Map<String, Value>,
    /// Bytes of the fields.
    len: usize,
    /// Fields that there was no room for.
    more: u64,
}

impl Changes {
    /// What differs between two things. Objects are compared field by field, lists as a whole.
    pub(crate) fn between(before: &impl Serialize, after: &impl Serialize) -> Self {
        let mut changes = Self::default();
        let value = |thing: Result<Value, _>| thing.unwrap_or_default();
        let (before, after) = (serde_json::to_value(before), serde_json::to_value(after));
        changes.compare("", &value(before), &value(after));
        changes
    }

    fn compare(&mut self, path: &str, before: &Value, after: &Value) {
        if before == after {
            return;
        }
        let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
            return self.add(path, &cut(before), &cut(after));
        };
        for name in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
            self.compare(&inside(path, name), &before[name], &after[name]);
        }
    }

    /// Adds a secret if it is another one, without saying which.
    pub(crate) fn add_secret<T: PartialEq>(
        &mut self,
        path: &str,
        before: Option<&T>,
        after: Option<&T>,
    ) {
        let (from, to) = match (before, after) {
            (before, after) if before == after => return,
            (Some(_), Some(_)) => (json!("(secret)"), json!("(another secret)")),
            (None, _) => (Value::Null, json!("(secret)")),
            (_, None) => (json!("(secret)"), Value::Null),
        };
        self.add(path, &from, &to);
    }

    fn add(&mut self, path: &str, from: &Value, to: &Value) {
        let change = json!({ "from": from, "to": to });
        let len = path.len() + change.to_string().len();
        if self.len + len > AUDIT_CHANGES_LEN_MAX {
            self.more += 1;
            return;
        }
        self.len += len;
        self.fields.insert(path.to_owned(), change);
    }

    /// Puts them into the detail of an audit entry.
    pub(crate) fn put_into(self, detail: &mut Value) {
        detail["changes"] = self.fields.into();
        if self.more > 0 {
            detail["more_changes"] = self.more.into();
        }
    }
}

fn inside(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A value, or its beginning with its length and hash: two that differ look different.
fn cut(value: &Value) -> Value {
    let text = plain(value);
    if text.chars().count() <= AUDIT_VALUE_CHARS_MAX {
        return value.clone();
    }
    let begin: String = text.chars().take(AUDIT_VALUE_CHARS_MAX).collect();
    let hash = digest(&SHA256, text.as_bytes());
    let hash: String = hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{begin}… ({} bytes, sha256 {hash})", text.len()).into()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(before: &Value, after: &Value) -> Value {
        let mut detail = json!({});
        Changes::between(before, after).put_into(&mut detail);
        detail
    }

    #[test]
    fn what_differs_is_named_by_its_path() {
        let change = |from: Value, to: Value| json!({ "from": from, "to": to });
        for (before, after, changes) in [
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!({"a": 1}), json!({"a": 2}), json!({"a": change(json!(1), json!(2))})),
            (
                json!({"a": {"b": 1, "c": 2}}),
                json!({"a": {"b": 1, "c": 3}}),
                json!({"a.c": change(json!(2), json!(3))}),
            ),
            (
                json!({"a": null}),
                json!({"a": {"b": 1}}),
                json!({"a": change(json!(null), json!({"b": 1}))}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": null}),
                json!({"a": change(json!({"b": 1}), json!(null))}),
            ),
            (
                json!({"a": [1]}),
                json!({"a": [1, 2]}),
                json!({"a": change(json!([1]), json!([1, 2]))}),
            ),
            (
                json!({"a": 1}),
                json!({"a": {"b": 1}}),
                json!({"a": change(json!(1), json!({"b": 1}))}),
            ),
        ] {
            assert_eq!(between(&before, &after), json!({ "changes": changes }));
        }
    }
}
