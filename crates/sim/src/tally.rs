//! How often each thing happened: the summary for people, and the proof that nothing is left out.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name. A name is a topic and a kind: `fault: reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(crate) fn count(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(name.to_owned(), 1)),
        }
    }

    /// How often `name` happened.
    pub fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Takes another run's counts in.
    pub fn add(&mut self, other: &Tally) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }
}

/// A line for each topic, with its kinds and their counts.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, count) in &self.0 {
            let (topic, kind) = name.split_once(": ").unwrap_or(("", name));
            topics.entry(topic).or_default().push(format!("{kind} {count}"));
        }
        topics
            .iter()
            .try_for_each(|(topic, kinds)| writeln!(f, "{topic:>10}  {}", kinds.join(", ")))
    }
}
