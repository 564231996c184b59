//! Figures as plain text.

use crate::bars::Bar;
use crate::figures::{Figures, Row, Rows};

const HEAD: [&str; 11] = [
    "case",
    "accepted/s",
    "delivered/s",
    "p50",
    "p99",
    "CPU µs/event",
    "pg CPU",
    "peak MB",
    "bytes/event",
    "of hop",
    "of forwarder",
];

/// A line per case, then what there is to say about some of them.
pub(crate) fn figures(rows: &Rows) -> String {
    let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
    lines.extend(rows.0.iter().map(cells));
    let mut text = aligned(&lines);
    for row in &rows.0 {
        remarks(row).for_each(|remark| text.push_str(&format!("{}: {remark}\n", row.case)));
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let Figures { p50_us, p99_us, scheduled, .. } = row.figures;
    let figures = &row.figures;
    let times = if scheduled { " × p99" } else { "" };
    let share = |share: Option<f64>| shown(share, |share| format!("{share:.2}{times}"));
    vec![
        row.case.to_owned(),
        shown(figures.accepted_per_s, thousands),
        shown(figures.delivered_per_s, thousands),
        shown(p50_us, duration),
        shown(p99_us, duration),
        shown(figures.server_cpu_us, |micros| format!("{micros:.1}")),
        shown(figures.postgres_cpu_us, |micros| format!("{micros:.1}")),
        shown(figures.peak_bytes, |bytes| format!("{:.0}", bytes as f64 / 1e6)),
        shown(figures.written_bytes, thousands),
        share(figures.of_hop),
        share(figures.of_forwarder),
    ]
}

fn remarks(row: &Row) -> impl Iterator<Item = String> {
    let failure = row.figures.failure.iter().map(|failure| format!("FAILED: {failure}"));
    let missing = row.missing.iter().map(|missing| format!("not measured: {missing}"));
    failure.chain(missing).chain(row.figures.notes.iter().cloned())
}

/// A case in a few words, for the progress line.
pub(crate) fn summary(row: &Row) -> String {
    let Figures { delivered_per_s, p99_us, .. } = row.figures;
    let rate = delivered_per_s.map(|rate| format!("{}/s", thousands(rate)));
    let p99 = p99_us.map(|micros| format!("p99 {}", duration(micros)));
    let ready = row.figures.ready_ms.map(|millis| format!("ready after {millis:.0} ms"));
    let told = rate.into_iter().chain(p99).chain(ready).chain(remarks(row));
    told.collect::<Vec<_>>().join(", ")
}

/// The bars, one a line.
pub(crate) fn bars(bars: &[Bar]) -> String {
    let mut lines = vec![["bar", "wanted", "found", "", "rounds"].map(str::to_owned).to_vec()];
    for bar in bars {
        let verdict = match bar.met {
            Some(true) => "met",
            Some(false) => "NOT met",
            None => "not measured",
        };
        let found = bar.figure.clone().unwrap_or_else(|| "-".to_owned());
        let (what, verdict) = (bar.what.to_owned(), verdict.to_owned());
        lines.push(vec![what, bar.bar.clone(), found, verdict, bar.rounds.join("  ")]);
    }
    aligned(&lines)
}

/// The first column to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width =
        |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn shown<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A whole number with commas.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds in the unit that people would use.
pub(crate) fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (number, expected) in
            [(0.0, "0"), (999.4, "999"), (1_000.0, "1,000"), (1_234_567.0, "1,234,567")]
        {
            assert_eq!(thousands(number), expected);
        }
        for (micros, expected) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_250, "1.25 ms"),
            (25_000, "25 ms"),
            (1_500_000, "1.50 s"),
        ] {
            assert_eq!(duration(micros), expected);
        }
    }

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let line = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = aligned(&[line(["case", "µs", ""]), line(["a", "1,000", ""])]);
        assert_eq!(text, "case     µs\na     1,000\n");
    }

    #[test]
    fn a_row_shows_what_it_has_and_says_what_went_wrong() {
        let figures = Figures {
            delivered_per_s: Some(12_345.6),
            p99_us: Some(2_000),
            of_hop: Some(0.5),
            scheduled: true,
            failure: Some("1 violations of order".to_owned()),
            notes: vec!["the load was the limit".to_owned()],
            ..Figures::default()
        };
        let row = Row { case: "sqlite-200", about: "", figures, missing: None };
        let text = super::figures(&Rows(vec![row]));
        let line: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            line,
            [
                "sqlite-200",
                "-",
                "12,346",
                "-",
                "2.00",
                "ms",
                "-",
                "-",
                "-",
                "-",
                "0.50",
                "×",
                "p99",
                "-"
            ]
        );
        let remarks: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            remarks,
            ["sqlite-200: FAILED: 1 violations of order", "sqlite-200: the load was the limit"]
        );
    }

    #[test]
    fn a_bar_says_met_not_met_or_not_measured() {
        let bar =
            |met| Bar { what: "x", bar: "≥ 1".to_owned(), figure: None, rounds: vec![], met };
        let text = super::bars(&[bar(Some(true)), bar(Some(false)), bar(None)]);
        let verdicts: Vec<&str> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split("  ").last())
            .map(str::trim)
            .collect();
        assert_eq!(verdicts, ["met", "NOT met", "not measured"]);
    }
}
