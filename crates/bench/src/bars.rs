//! The bars that Railpost set itself, and whether this run met them.

use serde::Serialize;

use crate::figures::{Figures, Rows, ratio};

/// One bar and the figure against it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    pub(crate) bar: String,
    /// Nothing when a case it needs was not measured.
    pub(crate) figure: Option<String>,
    pub(crate) met: Option<bool>,
}

/// On which side of the bar a figure should be.
#[derive(Clone, Copy)]
enum Side {
    AtLeast,
    AtMost,
}

/// Every bar, in the order of the docs.
pub(crate) fn all(rows: &Rows) -> Vec<Bar> {
    let mut bars = rates(rows);
    bars.push(cpu(rows));
    bars.push(latency(rows));
    bars.extend(isolation(rows));
    bars.extend(backlog(rows));
    bars
}

fn rates(rows: &Rows) -> Vec<Bar> {
    [
        (
            "SQLite, single events: delivered/s of the plain forwarder",
            "sqlite-single",
            "forward",
            0.5,
        ),
        (
            "SQLite, batches of 100: delivered/s of the plain forwarder",
            "sqlite-batch",
            "forward",
            0.9,
        ),
        (
            "PostgreSQL, single events: delivered/s of the plain forwarder",
            "postgres-single",
            "forward",
            0.25,
        ),
        ("one hot key: delivered/s of a sequential client", "sqlite-hot-key", "sequential", 0.5),
    ]
    .into_iter()
    .map(|(what, case, floor, bar)| {
        share(
            what,
            Side::AtLeast,
            bar,
            compare(rows, case, floor, |figures| figures.delivered_per_s),
        )
    })
    .collect()
}

fn cpu(rows: &Rows) -> Bar {
    let figure = rows.get("sqlite-single").and_then(|figures| figures.server_cpu_us);
    judge("SQLite, single events: server CPU per delivery", Side::AtMost, 80.0, figure, |micros| {
        format!("{micros:.1} µs")
    })
}

/// One durable write and two hops, at their median, four times over.
fn latency(rows: &Rows) -> Bar {
    let p50 = |case| rows.get(case).and_then(|figures| figures.p50_us);
    let floor = p50("fdatasync").zip(p50("forward-200")).map(|(sync, hops)| (sync + hops) as f64);
    let p99 = rows.get("sqlite-200").and_then(|figures| figures.p99_us);
    let figure = p99.zip(floor).and_then(|(p99, floor)| ratio(p99 as f64, floor));
    judge(
        "SQLite, p99 at 200/s: times one fdatasync and two hops (medians)",
        Side::AtMost,
        4.0,
        figure,
        |times| format!("{times:.2} ×"),
    )
}

fn isolation(rows: &Rows) -> [Bar; 2] {
    let rate = compare(rows, "beside-hanging", "beside-none", |figures| figures.delivered_per_s);
    let p99 = compare(rows, "beside-hanging-2000", "beside-none-2000", |figures| {
        figures.p99_us.map(|micros| micros as f64)
    });
    [
        share("beside a hanging endpoint: rate of the run without", Side::AtLeast, 0.9, rate),
        share(
            "beside a hanging endpoint: p99 at 2,000/s of the run without",
            Side::AtMost,
            1.3,
            p99,
        ),
    ]
}

fn backlog(rows: &Rows) -> [Bar; 4] {
    let figures = rows.get("backlog");
    let backlog = figures.and_then(|figures| figures.backlog.as_ref());
    let drain = backlog.and_then(|backlog| ratio(backlog.drained_per_s, backlog.normal_per_s));
    let peak_mb = figures.and_then(|figures| figures.peak_bytes).map(|bytes| bytes as f64 / 1e6);
    let first_s = backlog.map(|backlog| backlog.first_delivery_ms / 1e3);
    let accept = backlog.map(|backlog| backlog.accept_of_empty);
    [
        share("backlog: accept rate of empty", Side::AtLeast, 0.8, accept),
        judge("backlog: memory", Side::AtMost, 400.0, peak_mb, |mb| format!("{mb:.0} MB")),
        judge("backlog: first delivery after a restart", Side::AtMost, 3.0, first_s, |s| {
            format!("{s:.2} s")
        }),
        share("backlog: drain rate of normal", Side::AtLeast, 0.8, drain),
    ]
}

fn compare(
    rows: &Rows,
    case: &str,
    floor: &str,
    figure: fn(&Figures) -> Option<f64>,
) -> Option<f64> {
    ratio(rows.get(case).and_then(figure)?, rows.get(floor).and_then(figure)?)
}

fn share(what: &'static str, side: Side, bar: f64, figure: Option<f64>) -> Bar {
    judge(what, side, bar, figure, |share| format!("{share:.2}"))
}

fn judge(
    what: &'static str,
    side: Side,
    bar: f64,
    figure: Option<f64>,
    show: impl Fn(f64) -> String,
) -> Bar {
    let (sign, met) = match side {
        Side::AtLeast => ("≥", figure.map(|figure| figure >= bar)),
        Side::AtMost => ("≤", figure.map(|figure| figure <= bar)),
    };
    Bar { what, bar: format!("{sign} {}", show(bar)), figure: figure.map(show), met }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Backlog, Row};

    fn rows(cases: &[(&'static str, Figures)]) -> Rows {
        let row = |(case, figures): &(&'static str, Figures)| Row {
            case,
            about: "",
            figures: figures.clone(),
            missing: None,
        };
        Rows(cases.iter().map(row).collect())
    }

    fn rate(per_s: f64) -> Figures {
        Figures { delivered_per_s: Some(per_s), ..Figures::default() }
    }

    fn times(p50_us: u64, p99_us: u64) -> Figures {
        Figures { p50_us: Some(p50_us), p99_us: Some(p99_us), ..Figures::default() }
    }

    fn found(rows: &Rows, what: &str) -> (Option<String>, Option<bool>) {
        let bar = all(rows).into_iter().find(|bar| bar.what.starts_with(what)).unwrap();
        (bar.figure, bar.met)
    }

    #[test]
    fn a_bar_whose_cases_were_not_measured_is_neither_met_nor_missed() {
        assert!(all(&Rows::default()).iter().all(|bar| bar.met.is_none() && bar.figure.is_none()));
        let lone = rows(&[("sqlite-single", rate(9.0))]);
        assert_eq!(found(&lone, "SQLite, single events: delivered"), (None, None));
    }

    #[test]
    fn rates_are_judged_against_their_floor() {
        for (single, met) in [(49.0, false), (50.0, true), (120.0, true)] {
            let rows = rows(&[("forward", rate(100.0)), ("sqlite-single", rate(single))]);
            assert_eq!(found(&rows, "SQLite, single events: delivered").1, Some(met), "{single}");
        }
    }

    #[test]
    fn latency_is_judged_against_a_sync_and_two_hops() {
        for (p99_us, met) in [(4_000, true), (4_001, false)] {
            let rows = rows(&[
                ("fdatasync", times(700, 9_000)),
                ("forward-200", times(300, 9_000)),
                ("sqlite-200", times(1, p99_us)),
            ]);
            assert_eq!(found(&rows, "SQLite, p99 at 200/s").1, Some(met), "{p99_us}");
        }
    }

    #[test]
    fn the_backlog_has_four_bars() {
        let backlog = Backlog {
            accept_of_empty: 0.79,
            first_delivery_ms: 2_900.0,
            drained_per_s: 80.0,
            normal_per_s: 100.0,
            ..Backlog::default()
        };
        let figures =
            Figures { backlog: Some(backlog), peak_bytes: Some(401_000_000), ..Figures::default() };
        let rows = rows(&[("backlog", figures)]);
        for (what, figure, met) in [
            ("backlog: accept", "0.79", false),
            ("backlog: memory", "401 MB", false),
            ("backlog: first", "2.90 s", true),
            ("backlog: drain", "0.80", true),
        ] {
            assert_eq!(found(&rows, what), (Some(figure.to_owned()), Some(met)), "{what}");
        }
    }
}
