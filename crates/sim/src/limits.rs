//! Every bound of this world, with its reason.

use railpost_engine::Span;

/// The sender's timeout: every attempt has ended by then. Shorter than a slow receiver takes.
pub(crate) const TIMEOUT: Span = Span::from_secs(20);

/// How often operators look around once the faults have stopped.
pub(crate) const ROUND: Span = Span::from_secs(60);

/// How long everything may take to finish once the faults have stopped. Waits are minutes, rates at
/// least one in twenty seconds and backlogs some hundreds, so this is ample.
pub(crate) const CALM_MAX: Span = Span::from_days(3);

/// A load that failed or brought nothing new is asked for again after a pause of a second: for so
/// long nothing is overdue.
pub(crate) const LOAD_PAUSE: Span = Span::from_millis(1_100);

/// More wake-ups than this at one instant, and the engine is turning in circles.
pub(crate) const WAKES_AT_ONCE_MAX: u32 = 1_000;

/// The engine's time follows the wall clock by one part in so many: slowly enough that no wait is cut or
/// drawn out by much, and quickly enough that an hour is caught up with within a day.
pub(crate) const CLOCK_FOLLOWS: u64 = 16;

/// A sweep goes back so far behind the one before it: ids are made a little before they are committed.
pub(crate) const SWEEP_OVERLAP: Span = Span::from_secs(60);

/// Every so many sweeps one looks at everything: a clock that is set back and forth between two sweeps
/// leaves ids where no sweep looks.
pub(crate) const SWEEPS_TO_A_FULL_ONE: u32 = 10;

/// Longest that a read of the store takes.
pub(crate) const READ_MAX: Span = Span::from_secs(20);

/// Longest that a change of an endpoint is not read: then the read is tried again.
pub(crate) const CHANGE_UNREAD_MAX: Span = Span::from_secs(60);

/// How long a settled world is watched: it has to be quiet.
pub(crate) const REST: Span = Span::from_mins(10);
