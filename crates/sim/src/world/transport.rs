//! The way of an attempt: onto the wire, through the network, to a receiver, and back.

use std::rc::Rc;

use railpost_engine::{Attempt, AttemptResult, AttemptToken, Failure, Input, Span};
use railpost_receiver::Verdict;
use railpost_wire::{EventId, Header, HeaderNames, Key, Received};

use super::{Request, SimEvent, World};
use crate::fact::Fact;
use crate::limits::TIMEOUT;
use crate::model::{BrokenPromise, rule};
use crate::network::NetworkOutcome;
use crate::planted_defect::PlantedDefect;
use crate::receiver::{Arrival, Body, ReceiverNo, ReplyKind};
use crate::trace::Shown;

impl World {
    pub(super) fn send(&mut self, attempt: Attempt) -> Result<(), BrokenPromise> {
        let request = self.request(&attempt);
        self.end_in(TIMEOUT, &request, AttemptResult::Failed(Failure::Timeout));
        let fate = self.fate(request.to);
        self.remark(fate.name(), Shown(&attempt.delivery));
        self.meet(fate, &request);
        self.acknowledge_early(request.token)
    }

    /// What is sent, as its receiver will read it.
    fn request(&self, attempt: &Attempt) -> Request {
        let Attempt { token, endpoint, delivery, .. } = *attempt;
        let event = self.store.rows()[&delivery].event;
        let received = self.received(attempt, event);
        let arrival = Arrival { received, body: Body { event, delivery, endpoint } };
        let to = self.behind[&endpoint];
        Request { life: self.life, token, to, arrival: Rc::new(arrival) }
    }

    /// Writes an attempt's headers and reads them back.
    fn received(&self, attempt: &Attempt, event: u64) -> Received {
        let event_id: EventId = format!("event-{event}").parse().expect("it is an id");
        let key = self.store.events()[&event].key.as_deref();
        let place = self.store.line_place(attempt.delivery);
        let line = place.as_ref().map(|it| self.plant.line(it.line.clone(), it.era, key));
        let key: Option<Key> = key.map(|key| key.parse().expect("it is a key"));
        let after = place.as_ref().zip(attempt.follows).map(|(it, follows)| it.number(follows));
        let made = railpost_wire::Attempt {
            event_id: &event_id,
            event_type: &"sim.event".parse().expect("it is a type"),
            event_unix_ms: event,
            schema_version: None,
            key: key.as_ref(),
            line: line.as_ref(),
            seq: place.as_ref().map(|place| place.seq),
            after: after.filter(|after| {
                let before = place.as_ref().map_or(0, |place| place.seq.get() - 1);
                *after < before && self.plant != PlantedDefect::OmitAfter
            }),
            number: attempt.number,
            replay: attempt.replay,
            thin: false,
            timestamp: (self.wall.at(self.now).as_millis() / 1_000) as i64,
            body: b"",
            signers: &[],
        };
        let (names, values) = (HeaderNames::default(), made.values());
        let read = |name: &str| {
            let is_named = |header: Header| names.name(header).eq_ignore_ascii_case(name);
            let found = values.iter().find(|(header, _)| is_named(*header));
            found.map(|(_, value)| value.as_bytes())
        };
        Received::parse(&names, read).expect("what is written can be read")
    }

    fn fate(&mut self, to: ReceiverNo) -> NetworkOutcome {
        let listens = self.receivers[&to].listens(self.now);
        if listens {
            self.odds.draw(&mut self.rng)
        } else {
            NetworkOutcome::Unreachable(Failure::Refused)
        }
    }

    fn meet(&mut self, fate: NetworkOutcome, request: &Request) {
        match fate {
            NetworkOutcome::Unreachable(failure) => {
                let delay = self.rng.millis(0..=500);
                self.end_in(delay, request, AttemptResult::Failed(failure));
            }
            NetworkOutcome::RequestLost => {}
            NetworkOutcome::Arrives { there, back } => self.arrive_in(there, request, Some(back)),
            NetworkOutcome::AnswerLost { there } => self.arrive_in(there, request, None),
            NetworkOutcome::Duplicated { there, again, back } => {
                self.arrive_in(there, request, Some(back));
                self.arrive_in(there + again, request, None);
            }
            NetworkOutcome::Reset { there, broken } => {
                self.arrive_in(there, request, None);
                self.end_in(there + broken, request, AttemptResult::Failed(Failure::Reset));
            }
        }
    }

    fn arrive_in(&mut self, span: Span, request: &Request, back: Option<Span>) {
        self.plan_in(span, SimEvent::Arrived { request: request.clone(), back });
    }

    fn end_in(&mut self, span: Span, request: &Request, result: AttemptResult) {
        let Request { life, token, .. } = *request;
        self.plan_in(span, SimEvent::Answered { life, token, result });
    }

    pub(super) fn arrive(
        &mut self,
        request: &Request,
        back: Option<Span>,
    ) -> Result<(), BrokenPromise> {
        let Request { to, arrival, .. } = request;
        let receiver = self.receivers.get_mut(to).expect("receivers outlive their endpoints");
        if !receiver.listens(self.now) {
            return Ok(());
        }
        let forgot = receiver.forgot;
        let reply = receiver.take(arrival, self.now, &mut self.rng);
        let Body { event, delivery, .. } = arrival.body;
        let (name, verdict) = (verdict_name(reply.verdict), reply.verdict);
        self.remark(name, format_args!("event {event} of {} at {to}", Shown(&delivery)));
        match (reply.kind, back) {
            (ReplyKind::Answer(result), Some(back)) => {
                self.end_in(reply.after + back, request, result);
            }
            (ReplyKind::Working(work), back) => {
                let request = request.clone();
                self.plan_in(reply.after, SimEvent::Finished { work, request, back });
            }
            (ReplyKind::Crash, back) => {
                self.remark("fault: receiver crash", to);
                if let Some(back) = back {
                    self.end_in(back, request, AttemptResult::Failed(Failure::Reset));
                }
            }
            (ReplyKind::Answer(_), None) => {}
        }
        let gap = matches!(verdict, Some(Verdict::Gap { .. }));
        rule(forgot || !gap, "a receiver that forgot nothing misses nothing")
    }

    /// A receiver is done with what took long, unless it died over it.
    pub(super) fn finish(&mut self, work: u64, request: &Request, back: Option<Span>) {
        let receiver = self.receivers.get_mut(&request.to).expect("receivers outlive endpoints");
        if let (Some(result), Some(back)) = (receiver.finish(work, self.now), back) {
            self.end_in(back, request, result);
        }
    }

    /// The first word about an attempt is the one that counts.
    pub(super) fn answer(
        &mut self,
        token: AttemptToken,
        result: AttemptResult,
    ) -> Result<(), BrokenPromise> {
        let Some(flight) = self.under_way.remove(&token) else { return Ok(()) };
        self.note(&Fact::Ended(flight, result))?;
        self.feed(Input::AttemptEnded { attempt: token, result: self.plant.result(result) })
    }

    /// The engine hears of an acknowledgement that has not come.
    fn acknowledge_early(&mut self, attempt: AttemptToken) -> Result<(), BrokenPromise> {
        if self.plant != PlantedDefect::ReleaseEarly {
            return Ok(());
        }
        let result = AttemptResult::Response { status: 200, retry_after: None };
        self.feed(Input::AttemptEnded { attempt, result })
    }
}

/// What an arrival is counted under.
fn verdict_name(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "inbox: not asked",
        Some(Verdict::Fresh) => "inbox: fresh",
        Some(Verdict::Duplicate) => "inbox: duplicate",
        Some(Verdict::Stale { .. }) => "inbox: stale",
        Some(Verdict::Gap { accepted: true, .. }) => "inbox: gap accepted",
        Some(Verdict::Gap { accepted: false, .. }) => "inbox: gap held",
        Some(Verdict::Busy) => "inbox: busy",
    }
}
