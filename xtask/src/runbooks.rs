//! Every alert has a page in `docs/runbooks`, and every page tells the same four things.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rules that the server evaluates by itself.
const RULES: [&str; 17] = [
    "retries_exhausted",
    "dead_letters",
    "slow_attempts",
    "slo_burn_fast",
    "slo_burn_slow",
    "oldest_open",
    "breakers_open",
    "store_trouble",
    "disk",
    "breaker_open",
    "endpoint_failing",
    "switch_off_soon",
    "endpoint_off",
    "endpoint_blocked",
    "lane_held",
    "source_trouble",
    "secret_expiring",
];

const SECTIONS: [&str; 4] =
    ["## What it means", "## How to look", "## What to do", "## How to see that it is over"];

const PROMETHEUS: &str = include_str!("../../deploy/prometheus/railpost.rules.yml");
const OPERATING: &str = include_str!("../../docs/operating.md");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks")
}

/// The pages that alerts lead to, without `.md`.
fn wanted() -> BTreeSet<String> {
    let urls = PROMETHEUS.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let pages = urls.map(|url| url.strip_prefix("https://runbooks.example/").unwrap().to_owned());
    pages.chain(RULES.map(|rule| rule.replace('_', "-"))).collect()
}

#[test]
fn every_alert_leads_to_a_page_with_the_same_sections() {
    for page in wanted() {
        let text = fs::read_to_string(folder().join(format!("{page}.md")))
            .unwrap_or_else(|error| panic!("docs/runbooks/{page}.md: {error}"));
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, SECTIONS, "docs/runbooks/{page}.md");
    }
}

#[test]
fn the_page_about_operating_leads_to_every_runbook() {
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(OPERATING.contains(&format!("(runbooks/{name})")), "{name} is not on the page");
    }
}

/// An alert of Prometheus is named as the server's rule, and leads to the same page.
#[test]
fn an_alert_leads_to_the_page_of_its_own_name() {
    let names = PROMETHEUS.lines().filter_map(|line| line.trim().strip_prefix("- alert: Railpost"));
    let mut urls = PROMETHEUS.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    for name in names {
        let page: String = name
            .chars()
            .flat_map(|c| [c.is_uppercase().then_some('-'), Some(c.to_ascii_lowercase())])
            .flatten()
            .collect();
        let url = format!("https://runbooks.example/{}", page.trim_start_matches('-'));
        assert_eq!(urls.next(), Some(&*url), "{name}");
    }
    assert_eq!(urls.next(), None);
}
