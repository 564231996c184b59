//! The inbox in memory: fast, bounded, and gone with the process.
//!
//! After a restart every event is unknown. Whatever the sender sends again then is applied again, so
//! this inbox suits effects that are harmless twice, and tests.

use crate::inbox::{NotedGap, Policy, Retention, Verdict};
use crate::limits::{GAPS_LISTED_MAX, MEMORY_IDS_MAX};
use railpost_wire::{EventId, Received, Seq};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An inbox in memory. Clones share what they remember.
#[derive(Debug, Clone, Default)]
pub struct MemoryInbox {
    policy: Policy,
    retention: Retention,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    ids: HashMap<EventId, Progress>,
    /// Applied ids, oldest first.
    applied: VecDeque<(i64, EventId)>,
    lanes: HashMap<Arc<str>, Lane>,
    /// Lanes by when they were last looked at for pruning, oldest first.
    looked_at: VecDeque<(i64, Arc<str>)>,
    gaps: VecDeque<NotedGap>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Applied,
}

#[derive(Debug, Default)]
struct Lane {
    applied: Option<Seq>,
    open: bool,
    changed_at: i64,
}

/// The right to apply one event, or the verdict that says why there is none.
///
/// Until [`done`](Ticket::done) the event is not remembered: a ticket that is dropped, by an error or a
/// panic of the effect, leaves it to the sender's next attempt.
#[derive(Debug)]
#[must_use = "an event is remembered when its ticket is done"]
pub struct Ticket {
    verdict: Verdict,
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    inbox: MemoryInbox,
    id: EventId,
    lane: Option<(Arc<str>, Seq)>,
    verdict: Verdict,
}

impl MemoryInbox {
    /// An empty inbox.
    pub fn new(policy: Policy, retention: Retention) -> Self {
        Self { policy, retention, state: Arc::default() }
    }

    /// Judges an event, and claims it if it is to be applied. `now` is in seconds since 1970.
    pub fn begin(&self, received: &Received, now: i64) -> Ticket {
        let mut state = self.state();
        state.forget(self.retention, now);
        let lane = self.policy.lane(received);
        let verdict = match state.judge(&self.policy, received) {
            verdict if verdict.applies() && state.is_busy(lane) => Verdict::Busy,
            verdict => verdict,
        };
        let claim = verdict.applies().then(|| {
            let lane = state.claim(received, lane, now);
            Claim { inbox: self.clone(), id: received.event_id.clone(), lane, verdict }
        });
        Ticket { verdict, claim }
    }

    /// Judges an event, applies it if it is to be applied, and remembers it if that went well.
    pub fn apply<E>(
        &self,
        received: &Received,
        now: i64,
        effect: impl FnOnce() -> Result<(), E>,
    ) -> Result<Verdict, E> {
        let ticket = self.begin(received, now);
        if ticket.verdict().applies() {
            effect()?;
        }
        Ok(ticket.done(now))
    }

    /// The latest gaps that were accepted, oldest first.
    pub fn gaps(&self) -> Vec<NotedGap> {
        self.state().gaps.iter().cloned().collect()
    }

    /// A panic elsewhere leaves the state whole: each change is made of steps that cannot fail.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// What the event is.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The effect has happened: remember the event.
    pub fn done(mut self, now: i64) -> Verdict {
        if let Some(claim) = self.claim.take() {
            claim.inbox.state().finish(&claim, now);
        }
        self.verdict
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            claim.inbox.state().release(&claim);
        }
    }
}

impl State {
    fn judge(&self, policy: &Policy, received: &Received) -> Verdict {
        let progress = self.ids.get(&received.event_id);
        if progress == Some(&Progress::Open) {
            return Verdict::Busy;
        }
        let lane = policy.lane(received).and_then(|(key, _)| self.lanes.get(key));
        policy.judge(received, progress.is_some(), lane.and_then(|lane| lane.applied))
    }

    fn is_busy(&self, lane: Option<(&str, Seq)>) -> bool {
        lane.and_then(|(key, _)| self.lanes.get(key)).is_some_and(|lane| lane.open)
    }

    fn claim(
        &mut self,
        received: &Received,
        lane: Option<(&str, Seq)>,
        now: i64,
    ) -> Option<(Arc<str>, Seq)> {
        self.ids.insert(received.event_id.clone(), Progress::Open);
        let (key, seq) = lane?;
        let known = self.lanes.get_key_value(key).map(|(key, _)| key.clone());
        let key = known.unwrap_or_else(|| {
            let key: Arc<str> = key.into();
            self.looked_at.push_back((now, key.clone()));
            key
        });
        let lane = self.lanes.entry(key.clone()).or_default();
        (lane.open, lane.changed_at) = (true, now);
        Some((key, seq))
    }

    fn finish(&mut self, claim: &Claim, now: i64) {
        self.ids.insert(claim.id.clone(), Progress::Applied);
        self.applied.push_back((now, claim.id.clone()));
        let Some((key, seq)) = &claim.lane else { return };
        if let Some(lane) = self.lanes.get_mut(key) {
            (lane.open, lane.changed_at) = (false, now);
            // A replay may be older than what was applied.
            lane.applied = lane.applied.max(Some(*seq));
        }
        if let Verdict::Gap { applied, .. } = claim.verdict {
            self.note_gap(key, applied, *seq, now);
        }
    }

    fn release(&mut self, claim: &Claim) {
        self.ids.remove(&claim.id);
        if let Some(lane) = claim.lane.as_ref().and_then(|(key, _)| self.lanes.get_mut(key)) {
            lane.open = false;
        }
    }

    fn note_gap(&mut self, key: &str, applied: Option<Seq>, seq: Seq, now: i64) {
        if self.gaps.len() == GAPS_LISTED_MAX as usize {
            self.gaps.pop_front();
        }
        let applied = applied.map_or(0, Seq::get);
        self.gaps.push_back(NotedGap { key: key.into(), applied, seq: seq.get(), noted_at: now });
    }

    /// Forgets what is old or too much: at most two of each kind, so that no call pays for many.
    fn forget(&mut self, retention: Retention, now: i64) {
        for _ in 0..2 {
            let full = self.applied.len() >= MEMORY_IDS_MAX;
            let old = |at: i64| at < retention.ids_since(now);
            if let Some((_, id)) = self.applied.pop_front_if(|(at, _)| full || old(*at)) {
                self.ids.remove(&id);
            }
            self.forget_lane(retention.lanes_since(now), now);
        }
    }

    fn forget_lane(&mut self, since: i64, now: i64) {
        let Some((_, key)) = self.looked_at.pop_front_if(|(at, _)| *at < since) else { return };
        match self.lanes.get(&key) {
            Some(lane) if !lane.open && lane.changed_at < since => drop(self.lanes.remove(&key)),
            _ => self.looked_at.push_back((now, key)),
        }
    }
}
