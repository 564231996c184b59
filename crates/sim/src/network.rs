//! The network: it loses requests and answers, delays, duplicates and resets.

use railpost_engine::{Failure, Span};

use crate::dice::Dice;

/// How often out of a hundred times each thing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    pub(crate) unreachable: u32,
    pub(crate) request_lost: u32,
    pub(crate) answer_lost: u32,
    pub(crate) delayed: u32,
    pub(crate) duplicated: u32,
    pub(crate) reset: u32,
}

/// What the network does to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No connection, and the sender knows it after a moment.
    Unreachable(Failure),
    /// The request arrives after `there`, and the answer takes `back` to return.
    Arrives { there: Span, back: Span },
    /// The request never arrives; the sender hears nothing.
    RequestLost,
    /// The request arrives; its answer never does.
    AnswerLost { there: Span },
    /// The request arrives, and once more later.
    Duplicated { there: Span, again: Span, back: Span },
    /// The request arrives; the sender sees its connection break.
    Reset { there: Span, broken: Span },
}

impl Odds {
    pub(crate) fn draw(&self, dice: &mut Dice) -> Fate {
        let there = self.leg(dice);
        if dice.percent(self.unreachable) {
            return Fate::Unreachable(dice.pick(&UNREACHABLE));
        }
        if dice.percent(self.request_lost) {
            return Fate::RequestLost;
        }
        if dice.percent(self.answer_lost) {
            return Fate::AnswerLost { there };
        }
        if dice.percent(self.duplicated) {
            return Fate::Duplicated { there, again: dice.secs(1..=600), back: self.leg(dice) };
        }
        if dice.percent(self.reset) {
            return Fate::Reset { there, broken: dice.millis(1..=1_000) };
        }
        Fate::Arrives { there, back: self.leg(dice) }
    }

    /// One way through the network. A delayed request may arrive long after its sender gave up.
    fn leg(&self, dice: &mut Dice) -> Span {
        if dice.percent(self.delayed) { dice.secs(1..=60) } else { dice.millis(1..=100) }
    }
}

const UNREACHABLE: [Failure; 8] = [
    Failure::Dns,
    Failure::BlockedAddress,
    Failure::Refused,
    Failure::ConnectTimeout,
    Failure::Tls,
    Failure::BadResponse,
    Failure::PayloadMissing,
    Failure::NotSent,
];

impl Fate {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fate::Unreachable(_) => "fault: unreachable",
            Fate::Arrives { there, back } if there.max(back) < Span::from_secs(1) => {
                "network: fine"
            }
            Fate::Arrives { .. } => "fault: delayed",
            Fate::RequestLost => "fault: request lost",
            Fate::AnswerLost { .. } => "fault: answer lost",
            Fate::Duplicated { .. } => "fault: duplicated",
            Fate::Reset { .. } => "fault: reset",
        }
    }
}
