//! The inbox in memory: fast, bounded, and gone with the process.
//!
//! After a restart every event and every line is unknown. Whatever the sender sends again then is applied
//! again, so this inbox suits effects that are harmless twice, and tests.

use crate::gap_timers::GapTimers;
use crate::inbox::{LinePosition, NotedGap, Policy, PriorState, Retention, Start, Verdict};
use crate::limits::{GAPS_LISTED_MAX, MEMORY_IDS_MAX};
use railpost_wire::{EventId, Key, LineId, Received, Seq};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An inbox in memory. Clones share what they remember.
///
/// By default it takes an unknown line from wherever it comes first ([`Start::Anywhere`]), because every
/// line is unknown after a restart.
#[derive(Debug, Clone)]
pub struct MemoryInbox {
    policy: Policy,
    retention: Retention,
    timers: GapTimers,
    state: Arc<Mutex<State>>,
}

impl Default for MemoryInbox {
    fn default() -> Self {
        let policy = Policy { start: Start::Anywhere, ..Policy::default() };
        Self::new(policy, Retention::default())
    }
}

#[derive(Debug, Default)]
struct State {
    ids: HashMap<EventId, Progress>,
    /// Applied ids, oldest first.
    applied: VecDeque<(i64, EventId)>,
    lines: HashMap<LineId, Line>,
    /// Lines by when they were last looked at for pruning, oldest first.
    looked_at: VecDeque<(i64, LineId)>,
    gaps: VecDeque<NotedGap>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Applied,
}

#[derive(Debug, Default)]
struct Line {
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
    key: Option<Key>,
    place: Option<(LineId, Seq)>,
    verdict: Verdict,
}

impl MemoryInbox {
    /// An empty inbox.
    pub fn new(policy: Policy, retention: Retention) -> Self {
        Self { policy, retention, timers: GapTimers::default(), state: Arc::default() }
    }

    /// Judges an event, and claims it if it is to be applied. `now` is in seconds since 1970.
    pub fn begin(&self, received: &Received, now: i64) -> Ticket {
        let mut state = self.state();
        state.forget(self.retention, now);
        let verdict = self.judge(&state, received, now);
        let place = LinePosition::of(received).map(|place| (place.line.clone(), place.seq));
        // What applies moves its line on once its effect has happened.
        let moves_at_once = verdict.moves_line() && !verdict.applies();
        if let Some((line, seq)) = place.as_ref().filter(|_| moves_at_once) {
            state.move_on(line, *seq, now);
        }
        let claim = verdict.applies().then(|| {
            state.claim(&received.event_id, place.as_ref().map(|(line, _)| line), now);
            let (id, key) = (received.event_id.clone(), received.key.clone());
            Claim { inbox: self.clone(), id, key, place, verdict }
        });
        Ticket { verdict, claim }
    }

    /// What comes while its line is busy is not judged: what it waits for may be on its way.
    fn judge(&self, state: &State, received: &Received, now: i64) -> Verdict {
        let progress = state.ids.get(&received.event_id);
        let line = LinePosition::of(received).and_then(|place| state.lines.get(place.line));
        let line_is_busy = line.is_some_and(|line| line.open);
        if line_is_busy || progress == Some(&Progress::Open) {
            return Verdict::Busy;
        }
        let applied = line.and_then(|line| line.applied);
        let known = PriorState { id: progress.is_some(), applied, gap_since: None };
        self.timers.judge(&self.policy, received, known, now)
    }

    /// The last seq of a line that was applied, if the line is known.
    pub fn applied(&self, line: &LineId) -> Option<Seq> {
        self.state().lines.get(line)?.applied
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
    fn claim(&mut self, id: &EventId, line: Option<&LineId>, now: i64) {
        self.ids.insert(id.clone(), Progress::Open);
        if let Some(line) = line {
            let line = self.line(line, now);
            (line.open, line.changed_at) = (true, now);
        }
    }

    fn finish(&mut self, claim: &Claim, now: i64) {
        self.ids.insert(claim.id.clone(), Progress::Applied);
        self.applied.push_back((now, claim.id.clone()));
        let Some((line, seq)) = &claim.place else { return };
        self.line(line, now).open = false;
        self.move_on(line, *seq, now);
        if let Verdict::Gap { applied, .. } = claim.verdict {
            self.note_gap(NotedGap {
                line: line.to_string(),
                key: claim.key.as_ref().map(Key::to_string),
                applied: applied.map_or(0, Seq::get),
                seq: seq.get(),
                noted_at: now,
            });
        }
    }

    fn release(&mut self, claim: &Claim) {
        self.ids.remove(&claim.id);
        if let Some(line) = claim.place.as_ref().and_then(|(line, _)| self.lines.get_mut(line)) {
            line.open = false;
        }
    }

    /// A replay or a duplicate may be older than what was applied.
    fn move_on(&mut self, line: &LineId, seq: Seq, now: i64) {
        let line = self.line(line, now);
        (line.applied, line.changed_at) = (line.applied.max(Some(seq)), now);
    }

    fn line(&mut self, line: &LineId, now: i64) -> &mut Line {
        self.lines.entry(line.clone()).or_insert_with(|| {
            self.looked_at.push_back((now, line.clone()));
            Line::default()
        })
    }

    fn note_gap(&mut self, gap: NotedGap) {
        if self.gaps.len() == GAPS_LISTED_MAX as usize {
            self.gaps.pop_front();
        }
        self.gaps.push_back(gap);
    }

    /// Forgets what is old or too much: at most two of each kind, so that no call pays for many.
    fn forget(&mut self, retention: Retention, now: i64) {
        for _ in 0..2 {
            let full = self.applied.len() >= MEMORY_IDS_MAX;
            let old = |at: i64| at < retention.ids_since(now);
            if let Some((_, id)) = self.applied.pop_front_if(|(at, _)| full || old(*at)) {
                self.ids.remove(&id);
            }
            self.forget_line(retention.lines_since(now), now);
        }
    }

    fn forget_line(&mut self, since: i64, now: i64) {
        let Some((_, id)) = self.looked_at.pop_front_if(|(at, _)| *at < since) else { return };
        match self.lines.get(&id) {
            Some(line) if !line.open && line.changed_at < since => drop(self.lines.remove(&id)),
            _ => self.looked_at.push_back((now, id)),
        }
    }
}
