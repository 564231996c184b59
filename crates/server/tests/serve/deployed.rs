//! Every expression of `deploy/prometheus` and `deploy/grafana` asks for metrics and labels that a server has.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::outbox::configure;
use super::process::{ADMIN_KEY, Running, output};
use super::promql::{Expression, Matcher, Selector};
use super::receiver::Receiver;
use super::seeded::seed;
use super::telemetry::eventful;

const RULES: &str = include_str!("../../../../deploy/prometheus/railpost.rules.yml");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana/railpost.json");

/// Labels that Prometheus adds to all that it scrapes.
const SCRAPED: [&str; 2] = ["job", "instance"];

/// Labels with values that a server takes from its users or receivers: their names are checked alone.
const OPEN: [&str; 7] = ["source", "tenant", "endpoint", "event_type", "route", "job", "instance"];

/// Metrics that Prometheus makes itself, and those that a server without alerts has no sample of: with their
/// labels.
const UNSEEN: [(&str, &[&str]); 2] = [("up", &[]), ("railpost_alerts_open", &["severity"])];

/// An expression, where it stands, and the labels that the text beside it shows.
struct Asked {
    place: String,
    text: String,
    shown: Vec<String>,
}

/// The samples that can be asked for, each with the values of its labels.
type Known = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// All that a server tells: its sources, the labels of choice, and an attempt of each kind.
fn scrape() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.db");
    let source =
        format!("name = \"app\"\nurl = \"sqlite:{}\"\ntenant = \"default\"", file.display());
    configure(folder.path(), &[source]);
    assert_eq!(output(folder.path(), &["outbox", "init"]).0, 0);
    let receiver = Receiver::new();
    seed(folder.path(), &receiver.url());
    let set = [
        ("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY),
        ("RAILPOST_TELEMETRY_LABELS", "tenant,endpoint,event_type"),
    ];
    let mut server = Running::start_with(folder.path(), &["--log-level", "debug"], &set);
    eventful(&mut server, &receiver);
    server.get("/metrics", "").1
}

fn known(scraped: &str) -> Known {
    let mut known = Known::new();
    for line in scraped.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let expression = Expression::parse(series);
        let [Selector { metric, matchers }] = &expression.selectors[..] else {
            panic!("not a sample: {line}");
        };
        let labels = known.entry(metric.clone()).or_default();
        for Matcher { label, value, .. } in matchers {
            labels.entry(label.clone()).or_default().insert(value.clone());
        }
    }
    for (metric, labels) in UNSEEN {
        let its = known.entry(metric.to_owned()).or_default();
        for label in labels {
            its.entry((*label).to_owned()).or_default();
        }
    }
    known
}

/// The expressions of the rules, and the names that they are recorded by.
fn rules(text: &str) -> (Vec<Asked>, Vec<String>) {
    let (mut asked, mut recorded) = (Vec::new(), Vec::new());
    let begins =
        |line: &&str| line.starts_with("      - alert: ") || line.starts_with("      - record: ");
    let count = text.lines().filter(begins).count();
    for rule in text.split("\n      - ").skip(1) {
        let (kind, name) = rule.lines().next().unwrap().split_once(": ").unwrap();
        if kind == "record" {
            recorded.push(name.to_owned());
        }
        let (_, after) = rule.split_once("\n        expr: ").expect(name);
        let expression = match after.strip_prefix("|\n") {
            Some(block) => {
                let lines = block.lines().take_while(|line| line.starts_with("          "));
                lines.collect::<Vec<_>>().join("\n")
            }
            None => after.lines().next().unwrap().to_owned(),
        };
        let shown = rule.split("$labels.").skip(1).map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_owned()
        });
        asked.push(Asked { place: name.to_owned(), shown: shown.collect(), text: expression });
    }
    assert_eq!(asked.len(), count, "every rule has one expression");
    (asked, recorded)
}

/// The expressions of a dashboard: of its panels, its annotations and its variables.
fn dashboard(text: &str) -> Vec<Asked> {
    let mut asked = Vec::new();
    let mut open = vec![(String::new(), serde_json::from_str::<Value>(text).unwrap())];
    while let Some((title, value)) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items.into_iter().map(|item| (title.clone(), item))),
            Value::Object(fields) => {
                let title =
                    fields.get("title").and_then(Value::as_str).map_or(title, str::to_owned);
                let text = ["expr", "definition"].iter().find_map(|key| fields.get(*key)?.as_str());
                if let Some(text) = text {
                    let legend = fields.get("legendFormat").and_then(Value::as_str).unwrap_or("");
                    let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}"));
                    let shown = shown.map(|(label, _)| label.trim().to_owned()).collect();
                    asked.push(Asked { place: title.clone(), text: text.to_owned(), shown });
                }
                open.extend(fields.into_iter().map(|(_, value)| (title.clone(), value)));
            }
            _ => {}
        }
    }
    asked
}

/// What an expression asks for that does not exist.
fn problems(known: &Known, asked: &Asked) -> Vec<String> {
    let expression = Expression::parse(&asked.text);
    let mut problems = Vec::new();
    let mut labels: BTreeSet<&str> = SCRAPED.into();
    for Selector { metric, matchers } in &expression.selectors {
        let Some(its) = known.get(metric) else {
            problems.push(format!("there is no metric `{metric}`"));
            continue;
        };
        labels.extend(its.keys().map(String::as_str));
        problems.extend(matchers.iter().filter_map(|matcher| problem(metric, its, matcher)));
    }
    let unknown = expression.grouping.iter().filter(|label| !labels.contains(label.as_str()));
    problems.extend(unknown.map(|label| format!("no metric in it has a label `{label}`")));
    let lost = asked.shown.iter().filter(|label| !expression.grouping.contains(label));
    problems.extend(lost.map(|label| format!("it shows `{label}` and does not group by it")));
    problems.into_iter().map(|problem| format!("{}: {problem}", asked.place)).collect()
}

/// What is wrong with a matcher: its label, or a value that the label never has.
fn problem(
    metric: &str,
    labels: &BTreeMap<String, BTreeSet<String>>,
    Matcher { label, operator, value }: &Matcher,
) -> Option<String> {
    if SCRAPED.contains(&label.as_str()) {
        return None;
    }
    let Some(values) = labels.get(label) else {
        return Some(format!("`{metric}` has no label `{label}`"));
    };
    if OPEN.contains(&label.as_str()) || operator.starts_with('!') {
        return None;
    }
    let alternatives =
        if operator == "=~" { value.split('|').collect() } else { vec![value.as_str()] };
    let is_known = |wanted: &&str| match wanted.strip_suffix(".*") {
        Some(prefix) if operator == "=~" => values.iter().any(|value| value.starts_with(prefix)),
        _ => values.contains(*wanted),
    };
    let unknown = alternatives.iter().find(|wanted| !is_known(wanted));
    unknown.map(|wanted| format!("`{label}` of `{metric}` is never `{wanted}`: {values:?}"))
}

#[test]
fn every_expression_asks_for_what_a_server_tells() {
    let mut known = known(&scrape());
    let (mut asked, recorded) = rules(RULES);
    known.extend(recorded.into_iter().map(|name| (name, BTreeMap::new())));
    let of_rules = asked.len();
    asked.extend(dashboard(DASHBOARD));
    assert!(of_rules >= 25 && asked.len() >= of_rules + 60, "{of_rules} of {}", asked.len());
    let problems: Vec<String> = asked.iter().flat_map(|asked| problems(&known, asked)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_does_not_exist_is_found() {
    let known = known("a_total{result=\"good\"} 1\na_total{result=\"bad_luck\"} 0\nb 1.5\n");
    for (text, shown, problem) in [
        ("sum by (result) (a_total{result=~\"good|bad_.*\"}) / on (job) b", vec!["result"], ""),
        ("rate(a_totals[5m])", vec![], "there is no metric `a_totals`"),
        ("a_total{results=\"good\"}", vec![], "`a_total` has no label `results`"),
        ("a_total{result=\"great\"}", vec![], "`result` of `a_total` is never `great`"),
        ("a_total{result=~\"good|worse_.*\"}", vec![], "is never `worse_.*`"),
        ("sum by (tenant) (b)", vec![], "no metric in it has a label `tenant`"),
        ("sum(a_total)", vec!["result"], "it shows `result` and does not group by it"),
    ] {
        let shown = shown.into_iter().map(str::to_owned).collect();
        let asked = Asked { place: "panel".to_owned(), text: text.to_owned(), shown };
        let found = problems(&known, &asked).join("\n");
        assert_eq!(found.is_empty(), problem.is_empty(), "{text}: {found}");
        assert!(found.contains(problem), "{text}: {found}");
    }
}
