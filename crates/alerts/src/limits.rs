//! Every bound of alerts, with its reason.

use railpost_engine::Span;

/// Most open alerts of one rule that have a subject of their own: a person reads no more. What is above
/// them is one alert.
pub const ALERTS_OPEN_PER_RULE_MAX: usize = 100;

/// Longest key by which tools tell that two notices are of one alert, in bytes: what PagerDuty takes.
pub const DEDUP_KEY_LEN_MAX: usize = 255;

/// Longest window that is summed up from figures by the minute. Those are kept for a day; longer windows
/// lose little if they are summed up by the hour.
pub const MINUTES_WINDOW_MAX: Span = Span::from_hours(6);

/// Longest window of a rule: figures by the hour are kept a little longer.
pub const WINDOW_MAX: Span = Span::from_days(30);

/// Most pairs of windows of a burn-rate rule.
pub const BURN_WINDOWS_MAX: usize = 4;

/// Highest factor of a burn-rate rule, in tenths: all deliveries late, with an objective of 99.9 %.
pub const BURN_FACTOR_TENTHS_MAX: u32 = 10_000;

/// Most characters of a problem that a summary quotes.
pub const PROBLEM_CHARS_MAX: usize = 300;

/// Most characters of a URL that a summary quotes.
pub const URL_CHARS_MAX: usize = 200;

/// How long after a start no alert on record is resolved: endpoints, lanes and sources come one by one.
pub const START_GRACE: Span = Span::from_secs(60);
