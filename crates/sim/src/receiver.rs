//! The receivers: how they behave, and what they have applied.

use std::collections::BTreeSet;

use railpost_engine::{AttemptResult, Span, Timestamp};

use crate::dice::Dice;
use crate::store::EventNo;

/// How a receiver treats what reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Up,
    /// Nobody listens.
    Down,
    /// Up and down in turns of this length.
    Flapping(Span),
    /// Applies at once and answers after up to this long, which may be too late.
    Slow(Span),
    /// Asks to come back later, with 429 or 503.
    RateLimiting(Span),
    /// Answers with errors that may pass.
    Failing,
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
            Behaviour::Rejecting => "receiver: rejecting",
            Behaviour::Gone => "receiver: gone",
        }
    }
}

pub(crate) struct Receiver {
    pub(crate) behaviour: Behaviour,
    /// Every event whose number is a multiple of this is one that the receiver can never digest.
    pub(crate) poison: Option<EventNo>,
    seen: BTreeSet<EventNo>,
    /// What was applied, in order. Deduplicated by event: that is what makes duplicates harmless.
    pub(crate) applied: Vec<EventNo>,
}

/// What goes back, and how long the receiver takes over it.
pub(crate) struct Reply {
    pub(crate) after: Span,
    pub(crate) result: AttemptResult,
}

impl Receiver {
    pub(crate) fn new(behaviour: Behaviour, poison: Option<EventNo>) -> Self {
        Self { behaviour, poison, seen: BTreeSet::new(), applied: Vec::new() }
    }

    pub(crate) fn listens(&self, now: Timestamp) -> bool {
        match self.behaviour {
            Behaviour::Down => false,
            Behaviour::Flapping(turn) => (now.as_millis() / turn.as_millis()).is_multiple_of(2),
            _ => true,
        }
    }

    pub(crate) fn chokes_on(&self, event: EventNo) -> bool {
        self.poison.is_some_and(|poison| event.is_multiple_of(poison))
    }

    /// Takes in a request that arrived.
    pub(crate) fn take(&mut self, event: EventNo, dice: &mut Dice) -> Reply {
        if self.chokes_on(event) {
            return reply(dice, 422);
        }
        match self.behaviour {
            Behaviour::Up | Behaviour::Down | Behaviour::Flapping(_) => self.apply(event, dice),
            Behaviour::Slow(longest) => {
                let after = dice.millis(1..=longest.as_millis());
                Reply { after, ..self.apply(event, dice) }
            }
            Behaviour::RateLimiting(longest) => ask_to_wait(longest, dice),
            Behaviour::Failing => self.fail(event, dice),
            Behaviour::Rejecting => {
                let status = dice.pick(&[400, 401, 403, 404, 501]);
                reply(dice, status)
            }
            Behaviour::Gone => reply(dice, 410),
        }
    }

    fn apply(&mut self, event: EventNo, dice: &mut Dice) -> Reply {
        if self.seen.insert(event) {
            self.applied.push(event);
        }
        let status = dice.pick(&[200, 201, 202, 204]);
        reply(dice, status)
    }

    /// An error says nothing about whether the event was applied, but for 409: it was before.
    fn fail(&mut self, event: EventNo, dice: &mut Dice) -> Reply {
        if self.seen.contains(&event) {
            return reply(dice, 409);
        }
        if dice.percent(20) {
            self.apply(event, dice);
        }
        let status = dice.pick(&[302, 408, 425, 500, 502, 503]);
        reply(dice, status)
    }
}

fn ask_to_wait(longest: Span, dice: &mut Dice) -> Reply {
    let retry_after = Some(dice.millis(0..=longest.as_millis()));
    let status = dice.pick(&[429, 503, 500]);
    let result = AttemptResult::Response { status, retry_after };
    Reply { result, ..reply(dice, status) }
}

fn reply(dice: &mut Dice, status: u16) -> Reply {
    let result = AttemptResult::Response { status, retry_after: None };
    Reply { after: dice.millis(1..=200), result }
}
