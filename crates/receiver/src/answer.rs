//! What the sender is answered: every status code of the crate, in one place.
//!
//! The sender retries 409, 425, 429 and 5xx; 400, 401 and 413 end the delivery.

use crate::inbox::Verdict;
use crate::limits::FULL_RETRY_AFTER;
use crate::receive::Rejection;
use railpost_wire::Refusal;

/// An answer, for whatever HTTP library is at hand. Its text tells an outsider nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// The body.
    pub text: &'static str,
}

impl Answer {
    /// The event was taken, now or before.
    pub const TAKEN: Self = Self::new(200, "taken");
    /// The store cannot be reached, or something else went wrong that may be right the next time.
    pub const TROUBLE: Self = Self::new(503, "try again");
    /// The queue is full.
    pub const FULL: Self =
        Self { retry_after: Some(FULL_RETRY_AFTER.as_secs()), ..Self::new(429, "try again later") };

    const fn new(status: u16, text: &'static str) -> Self {
        Self { status, retry_after: None, text }
    }
}

impl Verdict {
    /// What the sender is answered, once what follows from the verdict is done.
    pub fn answer(self) -> Answer {
        match self {
            Self::Fresh | Self::Duplicate | Self::Stale { .. } => Answer::TAKEN,
            Self::Gap { accepted: true, .. } => Answer::TAKEN,
            Self::Gap { accepted: false, .. } => {
                Answer::new(425, "the event before it is unknown here")
            }
            Self::Busy => Answer::new(409, "being processed"),
        }
    }
}

impl Rejection {
    /// What the sender is answered. The reason is for the receiver's own log.
    pub fn answer(&self) -> Answer {
        match self {
            Self::Refused(Refusal::NoMatch | Refusal::Stale { .. } | Refusal::Future { .. })
            | Self::Unsigned(_) => Answer::new(401, "not authentic"),
            Self::TooLarge { .. } => Answer::new(413, "too large"),
            Self::Interrupted => Answer::new(408, "the body did not arrive"),
            Self::Refused(_) | Self::Unreadable(_) => Answer::new(400, "not readable"),
        }
    }
}
