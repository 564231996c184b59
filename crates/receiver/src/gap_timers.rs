//! When each line's gap was first seen, in this process.
//!
//! A SQL inbox judges in the application's transaction, and an application may well roll back one in which
//! nothing was applied. So the time at which a gap was first seen is not a row: clones of an inbox share a bounded map,
//! and the wait starts again with the process.

use crate::inbox::{LinePosition, OnGap, Policy, PriorState, Verdict};
use crate::limits::{OPEN_GAP_RETENTION, OPEN_GAPS_MAX};
use railpost_wire::{LineId, Received, Seq};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open gaps of an inbox. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct GapTimers(Arc<Mutex<OpenGaps>>);

#[derive(Debug, Default)]
struct OpenGaps {
    lines: HashMap<LineId, OpenGap>,
    /// Since when there has been no room. Lines whose gap is not in the map wait from here: so the bound
    /// delays no line for ever.
    full_since: Option<i64>,
}

#[derive(Debug)]
struct OpenGap {
    /// The place that the line had. If it has another one, this gap is closed.
    applied: Option<Seq>,
    since: i64,
    /// Kept after it was accepted, while there is room: the effect may fail, and the event come again.
    accepted: bool,
}

impl GapTimers {
    /// Judges by the policy, and remembers or forgets the line's gap.
    pub(crate) fn judge(
        &self,
        policy: &Policy,
        received: &Received,
        known: PriorState,
        now: i64,
    ) -> Verdict {
        let verdict = policy.judge(received, known, now);
        let Some(LinePosition { line, seq, .. }) = LinePosition::of(received) else {
            return verdict;
        };
        if verdict == Verdict::Fresh && known.applied < Some(seq) {
            self.clear(line);
        }
        let waits = matches!(verdict, Verdict::Gap { accepted: false, .. });
        if !waits || policy.on_gap == OnGap::Hold {
            return verdict;
        }
        let mut gaps = self.lock();
        let gap_since = Some(gaps.first(line, known.applied, now));
        let verdict = policy.judge(received, PriorState { gap_since, ..known }, now);
        if let Some(open_gap) = gaps.lines.get_mut(line) {
            open_gap.accepted = verdict.applies();
        }
        verdict
    }

    /// The line moves on, and leaves its gap behind.
    pub(crate) fn clear(&self, line: &LineId) {
        self.lock().lines.remove(line);
    }

    fn lock(&self) -> MutexGuard<'_, OpenGaps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenGaps {
    /// When the gap after this place was first seen.
    fn first(&mut self, line: &LineId, applied: Option<Seq>, now: i64) -> i64 {
        if let Some(open_gap) = self.lines.get_mut(line) {
            if open_gap.applied != applied {
                *open_gap = OpenGap { applied, since: now, accepted: false };
            }
            return open_gap.since;
        }
        self.make_room(now);
        let since = self.full_since.unwrap_or(now);
        if self.lines.len() < OPEN_GAPS_MAX {
            self.lines.insert(line.clone(), OpenGap { applied, since, accepted: false });
        }
        since
    }

    /// There is room again when half of it is free: lines that wait together are not made to start over
    /// by each one that leaves.
    fn make_room(&mut self, now: i64) {
        if self.full_since.is_none() && self.lines.len() < OPEN_GAPS_MAX {
            return;
        }
        let oldest = now.saturating_sub_unsigned(OPEN_GAP_RETENTION.as_secs());
        self.lines.retain(|_, open_gap| !open_gap.accepted && open_gap.since >= oldest);
        if self.lines.len() <= OPEN_GAPS_MAX / 2 {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TIMEOUT: i64 = 60;

    fn timers() -> (GapTimers, Policy) {
        let on_gap = OnGap::Wait { timeout: Duration::from_secs(TIMEOUT as u64) };
        (GapTimers::default(), Policy { on_gap, ..Policy::default() })
    }

    fn event(line: &str, seq: u64) -> Received {
        Received {
            event_id: "1".parse().unwrap(),
            event_type: None,
            event_unix_ms: None,
            schema_version: None,
            key: None,
            line: Some(line.parse().unwrap()),
            seq: Seq::new(seq),
            after: None,
            attempt: None,
            replay: false,
            thin: false,
            timestamp: 0,
        }
    }

    fn accepted(timers: &GapTimers, policy: &Policy, line: &str, now: i64) -> bool {
        timers.judge(policy, &event(line, 5), PriorState::default(), now).applies()
    }

    #[test]
    fn clones_share_open_gaps() {
        let (timers, policy) = timers();
        assert!(!accepted(&timers, &policy, "L", 0));
        assert!(!accepted(&timers.clone(), &policy, "L", TIMEOUT - 1));
        assert!(accepted(&timers.clone(), &policy, "L", TIMEOUT));
        assert!(accepted(&timers, &policy, "L", TIMEOUT + 1), "also if the effect failed");
    }

    #[test]
    fn a_line_that_moved_on_elsewhere_waits_from_the_start() {
        let (timers, policy) = timers();
        assert!(!accepted(&timers, &policy, "L", 0));
        let known = PriorState { applied: Seq::new(2), ..PriorState::default() };
        let judge = |now| timers.judge(&policy, &event("L", 5), known, now).applies();
        assert!(!judge(TIMEOUT));
        assert!(!judge(2 * TIMEOUT - 1));
        assert!(judge(2 * TIMEOUT));
    }

    #[test]
    fn more_gaps_than_there_is_room_for_wait_together() {
        let (timers, policy) = timers();
        for number in 0..OPEN_GAPS_MAX {
            assert!(!accepted(&timers, &policy, &format!("line-{number}"), 0));
        }
        assert!(!accepted(&timers, &policy, "more", 10));
        assert!(!accepted(&timers, &policy, "even-more", 10 + TIMEOUT - 1));
        assert!(accepted(&timers, &policy, "even-more", 10 + TIMEOUT));
        assert_eq!(timers.lock().lines.len(), OPEN_GAPS_MAX);
    }

    #[test]
    fn gaps_that_were_accepted_make_room() {
        let (timers, policy) = timers();
        for now in [0, TIMEOUT] {
            for number in 0..OPEN_GAPS_MAX {
                let line = format!("line-{number}");
                assert_eq!(accepted(&timers, &policy, &line, now), now == TIMEOUT);
            }
        }
        assert!(!accepted(&timers, &policy, "another", TIMEOUT));
        assert!(!accepted(&timers, &policy, "another", 2 * TIMEOUT - 1));
        assert!(accepted(&timers, &policy, "another", 2 * TIMEOUT));
        assert_eq!(timers.lock().lines.len(), 1);
    }

    #[test]
    fn a_gap_that_is_closed_or_held_for_ever_is_not_remembered() {
        let (timers, policy) = timers();
        assert!(!accepted(&timers, &policy, "L", 0));
        timers.judge(&policy, &event("L", 1), PriorState::default(), 0);
        let holding = Policy { on_gap: OnGap::Hold, ..policy };
        assert!(!accepted(&timers, &holding, "M", 0));
        assert!(timers.lock().lines.is_empty());
    }
}
