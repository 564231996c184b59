//! The bars that Railpost set itself, and whether this run met them.

use serde::Serialize;

use crate::figures::{Backlog, Figures, Rows, median, ratio};

/// One bar and the figure against it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) what: &'static str,
    pub(crate) bar: String,
    /// The median of the rounds. Nothing when a case it needs was not measured.
    pub(crate) figure: Option<String>,
    /// What each round showed, if there was more than one.
    pub(crate) rounds: Vec<String>,
    pub(crate) met: Option<bool>,
}

/// A bar, and how its figure is found.
struct BarSpec {
    what: &'static str,
    side: Side,
    bar: f64,
    figure: Figure,
    show: fn(f64) -> String,
}

/// How a figure is found among the rows of a run or a round.
type Figure = Box<dyn Fn(&Rows) -> Option<f64>>;

/// On which side of the bar a figure should be.
#[derive(Clone, Copy)]
enum Side {
    AtLeast,
    AtMost,
}

/// Every bar, in the order of the docs. What was measured in rounds is judged by their median, each round
/// by itself: its cases ran one after the other, while the machine was the same.
pub(crate) fn all(rows: &Rows, rounds: &[Rows]) -> Vec<Bar> {
    let wanted = rates().into_iter().chain([cpu(), latency()]).chain(isolation()).chain(backlog());
    let wanted = wanted.chain(ordinary_load()).chain(endpoints()).chain(outbox());
    wanted.map(|wanted| wanted.judge(rows, rounds)).collect()
}

impl BarSpec {
    fn judge(self, rows: &Rows, rounds: &[Rows]) -> Bar {
        let Self { what, side, bar, figure, show } = self;
        let mut found: Vec<f64> = rounds.iter().filter_map(&figure).collect();
        if found.is_empty() {
            found.extend(figure(rows));
        }
        let middle = median(&found, |figure| *figure).copied();
        let (sign, met) = match side {
            Side::AtLeast => ("≥", middle.map(|figure| figure >= bar)),
            Side::AtMost => ("≤", middle.map(|figure| figure <= bar)),
        };
        let rounds = if found.len() > 1 { found.into_iter().map(show).collect() } else { vec![] };
        Bar { what, bar: format!("{sign} {}", show(bar)), figure: middle.map(show), rounds, met }
    }
}

fn rates() -> Vec<BarSpec> {
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
        let figure = compare(case, floor, |figures| figures.delivered_per_s);
        share(what, Side::AtLeast, bar, figure)
    })
    .collect()
}

fn cpu() -> BarSpec {
    BarSpec {
        what: "SQLite, single events: server CPU per delivery",
        side: Side::AtMost,
        bar: 80.0,
        figure: Box::new(|rows| rows.get("sqlite-single")?.server_cpu_us),
        show: |micros| format!("{micros:.1} µs"),
    }
}

/// One durable write and two hops, at their median, four times over. All at the same rate: what comes
/// seldom finds a machine that has to wake up, and takes longer.
fn latency() -> BarSpec {
    BarSpec {
        what: "SQLite, p99 at 200/s: times one fdatasync and two hops (medians)",
        side: Side::AtMost,
        bar: 4.0,
        figure: Box::new(|rows| {
            let floor = rows.get("fdatasync-200")?.p50_us? + rows.get("forward-200")?.p50_us?;
            ratio(rows.get("sqlite-200")?.p99_us? as f64, floor as f64)
        }),
        show: |times| format!("{times:.2} ×"),
    }
}

/// CaseKind an event costs at the load that most servers have.
fn ordinary_load() -> Vec<BarSpec> {
    let bytes = |what, case: &'static str, kb: f64| BarSpec {
        what,
        side: Side::AtMost,
        bar: kb,
        figure: Box::new(move |rows| Some(rows.get(case)?.written_bytes? / 1e3)),
        show: |kb| format!("{kb:.1} KB"),
    };
    let cpu = |what, case: &'static str, micros: f64| BarSpec {
        what,
        side: Side::AtMost,
        bar: micros,
        figure: Box::new(move |rows| {
            let figures = rows.get(case)?;
            Some(figures.server_cpu_us? + figures.postgres_cpu_us.unwrap_or(0.0))
        }),
        show: |micros| format!("{micros:.0} µs"),
    };
    vec![
        bytes("SQLite, 200/s: bytes per event", "sqlite-200", 20.0),
        cpu("SQLite, 200/s: CPU per event", "sqlite-200", 350.0),
        bytes("SQLite, 2,000/s: bytes per event", "sqlite-2000", 12.0),
        cpu("SQLite, 2,000/s: CPU per event", "sqlite-2000", 200.0),
        bytes("PostgreSQL, 200/s: bytes per event", "postgres-200", 15.0),
        cpu("PostgreSQL, 200/s: CPU of both per event", "postgres-200", 1_000.0),
    ]
}

fn endpoints() -> [BarSpec; 2] {
    [
        BarSpec {
            what: "30,000 endpoints: memory",
            side: Side::AtMost,
            bar: 80.0,
            figure: Box::new(|rows| Some(rows.get("endpoints")?.peak_bytes? as f64 / 1e6)),
            show: |mb| format!("{mb:.0} MB"),
        },
        BarSpec {
            what: "30,000 endpoints: start to ready",
            side: Side::AtMost,
            bar: 0.5,
            figure: Box::new(|rows| Some(rows.get("endpoints")?.ready_ms? / 1e3)),
            show: |seconds| format!("{seconds:.2} s"),
        },
    ]
}

fn isolation() -> [BarSpec; 2] {
    let rate = compare("beside-hanging", "beside-none", |figures| figures.delivered_per_s);
    let p99 = compare("beside-hanging-2000", "beside-none-2000", |figures| {
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

fn backlog() -> [BarSpec; 4] {
    let of = |figure: fn(&Backlog) -> Option<f64>| -> Figure {
        Box::new(move |rows| figure(rows.get("backlog")?.backlog.as_ref()?))
    };
    [
        share(
            "backlog: accept rate of empty",
            Side::AtLeast,
            0.8,
            of(|backlog| Some(backlog.accept_of_empty)),
        ),
        BarSpec {
            what: "backlog: memory",
            side: Side::AtMost,
            bar: 400.0,
            figure: Box::new(|rows| Some(rows.get("backlog")?.peak_bytes? as f64 / 1e6)),
            show: |mb| format!("{mb:.0} MB"),
        },
        BarSpec {
            what: "backlog: first delivery after a restart",
            side: Side::AtMost,
            bar: 3.0,
            figure: of(|backlog| Some(backlog.first_delivery_ms / 1e3)),
            show: |s| format!("{s:.2} s"),
        },
        share(
            "backlog: drain rate of normal",
            Side::AtLeast,
            0.8,
            of(|backlog| ratio(backlog.drained_per_s, backlog.normal_per_s)),
        ),
    ]
}

fn outbox() -> Vec<BarSpec> {
    let rate = |what, case: &'static str, bar| BarSpec {
        what,
        side: Side::AtLeast,
        bar,
        figure: Box::new(move |rows| rows.get(case)?.delivered_per_s),
        show: |rate| format!("{rate:.0}/s"),
    };
    let delay = |what, case: &'static str, bar, of: fn(&Figures) -> Option<u64>| BarSpec {
        what,
        side: Side::AtMost,
        bar,
        figure: Box::new(move |rows| Some(of(rows.get(case)?)? as f64 / 1e3)),
        show: |millis| format!("{millis:.1} ms"),
    };
    let cpu = |what, case: &'static str, bar| BarSpec {
        what,
        side: Side::AtMost,
        bar,
        figure: Box::new(move |rows| Some(rows.get(case)?.relay_cores? * 100.0)),
        show: |percent| format!("{percent:.1} %"),
    };
    vec![
        rate("outbox: drained into SQLite", "outbox-drain-sqlite", 20_000.0),
        rate("outbox: drained into PostgreSQL", "outbox-drain-postgres", 10_000.0),
        delay("outbox, tail: COMMIT to POST, p50", "outbox-tail-200", 3.0, |f| f.p50_us),
        delay("outbox, tail: COMMIT to POST, p99", "outbox-tail-200", 15.0, |f| f.p99_us),
        delay("outbox, notify: COMMIT to POST, p50", "outbox-notify-200", 3.0, |f| f.p50_us),
        delay("outbox, notify: COMMIT to POST, p99", "outbox-notify-200", 15.0, |f| f.p99_us),
        // Half of the 5 ms between two polls, and 3 ms.
        delay("outbox, poll: COMMIT to POST, p50", "outbox-poll-200", 5.5, |f| f.p50_us),
        cpu("outbox, poll at 1,000/s: CPU of a core", "outbox-cpu-poll", 10.0),
        cpu("outbox, tail at 1,000/s: CPU of a core", "outbox-cpu-tail", 10.0),
        cpu("outbox, poll, idle: CPU of a core", "outbox-idle-poll", 2.0),
        cpu("outbox, tail, idle: CPU of a core", "outbox-idle-tail", 2.0),
        BarSpec {
            what: "outbox: delay with 300,000 dead rows of that without",
            side: Side::AtMost,
            bar: 2.0,
            figure: Box::new(|rows| rows.get("outbox-dead-rows")?.of_without),
            show: |times| format!("{times:.2} ×"),
        },
    ]
}

fn compare(case: &'static str, floor: &'static str, figure: fn(&Figures) -> Option<f64>) -> Figure {
    Box::new(move |rows| ratio(rows.get(case).and_then(figure)?, rows.get(floor).and_then(figure)?))
}

fn share(what: &'static str, side: Side, bar: f64, figure: Figure) -> BarSpec {
    BarSpec { what, side, bar, figure, show: |share| format!("{share:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Row;

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
        let bar = all(rows, &[]).into_iter().find(|bar| bar.what.starts_with(what)).unwrap();
        (bar.figure, bar.met)
    }

    #[test]
    fn a_bar_whose_cases_were_not_measured_is_neither_met_nor_missed() {
        assert!(
            all(&Rows::default(), &[]).iter().all(|bar| bar.met.is_none() && bar.figure.is_none())
        );
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
                ("fdatasync-200", times(700, 9_000)),
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

    #[test]
    fn rounds_are_judged_each_by_itself_and_together_by_their_median() {
        let round =
            |single, forward| rows(&[("forward", rate(forward)), ("sqlite-single", rate(single))]);
        let rounds = [round(45.0, 100.0), round(30.0, 50.0), round(10.0, 100.0)];
        let bars = all(&round(99.0, 100.0), &rounds);
        assert_eq!(bars[0].rounds, ["0.45", "0.60", "0.10"]);
        assert_eq!((bars[0].figure.as_deref(), bars[0].met), (Some("0.45"), Some(false)));
    }

    #[test]
    fn what_is_in_no_round_is_judged_by_the_run() {
        let run = rows(&[("sequential", rate(10.0)), ("sqlite-hot-key", rate(6.0))]);
        let bars = all(&run, &[Rows::default(), Rows::default()]);
        assert_eq!((bars[3].figure.as_deref(), bars[3].rounds.len()), (Some("0.60"), 0));
    }
}
