//! `railpost report`: how the objective was met, as text, JSON, or a page that prints.

mod html;

use std::path::PathBuf;

use serde_json::Value;

use super::Session;
use super::failure::{Failure, Outcome};
use super::instant::instant;
use super::list;
use super::out::{Out, field};

/// The arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// When the period begins: `7d` (ago), `2026-01-31` or `2026-01-31T12:00:00Z`. Without it: 30 days before its end
    #[arg(long, value_name = "TIME", value_parser = instant)]
    from: Option<String>,
    /// When it ends. Without it: now
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<String>,
    /// Of all tenants (needs an admin key)
    #[arg(long)]
    everywhere: bool,
    /// The form
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Write it to this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
    /// A page without scripts that prints
    Html,
}

/// A report in words: what text and page have in common.
struct Words {
    title: String,
    period: String,
    verdict: String,
    sections: Vec<Section>,
}

/// A part of a report.
struct Section {
    title: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// What stands below the table, or in its place.
    remark: Option<String>,
}

pub(super) fn run(arguments: &Arguments, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let url = match arguments.everywhere {
        true => client.of_server(&["report"]),
        false => client.of_tenant(&["report"]),
    };
    let period = [("from", &arguments.from), ("to", &arguments.to)];
    let report = client.get(&list::with_query(url, &period))?;
    let text = match arguments.format {
        _ if out.json => format!("{report:#}\n"),
        Format::Json => format!("{report:#}\n"),
        Format::Html => html::page(&Words::of(&report)),
        Format::Text => Words::of(&report).text(out),
    };
    match &arguments.output {
        None => out.bytes(text.as_bytes()),
        Some(path) => {
            let failed = |error| Failure::new(format!("{}: {error}", path.display()));
            std::fs::write(path, text).map_err(failed)?;
            out.line(&format!("wrote {}", path.display()))
        }
    }
}

impl Words {
    fn of(report: &Value) -> Self {
        let whose = report["tenant"].as_str().map_or("all tenants".to_owned(), str::to_owned);
        Self {
            title: format!("Deliveries of {whose}"),
            period: format!("{} to {}", second(report, "from"), second(report, "to")),
            verdict: verdict(report),
            sections: vec![judged(report), traffic(report), incidents(report), parts(report)],
        }
    }

    fn text(&self, out: Out) -> String {
        let mut lines = vec![out.bold(&self.title), self.period.clone(), String::new()];
        lines.extend(out.wrapped(&self.verdict, 0));
        for section in &self.sections {
            lines.extend([String::new(), out.bold(section.title)]);
            lines.extend(section.table());
            lines.extend(section.remark.iter().flat_map(|remark| out.wrapped(remark, 0)));
        }
        lines.join("\n") + "\n"
    }
}

impl Section {
    /// The lines of its table. A table of two columns without titles is a list of facts.
    fn table(&self) -> Vec<String> {
        let titles = self.columns.iter().map(|title| title.to_uppercase()).collect::<Vec<_>>();
        let with_titles = titles.iter().any(|title| !title.is_empty()) && !self.rows.is_empty();
        let rows: Vec<&Vec<String>> =
            with_titles.then_some(&titles).into_iter().chain(&self.rows).collect();
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &&Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }
}

fn verdict(report: &Value) -> String {
    let (objective, achieved) = (&report["objective"], &report["achieved"]);
    let goal = format!(
        "{} of deliveries acknowledged within {}",
        percent(&objective["share"]),
        field(objective, "within")
    );
    match achieved["met"].as_bool() {
        None => format!("The objective is {goal}. No delivery was judged in this period."),
        Some(met) => format!(
            "The objective, {goal}, was {}: {} were on time, and {} of the budget for late ones is spent.",
            if met { "met" } else { "missed" },
            percent(&achieved["share"]),
            percent(&achieved["budget_spent"]),
        ),
    }
}

fn judged(report: &Value) -> Section {
    let achieved = &report["achieved"];
    let rows = [
        ("judged", field(achieved, "judged")),
        ("on time", field(achieved, "on_time")),
        ("late, the receivers' part", field(achieved, "late_receiver")),
        ("late, the operator's part", field(achieved, "late_operator")),
        ("not late by the operator's part", percent(&achieved["operator_share"])),
        ("may be late by the objective", number(&achieved["budget"])),
    ];
    let remark = "A delivery is judged once: when it is acknowledged, or when it passes the objective while its \
                  endpoint is not paused. It is the receivers' part if something was sent and not acknowledged, \
                  the operator's if nothing was sent.";
    Section::facts("The objective", rows).with_remark(remark)
}

fn traffic(report: &Value) -> Section {
    let total = &report["total"];
    let quantiles = |name: &str| {
        let of = &total[name];
        ["p50", "p95", "p99"]
            .map(|quantile| format!("{quantile} {}", millis(&of[quantile])))
            .join(", ")
    };
    Section::facts(
        "Traffic",
        [
            ("events accepted", field(total, "accepted")),
            ("attempts", field(total, "attempts")),
            ("acknowledged", field(total, "acknowledged")),
            ("dead letters", field(total, "dead")),
            ("accept to first attempt", quantiles("first_attempt_ms")),
            ("accept to acknowledgement", quantiles("deliver_ms")),
            ("an attempt", quantiles("attempt_ms")),
        ],
    )
}

fn incidents(report: &Value) -> Section {
    let row = |incident: &Value| {
        let to = incident["to"].as_str().map_or("open".to_owned(), |_| second(incident, "to"));
        let what = incident["summary"].as_str().map_or_else(
            || "the server".to_owned(),
            |summary| summary.split_once(". ").map_or(summary, |(first, _)| first).to_owned(),
        );
        vec![
            second(incident, "from"),
            to,
            field(incident, "severity"),
            field(incident, "rule"),
            what,
        ]
    };
    let rows: Vec<_> = items(&report["incidents"]).iter().map(row).collect();
    let remark = match (rows.is_empty(), report["more_incidents"] == true) {
        (true, _) => Some("No alert was open in this period.".to_owned()),
        (_, true) => Some(format!("There were more; these are the latest {}.", rows.len())),
        _ => None,
    };
    let columns = vec!["from", "to", "severity", "alert", "what"];
    Section { title: "Incidents", columns, rows, remark }
}

fn parts(report: &Value) -> Section {
    let row = |part: &Value| {
        let achieved = &part["achieved"];
        vec![
            field(part, "id"),
            field(achieved, "judged"),
            percent(&achieved["share"]),
            field(achieved, "late_receiver"),
            field(achieved, "late_operator"),
            field(part, "dead"),
            field(part, "name"),
        ]
    };
    let rows: Vec<_> = items(&report["parts"]).iter().map(row).collect();
    let (title, first) = match report["tenant"].is_null() {
        true => ("By tenant", "tenant"),
        false => ("By endpoint", "endpoint"),
    };
    let remark = match (rows.is_empty(), report["more_parts"] == true) {
        (true, _) => Some("Nothing was sent in this period.".to_owned()),
        (_, true) => {
            Some(format!("There are more; these {} had most late deliveries.", rows.len()))
        }
        _ => None,
    };
    let columns =
        vec![first, "judged", "on time", "late: receiver", "late: operator", "dead", "name"];
    Section { title, columns, rows, remark }
}

impl Section {
    fn facts<const N: usize>(title: &'static str, facts: [(&str, String); N]) -> Self {
        let rows = facts.map(|(name, value)| vec![name.to_owned(), value]).to_vec();
        Self { title, columns: vec!["", ""], rows, remark: None }
    }

    fn with_remark(self, remark: &str) -> Self {
        Self { remark: Some(remark.to_owned()), ..self }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The time of a field, to the second.
fn second(item: &Value, name: &str) -> String {
    let text = field(item, name);
    text.get(..19).map_or(text.clone(), |second| format!("{}Z", second.replace('T', " ")))
}

/// A share as a percentage. It is rounded down: 99.9996 % is not all.
fn percent(share: &Value) -> String {
    let Some(share) = share.as_f64() else { return "-".to_owned() };
    let thousandths = (share * 100_000.0 + 1e-6).floor() / 1000.0;
    format!("{thousandths} %")
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("-".to_owned(), |number| format!("{number:.0}"))
}

fn millis(value: &Value) -> String {
    match value.as_f64() {
        None => "-".to_owned(),
        Some(millis) if millis < 10_000.0 => format!("{millis:.0} ms"),
        Some(millis) => format!("{:.0} s", millis / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_share_is_never_rounded_up_to_what_it_did_not_reach() {
        for (share, shown) in [
            (0.999, "99.9 %"),
            (0.999_999_9, "99.999 %"),
            (1.0, "100 %"),
            (0.998_949, "99.894 %"),
            (2.5, "250 %"),
        ] {
            assert_eq!(percent(&json!(share)), shown);
        }
        assert_eq!(percent(&Value::Null), "-");
    }
}
