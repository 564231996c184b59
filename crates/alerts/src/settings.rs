//! What operators choose: which rules count, how bad each is, and its thresholds.

use std::fmt;
use std::str::FromStr;

use railpost_engine::Span;
use railpost_store::Severity;
use serde::{Deserialize, Serialize};

use crate::Rule;
use crate::limits::{BURN_FACTOR_TENTHS_MAX, WINDOW_MAX};

/// What every rule has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSettings {
    /// Whether it counts.
    pub enabled: bool,
    /// How bad it is.
    pub severity: Severity,
}

/// Whose figures a rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantScope {
    /// Those of all tenants together.
    #[default]
    Together,
    /// Those of all together, and those of each tenant.
    Each,
}

/// Makes the settings of a rule: what every rule has, and its own with their defaults.
macro_rules! rule_settings {
    ($(#[$doc:meta])* $name:ident($severity:ident) {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Whether it counts.
            pub enabled: bool,
            /// How bad it is.
            pub severity: Severity,
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { enabled: true, severity: Severity::$severity, $($field: $default,)* }
            }
        }
    };
}

rule_settings! {
    /// Settings of [`Rule::RetriesExhausted`].
    RetriesExhausted(Critical) {
        /// Whose figures.
        tenants: TenantScope = TenantScope::Together,
        /// It holds above so many percent of what was first sent.
        percent: u32 = 5,
        /// Within this time.
        window: Span = Span::from_mins(15),
        /// With fewer than this it never holds.
        dispatched_min: u64 = 20,
    }
}

rule_settings! {
    /// Settings of [`Rule::DeadLetters`].
    DeadLetters(Warning) {
        /// It holds above so many.
        count: u64 = 10_000,
    }
}

rule_settings! {
    /// Settings of [`Rule::SlowAttempts`].
    SlowAttempts(Warning) {
        /// Whose figures.
        tenants: TenantScope = TenantScope::Together,
        /// It holds if 95 % of the attempts take longer than this at most.
        p95: Span = Span::from_millis(2_500),
        /// In each of the latest intervals of this length.
        interval: Span = Span::from_mins(5),
        /// How many intervals.
        intervals: u32 = 3,
        /// With fewer attempts in an interval it never holds.
        attempts_min: u64 = 20,
    }
}

rule_settings! {
    /// Settings of [`Rule::OldestOpen`].
    OldestOpen(Warning) {
        /// It holds above this age.
        age: Span = Span::from_hours(1),
    }
}

rule_settings! {
    /// Settings of [`Rule::BreakersOpen`].
    BreakersOpen(Warning) {
        /// It holds from so many on.
        count: u64 = 10,
    }
}

rule_settings! {
    /// Settings of [`Rule::StoreTrouble`].
    StoreTrouble(Critical) {
        /// It holds when the trouble lasts this long.
        after: Span = Span::from_secs(30),
    }
}

rule_settings! {
    /// Settings of [`Rule::Disk`].
    Disk(Critical) {
        /// It holds below so many percent.
        free_percent: u32 = 10,
        /// It holds below so many bytes.
        free_bytes: u64 = 1024 * 1024 * 1024,
    }
}

rule_settings! {
    /// Settings of [`Rule::EndpointFailing`].
    EndpointFailing(Warning) {
        /// It holds after this time with nothing but failures.
        after: Span = Span::from_mins(15),
    }
}

rule_settings! {
    /// Settings of [`Rule::SwitchOffSoon`].
    SwitchOffSoon(Error) {
        /// How long ahead.
        ahead: Span = Span::from_hours(24),
    }
}

rule_settings! {
    /// Settings of [`Rule::SourceTrouble`].
    SourceTrouble(Error) {
        /// It holds when the trouble lasts this long.
        after: Span = Span::from_secs(30),
    }
}

rule_settings! {
    /// Settings of [`Rule::SecretExpiring`].
    SecretExpiring(Warning) {
        /// How long ahead.
        ahead: Span = Span::from_days(7),
    }
}

rule_settings! {
    /// Settings of [`Rule::SloBurnFast`].
    SloBurnFast(Critical) {
        /// Whose figures.
        tenants: TenantScope = TenantScope::Together,
        /// It holds if the budget burns faster in both windows of one of these pairs.
        windows: Vec<BurnWindows> = vec![
            BurnWindows { long: Span::from_hours(1), short: Span::from_mins(5), factor_tenths: 144 },
            BurnWindows { long: Span::from_hours(6), short: Span::from_mins(30), factor_tenths: 60 },
        ],
        /// With fewer deliveries judged in the long window, a pair does not count.
        judged_min: u64 = 100,
    }
}

rule_settings! {
    /// Settings of [`Rule::SloBurnSlow`].
    SloBurnSlow(Warning) {
        /// Whose figures.
        tenants: TenantScope = TenantScope::Together,
        /// It holds if the budget burns faster in both windows of one of these pairs.
        windows: Vec<BurnWindows> = vec![
            BurnWindows { long: Span::from_days(1), short: Span::from_hours(2), factor_tenths: 30 },
            BurnWindows { long: Span::from_days(3), short: Span::from_hours(6), factor_tenths: 10 },
        ],
        /// With fewer deliveries judged in the long window, a pair does not count.
        judged_min: u64 = 100,
    }
}

rule_settings! {
    /// Settings of [`Rule::BreakerOpen`].
    BreakerOpen(Warning) {}
}

rule_settings! {
    /// Settings of [`Rule::EndpointOff`].
    EndpointOff(Error) {}
}

rule_settings! {
    /// Settings of [`Rule::EndpointBlocked`].
    EndpointBlocked(Error) {}
}

rule_settings! {
    /// Settings of [`Rule::LaneHeld`].
    LaneHeld(Warning) {}
}

/// Two windows and a factor: the budget burns too fast if it does in both of them.
///
/// As text: the long window, the short one and the factor, such as `1h 5m 14.4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BurnWindows {
    /// Says that it matters.
    pub long: Span,
    /// Says that it still goes on.
    pub short: Span,
    /// How many times faster than evenly over the objective's period, in tenths.
    pub factor_tenths: u32,
}

impl FromStr for BurnWindows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a long window, a short one and a factor, such as \"1h 5m 14.4\", windows of 1m to \
                 {WINDOW_MAX}; got {text:?}"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [long, short, factor] = words[..] else { return Err(expected()) };
        let (long, short) = (long.parse::<Span>(), short.parse::<Span>());
        let (Ok(long), Ok(short), Some(factor_tenths)) = (long, short, tenths(factor)) else {
            return Err(expected());
        };
        let fits = Span::from_mins(1) <= short && short < long && long <= WINDOW_MAX;
        if fits { Ok(Self { long, short, factor_tenths }) } else { Err(expected()) }
    }
}

/// A number with at most one digit behind its point, in tenths, if it is within its bounds.
fn tenths(text: &str) -> Option<u32> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(tenth) || tenth.len() > 1 {
        return None;
    }
    let tenths = whole.parse::<u32>().ok()?.checked_mul(10)? + tenth.parse::<u32>().ok()?;
    (1..=BURN_FACTOR_TENTHS_MAX).contains(&tenths).then_some(tenths)
}

impl fmt::Display for BurnWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenth) = (self.factor_tenths / 10, self.factor_tenths % 10);
        write!(f, "{} {} {whole}", self.long, self.short)?;
        if tenth == 0 { Ok(()) } else { write!(f, ".{tenth}") }
    }
}

impl TryFrom<String> for BurnWindows {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<BurnWindows> for String {
    fn from(windows: BurnWindows) -> String {
        windows.to_string()
    }
}

/// The settings of all rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertSettings {
    /// How often conditions are looked at, if nothing says that one changed.
    pub look_every: Span,
    /// How long a condition has to be gone until its alert is resolved. Held lanes are resolved at once.
    pub resolve_after: Span,
    /// Settings of [`Rule::RetriesExhausted`].
    pub retries_exhausted: RetriesExhausted,
    /// Settings of [`Rule::DeadLetters`].
    pub dead_letters: DeadLetters,
    /// Settings of [`Rule::SlowAttempts`].
    pub slow_attempts: SlowAttempts,
    /// Settings of [`Rule::SloBurnFast`].
    pub slo_burn_fast: SloBurnFast,
    /// Settings of [`Rule::SloBurnSlow`].
    pub slo_burn_slow: SloBurnSlow,
    /// Settings of [`Rule::OldestOpen`].
    pub oldest_open: OldestOpen,
    /// Settings of [`Rule::BreakersOpen`].
    pub breakers_open: BreakersOpen,
    /// Settings of [`Rule::StoreTrouble`].
    pub store_trouble: StoreTrouble,
    /// Settings of [`Rule::Disk`].
    pub disk: Disk,
    /// Settings of [`Rule::BreakerOpen`].
    pub breaker_open: BreakerOpen,
    /// Settings of [`Rule::EndpointFailing`].
    pub endpoint_failing: EndpointFailing,
    /// Settings of [`Rule::SwitchOffSoon`].
    pub switch_off_soon: SwitchOffSoon,
    /// Settings of [`Rule::EndpointOff`].
    pub endpoint_off: EndpointOff,
    /// Settings of [`Rule::EndpointBlocked`].
    pub endpoint_blocked: EndpointBlocked,
    /// Settings of [`Rule::LaneHeld`].
    pub lane_held: LaneHeld,
    /// Settings of [`Rule::SourceTrouble`].
    pub source_trouble: SourceTrouble,
    /// Settings of [`Rule::SecretExpiring`].
    pub secret_expiring: SecretExpiring,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            look_every: Span::from_secs(5),
            resolve_after: Span::from_secs(60),
            retries_exhausted: RetriesExhausted::default(),
            dead_letters: DeadLetters::default(),
            slow_attempts: SlowAttempts::default(),
            slo_burn_fast: SloBurnFast::default(),
            slo_burn_slow: SloBurnSlow::default(),
            oldest_open: OldestOpen::default(),
            breakers_open: BreakersOpen::default(),
            store_trouble: StoreTrouble::default(),
            disk: Disk::default(),
            breaker_open: BreakerOpen::default(),
            endpoint_failing: EndpointFailing::default(),
            switch_off_soon: SwitchOffSoon::default(),
            endpoint_off: EndpointOff::default(),
            endpoint_blocked: EndpointBlocked::default(),
            lane_held: LaneHeld::default(),
            source_trouble: SourceTrouble::default(),
            secret_expiring: SecretExpiring::default(),
        }
    }
}

impl AlertSettings {
    /// What every rule has, of this one.
    pub fn rule(&self, rule: Rule) -> RuleSettings {
        macro_rules! of {
            ($settings:expr) => {
                RuleSettings { enabled: $settings.enabled, severity: $settings.severity }
            };
        }
        match rule {
            Rule::RetriesExhausted => of!(self.retries_exhausted),
            Rule::DeadLetters => of!(self.dead_letters),
            Rule::SlowAttempts => of!(self.slow_attempts),
            Rule::SloBurnFast => of!(self.slo_burn_fast),
            Rule::SloBurnSlow => of!(self.slo_burn_slow),
            Rule::OldestOpen => of!(self.oldest_open),
            Rule::BreakersOpen => of!(self.breakers_open),
            Rule::StoreTrouble => of!(self.store_trouble),
            Rule::Disk => of!(self.disk),
            Rule::BreakerOpen => of!(self.breaker_open),
            Rule::EndpointFailing => of!(self.endpoint_failing),
            Rule::SwitchOffSoon => of!(self.switch_off_soon),
            Rule::EndpointOff => of!(self.endpoint_off),
            Rule::EndpointBlocked => of!(self.endpoint_blocked),
            Rule::LaneHeld => of!(self.lane_held),
            Rule::SourceTrouble => of!(self.source_trouble),
            Rule::SecretExpiring => of!(self.secret_expiring),
        }
    }

    /// How long a condition of this rule has to be gone until its alert is resolved.
    pub fn resolve_after(&self, rule: Rule) -> Span {
        if rule == Rule::LaneHeld { Span::ZERO } else { self.resolve_after }
    }

    /// Whether a rule looks at the figures of each tenant.
    pub fn looks_at_tenants(&self) -> bool {
        let each = |enabled, tenants| enabled && tenants == TenantScope::Each;
        each(self.retries_exhausted.enabled, self.retries_exhausted.tenants)
            || each(self.slow_attempts.enabled, self.slow_attempts.tenants)
            || each(self.slo_burn_fast.enabled, self.slo_burn_fast.tenants)
            || each(self.slo_burn_slow.enabled, self.slo_burn_slow.tenants)
    }
}
