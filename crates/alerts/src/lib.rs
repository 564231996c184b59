//! What people should know: rules, which of them hold, and what becomes of alerts.
//!
//! An alert is a condition that holds of a subject. At every look the server collects [`Observations`];
//! [`evaluate`] says which conditions hold; the [`Tracker`] compares them with the alerts on record, opens and
//! resolves, and says which notices are due. All of it is level-triggered: a missed edge or a crash loses
//! nothing.
//!
//! It must not know a clock, I/O, HTTP or the configuration file. Start with [`Rule`], then [`evaluate`].

pub mod limits;

mod rule;
mod settings;
mod windows;
mod observations;
mod condition;
mod evaluate;
mod summary;
mod tracker;
mod notice;
mod test_notice;
mod meaning;

pub use condition::{Condition, EndpointName, Facts};
pub use evaluate::{Evaluation, evaluate};
pub use meaning::holds_when;
pub use notice::{
    Notice, NoticeContext, NoticeEndpoint, NoticeLink, NoticeStatus, RESERVED_TENANT, dedup_key,
    notice, notice_key, notice_time, notice_type,
};
pub use observations::{
    DiskSeen, EndpointSeen, HeldLanesSeen, LaneSeen, Observations, SourceSeen, StoreTroubleSeen,
};
pub use rule::Rule;
pub use settings::{
    AlertSettings, BreakerOpen, BreakersOpen, BurnWindows, DeadLetters, Disk, EndpointBlocked,
    EndpointFailing, EndpointOff, LaneHeld, OldestOpen, RetriesExhausted, RuleSettings,
    SecretExpiring, SloBurnFast, SloBurnSlow, SlowAttempts, SourceTrouble, StoreTrouble,
    SwitchOffSoon, TenantScope,
};
pub use test_notice::{TEST_SUBJECT, TEST_TYPES, TestNotice};
pub use tracker::{OTHERS, Tracker};
pub use windows::{FigureHistory, FigureSeries, WindowSum};
