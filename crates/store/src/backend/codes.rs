//! The codes of states, reasons and statuses in a database. Stable: files that outlive every version of this
//! code hold them. New ones are added; none gets another meaning.

use railpost_engine::{
    DeadReason, DeliveryStage, DeliveryState, DiscardReason, EndpointStatus, Failure, Timestamp,
};

use crate::{FiguresScope, Resolution, Result, StoreError};

/// A delivery that waits for its first attempt, or for the one of a replay. Where a delivery stands is one
/// number; those up to [`LAST_OPEN`] are open.
pub const PENDING: i64 = 0;
/// A delivery that is being sent.
pub const IN_FLIGHT: i64 = 1;
/// A delivery that waits for its next attempt.
pub const WAITING: i64 = 2;
/// A dead letter that holds its lane.
pub const HELD: i64 = 3;
/// A dead letter that holds no lane.
pub const DEAD: i64 = 4;
/// A delivery that was acknowledged.
pub const DELIVERED: i64 = 5;
/// A delivery that was discarded.
pub const DISCARDED: i64 = 6;

/// How many there are.
pub const STATE_CODES: usize = 7;

/// The partial indexes of both databases are made of `standing <= 3`.
pub const LAST_OPEN: i64 = HELD;

/// A delivery's state as the columns of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCode {
    /// One of the codes above; the column `standing`.
    pub code: i64,
    /// When it is due, if it waits.
    pub due: Option<i64>,
    /// Why it died or was discarded, if it was.
    pub reason: Option<i64>,
}

impl From<DeliveryState> for StateCode {
    fn from(state: DeliveryState) -> Self {
        let plain = |code| Self { code, due: None, reason: None };
        match state {
            DeliveryState::Pending => plain(PENDING),
            DeliveryState::InFlight => plain(IN_FLIGHT),
            DeliveryState::Waiting { until } => Self { due: Some(millis(until)), ..plain(WAITING) },
            DeliveryState::Delivered => plain(DELIVERED),
            DeliveryState::Dead { reason, holds } => Self {
                reason: Some(dead_reason_code(reason)),
                ..plain(if holds { HELD } else { DEAD })
            },
            DeliveryState::Discarded { reason } => {
                Self { reason: Some(discard_reason_code(reason)), ..plain(DISCARDED) }
            }
        }
    }
}

impl StateCode {
    /// The state that these columns stand for.
    pub fn state(self) -> Result<DeliveryState> {
        let dead = |holds| {
            let reason =
                self.reason.and_then(dead_reason).ok_or_else(|| corrupt("reason", self))?;
            Ok(DeliveryState::Dead { reason, holds })
        };
        match self.code {
            PENDING => Ok(DeliveryState::Pending),
            IN_FLIGHT => Ok(DeliveryState::InFlight),
            WAITING => {
                let due = self.due.ok_or_else(|| corrupt("due", self))?;
                Ok(DeliveryState::Waiting { until: timestamp(due) })
            }
            HELD => dead(true),
            DEAD => dead(false),
            DELIVERED => Ok(DeliveryState::Delivered),
            DISCARDED => {
                // Rows of earlier versions have none: then a person did it.
                let reason = self.reason.map_or(Some(DiscardReason::Person), discard_reason);
                let reason = reason.ok_or_else(|| corrupt("reason", self))?;
                Ok(DeliveryState::Discarded { reason })
            }
            _ => Err(corrupt("standing", self)),
        }
    }
}

fn corrupt(column: &str, state: StateCode) -> StoreError {
    StoreError::Corrupt(format!("a delivery's {column} makes no sense: {state:?}"))
}

/// The stage that a state code belongs to.
pub fn stage(code: i64) -> Result<DeliveryStage> {
    match code {
        PENDING => Ok(DeliveryStage::Pending),
        IN_FLIGHT => Ok(DeliveryStage::InFlight),
        WAITING => Ok(DeliveryStage::Waiting),
        HELD | DEAD => Ok(DeliveryStage::Dead),
        DELIVERED => Ok(DeliveryStage::Delivered),
        DISCARDED => Ok(DeliveryStage::Discarded),
        other => Err(StoreError::Corrupt(format!("{other} is no state code of a delivery"))),
    }
}

/// The state codes that are open, as a set of bits.
pub const OPEN: i64 = (1 << (LAST_OPEN + 1)) - 1;

/// The state codes from which the engine lets a store record `next`, as a set of bits.
pub fn legal_from(next: DeliveryStage) -> i64 {
    let legal = |code: &i64| stage(*code).is_ok_and(|from| from.may_be_recorded_as(next));
    (0..STATE_CODES as i64).filter(legal).fold(0, |set, code| set | 1 << code)
}

/// Gives every value of an enum its code, and back. A value without a code does not compile.
macro_rules! coded {
    ($kind:ident, $code_of:ident, $value_of:ident, { $($value:ident = $number:literal,)* }) => {
        #[doc = concat!("The code of a `", stringify!($kind), "`.")]
        pub fn $code_of(value: $kind) -> i64 {
            match value {
                $($kind::$value => $number,)*
            }
        }

        #[doc = concat!("The `", stringify!($kind), "` of a code, if there is one.")]
        pub fn $value_of(code: i64) -> Option<$kind> {
            match code {
                $($number => Some($kind::$value),)*
                _ => None,
            }
        }
    };
}

coded!(DeadReason, dead_reason_code, dead_reason, {
    Permanent = 1,
    AttemptsExhausted = 2,
    Expired = 3,
    SingleAttemptFailed = 4,
    OutcomeUnknown = 5,
});

coded!(DiscardReason, discard_reason_code, discard_reason, {
    Person = 1,
    EndpointRemoved = 2,
});

coded!(Failure, failure_code, failure, {
    Dns = 1,
    BlockedAddress = 2,
    Refused = 3,
    ConnectTimeout = 4,
    Tls = 5,
    Reset = 6,
    Timeout = 7,
    BadResponse = 8,
    PayloadMissing = 9,
    Unreachable = 10,
    NotSent = 11,
});

coded!(EndpointStatus, endpoint_status_code, endpoint_status, {
    Active = 0,
    Paused = 1,
    Quarantined = 2,
    Gone = 3,
    Failing = 4,
});

/// Figures of everything.
pub const SCOPE_ALL: i64 = 0;
/// Figures of one tenant.
pub const SCOPE_TENANT: i64 = 1;
/// Figures of one endpoint.
pub const SCOPE_ENDPOINT: i64 = 2;

/// The row that says how far deliveries were judged. It lies among the figures, so that both are written together,
/// and it is alone in its resolution, which nothing prunes.
pub const SCOPE_JUDGED: i64 = 3;
/// See [`SCOPE_JUDGED`].
pub const RESOLUTION_JUDGED: i64 = 0;

/// The code of a scope of figures.
pub fn scope_code(scope: &FiguresScope) -> i64 {
    match scope {
        FiguresScope::All => SCOPE_ALL,
        FiguresScope::Tenant(_) => SCOPE_TENANT,
        FiguresScope::Endpoint(_) => SCOPE_ENDPOINT,
    }
}

/// The code of a resolution of figures.
pub fn resolution_code(resolution: Resolution) -> i64 {
    match resolution {
        Resolution::Minute => 1,
        Resolution::Hour => 2,
    }
}

/// An instant as a column holds it. One beyond what a column holds lies further off than anyone
/// waits.
pub fn millis(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// An instant as a column held it.
pub fn timestamp(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_codes_never_change() {
        let until = Timestamp::from_millis(9);
        let dead = |holds| DeliveryState::Dead { reason: DeadReason::Expired, holds };
        for (state, code, due, reason) in [
            (DeliveryState::Pending, 0, None, None),
            (DeliveryState::InFlight, 1, None, None),
            (DeliveryState::Waiting { until }, 2, Some(9), None),
            (dead(true), 3, None, Some(3)),
            (dead(false), 4, None, Some(3)),
            (DeliveryState::Delivered, 5, None, None),
            (DeliveryState::DISCARDED, 6, None, Some(1)),
            (DeliveryState::Discarded { reason: DiscardReason::EndpointRemoved }, 6, None, Some(2)),
        ] {
            let stored = StateCode::from(state);
            assert_eq!(stored, StateCode { code, due, reason }, "{state:?}");
            assert_eq!(stored.state(), Ok(state));
            assert_eq!(stage(code), Ok(state.stage()));
            assert_eq!(code <= LAST_OPEN, state.is_open(), "{state:?}");
            assert_eq!(OPEN & (1 << code) != 0, state.is_open(), "{state:?}");
        }
    }

    #[test]
    fn the_codes_of_reasons_failures_and_statuses_never_change() {
        use DeadReason::*;
        let reasons = [Permanent, AttemptsExhausted, Expired, SingleAttemptFailed, OutcomeUnknown];
        assert_eq!(reasons.map(dead_reason_code), [1, 2, 3, 4, 5]);
        assert_eq!([1, 2, 3, 4, 5].map(dead_reason), reasons.map(Some));

        use Failure::*;
        let failures = [
            Dns,
            BlockedAddress,
            Refused,
            ConnectTimeout,
            Tls,
            Reset,
            Timeout,
            BadResponse,
            PayloadMissing,
            Unreachable,
            NotSent,
        ];
        assert_eq!(failures.map(failure_code), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(failure), failures.map(Some));

        use EndpointStatus::*;
        let statuses = [Active, Paused, Quarantined, Gone, Failing];
        assert_eq!(statuses.map(endpoint_status_code), [0, 1, 2, 3, 4]);
        assert_eq!([0, 1, 2, 3, 4].map(endpoint_status), statuses.map(Some));
    }

    #[test]
    fn the_codes_of_figures_never_change() {
        let tenant = FiguresScope::Tenant("acme".parse().unwrap());
        let endpoint = FiguresScope::Endpoint(railpost_wire::EndpointId::from_u128(1));
        let scopes = [&FiguresScope::All, &tenant, &endpoint];
        assert_eq!(scopes.map(scope_code), [0, 1, 2]);
        assert_eq!([Resolution::Minute, Resolution::Hour].map(resolution_code), [1, 2]);
        assert_eq!((RESOLUTION_JUDGED, SCOPE_JUDGED), (0, 3));
    }

    #[test]
    fn the_legal_predecessors_are_those_the_engine_names() {
        for (next, from) in [
            (DeliveryStage::Delivered, vec![PENDING, IN_FLIGHT, WAITING]),
            (DeliveryStage::Waiting, vec![PENDING, IN_FLIGHT, WAITING]),
            (DeliveryStage::InFlight, vec![PENDING, WAITING]),
            (DeliveryStage::Pending, vec![HELD, DEAD]),
            (DeliveryStage::Discarded, vec![PENDING, IN_FLIGHT, WAITING, HELD, DEAD]),
        ] {
            let bits = from.into_iter().fold(0, |set, code| set | 1 << code);
            assert_eq!(legal_from(next), bits, "{next}");
        }
    }

    #[test]
    fn unknown_codes_are_corruption() {
        for (code, due, reason) in [
            (7, None, None),
            (-1, None, None),
            (2, None, None),
            (3, None, None),
            (4, None, Some(6)),
        ] {
            assert!(StateCode { code, due, reason }.state().is_err(), "{code}");
        }
        assert!(stage(7).is_err());
        assert_eq!((failure(0), endpoint_status(5)), (None, None));
    }

    #[test]
    fn instants_beyond_a_column_saturate() {
        assert_eq!(millis(Timestamp::from_millis(u64::MAX)), i64::MAX);
        assert_eq!(timestamp(-1), Timestamp::from_millis(0));
    }
}
