//! What happens next to a delivery: lanes, retries, classification, breaker, limits, fairness.
//!
//! The engine is a deterministic state machine. Inputs go in with the time; effects come out;
//! its caller performs them:
//!
//! ```
//! use railpost_engine::{Config, Engine, Input, Timestamp};
//!
//! let mut engine = Engine::new(Config::default(), 42);
//! engine.handle(Timestamp::from_millis(1_000), Input::TimePassed);
//! while let Some(effect) = engine.poll_effect() {
//!     // perform it, and report what came of it as another input
//! }
//! let _wake_me = engine.next_wake();
//! ```
//!
//! It does no I/O, reads no clock and draws no randomness but from the seed it was given: the same
//! inputs give the same effects, always. It never sees a payload, a URL or a secret.
//!
//! Start with [`Input`] and [`Effect`], then [`Engine`]; [`Policy`] is what an endpoint's owner may
//! choose, and [`EDGES`] is the life of a delivery.

pub mod limits;

mod time;
mod rfc3339;
mod state;
mod classify;
mod retry;
mod policy;
mod token_bucket;
mod breaker;
mod health;
mod open_lanes;
mod input;
mod effect;
mod engine;
#[cfg(feature = "schema")]
mod schema;

pub use breaker::BreakerState;
pub use classify::{AttemptResult, Failure, Outcome, Overrides, classify, classify_past};
pub use effect::{
    Attempt, Effect, EndpointRecord, Ignored, IgnoredReason, Load, Notice, NoticeKind, Transition,
};
pub use engine::{Config, Counters, Engine};
pub use health::{
    Concerns, EndpointConcern, ErrorCause, Health, HealthState, HealthSurvey, HeldLaneHead,
    LastError, Wait, WaitReason,
};
pub use input::{
    Accepted, AttemptToken, Command, Delivery, Endpoint, EndpointStatus, Input, LaneId, LanePage,
    LoadTicket, LoadedPage, Place, Rotation,
};
pub use open_lanes::{LaneCounts, LaneState, OpenLane, OpenLanes};
pub use policy::{
    BreakerPolicy, Guarantee, LaneChoice, OnDeadLetter, Ordering, Policy, PolicyError,
    PolicyFields, RateLimit,
};
pub use retry::{Backoff, Jitter, Plan, PlannedAttempt, Progress, RetryPolicy};
pub use rfc3339::{BadTime, Time};
#[cfg(feature = "schema")]
pub use schema::{optional_span_between, span_between};
pub use state::{DeadReason, DeliveryStage, DeliveryState, DiscardReason, EDGES};
pub use time::{Span, SpanError, Timestamp};
