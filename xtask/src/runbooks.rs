//! Every alert has a page in `docs/runbooks`, and every page tells the same four things.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const SECTIONS: [&str; 4] =
    ["## What it means", "## How to look", "## What to do", "## How to see that it is over"];

const PROMETHEUS: &str = include_str!("../../deploy/prometheus/railpost.rules.yml");
const OPERATING: &str = include_str!("../../docs/operating.md");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks")
}

/// The cells of the table of alerts: rule, severity, alert of Prometheus, page.
fn rows() -> Vec<[&'static str; 4]> {
    let (_, table) = OPERATING.split_once("| alert | severity |").unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let word = |cell: &'static str| cell.trim().trim_start_matches('`').split('`').next().unwrap();
    lines
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(word);
            [(); 4].map(|()| cells.next().unwrap())
        })
        .collect()
}

#[test]
fn every_alert_leads_to_a_page_with_the_same_sections() {
    assert!(rows().len() >= 19, "{:?}", rows());
    for [.., link] in rows() {
        let (_, page) = link.trim_end_matches(')').split_once("](runbooks/").unwrap();
        let text = fs::read_to_string(folder().join(page))
            .unwrap_or_else(|error| panic!("docs/runbooks/{page}: {error}"));
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, SECTIONS, "docs/runbooks/{page}");
    }
}

#[test]
fn the_page_about_operating_leads_to_every_runbook() {
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(OPERATING.contains(&format!("(runbooks/{name})")), "{name} is not on the page");
    }
}

#[test]
fn the_table_has_every_alert_of_prometheus_with_its_severity() {
    let alerts = PROMETHEUS.split("- alert: ").skip(1).map(|rule| {
        let (_, severity) = rule.split_once("severity: ").unwrap();
        (rule.lines().next().unwrap(), severity.lines().next().unwrap())
    });
    let listed = rows().into_iter().map(|[_, severity, alert, _]| (alert, severity));
    let listed: BTreeSet<_> = listed.filter(|(alert, _)| !alert.is_empty()).collect();
    assert_eq!(listed, alerts.collect());
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
        let page = page.trim_start_matches('-');
        assert_eq!(urls.next(), Some(&*format!("https://runbooks.example/{page}")), "{name}");
        assert!(folder().join(format!("{page}.md")).is_file(), "{page}.md does not exist");
    }
    assert_eq!(urls.next(), None);
}
