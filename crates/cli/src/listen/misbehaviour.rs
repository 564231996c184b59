//! How a receiver misbehaves, drawn from a seed.

use std::time::Duration;

use railpost_engine::Span;

use crate::failure::{Failure, Outcome};

/// What goes wrong. With --fail-first or --fail-rate only those requests fail, otherwise all.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Misbehaviour")]
pub(crate) struct Flags {
    /// Fail the first N requests
    #[arg(long, value_name = "N")]
    fail_first: Option<u64>,
    /// Fail this share of requests, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    fail_rate: Option<f64>,
    /// Fail with this status (500, or 503 with --retry-after)
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,
    /// Fail by breaking the connection
    #[arg(long, conflicts_with_all = ["status", "hang"])]
    reset: bool,
    /// Fail by never answering
    #[arg(long, conflicts_with = "status")]
    hang: bool,
    /// Ask for a pause of this many seconds when failing
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["reset", "hang"])]
    retry_after: Option<u64>,
    /// Wait this long before every answer
    #[arg(long, default_value = "0s", value_name = "TIME")]
    delay: Span,
    /// Repeat the same failures
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Status { status: u16, retry_after: Option<u64> },
    Hang,
    Reset,
}

impl Answer {
    const OK: Answer = Answer::Status { status: 200, retry_after: None };

    pub(crate) fn acknowledges(&self) -> bool {
        matches!(self, Answer::Status { status: 200..=299, .. })
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Status { status, retry_after: None } => write!(f, "{status}"),
            Answer::Status { status, retry_after: Some(seconds) } => {
                write!(f, "{status} (retry after {seconds}s)")
            }
            Answer::Hang => f.write_str("hang"),
            Answer::Reset => f.write_str("reset"),
        }
    }
}

/// What is done with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedAnswer {
    pub(crate) delay: Duration,
    pub(crate) answer: Answer,
}

/// Says what is done with each request, one after the other.
#[derive(Debug)]
pub(crate) struct Misbehaviour {
    delay: Duration,
    failure: Answer,
    when: FailurePattern,
    rng: fastrand::Rng,
}

/// Which requests fail.
#[derive(Clone, Copy, Debug)]
enum FailurePattern {
    Never,
    Always,
    /// So many more, then that share.
    Some {
        first: u64,
        rate: f64,
    },
}

impl Flags {
    pub(crate) fn to_misbehaviour(&self) -> Outcome<Misbehaviour> {
        let rate = self.fail_rate.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&rate) {
            return Err(Failure::usage(format!(
                "--fail-rate: expected a share from 0 to 1; got {rate}"
            )));
        }
        Ok(Misbehaviour {
            delay: Duration::from(self.delay),
            failure: self.failure(),
            when: self.when(rate),
            rng: fastrand::Rng::with_seed(self.seed),
        })
    }

    fn failure(&self) -> Answer {
        let usual = if self.retry_after.is_some() { 503 } else { 500 };
        match (self.reset, self.hang) {
            (true, _) => Answer::Reset,
            (_, true) => Answer::Hang,
            _ => Answer::Status {
                status: self.status.unwrap_or(usual),
                retry_after: self.retry_after,
            },
        }
    }

    fn when(&self, rate: f64) -> FailurePattern {
        if self.fail_first.is_some() || self.fail_rate.is_some() {
            return FailurePattern::Some { first: self.fail_first.unwrap_or(0), rate };
        }
        let any = self.status.is_some() || self.reset || self.hang || self.retry_after.is_some();
        if any { FailurePattern::Always } else { FailurePattern::Never }
    }
}

impl Misbehaviour {
    /// What is done with the next request.
    pub(crate) fn next(&mut self) -> PlannedAnswer {
        let answer = if self.fails() { self.failure } else { Answer::OK };
        PlannedAnswer { delay: self.delay, answer }
    }

    fn fails(&mut self) -> bool {
        match &mut self.when {
            FailurePattern::Never => false,
            FailurePattern::Always => true,
            FailurePattern::Some { first: 0, rate } => self.rng.f64() < *rate,
            FailurePattern::Some { first, .. } => {
                *first -= 1;
                true
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn answers(flags: &Flags, count: usize) -> Vec<Answer> {
        let mut misbehaviour = flags.to_misbehaviour().unwrap();
        (0..count).map(|_| misbehaviour.next().answer).collect()
    }

    fn status(status: u16) -> Answer {
        Answer::Status { status, retry_after: None }
    }

    #[test]
    fn flags_say_which_requests_fail_and_how() {
        let none = Flags::default;
        let busy = Answer::Status { status: 503, retry_after: Some(5) };
        for (flags, expected) in [
            (none(), [Answer::OK; 3]),
            (Flags { status: Some(418), ..none() }, [status(418); 3]),
            (Flags { hang: true, ..none() }, [Answer::Hang; 3]),
            (Flags { reset: true, ..none() }, [Answer::Reset; 3]),
            (Flags { retry_after: Some(5), ..none() }, [busy; 3]),
            (Flags { fail_first: Some(2), ..none() }, [status(500), status(500), Answer::OK]),
            (Flags { fail_rate: Some(1.0), ..none() }, [status(500); 3]),
            (
                Flags { fail_first: Some(1), reset: true, ..none() },
                [Answer::Reset, Answer::OK, Answer::OK],
            ),
        ] {
            assert_eq!(answers(&flags, 3), expected, "{flags:?}");
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_failures_at_about_the_rate() {
        let flags = Flags { fail_rate: Some(0.3), seed: 7, ..Flags::default() };
        let drawn = answers(&flags, 1000);
        assert_eq!(drawn, answers(&flags, 1000));
        let failed = drawn.iter().filter(|answer| !answer.acknowledges()).count();
        assert!((250..350).contains(&failed), "{failed}");
        let other = Flags { seed: 8, ..flags };
        assert_ne!(drawn, answers(&other, 1000));
    }

    #[test]
    fn a_rate_beyond_one_is_refused() {
        let flags = Flags { fail_rate: Some(1.5), ..Flags::default() };
        let error = flags.to_misbehaviour().unwrap_err().to_string();
        assert!(error.contains("--fail-rate") && error.contains("1.5"), "{error}");
    }
}
