//! People find a page about every rule, and a row about it on the page about operating.

use std::path::Path;

use railpost_alerts::Rule;

const OPERATING: &str = include_str!("../../../docs/operating.md");

#[test]
fn every_rule_has_a_runbook_and_a_row_with_its_severity() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbooks");
    for rule in Rule::ALL {
        let page = format!("{}.md", rule.runbook());
        assert!(folder.join(&page).is_file(), "docs/runbooks/{page} does not exist");
        let begins = format!("| `{}` | {} | ", rule.name(), rule.severity().as_str());
        let row = OPERATING.lines().find(|line| line.starts_with(&begins));
        assert!(row.is_some_and(|row| row.contains(&format!("(runbooks/{page})"))), "{begins}");
    }
}
