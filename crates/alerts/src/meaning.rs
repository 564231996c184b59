//! When a rule holds, in words, with the thresholds in use.

use crate::settings::{AlertSettings, BurnWindows};
use crate::{Rule, TenantScope};

/// When this rule holds.
pub fn holds_when(rule: Rule, settings: &AlertSettings) -> String {
    match rule {
        Rule::RetriesExhausted => {
            let it = &settings.retries_exhausted;
            format!(
                "More than {} % of the deliveries first sent within {} died with their attempts exhausted or expired; \
                 at least {} were sent.{}",
                it.percent,
                it.window,
                it.dispatched_min,
                scope(it.tenants)
            )
        }
        Rule::DeadLetters => format!("More than {} dead letters.", settings.dead_letters.count),
        Rule::SlowAttempts => {
            let it = &settings.slow_attempts;
            format!(
                "The p95 of an attempt is above {} in each of the latest {} intervals of {}, with at least {} attempts \
                 in each.{}",
                it.p95,
                it.intervals,
                it.interval,
                it.attempts_min,
                scope(it.tenants)
            )
        }
        Rule::SloBurnFast => {
            let it = &settings.slo_burn_fast;
            burns(&it.windows, it.judged_min, it.tenants)
        }
        Rule::SloBurnSlow => {
            let it = &settings.slo_burn_slow;
            burns(&it.windows, it.judged_min, it.tenants)
        }
        Rule::OldestOpen => format!(
            "The oldest open delivery of an endpoint that is not paused is older than {}.",
            settings.oldest_open.age
        ),
        Rule::BreakersOpen => {
            format!("At least {} breakers are open.", settings.breakers_open.count)
        }
        Rule::StoreTrouble => {
            format!("The store cannot be read or written for {}.", settings.store_trouble.after)
        }
        Rule::Disk => {
            let it = &settings.disk;
            let mib = it.free_bytes / (1024 * 1024);
            format!(
                "Less than {} % or less than {mib} MiB are free in the data folder.",
                it.free_percent
            )
        }
        Rule::BreakerOpen => "The breaker of an endpoint is not closed.".to_owned(),
        Rule::EndpointFailing => format!(
            "An endpoint has answered nothing but failures for {}.",
            settings.endpoint_failing.after
        ),
        Rule::SwitchOffSoon => format!(
            "An endpoint fails and will be switched off within {}.",
            settings.switch_off_soon.ahead
        ),
        Rule::EndpointOff => {
            "An endpoint was switched off: quarantined, gone, or failing for too long.".to_owned()
        }
        Rule::EndpointBlocked => "Nothing can be sent to an endpoint as it is.".to_owned(),
        Rule::LaneHeld => "A dead letter holds a lane.".to_owned(),
        Rule::SourceTrouble => {
            format!("An outbox source cannot be read for {}.", settings.source_trouble.after)
        }
        Rule::SecretExpiring => format!(
            "The newest secret of an endpoint that must sign expires within {}.",
            settings.secret_expiring.ahead
        ),
    }
}

fn burns(windows: &[BurnWindows], judged_min: u64, tenants: TenantScope) -> String {
    let pair = |it: &BurnWindows| {
        let factor = Factor(it.factor_tenths);
        format!("{factor} times in {} and in {}", it.long, it.short)
    };
    let pairs: Vec<String> = windows.iter().map(pair).collect();
    format!(
        "The budget of late deliveries burns faster than allowed: more than {}; at least {judged_min} deliveries were \
         judged in the long window.{}",
        pairs.join(", or more than "),
        scope(tenants)
    )
}

/// A factor in tenths.
struct Factor(u32);

impl std::fmt::Display for Factor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

fn scope(tenants: TenantScope) -> &'static str {
    match tenants {
        TenantScope::Together => "",
        TenantScope::Each => " Of each tenant too.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_says_its_thresholds() {
        let mut settings = AlertSettings::default();
        settings.retries_exhausted.percent = 7;
        settings.retries_exhausted.tenants = TenantScope::Each;
        for (rule, part) in [
            (Rule::RetriesExhausted, "More than 7 % of the deliveries first sent within 15m"),
            (Rule::RetriesExhausted, "Of each tenant too."),
            (Rule::DeadLetters, "More than 10000 dead letters."),
            (Rule::SloBurnFast, "more than 14.4 times in 1h and in 5m, or more than 6 times in 6h"),
            (Rule::Disk, "Less than 10 % or less than 1024 MiB"),
        ] {
            let text = holds_when(rule, &settings);
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn every_rule_says_when_it_holds_in_a_sentence() {
        let settings = AlertSettings::default();
        for rule in Rule::ALL {
            let text = holds_when(rule, &settings);
            assert!(text.ends_with('.') && !text.contains("  "), "{rule}: {text}");
        }
    }
}
