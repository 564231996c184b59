//! The way of an attempt: through the network, to a receiver, and back.

use railpost_engine::{Attempt, AttemptResult, AttemptToken, Failure, Input, Span};
use railpost_wire::EndpointId;

use super::{Happening, Request, World};
use crate::fact::Fact;
use crate::limits::TIMEOUT;
use crate::model::Broken;
use crate::network::Fate;
use crate::plant::Plant;
use crate::trace::Shown;

impl World {
    pub(super) fn send(&mut self, attempt: Attempt) -> Result<(), Broken> {
        let Attempt { token, endpoint, delivery, .. } = attempt;
        let event = self.store.rows()[&delivery].event;
        let request = Request { life: self.life, token, endpoint, event };
        self.end_in(TIMEOUT, request, AttemptResult::Failed(Failure::Timeout));
        let fate = self.fate(endpoint);
        self.remark(fate.name(), Shown(&delivery));
        self.meet(fate, request);
        self.acknowledge_early(request)
    }

    fn fate(&mut self, endpoint: EndpointId) -> Fate {
        let listens = self.receivers[&endpoint].listens(self.now);
        if listens { self.odds.draw(&mut self.dice) } else { Fate::Unreachable(Failure::Refused) }
    }

    fn meet(&mut self, fate: Fate, request: Request) {
        match fate {
            Fate::Unreachable(failure) => {
                let delay = self.dice.millis(0..=500);
                self.end_in(delay, request, AttemptResult::Failed(failure));
            }
            Fate::RequestLost => {}
            Fate::Arrives { there, back } => self.arrive_in(there, request, Some(back)),
            Fate::AnswerLost { there } => self.arrive_in(there, request, None),
            Fate::Duplicated { there, again, back } => {
                self.arrive_in(there, request, Some(back));
                self.arrive_in(there + again, request, None);
            }
            Fate::Reset { there, broken } => {
                self.arrive_in(there, request, None);
                self.end_in(there + broken, request, AttemptResult::Failed(Failure::Reset));
            }
        }
    }

    fn arrive_in(&mut self, span: Span, request: Request, back: Option<Span>) {
        self.plan_in(span, Happening::Arrived { request, back });
    }

    fn end_in(&mut self, span: Span, request: Request, result: AttemptResult) {
        let Request { life, token, .. } = request;
        self.plan_in(span, Happening::Answered { life, token, result });
    }

    pub(super) fn arrive(&mut self, request: Request, back: Option<Span>) {
        let Request { endpoint, event, .. } = request;
        let receiver =
            self.receivers.get_mut(&endpoint).expect("receivers outlive their endpoints");
        if !receiver.listens(self.now) {
            return;
        }
        let name =
            if receiver.chokes_on(event) { "receiver: poisoned" } else { "network: arrived" };
        let reply = receiver.take(event, &mut self.dice);
        let result = Shown(&reply.result);
        self.remark(name, format_args!("event {event} at {}: {result}", Shown(&endpoint)));
        if let Some(back) = back {
            self.end_in(reply.after + back, request, reply.result);
        }
    }

    /// The first word about an attempt is the one that counts.
    pub(super) fn answer(
        &mut self,
        token: AttemptToken,
        result: AttemptResult,
    ) -> Result<(), Broken> {
        let Some(flight) = self.under_way.remove(&token) else { return Ok(()) };
        self.note(&Fact::Ended(flight, result))?;
        self.feed(Input::AttemptEnded { attempt: token, result: self.plant.result(result) })
    }

    /// The engine hears of an acknowledgement that has not come.
    fn acknowledge_early(&mut self, request: Request) -> Result<(), Broken> {
        if self.plant != Plant::ReleaseEarly {
            return Ok(());
        }
        let result = AttemptResult::Response { status: 200, retry_after: None };
        self.feed(Input::AttemptEnded { attempt: request.token, result })
    }
}
