//! The network: it loses requests and answers, delays, duplicates and resets.

use railpost_engine::{Failure, Span};

use crate::seeded_rng::SeededRng;

/// How often out of a hundred times each thing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultRates {
    pub(crate) unreachable: u32,
    pub(crate) request_lost: u32,
    pub(crate) answer_lost: u32,
    pub(crate) delayed: u32,
    pub(crate) duplicated: u32,
    pub(crate) reset: u32,
}

/// What the network does to one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkOutcome {
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

impl FaultRates {
    pub(crate) fn draw(&self, rng: &mut SeededRng) -> NetworkOutcome {
        let there = self.leg(rng);
        if rng.percent(self.unreachable) {
            return NetworkOutcome::Unreachable(rng.pick(&UNREACHABLE));
        }
        if rng.percent(self.request_lost) {
            return NetworkOutcome::RequestLost;
        }
        if rng.percent(self.answer_lost) {
            return NetworkOutcome::AnswerLost { there };
        }
        if rng.percent(self.duplicated) {
            return NetworkOutcome::Duplicated {
                there,
                again: rng.secs(1..=600),
                back: self.leg(rng),
            };
        }
        if rng.percent(self.reset) {
            return NetworkOutcome::Reset { there, broken: rng.millis(1..=1_000) };
        }
        NetworkOutcome::Arrives { there, back: self.leg(rng) }
    }

    /// One way through the network. A delayed request may arrive long after its sender gave up.
    fn leg(&self, rng: &mut SeededRng) -> Span {
        if rng.percent(self.delayed) { rng.secs(1..=60) } else { rng.millis(1..=100) }
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

impl NetworkOutcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            NetworkOutcome::Unreachable(_) => "fault: unreachable",
            NetworkOutcome::Arrives { there, back } if there.max(back) < Span::from_secs(1) => {
                "network: fine"
            }
            NetworkOutcome::Arrives { .. } => "fault: delayed",
            NetworkOutcome::RequestLost => "fault: request lost",
            NetworkOutcome::AnswerLost { .. } => "fault: answer lost",
            NetworkOutcome::Duplicated { .. } => "fault: duplicated",
            NetworkOutcome::Reset { .. } => "fault: reset",
        }
    }
}
