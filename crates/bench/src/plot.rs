//! The figures drawn, as SVG. Dark text on a pale ground of its own, so that a page may be light or
//! dark around it.

use std::fmt::Write as _;

use crate::figures::{Backlog, Row, Rows};
use crate::table::{duration, thousands};

const WIDTH: f64 = 760.0;
const LINE: f64 = 24.0;
const TOP: f64 = 56.0;
const LABELS: f64 = 170.0;
const RIGHT: f64 = 150.0;
/// Right of a curve: half of its last number stands there.
const MARGIN: f64 = 50.0;

const GROUND: &str = "#f4f5f7";
const INK: &str = "#1f2733";
const FAINT: &str = "#c9ced6";
const FLOOR: &str = "#8a94a3";
const RAILPOST: &str = "#2f6fb2";
const SLOW: &str = "#c4572e";

/// A drawing under its file name.
pub(crate) struct Plot {
    pub(crate) file: &'static str,
    pub(crate) svg: String,
}

/// Every drawing for which there are figures.
pub(crate) fn all(rows: &Rows) -> Vec<Plot> {
    let backlog = rows.get("backlog").and_then(|figures| figures.backlog.as_ref());
    let drawn = [
        ("bench-throughput.svg", throughput(rows)),
        ("bench-latency.svg", latency(rows)),
        ("bench-backlog.svg", backlog.and_then(growth)),
    ];
    drawn.into_iter().filter_map(|(file, svg)| Some(Plot { file, svg: svg? })).collect()
}

/// Deliveries per second at full load: a bar each.
fn throughput(rows: &Rows) -> Option<String> {
    let bars: Vec<(&Row, f64)> = rows.0.iter().filter_map(full_load).collect();
    let most = bars.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let mut drawing = Drawing::new("Deliveries per second at full load", bars.len());
    for (index, (row, rate)) in bars.iter().enumerate() {
        let of = row.figures.of_forwarder.map(|of| format!(" ({of:.2} of forwarder)"));
        let length = rate / most * (WIDTH - LABELS - RIGHT - 40.0);
        let colour = if is_floor(row) { FLOOR } else { RAILPOST };
        let y = TOP + LINE * index as f64;
        drawing.label(y, row.case);
        drawing.bar(y, length, colour);
        let text = format!("{}{}", thousands(*rate), of.unwrap_or_default());
        drawing.text(LABELS + length + 6.0, y + 14.0, &text);
    }
    (!bars.is_empty()).then(|| drawing.finish())
}

fn full_load(row: &Row) -> Option<(&Row, f64)> {
    let compared = row.figures.of_forwarder.is_some() || is_floor(row);
    let rate = row.figures.delivered_per_s.filter(|_| compared && !row.figures.scheduled)?;
    Some((row, rate))
}

/// The median and the p99 of what came by schedule, on a scale that grows tenfold per step.
fn latency(rows: &Rows) -> Option<String> {
    let spans: Vec<(&Row, u64, u64)> = rows.0.iter().filter_map(by_schedule).collect();
    let lowest = spans.iter().map(|(_, p50, _)| (*p50).max(1)).min()?.ilog10();
    let highest = spans.iter().map(|(_, _, p99)| (*p99).max(1)).max()?.ilog10() + 1;
    let scale = LogScale { lowest, highest };
    let mut drawing = Drawing::new("From send to arrival: median to p99", spans.len() + 1);
    for power in lowest..=highest {
        drawing.grid(scale.x(10_u64.pow(power)), spans.len(), &duration(10_u64.pow(power)));
    }
    for (index, (row, p50, p99)) in spans.iter().enumerate() {
        let y = TOP + LINE * index as f64;
        drawing.label(y, row.case);
        let colour = if is_floor(row) { FLOOR } else { RAILPOST };
        drawing.span(y, scale.x(*p50), scale.x(*p99), colour);
        let text = format!("{} to {}", duration(*p50), duration(*p99));
        drawing.text(WIDTH - RIGHT + 20.0, y + 14.0, &text);
    }
    Some(drawing.finish())
}

fn by_schedule(row: &Row) -> Option<(&Row, u64, u64)> {
    let figures = &row.figures;
    figures.scheduled.then_some((row, figures.p50_us?, figures.p99_us?))
}

/// How fast events are accepted while they pile up.
fn growth(backlog: &Backlog) -> Option<String> {
    const HEIGHT: f64 = 8.0 * LINE;
    let last = backlog.growth.last()?.0 as f64;
    let most = backlog.growth.iter().map(|(_, rate)| *rate).fold(backlog.drained_per_s, f64::max);
    let mut drawing = Drawing::new("Accepted per second while events pile up", 11);
    let x = |piled: f64| 90.0 + piled / last * (WIDTH - MARGIN - 90.0);
    let y = |rate: f64| TOP + HEIGHT * (1.0 - rate / (most * 1.1));
    for rate in [0.0, most / 2.0, most] {
        drawing.level(y(rate), &thousands(rate));
    }
    for piled in [0.0, last / 2.0, last] {
        drawing.centred(x(piled), TOP + HEIGHT + 18.0, &thousands(piled));
    }
    drawing.line(backlog.growth.iter().map(|(piled, rate)| (x(*piled as f64), y(*rate))));
    let after = format!(
        "{} lanes; after a crash: ready in {:.0} ms, first delivery after {:.0} ms, drained at {}/s",
        thousands(f64::from(backlog.lanes)),
        backlog.ready_ms,
        backlog.first_delivery_ms,
        thousands(backlog.drained_per_s),
    );
    drawing.text(90.0, TOP + HEIGHT + 48.0, &after);
    Some(drawing.finish())
}

fn is_floor(row: &Row) -> bool {
    ["hop", "forward", "sequential"].iter().any(|floor| row.case.starts_with(floor))
}

/// A logarithmic axis of microseconds.
struct LogScale {
    lowest: u32,
    highest: u32,
}

impl LogScale {
    fn x(&self, micros: u64) -> f64 {
        let power = (micros.max(1) as f64).log10() - f64::from(self.lowest);
        let width = WIDTH - LABELS - RIGHT - 10.0;
        LABELS + power / f64::from(self.highest - self.lowest) * width
    }
}

/// An SVG in the making.
struct Drawing {
    svg: String,
}

impl Drawing {
    fn new(title: &str, lines: usize) -> Self {
        let height = TOP + LINE * lines as f64 + 16.0;
        let mut drawing = Self { svg: String::new() };
        drawing.add(format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img" aria-label="{title}">"#
        ));
        drawing.add(format_args!(
            r#"<rect width="{WIDTH}" height="{height}" rx="8" fill="{GROUND}"/>"#
        ));
        drawing.add(format_args!(
            r#"<text x="20" y="32" font-size="16" font-weight="600">{title}</text>"#
        ));
        drawing
    }

    fn label(&mut self, y: f64, text: &str) {
        let (x, y) = (LABELS - 8.0, y + 14.0);
        self.add(format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{text}</text>"#));
    }

    fn text(&mut self, x: f64, y: f64, text: &str) {
        self.add(format_args!(r#"<text x="{x:.1}" y="{y:.1}">{text}</text>"#));
    }

    fn bar(&mut self, y: f64, length: f64, colour: &str) {
        let y = y + 2.0;
        self.add(format_args!(
            r#"<rect x="{LABELS}" y="{y:.1}" width="{length:.1}" height="16" rx="2" fill="{colour}"/>"#
        ));
    }

    /// A dot for the median, one for the p99, and a line between.
    fn span(&mut self, y: f64, from: f64, to: f64, colour: &str) {
        let y = y + 10.0;
        self.add(format_args!(
            r#"<path d="M{from:.1} {y:.1}H{to:.1}" stroke="{colour}" stroke-width="3"/>"#
        ));
        self.add(format_args!(r#"<circle cx="{from:.1}" cy="{y:.1}" r="5" fill="{colour}"/>"#));
        self.add(format_args!(r#"<circle cx="{to:.1}" cy="{y:.1}" r="5" fill="{SLOW}"/>"#));
    }

    fn grid(&mut self, x: f64, lines: usize, text: &str) {
        let (top, bottom) = (TOP - 6.0, TOP + LINE * lines as f64);
        self.add(format_args!(r#"<path d="M{x:.1} {top}V{bottom}" stroke="{FAINT}"/>"#));
        self.centred(x, bottom + 14.0, text);
    }

    fn centred(&mut self, x: f64, y: f64, text: &str) {
        self.add(format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{text}</text>"#));
    }

    fn level(&mut self, y: f64, text: &str) {
        let right = WIDTH - MARGIN;
        self.add(format_args!(r#"<path d="M90 {y:.1}H{right}" stroke="{FAINT}"/>"#));
        self.add(format_args!(
            r#"<text x="82" y="{:.1}" text-anchor="end">{text}</text>"#,
            y + 4.0
        ));
    }

    fn line(&mut self, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.add(format_args!(
            r#"<polyline points="{points}" fill="none" stroke="{RAILPOST}" stroke-width="2.5"/>"#
        ));
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.svg, "{element}");
    }

    fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    fn row(case: &'static str, figures: Figures) -> Row {
        Row { case, about: "", figures, missing: None }
    }

    fn rows() -> Rows {
        let full = Figures {
            delivered_per_s: Some(1_000.0),
            of_forwarder: Some(0.5),
            ..Figures::default()
        };
        let paced =
            Figures { scheduled: true, p50_us: Some(100), p99_us: Some(2_000), ..full.clone() };
        let growth = vec![(500, 10_000.0), (1_000, 9_000.0)];
        let backlog = Backlog { growth, drained_per_s: 8_000.0, ..Backlog::default() };
        let piled = Figures { backlog: Some(backlog), ..Figures::default() };
        Rows(vec![
            row("forward", Figures { of_forwarder: None, ..full.clone() }),
            row("sqlite-single", full),
            row("sqlite-200", paced),
            row("backlog", piled),
        ])
    }

    #[test]
    fn each_drawing_shows_its_own_cases() {
        let plots = all(&rows());
        let shows = |file: &str, text: &str| {
            plots.iter().any(|plot| plot.file == file && plot.svg.contains(text))
        };
        for (file, text, expected) in [
            ("bench-throughput.svg", "sqlite-single", true),
            ("bench-throughput.svg", "forward", true),
            ("bench-throughput.svg", "sqlite-200", false),
            ("bench-latency.svg", "sqlite-200", true),
            ("bench-latency.svg", "100 µs to 2.00 ms", true),
            ("bench-latency.svg", "sqlite-single", false),
            ("bench-backlog.svg", "drained at 8,000/s", true),
        ] {
            assert_eq!(shows(file, text), expected, "{text} in {file}");
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(all(&Rows::default()).is_empty());
    }

    #[test]
    fn a_tenfold_is_as_wide_as_the_next() {
        let scale = LogScale { lowest: 1, highest: 4 };
        let first = scale.x(100) - scale.x(10);
        let second = scale.x(1_000) - scale.x(100);
        assert!((first - second).abs() < 1e-9);
        assert!((scale.x(10) - LABELS).abs() < 1e-9);
    }
}
