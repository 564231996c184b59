//! Defects on purpose, to show that the judge sees them. Each one tampers with what passes between
//! the engine, its world and the inboxes; the engine and the inboxes themselves stay as they are.

use std::collections::BTreeSet;

use railpost_engine::{
    AttemptResult, Delivery, DeliveryState, Guarantee, LanePage, Load, LoadedPage, OnDeadLetter,
    Policy, Progress, Span, Timestamp,
};
use railpost_receiver::Verdict;
use railpost_wire::{DeliveryId, LineId, Received};

/// A defect to plant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlantedDefect {
    /// None: everything passes as it is.
    #[default]
    Nothing,
    /// An attempt counts as acknowledged as soon as it has left.
    ReleaseEarly,
    /// What was under way in a crash is missing from every page afterwards.
    ForgetInFlight,
    /// A dead letter lets its lane move on, although it should hold it.
    AdvanceOnDeadLetter,
    /// An at-most-once delivery of unknown outcome is taken for one that was never sent.
    RetryAtMostOnce,
    /// A receiver's `Retry-After` is not passed on.
    IgnoreRetryAfter,
    /// The engine believes in a higher cap than its owner set.
    ExceedCap,
    /// Lanes behind a dead letter are missing from every page.
    DropHeldLane,
    /// The engine knows of no breaker.
    BurnWhileOpen,
    /// The engine knows of no rate limit.
    IgnoreRate,
    /// A delivery is tried once more than its policy allows.
    TryOnceMore,
    /// Waits are forgotten in a restart.
    ForgetWaits,
    /// The engine does not hear of pauses.
    IgnorePause,
    /// The engine is woken late.
    WakeLate,
    /// Dead letters are replayed though no person asked for it.
    ReplayUntold,
    /// An at-most-once attempt leaves before its record is durable.
    SendUnrecorded,
    /// Now and then an accepted delivery is lost.
    LoseAccepted,
    /// A receiver keeps its place by key instead of line.
    PlaceByKey,
    /// A receiver rolls back when an event is a duplicate: its line does not move on.
    RollBackDuplicates,
    /// A restored store goes on in the lines it had: numbers are used twice.
    KeepLines,
    /// The lanes of all endpoints for one key share a line.
    ShareLines,
    /// `X-After` is never sent.
    OmitAfter,
    /// 409 and 425 count against the endpoint.
    CountEarly,
    /// The engine does not hear that a redelivery is a replay.
    RedeliverUnmarked,
    /// The store is never swept.
    NeverSweep,
    /// Sweeps never go back behind the latest that the wall clock showed.
    RatchetSweeps,
    /// The engine's time is the latest that the wall clock ever showed.
    RatchetClock,
    /// Stored instants are believed, however far ahead they lie.
    BelieveInstants,
    /// A record of an endpoint overwrites a status that the engine has not heard of.
    OverwriteStatus,
    /// A graceful stop drops what is recorded as sent and has not left.
    DropAtStop,
}

impl PlantedDefect {
    /// All defects, with their names.
    pub const ALL: [(&str, PlantedDefect); 29] = [
        ("release-before-acknowledgement", PlantedDefect::ReleaseEarly),
        ("forget-in-flight", PlantedDefect::ForgetInFlight),
        ("advance-on-dead-letter", PlantedDefect::AdvanceOnDeadLetter),
        ("retry-at-most-once", PlantedDefect::RetryAtMostOnce),
        ("ignore-retry-after", PlantedDefect::IgnoreRetryAfter),
        ("exceed-cap", PlantedDefect::ExceedCap),
        ("drop-held-lane", PlantedDefect::DropHeldLane),
        ("burn-attempts-while-open", PlantedDefect::BurnWhileOpen),
        ("ignore-rate", PlantedDefect::IgnoreRate),
        ("try-once-more", PlantedDefect::TryOnceMore),
        ("forget-waits", PlantedDefect::ForgetWaits),
        ("ignore-pause", PlantedDefect::IgnorePause),
        ("wake-late", PlantedDefect::WakeLate),
        ("replay-untold", PlantedDefect::ReplayUntold),
        ("send-unrecorded", PlantedDefect::SendUnrecorded),
        ("lose-accepted", PlantedDefect::LoseAccepted),
        ("place-by-key", PlantedDefect::PlaceByKey),
        ("roll-back-duplicates", PlantedDefect::RollBackDuplicates),
        ("keep-lines", PlantedDefect::KeepLines),
        ("share-lines", PlantedDefect::ShareLines),
        ("omit-after", PlantedDefect::OmitAfter),
        ("count-early", PlantedDefect::CountEarly),
        ("redeliver-unmarked", PlantedDefect::RedeliverUnmarked),
        ("never-sweep", PlantedDefect::NeverSweep),
        ("ratchet-sweeps", PlantedDefect::RatchetSweeps),
        ("ratchet-clock", PlantedDefect::RatchetClock),
        ("believe-instants", PlantedDefect::BelieveInstants),
        ("overwrite-status", PlantedDefect::OverwriteStatus),
        ("drop-at-stop", PlantedDefect::DropAtStop),
    ];

    /// The policy that the engine gets to see.
    pub(crate) fn policy(self, policy: Policy) -> Policy {
        let mut fields = policy.into_fields();
        match self {
            PlantedDefect::AdvanceOnDeadLetter
                if fields.guarantee != Guarantee::EffectivelyOnce =>
            {
                fields.on_dead_letter = OnDeadLetter::Advance;
            }
            PlantedDefect::ExceedCap => fields.in_flight_max += 1,
            PlantedDefect::BurnWhileOpen => fields.breaker = None,
            PlantedDefect::IgnoreRate => fields.rate_limit = None,
            PlantedDefect::TryOnceMore => fields.retry.max_attempts += 1,
            _ => {}
        }
        Policy::new(fields).expect("the bounds are far away")
    }

    /// The result that the engine gets to see.
    pub(crate) fn result(self, result: AttemptResult) -> AttemptResult {
        match (self, result) {
            (PlantedDefect::IgnoreRetryAfter, AttemptResult::Response { status, .. }) => {
                AttemptResult::Response { status, retry_after: None }
            }
            (
                PlantedDefect::CountEarly,
                AttemptResult::Response { status: 409 | 425, retry_after },
            ) => AttemptResult::Response { status: 502, retry_after },
            _ => result,
        }
    }

    /// The load that the store gets to see.
    pub(crate) fn load(self, load: Load) -> Load {
        match load {
            Load::Unkeyed { endpoint, after, due_by, limit, .. }
                if self == PlantedDefect::BelieveInstants =>
            {
                let due_beyond = Timestamp::from_millis(u64::MAX);
                Load::Unkeyed { endpoint, after, due_by, due_beyond, limit }
            }
            _ => load,
        }
    }

    /// What an inbox gets to see.
    pub(crate) fn received(self, received: &Received) -> Received {
        let mut received = received.clone();
        if let (PlantedDefect::PlaceByKey, Some(_), Some(key)) =
            (self, &received.line, &received.key)
        {
            received.line = key.as_str().parse().ok();
        }
        received
    }

    /// Whether a receiver commits the transaction of an event with this verdict.
    pub(crate) fn commits(self, verdict: Verdict) -> bool {
        self != PlantedDefect::RollBackDuplicates || verdict != Verdict::Duplicate
    }

    /// The line that the wire names, for a lane of this key in this era.
    pub(crate) fn line(self, line: LineId, era: u64, key: Option<&str>) -> LineId {
        let number = key.and_then(|key| key.trim_start_matches("key-").parse().ok());
        if self == PlantedDefect::ShareLines { LineId::of(era, number.unwrap_or(0)) } else { line }
    }

    /// When the engine is woken that wants to be at `wake`.
    pub(crate) fn wake(self, wake: Timestamp) -> Timestamp {
        if self == PlantedDefect::WakeLate { wake + Span::from_secs(3) } else { wake }
    }

    /// The page that the engine gets to see.
    pub(crate) fn page(self, page: LoadedPage, cut_off: &BTreeSet<DeliveryId>) -> LoadedPage {
        let each = |delivery| self.delivery(delivery, cut_off);
        match page {
            LoadedPage::Lanes { lanes, next } => LoadedPage::Lanes {
                lanes: lanes.into_iter().map(|lane| self.lane(lane, each)).collect(),
                next,
            },
            LoadedPage::Lane(lane) => LoadedPage::Lane(self.lane(lane, each)),
            LoadedPage::Unkeyed { deliveries, next, next_due } => {
                let deliveries = deliveries.into_iter().filter_map(each).collect();
                LoadedPage::Unkeyed { deliveries, next, next_due }
            }
        }
    }

    fn lane(self, mut page: LanePage, each: impl Fn(Delivery) -> Option<Delivery>) -> LanePage {
        let head = page.deliveries.first();
        let held = head.is_some_and(|head| matches!(head.state, DeliveryState::Dead { .. }));
        if self == PlantedDefect::DropHeldLane && held {
            (page.deliveries, page.through) = (Vec::new(), page.last);
        }
        page.deliveries = page.deliveries.into_iter().filter_map(each).collect();
        page
    }

    fn delivery(self, delivery: Delivery, cut_off: &BTreeSet<DeliveryId>) -> Option<Delivery> {
        let fresh = Delivery { state: DeliveryState::Pending, ..delivery };
        match (self, delivery.state) {
            (PlantedDefect::LoseAccepted, _) if self.loses(delivery.id) => None,
            (PlantedDefect::ForgetInFlight, _) if cut_off.contains(&delivery.id) => None,
            (PlantedDefect::RetryAtMostOnce, DeliveryState::InFlight) => {
                Some(Delivery { progress: Progress::default(), ..fresh })
            }
            (PlantedDefect::ForgetWaits, DeliveryState::Waiting { .. }) => Some(fresh),
            _ => Some(delivery),
        }
    }

    /// Whether an accepted delivery gets lost.
    pub(crate) fn loses(self, id: DeliveryId) -> bool {
        self == PlantedDefect::LoseAccepted && id.to_bytes()[15].is_multiple_of(20)
    }
}
