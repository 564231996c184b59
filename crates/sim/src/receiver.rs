//! The receivers: how they behave, and the real inbox with which they judge what reaches them.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{AttemptResult, Span, Timestamp};
use railpost_receiver::{OnGap, Policy, Verdict};
use railpost_wire::{DeliveryId, EndpointId, LineId, Received, Seq};

use crate::clock::WallClock;
use crate::database::Database;
use crate::planted_defect::PlantedDefect;
use crate::seeded_rng::SeededRng;
use crate::store::EventNo;
use crate::volatile_inbox::VolatileInbox;

/// The number of a receiver: what stands behind a URL.
pub(crate) type ReceiverNo = u32;

/// How a receiver treats what reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Up,
    /// Its port is closed.
    Down,
    /// Up and down in turns of this length.
    Flapping(Span),
    /// Takes up to this long to apply or to answer, which may be too late.
    Slow(Span),
    /// Asks to come back later, with 429 or 503.
    RateLimiting(Span),
    /// Answers with errors that may pass.
    Failing,
    /// Wants another event first, whatever comes.
    Early,
    /// Refuses everything for good.
    Rejecting,
    /// Says that it is gone.
    Gone,
}

impl Behaviour {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Behaviour::Up => "receiver: up",
            Behaviour::Down => "receiver: down",
            Behaviour::Flapping(_) => "receiver: flapping",
            Behaviour::Slow(_) => "receiver: slow",
            Behaviour::RateLimiting(_) => "receiver: rate-limiting",
            Behaviour::Failing => "receiver: failing",
            Behaviour::Early => "receiver: early",
            Behaviour::Rejecting => "receiver: rejecting",
            Behaviour::Gone => "receiver: gone",
        }
    }
}

/// What a receiver is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverPlan {
    /// Whether its inbox and its effects are in a database; otherwise they are gone with the process.
    pub(crate) durable: bool,
    pub(crate) policy: Policy,
    /// Every event whose number is a multiple of this is one that it can never digest.
    pub(crate) poison: Option<EventNo>,
}

/// Where a receiver dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// Before its transaction commits.
    InTransaction,
    /// After that, before it answers.
    BeforeAnswer,
}

pub(crate) struct Receiver {
    pub(crate) behaviour: Behaviour,
    pub(crate) clock: WallClock,
    /// Where it dies over the next event, and how long it is down then.
    pub(crate) crash: Option<(CrashPoint, Span)>,
    plan: ReceiverPlan,
    memory: InboxKind,
    up_from: Timestamp,
    /// Whether it ever lost something that it had applied.
    pub(crate) forgot: bool,
    /// What was applied for the first time, in order, whatever became of it.
    pub(crate) history: Vec<AppliedEvent>,
    applied_ever: BTreeSet<EventNo>,
    works: BTreeMap<u64, AppliedEvent>,
    last_work: u64,
}

enum InboxKind {
    Durable(Box<Database>),
    Volatile(VolatileInbox),
}

/// What reaches a receiver.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) received: Received,
    /// What the body says.
    pub(crate) body: Body,
}

/// Which event and delivery a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) event: EventNo,
    pub(crate) delivery: DeliveryId,
    pub(crate) endpoint: EndpointId,
}

/// An effect: an event that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedEvent {
    pub(crate) body: Body,
    pub(crate) place: Option<(LineId, Seq)>,
    pub(crate) replay: bool,
}

impl AppliedEvent {
    fn of(arrival: &Arrival) -> Self {
        let Received { line, seq, replay, .. } = &arrival.received;
        Self { body: arrival.body, place: line.clone().zip(*seq), replay: *replay }
    }
}

/// What comes of an arrival.
pub(crate) struct Reply {
    pub(crate) after: Span,
    pub(crate) kind: ReplyKind,
    /// What the inbox said, if it was asked.
    pub(crate) verdict: Option<Verdict>,
}

pub(crate) enum ReplyKind {
    Answer(AttemptResult),
    /// The receiver died over it.
    Crash,
    /// It is being applied: the answer comes with [`Receiver::finish`].
    Working(u64),
}

impl Receiver {
    pub(crate) fn new(plan: ReceiverPlan, plant: PlantedDefect) -> Self {
        let memory = match plan.durable {
            true => InboxKind::Durable(Box::new(Database::new(plan.policy, plant))),
            false => InboxKind::Volatile(VolatileInbox::new(plan.policy)),
        };
        Self {
            behaviour: Behaviour::Up,
            clock: WallClock::default(),
            crash: None,
            plan,
            memory,
            up_from: Timestamp::default(),
            forgot: false,
            history: Vec::new(),
            applied_ever: BTreeSet::new(),
            works: BTreeMap::new(),
            last_work: 0,
        }
    }

    pub(crate) fn listens(&self, now: Timestamp) -> bool {
        match self.behaviour {
            _ if self.up_from > now => false,
            Behaviour::Down => false,
            Behaviour::Flapping(turn) => (now.as_millis() / turn.as_millis()).is_multiple_of(2),
            _ => true,
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.plan.policy
    }

    /// Whether an event was applied here, even if that was lost since.
    pub(crate) fn has_applied(&self, event: EventNo) -> bool {
        self.applied_ever.contains(&event)
    }

    /// The effects that are there, in order.
    pub(crate) fn effects(&self) -> Vec<AppliedEvent> {
        match &self.memory {
            InboxKind::Durable(database) => database.effects(),
            InboxKind::Volatile(volatile) => volatile.effects.clone(),
        }
    }

    /// Takes in a request that arrived.
    pub(crate) fn take(&mut self, arrival: &Arrival, now: Timestamp, rng: &mut SeededRng) -> Reply {
        match self.behaviour {
            Behaviour::Up | Behaviour::Down | Behaviour::Flapping(_) => {
                self.judge(arrival, now, None, rng)
            }
            Behaviour::Slow(longest) => {
                let after = rng.millis(1..=longest.as_millis());
                self.judge(arrival, now, Some(after), rng)
            }
            Behaviour::RateLimiting(longest) => ask_to_wait(longest, rng),
            Behaviour::Failing => self.fail(arrival, now, rng),
            Behaviour::Early => {
                let status = rng.pick(&[409, 425]);
                reply(rng, status)
            }
            Behaviour::Rejecting => {
                let status = rng.pick(&[400, 401, 403, 404, 501]);
                reply(rng, status)
            }
            Behaviour::Gone => reply(rng, 410),
        }
    }

    /// The inbox says what is to be done, and it is done.
    fn judge(
        &mut self,
        arrival: &Arrival,
        now: Timestamp,
        slow: Option<Span>,
        rng: &mut SeededRng,
    ) -> Reply {
        let seconds = self.seconds(now);
        let crash = self.crash.take();
        let point = crash.map(|(point, _)| point);
        let poisoned = self.chokes_on(arrival.body.event);
        let application = AppliedEvent::of(arrival);
        let after = slow.unwrap_or_else(|| rng.millis(1..=200));
        let (verdict, applied) = match &mut self.memory {
            InboxKind::Durable(database) => {
                let commits = point != Some(CrashPoint::InTransaction) && !poisoned;
                database.take(&arrival.received, &application, commits, seconds)
            }
            InboxKind::Volatile(volatile) => {
                let work = (slow.is_some() && !poisoned).then_some(self.last_work + 1);
                volatile.take(&arrival.received, &application, work, poisoned, seconds)
            }
        };
        if applied {
            self.note(application.clone());
        }
        let kind = if let Some((_, down_for)) = crash {
            self.die(now, down_for);
            ReplyKind::Crash
        } else if verdict.applies() && poisoned {
            ReplyKind::Answer(AttemptResult::Response { status: 422, retry_after: None })
        } else if verdict.applies() && !applied {
            self.last_work += 1;
            self.works.insert(self.last_work, application);
            ReplyKind::Working(self.last_work)
        } else {
            ReplyKind::Answer(answer(verdict))
        };
        Reply { after, kind, verdict: Some(verdict) }
    }

    /// Something that took long is done: the answer, unless the receiver died over it.
    pub(crate) fn finish(&mut self, work: u64, now: Timestamp) -> Option<AttemptResult> {
        let seconds = self.seconds(now);
        let application = self.works.remove(&work)?;
        let InboxKind::Volatile(volatile) = &mut self.memory else { return None };
        let verdict = volatile.finish(work, &application, seconds)?;
        self.note(application);
        Some(answer(verdict))
    }

    fn note(&mut self, application: AppliedEvent) {
        if self.applied_ever.insert(application.body.event) {
            self.history.push(application);
        }
    }

    fn chokes_on(&self, event: EventNo) -> bool {
        self.plan.poison.is_some_and(|poison| event.is_multiple_of(poison))
    }

    fn seconds(&self, now: Timestamp) -> i64 {
        (self.clock.at(now).as_millis() / 1_000) as i64
    }

    /// The process dies. A database keeps what was committed; memory keeps nothing.
    fn die(&mut self, now: Timestamp, down_for: Span) {
        self.up_from = now + down_for;
        self.works.clear();
        match &mut self.memory {
            InboxKind::Durable(database) => database.restart(),
            InboxKind::Volatile(_) => self.lose_everything(),
        }
    }

    fn lose_everything(&mut self) {
        self.forgot |= !self.applied_ever.is_empty();
        self.works.clear();
        match &mut self.memory {
            InboxKind::Durable(database) => database.erase(),
            InboxKind::Volatile(volatile) => *volatile = VolatileInbox::new(self.plan.policy),
        }
    }

    /// Makes a copy that [`restore`](Self::restore) goes back to.
    pub(crate) fn back_up(&mut self) {
        if let InboxKind::Durable(database) = &mut self.memory {
            database.back_up();
        }
    }

    /// Goes back to the last copy, or to nothing if there is none; says which.
    pub(crate) fn restore(&mut self) -> &'static str {
        match &mut self.memory {
            InboxKind::Durable(database) if database.has_copy() => {
                self.forgot = true;
                database.restore();
                "fault: receiver restored"
            }
            _ => {
                self.lose_everything();
                "fault: receiver lost everything"
            }
        }
    }

    /// Faults have stopped: it takes what it can digest. Where gaps are held for ever, people decide that
    /// what was lost is not waited for.
    pub(crate) fn calm_down(&mut self) {
        (self.behaviour, self.crash) = (Behaviour::Up, None);
        self.clock.correct();
        if self.plan.policy.on_gap == OnGap::Hold {
            self.plan.policy.on_gap = OnGap::Accept;
            if let InboxKind::Durable(database) = &mut self.memory {
                database.set_policy(self.plan.policy);
            }
        }
    }

    /// An error says nothing about whether the event was applied.
    fn fail(&mut self, arrival: &Arrival, now: Timestamp, rng: &mut SeededRng) -> Reply {
        if rng.percent(20) {
            let reply = self.judge(arrival, now, None, rng);
            if !matches!(reply.kind, ReplyKind::Answer(_)) {
                return reply;
            }
        }
        let status = rng.pick(&[302, 408, 409, 425, 500, 502, 503]);
        reply(rng, status)
    }
}

fn answer(verdict: Verdict) -> AttemptResult {
    let answer = verdict.answer();
    let retry_after = answer.retry_after.map(Span::from_secs);
    AttemptResult::Response { status: answer.status, retry_after }
}

fn ask_to_wait(longest: Span, rng: &mut SeededRng) -> Reply {
    let retry_after = Some(rng.millis(0..=longest.as_millis()));
    let status = rng.pick(&[429, 503, 500]);
    let kind = ReplyKind::Answer(AttemptResult::Response { status, retry_after });
    Reply { kind, ..reply(rng, status) }
}

fn reply(rng: &mut SeededRng, status: u16) -> Reply {
    let kind = ReplyKind::Answer(AttemptResult::Response { status, retry_after: None });
    Reply { after: rng.millis(1..=200), kind, verdict: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn receiver(durable: bool) -> Receiver {
        let plan = ReceiverPlan { durable, policy: Policy::default(), poison: Some(7) };
        Receiver::new(plan, PlantedDefect::Nothing)
    }

    /// The event of this number, which is also its seq.
    fn arrival(event: EventNo) -> Arrival {
        let received = Received {
            event_id: format!("event-{event}").parse().unwrap(),
            event_type: None,
            event_unix_ms: None,
            schema_version: None,
            key: None,
            line: Some(LineId::of(0, 1)),
            seq: Seq::new(event),
            after: None,
            attempt: None,
            replay: false,
            thin: false,
            timestamp: 0,
        };
        let (delivery, endpoint) = (DeliveryId::from_u128(event.into()), EndpointId::from_u128(1));
        Arrival { received, body: Body { event, delivery, endpoint } }
    }

    /// The status of the answer, or 0 if there is none yet.
    fn take(receiver: &mut Receiver, event: EventNo) -> u16 {
        match receiver.take(&arrival(event), NOW, &mut SeededRng::new(1)).kind {
            ReplyKind::Answer(AttemptResult::Response { status, .. }) => status,
            _ => 0,
        }
    }

    fn effects(receiver: &Receiver) -> Vec<EventNo> {
        receiver.effects().iter().map(|effect| effect.body.event).collect()
    }

    #[test]
    fn the_inbox_answers_and_the_effect_is_there_once() {
        for durable in [true, false] {
            let mut receiver = receiver(durable);
            let statuses = [1, 1, 3, 2].map(|event| take(&mut receiver, event));
            assert_eq!(statuses, [200, 200, 425, 200]);
            assert_eq!(effects(&receiver), [1, 2]);
        }
    }

    #[test]
    fn a_database_keeps_what_was_committed_and_nothing_else() {
        let mut receiver = receiver(true);
        for (event, point, expected) in
            [(1, CrashPoint::InTransaction, vec![]), (1, CrashPoint::BeforeAnswer, vec![1])]
        {
            receiver.crash = Some((point, Span::ZERO));
            assert_eq!((take(&mut receiver, event), effects(&receiver)), (0, expected));
        }
        assert_eq!((take(&mut receiver, 1), effects(&receiver)), (200, vec![1]), "a duplicate");
        assert!(!receiver.forgot);
    }

    #[test]
    fn a_restored_database_has_forgotten_and_what_comes_again_is_applied_again() {
        let mut receiver = receiver(true);
        take(&mut receiver, 1);
        receiver.back_up();
        take(&mut receiver, 2);
        receiver.restore();
        assert_eq!((effects(&receiver), receiver.forgot), (vec![1], true));
        assert_eq!((take(&mut receiver, 2), effects(&receiver)), (200, vec![1, 2]));
        assert_eq!(receiver.history.len(), 2, "it was not the first time");
    }

    #[test]
    fn memory_is_gone_with_the_process() {
        let mut receiver = receiver(false);
        take(&mut receiver, 1);
        receiver.crash = Some((CrashPoint::BeforeAnswer, Span::ZERO));
        take(&mut receiver, 2);
        assert_eq!((effects(&receiver), receiver.forgot), (vec![], true));
    }

    #[test]
    fn what_takes_long_in_memory_holds_its_line_off_until_it_is_done() {
        let mut receiver = receiver(false);
        receiver.behaviour = Behaviour::Slow(Span::from_secs(5));
        assert_eq!((take(&mut receiver, 1), take(&mut receiver, 1)), (0, 409));
        assert!(receiver.finish(1, NOW).is_some());
        assert_eq!((take(&mut receiver, 1), effects(&receiver)), (200, vec![1]));
    }

    #[test]
    fn what_cannot_be_digested_leaves_no_trace() {
        for durable in [true, false] {
            let mut receiver = receiver(durable);
            assert!((1..=6).all(|event| take(&mut receiver, event) == 200));
            assert_eq!((take(&mut receiver, 7), take(&mut receiver, 8)), (422, 425));
            assert_eq!(effects(&receiver).len(), 6);
        }
    }
}
