//! The rules, by name.

use std::fmt;
use std::str::FromStr;

use railpost_store::Severity;

/// Something that people should know when it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Too many deliveries died with their attempts exhausted, or expired.
    RetriesExhausted,
    /// There are too many dead letters.
    DeadLetters,
    /// Attempts take too long.
    SlowAttempts,
    /// The objective's budget is spent so fast that somebody should be woken.
    SloBurnFast,
    /// The objective's budget is spent faster than it comes in.
    SloBurnSlow,
    /// The oldest open delivery is too old.
    OldestOpen,
    /// Too many breakers are open.
    BreakersOpen,
    /// The store cannot be written or read.
    StoreTrouble,
    /// The disk is nearly full.
    Disk,
    /// The breaker of an endpoint is open.
    BreakerOpen,
    /// An endpoint answers nothing but failures.
    EndpointFailing,
    /// An endpoint will be switched off soon.
    SwitchOffSoon,
    /// An endpoint was switched off by the engine.
    EndpointOff,
    /// Nothing can be sent to an endpoint as it is.
    EndpointBlocked,
    /// A dead letter holds a lane.
    LaneHeld,
    /// A source of events cannot be read.
    SourceTrouble,
    /// The secret of an endpoint ends soon.
    SecretExpiring,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Rule::RetriesExhausted,
        Rule::DeadLetters,
        Rule::SlowAttempts,
        Rule::SloBurnFast,
        Rule::SloBurnSlow,
        Rule::OldestOpen,
        Rule::BreakersOpen,
        Rule::StoreTrouble,
        Rule::Disk,
        Rule::BreakerOpen,
        Rule::EndpointFailing,
        Rule::SwitchOffSoon,
        Rule::EndpointOff,
        Rule::EndpointBlocked,
        Rule::LaneHeld,
        Rule::SourceTrouble,
        Rule::SecretExpiring,
    ];

    /// Its name. Stable: alerts are stored with it.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::RetriesExhausted => "retries_exhausted",
            Rule::DeadLetters => "dead_letters",
            Rule::SlowAttempts => "slow_attempts",
            Rule::SloBurnFast => "slo_burn_fast",
            Rule::SloBurnSlow => "slo_burn_slow",
            Rule::OldestOpen => "oldest_open",
            Rule::BreakersOpen => "breakers_open",
            Rule::StoreTrouble => "store_trouble",
            Rule::Disk => "disk",
            Rule::BreakerOpen => "breaker_open",
            Rule::EndpointFailing => "endpoint_failing",
            Rule::SwitchOffSoon => "switch_off_soon",
            Rule::EndpointOff => "endpoint_off",
            Rule::EndpointBlocked => "endpoint_blocked",
            Rule::LaneHeld => "lane_held",
            Rule::SourceTrouble => "source_trouble",
            Rule::SecretExpiring => "secret_expiring",
        }
    }

    /// How bad it is, unless the configuration says otherwise.
    pub const fn severity(self) -> Severity {
        match self {
            Rule::RetriesExhausted | Rule::SloBurnFast | Rule::StoreTrouble | Rule::Disk => {
                Severity::Critical
            }
            Rule::SwitchOffSoon
            | Rule::EndpointOff
            | Rule::EndpointBlocked
            | Rule::SourceTrouble => Severity::Error,
            Rule::DeadLetters
            | Rule::SlowAttempts
            | Rule::SloBurnSlow
            | Rule::OldestOpen
            | Rule::BreakersOpen
            | Rule::BreakerOpen
            | Rule::EndpointFailing
            | Rule::LaneHeld
            | Rule::SecretExpiring => Severity::Warning,
        }
    }

    /// The types of its notices: that it fired, and that it was resolved.
    pub const fn notice_types(self) -> (&'static str, &'static str) {
        match self {
            Rule::RetriesExhausted => (
                "railpost.alert.retries_exhausted.fired",
                "railpost.alert.retries_exhausted.resolved",
            ),
            Rule::DeadLetters => {
                ("railpost.alert.dead_letters.fired", "railpost.alert.dead_letters.resolved")
            }
            Rule::SlowAttempts => {
                ("railpost.alert.slow_attempts.fired", "railpost.alert.slow_attempts.resolved")
            }
            Rule::SloBurnFast => {
                ("railpost.alert.slo_burn_fast.fired", "railpost.alert.slo_burn_fast.resolved")
            }
            Rule::SloBurnSlow => {
                ("railpost.alert.slo_burn_slow.fired", "railpost.alert.slo_burn_slow.resolved")
            }
            Rule::OldestOpen => {
                ("railpost.alert.oldest_open.fired", "railpost.alert.oldest_open.resolved")
            }
            Rule::BreakersOpen => {
                ("railpost.alert.breakers_open.fired", "railpost.alert.breakers_open.resolved")
            }
            Rule::StoreTrouble => {
                ("railpost.alert.store_trouble.fired", "railpost.alert.store_trouble.resolved")
            }
            Rule::Disk => ("railpost.alert.disk.fired", "railpost.alert.disk.resolved"),
            Rule::BreakerOpen => ("railpost.breaker.opened", "railpost.breaker.closed"),
            Rule::EndpointFailing => ("railpost.endpoint.failing", "railpost.endpoint.recovered"),
            Rule::SwitchOffSoon => {
                ("railpost.endpoint.switch_off_soon", "railpost.endpoint.switch_off_averted")
            }
            Rule::EndpointOff => {
                ("railpost.endpoint.switched_off", "railpost.endpoint.switched_on")
            }
            Rule::EndpointBlocked => ("railpost.endpoint.blocked", "railpost.endpoint.unblocked"),
            Rule::LaneHeld => ("railpost.lane.held", "railpost.lane.released"),
            Rule::SourceTrouble => ("railpost.source.trouble", "railpost.source.recovered"),
            Rule::SecretExpiring => ("railpost.secret.expiring", "railpost.secret.renewed"),
        }
    }

    /// The name of its page in `docs/runbooks/`, without `.md`.
    pub fn runbook(self) -> String {
        self.name().replace('_', "-")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = Rule::ALL.into_iter().find(|rule| rule.name() == text);
        rule.ok_or_else(|| {
            let names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
            format!("expected the name of a rule: {}; got {text:?}", names.join(", "))
        })
    }
}
