//! Figures over time, for charts.

use std::collections::BTreeMap;

use http::Method;
use railpost_engine::{Span, Time, Timestamp};
use railpost_store::{Figures, FiguresScope, Histogram, Period, Resolution};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::events::check_target;
use super::path::{NoPath, OfEndpoint, OfTenant};
use super::problem::Problem;
use super::query::Query;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/v1/figures", Needs::Admin, "Figures of all tenants", of_all),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/figures",
            Needs::Read,
            "Figures of a tenant",
            of_tenant,
        ),
        Route::new(
            Method::GET,
            "/v1/tenants/{tenant}/endpoints/{endpoint}/figures",
            Needs::Read,
            "Figures of an endpoint",
            of_endpoint,
        ),
    ]
}

/// How far back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Range {
    /// A quarter of an hour, by the minute.
    #[serde(rename = "15m")]
    QuarterHour,
    /// An hour, by the minute.
    #[default]
    #[serde(rename = "1h")]
    Hour,
    /// A day, by ten minutes.
    #[serde(rename = "24h")]
    Day,
    /// A week, by the hour.
    #[serde(rename = "7d")]
    Week,
}

impl Range {
    fn span(self) -> Span {
        match self {
            Range::QuarterHour => Span::from_mins(15),
            Range::Hour => Span::from_hours(1),
            Range::Day => Span::from_hours(24),
            Range::Week => Span::from_days(7),
        }
    }

    /// How long a stretch of time one point is for: 168 points at the most.
    fn step(self) -> Span {
        match self {
            Range::QuarterHour | Range::Hour => Span::from_mins(1),
            Range::Day => Span::from_mins(10),
            Range::Week => Span::from_hours(1),
        }
    }

    fn resolution(self) -> Resolution {
        match self {
            Range::Week => Resolution::Hour,
            _ => Resolution::Minute,
        }
    }

    /// When its points begin: the last one is that of `now`, which is not over yet.
    fn starts(self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let (step, count) =
            (self.step().as_millis(), self.span().as_millis() / self.step().as_millis());
        let last = now.as_millis() - now.as_millis() % step;
        let first = last.saturating_sub((count - 1) * step);
        (0..count).map(move |index| Timestamp::from_millis(first + index * step))
    }
}

/// Which figures.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FiguresQuery {
    /// How far back: `15m`, `1h` (if not given), `24h` or `7d`.
    pub(crate) range: Range,
}

/// What happened over time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Figures")]
pub(crate) struct FiguresView {
    /// How far back.
    pub(crate) range: Range,
    /// How many seconds each point is for.
    pub(crate) step_s: u64,
    /// One point per step, the earliest first, also for steps in which nothing happened. The last step is not
    /// over yet.
    pub(crate) points: Vec<Point>,
    /// The whole range together.
    pub(crate) total: Total,
}

/// What happened in one step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Point {
    /// When it begins.
    pub(crate) at: Time,
    /// What happened in it.
    #[serde(flatten)]
    pub(crate) sums: Sums,
}

/// What happened in all steps.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Total {
    /// What happened.
    #[serde(flatten)]
    pub(crate) sums: Sums,
    /// Attempts by the response's status; `0` for those without a response.
    pub(crate) by_status: BTreeMap<u16, u64>,
    /// Attempts without a response, by what went wrong.
    pub(crate) by_failure: BTreeMap<String, u64>,
    /// The share of attempts that were acknowledged, 0 to 1; `null` if there were none.
    pub(crate) success_rate: Option<f64>,
}

/// Sums over a stretch of time.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Sums {
    /// Events accepted.
    pub(crate) accepted: u64,
    /// Attempts that ended.
    pub(crate) attempts: u64,
    /// Attempts that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Attempts that failed and may be retried.
    pub(crate) retryable: u64,
    /// Attempts that failed for good.
    pub(crate) permanent: u64,
    /// Dead letters made.
    pub(crate) dead: u64,
    /// How long attempts took.
    pub(crate) attempt_ms: Quantiles,
    /// How long deliveries took from accept to acknowledgement.
    pub(crate) deliver_ms: Quantiles,
    /// Deliveries whose first attempt ended.
    pub(crate) first_attempts: u64,
    /// Dead letters made because attempts were exhausted or the time to live was over.
    pub(crate) exhausted: u64,
    /// Deliveries acknowledged within the objective.
    pub(crate) on_time: u64,
    /// Deliveries that passed the objective before anything was sent to their receiver.
    pub(crate) late_operator: u64,
    /// Deliveries that passed the objective because of their receiver.
    pub(crate) late_receiver: u64,
    /// How long deliveries waited from accept to the start of their first attempt.
    pub(crate) first_attempt_ms: Quantiles,
}

/// Durations in milliseconds, exact to 12.5 %; `null` if there were none.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Quantiles {
    /// The median.
    pub(crate) p50: Option<f64>,
    /// The 95th percentile.
    pub(crate) p95: Option<f64>,
    /// The 99th percentile.
    pub(crate) p99: Option<f64>,
}

impl Quantiles {
    fn of(histogram: &Histogram, per_ms: f64) -> Self {
        let at = |share| histogram.quantile(share).map(|value| value as f64 / per_ms);
        Self { p50: at(0.50), p95: at(0.95), p99: at(0.99) }
    }
}

impl From<&Figures> for Sums {
    fn from(figures: &Figures) -> Self {
        Self {
            accepted: figures.accepted,
            attempts: figures.attempts,
            acknowledged: figures.acknowledged,
            retryable: figures.retryable,
            permanent: figures.permanent,
            dead: figures.dead,
            attempt_ms: Quantiles::of(&figures.attempt_us, 1000.0),
            deliver_ms: Quantiles::of(&figures.deliver_ms, 1.0),
            first_attempts: figures.first_attempts,
            exhausted: figures.exhausted,
            on_time: figures.on_time,
            late_operator: figures.late_operator,
            late_receiver: figures.late_receiver,
            first_attempt_ms: Quantiles::of(&figures.first_attempt_ms, 1.0),
        }
    }
}

impl From<Figures> for Total {
    fn from(figures: Figures) -> Self {
        let rate = figures.acknowledged as f64 / figures.attempts as f64;
        Self {
            sums: Sums::from(&figures),
            by_status: figures.by_status,
            by_failure: figures.by_failure,
            success_rate: (figures.attempts > 0).then_some(rate),
        }
    }
}

pub(crate) async fn of_all(
    ctx: Ctx,
    _: NoPath,
    Query(query): Query<FiguresQuery>,
    _: NoBody,
) -> Result<Json<FiguresView>, Problem> {
    of(&ctx, &FiguresScope::All, query.range).await
}

pub(crate) async fn of_tenant(
    ctx: Ctx,
    path: OfTenant,
    Query(query): Query<FiguresQuery>,
    _: NoBody,
) -> Result<Json<FiguresView>, Problem> {
    super::tenants::find(&ctx, &path.tenant).await?;
    of(&ctx, &FiguresScope::Tenant(path.tenant), query.range).await
}

pub(crate) async fn of_endpoint(
    ctx: Ctx,
    path: OfEndpoint,
    Query(query): Query<FiguresQuery>,
    _: NoBody,
) -> Result<Json<FiguresView>, Problem> {
    check_target(&ctx, &path.tenant, path.endpoint, "endpoint").await?;
    of(&ctx, &FiguresScope::Endpoint(path.endpoint), query.range).await
}

async fn of(ctx: &Ctx, scope: &FiguresScope, range: Range) -> Result<Json<FiguresView>, Problem> {
    let now = ctx.now();
    let period = Period { from: range.starts(now).next(), before: None };
    let stored = ctx.app.store.figures(scope, range.resolution(), period).await?;
    Ok(Json(chart(range, now, stored)))
}

/// All of them together.
pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a Figures>) -> Figures {
    all.fold(Figures::default(), |mut sum, figures| {
        sum.merge(figures);
        sum
    })
}

/// The chart of what was stored: minutes or hours summed up to steps, and none left out.
fn chart(range: Range, now: Timestamp, stored: Vec<(Timestamp, Figures)>) -> FiguresView {
    let mut steps: BTreeMap<Timestamp, Figures> =
        range.starts(now).map(|at| (at, Figures::default())).collect();
    let mut total = Figures::default();
    for (at, figures) in stored {
        if let Some((_, sum)) = steps.range_mut(..=at).next_back() {
            sum.merge(&figures);
            total.merge(&figures);
        }
    }
    let point =
        |(at, figures): (Timestamp, Figures)| Point { at: at.into(), sums: (&figures).into() };
    FiguresView {
        range,
        step_s: range.step().as_millis() / 1000,
        points: steps.into_iter().map(point).collect(),
        total: total.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn accepted(count: u64) -> Figures {
        Figures { accepted: count, ..Figures::default() }
    }

    #[test]
    fn each_range_has_its_steps_and_ends_with_the_one_under_way() {
        let now = at(1_769_860_830_500);
        for (range, count, step_s) in [
            (Range::QuarterHour, 15, 60),
            (Range::Hour, 60, 60),
            (Range::Day, 144, 600),
            (Range::Week, 168, 3600),
        ] {
            let starts: Vec<_> = range.starts(now).collect();
            assert_eq!(starts.len(), count, "{range:?}");
            let last = starts.last().unwrap();
            assert!(*last <= now && now.since(*last).as_millis() < step_s * 1000, "{range:?}");
            assert_eq!(starts[1].since(starts[0]).as_millis(), step_s * 1000, "{range:?}");
        }
    }

    #[test]
    fn minutes_are_summed_up_to_steps_and_empty_steps_stay() {
        let now = at(1000 * 600_000);
        let stored = vec![
            (at(998 * 600_000), accepted(1)),
            (at(998 * 600_000 + 540_000), accepted(2)),
            (at(1000 * 600_000), accepted(4)),
        ];
        let chart = chart(Range::Day, now, stored);
        let last: Vec<u64> = chart.points[140..].iter().map(|point| point.sums.accepted).collect();
        assert_eq!((last, chart.total.sums.accepted), (vec![0, 3, 0, 4], 7));
    }

    #[test]
    fn the_success_rate_is_the_share_of_attempts_that_were_acknowledged() {
        for (attempts, acknowledged, rate) in [(0, 0, None), (4, 1, Some(0.25)), (2, 2, Some(1.0))]
        {
            let total = Total::from(Figures { attempts, acknowledged, ..Figures::default() });
            assert_eq!(total.success_rate, rate);
        }
    }

    #[test]
    fn quantiles_are_in_milliseconds() {
        let mut figures = Figures::default();
        figures.attempt_us.record(4);
        figures.deliver_ms.record(4);
        let sums = Sums::from(&figures);
        assert_eq!((sums.attempt_ms.p50, sums.deliver_ms.p99), (Some(0.004), Some(4.0)));
    }
}
