//! Charts as SVG, rendered on the server. The label of a chart has its content in words, and series differ by
//! stroke or position, not by colour alone.

use maud::{Markup, html};

use super::shown;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 160.0;
/// Where the plot begins and ends; the room below and above it.
const LEFT: f64 = 56.0;
const RIGHT: f64 = 432.0;
const BELOW: f64 = 22.0;
const ABOVE: f64 = 12.0;

/// What a chart shows.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// The content of the chart in words, for screen readers.
    pub(super) summary: String,
    pub(super) series: Vec<Series>,
    /// How a value of the vertical axis is written.
    pub(super) label: fn(f64) -> String,
    /// The instant of each point.
    pub(super) at: Vec<String>,
    /// Whether days are shown on the axis, or times of day.
    pub(super) shows_days: bool,
    /// The top of the vertical axis, unless the values say it.
    pub(super) top: Option<f64>,
}

/// One series: a value per point, where there is one.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) class: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

impl Chart<'_> {
    /// Bars that stand on each other.
    pub(super) fn stacked(&self) -> Markup {
        let sums: Vec<f64> = (0..self.len()).map(|index| self.sum(index)).collect();
        let top = self.top.unwrap_or_else(|| nice_top(sums.iter().copied().fold(0.0, f64::max)));
        self.figure(top, &html! { @for index in 0..self.len() { (self.stack(index, top)) } })
    }

    /// Lines.
    pub(super) fn lines(&self) -> Markup {
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten());
        let top = self.top.unwrap_or_else(|| nice_top(values.copied().fold(0.0, f64::max)));
        self.figure(
            top,
            &html! {
                @for series in &self.series {
                    @for points in self.stretches(series, top) {
                        @if points.len() == 1 {
                            circle class=(series.class) cx=(points[0].0) cy=(points[0].1) r="2.5" {}
                        } @else {
                            polyline class={ "line " (series.class) } points=(joined(&points)) {}
                        }
                    }
                }
            },
        )
    }

    fn figure(&self, top: f64, plot: &Markup) -> Markup {
        html! {
            figure.chart {
                figcaption { (self.title) }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.summary) tabindex="0" {
                    @for share in [0.0, 0.5, 1.0] {
                        line.grid x1=(LEFT) x2=(RIGHT) y1=(y(share)) y2=(y(share)) {}
                        text.axis x=(LEFT - 6.0) y=(y(share) + 4.0) text-anchor="end" {
                            ((self.label)(top * share))
                        }
                    }
                    (plot)
                    (self.axis_end(LEFT, "start", self.at.first()))
                    (self.axis_end(RIGHT, "end", self.at.last()))
                    @for index in 0..self.len() { (self.hit(index)) }
                }
                (readout())
                (self.legend())
            }
        }
    }

    /// An end of the time axis: UTC, which the script turns into the reader's time.
    fn axis_end(&self, x: f64, anchor: &str, at: Option<&String>) -> Markup {
        let at = at.map(String::as_str).unwrap_or_default();
        let shown = at.get(if self.shows_days { 5..10 } else { 11..16 }).unwrap_or_default();
        html! {
            text.axis x=(x) y=(HEIGHT - BELOW + 16.0) text-anchor=(anchor) data-at=(at)
                data-day[self.shows_days] { (shown) " UTC" }
        }
    }

    /// What shows the values of one point to a pointer, and to the arrow keys.
    fn hit(&self, index: usize) -> Markup {
        let slot = (RIGHT - LEFT) / self.len() as f64;
        let values: Vec<String> = self
            .series
            .iter()
            .filter_map(|series| {
                Some(format!("{} {}", series.name, (self.label)(series.values[index]?)))
            })
            .collect();
        let values = if values.is_empty() { "nothing".to_owned() } else { values.join(", ") };
        let at = self.at.get(index).map(String::as_str).unwrap_or_default();
        html! {
            rect.hit x=(rounded(LEFT + slot * index as f64)) y=(ABOVE) width=(rounded(slot))
                height=(HEIGHT - BELOW - ABOVE) data-at=(at) data-values=(values) {
                title { (shown::utc_seconds(&at.into())) ": " (values) }
            }
        }
    }

    fn legend(&self) -> Markup {
        html! {
            ul.legend {
                @for series in &self.series {
                    li {
                        svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true" {
                            line class={ "line " (series.class) } x1="1" x2="23" y1="5" y2="5" {}
                        }
                        (series.name)
                    }
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.series.first().map_or(0, |series| series.values.len())
    }

    fn sum(&self, index: usize) -> f64 {
        self.series.iter().filter_map(|series| series.values[index]).sum()
    }

    fn stack(&self, index: usize, top: f64) -> Markup {
        let slot = (RIGHT - LEFT) / self.len() as f64;
        let width = (slot * 0.8).max(0.5);
        let x = LEFT + slot * index as f64 + (slot - width) / 2.0;
        let mut below = 0.0;
        html! {
            @for series in &self.series {
                @let value = series.values[index].unwrap_or_default();
                @if value > 0.0 {
                    @let from = y((below + value) / top);
                    rect class=(series.class) x=(rounded(x)) y=(rounded(from)) width=(rounded(width))
                        height=(rounded(y(below / top) - from)) {}
                    @let () = below += value;
                }
            }
        }
    }

    /// The points of a series, apart where values are missing.
    fn stretches(&self, series: &Series, top: f64) -> Vec<Vec<(f64, f64)>> {
        let step = (RIGHT - LEFT) / (self.len().max(2) - 1) as f64;
        let mut stretches = vec![Vec::new()];
        for (index, value) in series.values.iter().enumerate() {
            match (value, stretches.last_mut()) {
                (Some(value), Some(last)) => {
                    last.push((rounded(LEFT + step * index as f64), rounded(y(value / top))));
                }
                _ => stretches.push(Vec::new()),
            }
        }
        stretches.retain(|stretch| !stretch.is_empty());
        stretches
    }
}

/// Where the script writes the values under the pointer. A new drawing leaves it alone.
fn readout() -> Markup {
    html! { output.readout data-keep {} }
}

/// Where a share of the vertical axis lies.
fn y(share: f64) -> f64 {
    let plot = HEIGHT - BELOW - ABOVE;
    ABOVE + plot * (1.0 - share.clamp(0.0, 1.0))
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn joined(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
    points.join(" ")
}

/// The next round number that has room for the largest value.
fn nice_top(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(largest.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    steps.into_iter().map(|step| step * unit).find(|top| *top >= largest).unwrap_or(unit * 10.0)
}

/// The planned attempts of a delivery that keeps failing, on a time axis whose steps grow: a row for
/// each, from its earliest to its latest instant, in seconds after the first attempt.
pub(super) fn schedule(attempts: &[(u64, f64, f64)]) -> Markup {
    let last = attempts.iter().map(|(_, _, latest)| *latest).fold(1.0, f64::max);
    let x = |seconds: f64| rounded(20.0 + (seconds.max(0.0).ln_1p() / last.ln_1p()) * 600.0);
    let marks = [1.0, 10.0, 60.0, 600.0, 3_600.0, 36_000.0, 86_400.0, 259_200.0];
    let bottom = 12 + attempts.len() * 9;
    let summary = format!("{} planned attempts over {}", attempts.len(), seconds(last));
    html! {
        figure.chart.wide {
            figcaption { "When a delivery that keeps failing is tried: each attempt, from its earliest to its latest instant" }
            svg viewBox={ "0 0 640 " (bottom + 24) } role="img" aria-label=(summary) tabindex="0" {
                @for mark in marks.into_iter().filter(|mark| *mark <= last) {
                    line.grid x1=(x(mark)) x2=(x(mark)) y1="4" y2=(bottom) {}
                    text.axis x=(x(mark)) y=(bottom + 16) text-anchor="middle" { (seconds(mark)) }
                }
                @for (row, (number, earliest, latest)) in attempts.iter().enumerate() {
                    rect.planned.hit x=(x(*earliest)) y=(8 + row * 9) height="6" rx="3"
                        width=(rounded((x(*latest) - x(*earliest)).max(6.0))) {
                        title { "attempt " (number) ": " (seconds(*earliest)) " to " (seconds(*latest)) }
                    }
                }
            }
            (readout())
        }
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5_400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_round_number_above_all_values() {
        for (largest, top) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (7.0, 10.0), (130.0, 200.0)] {
            assert!((nice_top(largest) - top).abs() < 1e-9, "{largest}: {}", nice_top(largest));
        }
    }

    #[test]
    fn a_line_is_cut_where_values_are_missing() {
        let series =
            Series { name: "n", class: "c", values: vec![Some(1.0), None, Some(2.0), Some(3.0)] };
        let chart = Chart {
            title: "t",
            summary: String::new(),
            series: vec![],
            label: |value| value.to_string(),
            at: vec![],
            shows_days: false,
            top: None,
        };
        let lens: Vec<usize> = chart.stretches(&series, 3.0).iter().map(Vec::len).collect();
        assert_eq!(lens, [1, 2]);
    }
}
