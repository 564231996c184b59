//! What the receiver's database says at the end, and whether that may be.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

/// What happened at the receiver.
pub(crate) struct Outcome {
    /// Events in the order in which they were applied, each with its key.
    effects: Vec<(String, Option<String>)>,
    verdicts: HashMap<String, u64>,
    once: u64,
    twice: Vec<String>,
}

impl Outcome {
    pub(crate) fn read(database: &Connection) -> Self {
        let sql = "SELECT event, key FROM effects ORDER BY num";
        let mut statement = database.prepare(sql).unwrap();
        let effects = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let mut verdicts = database.prepare("SELECT verdict, count FROM verdicts").unwrap();
        let verdicts = verdicts.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let mut twice = database.prepare("SELECT event FROM twice").unwrap();
        let twice = twice.query_map([], |row| row.get(0)).unwrap();
        let count = |row: &rusqlite::Row<'_>| row.get(0);
        Self {
            effects: effects.map(Result::unwrap).collect(),
            verdicts: verdicts.map(Result::unwrap).collect(),
            once: database.query_row("SELECT count(*) FROM once", [], count).unwrap(),
            twice: twice.map(Result::unwrap).collect(),
        }
    }

    pub(crate) fn applied(&self) -> usize {
        self.effects.len()
    }

    pub(crate) fn once(&self) -> u64 {
        self.once
    }

    pub(crate) fn said(&self, verdict: &str) -> u64 {
        self.verdicts.get(verdict).copied().unwrap_or_default()
    }

    pub(crate) fn missing(&self, acknowledged: &[String]) -> usize {
        let applied: HashSet<&String> = self.effects.iter().map(|(event, _)| event).collect();
        acknowledged.iter().filter(|event| !applied.contains(event)).count()
    }

    /// All that may not be.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut violations: Vec<String> = self
            .twice
            .iter()
            .map(|event| format!("{event} was sent twice, at most once"))
            .collect();
        let (mut applied, mut last) = (HashSet::new(), HashMap::new());
        for (event, key) in &self.effects {
            if !applied.insert(event) {
                violations.push(format!("{event} was applied twice"));
            }
            let Some(key) = key else { continue };
            if let Some(before) = last.insert(key, event)
                && order(before) >= order(event)
            {
                violations.push(format!("{key}: {event} was applied after {before}"));
            }
        }
        // A receiver whose memory survives has nothing to be stale or gapped about.
        for verdict in ["stale", "gap"] {
            let count = self.said(verdict);
            if count > 0 {
                violations.push(format!("the inbox said {verdict} {count} times"));
            }
        }
        violations
    }
}

/// When an event was published, among those of its producer: in which life, and the how many-th there.
fn order(event: &str) -> (u32, u32) {
    let mut parts = event.split('-').map(|part| part.parse().unwrap());
    let (run, _producer, number) = (parts.next(), parts.next(), parts.next());
    (run.unwrap(), number.unwrap())
}
