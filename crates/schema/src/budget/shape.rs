//! The shape of a payload: how many values it has at which depth, and how much text.

use serde_json::Value;

/// How many values there are, and how many bytes their text has, by depth.
#[derive(Debug, Default)]
pub(super) struct PayloadShape(Vec<(u64, u64)>);

impl PayloadShape {
    pub(super) fn of(payload: &Value) -> Self {
        let mut shape = Self::default();
        shape.add(payload, 0);
        shape
    }

    pub(super) fn by_depth(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }

    /// Parsed payloads are nested no deeper than the parser allows.
    fn add(&mut self, value: &Value, depth: usize) {
        self.count(depth, 1, 0);
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, depth + 1)),
            Value::Object(map) => {
                for (name, member) in map {
                    // Patterns look at names from the object; schemas of names, as at values inside.
                    self.count(depth, 0, name.len());
                    self.add(member, depth + 1);
                    self.count(depth + 1, 0, name.len());
                }
            }
            Value::String(text) => self.count(depth, 0, text.len()),
            _ => {}
        }
    }

    fn count(&mut self, depth: usize, values: u64, bytes: usize) {
        if self.0.len() <= depth {
            self.0.resize(depth + 1, (0, 0));
        }
        let at = &mut self.0[depth];
        at.0 += values;
        at.1 = at.1.saturating_add(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_and_text_are_counted_by_depth() {
        let shape = PayloadShape::of(&json!({"ab": ["x", 1, {"c": "yz"}]}));
        let counted: Vec<_> = shape.by_depth().collect();
        assert_eq!(counted, [(1, 2), (1, 2), (3, 2), (1, 3)]);
    }
}
