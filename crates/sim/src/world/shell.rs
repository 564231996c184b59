//! The process around the engine: feeds it, performs what it asks for, and decides nothing.

use std::collections::BTreeMap;

use railpost_engine::{
    Attempt, AttemptToken, Command, Delivery, DeliveryState, Effect, Endpoint, EndpointRecord,
    EndpointStatus, Engine, Input, LanePage, Load, LoadTicket, LoadedPage, Notice, NoticeKind,
    Span, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId};

use super::sweep::Sweeper;
use super::{LOADS, SimEvent, World};
use crate::clock::EngineClock;
use crate::fact::{Fact, InFlightAttempt};
use crate::limits::{LOAD_PAUSE, READ_MAX, WAKES_AT_ONCE_MAX};
use crate::model::{BrokenPromise, rule};
use crate::planted_defect::PlantedDefect;
use crate::trace::Shown;

/// What is lost when the process dies.
pub(super) struct Process {
    engine: Engine,
    clock: EngineClock,
    loads: u32,
    /// From when on nothing that is due may wait: until then, news of it may be on its way.
    informed_at: Timestamp,
    wakes_at_once: u32,
    /// At-most-once attempts that wait for a flush, and whether the store refused them.
    pub(super) reserved: Vec<(AttemptToken, bool)>,
    pub(super) sweeper: Sweeper,
    /// It ends in good order as soon as nothing is under way, and is down for so long.
    pub(super) stopping: Option<Span>,
}

impl World {
    /// Starts a process and tells it what it is to serve.
    pub(super) fn restart(&mut self) -> Result<(), BrokenPromise> {
        let engine = Engine::new(self.scenario.config, self.rng.seed());
        self.process = Some(Process {
            engine,
            clock: EngineClock::start(self.now, &self.wall, self.plant),
            loads: 0,
            informed_at: self.now,
            wakes_at_once: 0,
            reserved: Vec::new(),
            sweeper: Sweeper::new(self.wall.at(self.now)),
            stopping: None,
        });
        self.plan_sweep();
        for (tenant, rate_limit) in self.store.tenants().clone() {
            self.feed(Input::TenantChanged { tenant, rate_limit })?;
        }
        let all: Vec<EndpointId> = self.store.endpoints().keys().copied().collect();
        all.into_iter().try_for_each(|id| self.serve(id))
    }

    /// Hands an endpoint to the engine, unless there is none or another one has it.
    pub(super) fn serve(&mut self, id: EndpointId) -> Result<(), BrokenPromise> {
        let ours = self.is_serving() && !self.away.contains(&id);
        let Some(endpoint) = self.store.endpoints().get(&id).filter(|_| ours).cloned() else {
            return Ok(());
        };
        self.served.insert(id, endpoint.clone());
        self.appeared.insert(id, (self.now, self.engine_time()));
        self.note(&Fact::Appeared(endpoint.clone()))?;
        let policy = self.plant.policy(endpoint.policy.clone());
        self.feed(Input::EndpointAppeared(Endpoint { policy, ..endpoint }))
    }

    /// Whether there is a process, and it is not about to end.
    pub(super) fn is_serving(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.stopping.is_none())
    }

    /// The time that the engine is handed; while it is down, the time that a new one would begin with.
    pub(super) fn engine_time(&self) -> Timestamp {
        let clock = self.process.as_ref().map(|process| process.clock);
        clock.map_or(self.wall.at(self.now), |clock| clock.at(self.now, &self.wall))
    }

    /// The process looks at its clock.
    pub(super) fn read_clock(&mut self) {
        if let Some(process) = &mut self.process {
            process.clock.read(self.now, &self.wall);
        }
    }

    /// When the engine wants to be woken.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        let process = self.process.as_ref().filter(|_| self.is_serving())?;
        let wake = self.plant.wake(process.engine.next_wake()?);
        process.clock.reaches(wake, self.now, &self.wall)
    }

    pub(super) fn wake(&mut self) -> Result<(), BrokenPromise> {
        let process = self.process.as_mut().expect("only a live engine asks to be woken");
        process.wakes_at_once += 1;
        if process.wakes_at_once > WAKES_AT_ONCE_MAX {
            return Err("the engine does not wake itself without end");
        }
        self.feed(Input::TimePassed)
    }

    /// Whether all that the engine could have to know has reached it.
    pub(super) fn engine_is_informed(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        process.wakes_at_once = 0;
        process.loads == 0 && process.informed_at <= self.now && process.stopping.is_none()
    }

    /// News may take so long to reach the engine.
    pub(super) fn news_takes(&mut self, span: Span) {
        if let Some(process) = &mut self.process {
            process.informed_at = process.informed_at.max(self.now + span);
        }
    }

    pub(super) fn feed(&mut self, input: Input) -> Result<(), BrokenPromise> {
        let effects = self.handle(input);
        self.perform_all(&effects)
    }

    /// Passes a person's command on. Only one that is taken counts as given.
    pub(super) fn command(
        &mut self,
        command: Command,
        delivery: Delivery,
    ) -> Result<(), BrokenPromise> {
        let effects = self.handle(Input::Command { command, delivery });
        let refused = effects.iter().any(|effect| match effect {
            Effect::Ignored(_) => true,
            Effect::Record(transition) => !self.store.takes(transition),
            _ => false,
        });
        if self.is_serving() && !refused {
            self.note(&Fact::Commanded(command, delivery))?;
        }
        self.perform_all(&effects)
    }

    fn handle(&mut self, input: Input) -> Vec<Effect> {
        let Some(process) = &mut self.process else { return Vec::new() };
        if process.stopping.is_some() && !is_taken_at_stop(&input) {
            return Vec::new();
        }
        process.engine.handle(process.clock.read(self.now, &self.wall), input);
        std::iter::from_fn(|| process.engine.poll_effect()).collect()
    }

    /// Performs effects in order, unless the process dies over them.
    fn perform_all(&mut self, effects: &[Effect]) -> Result<(), BrokenPromise> {
        for effect in effects {
            if !self.burn_fuse()? {
                return Ok(());
            }
            if self.is_serving() || is_done_at_stop(effect, &self.under_way) {
                self.perform(effect)?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, effect: &Effect) -> Result<(), BrokenPromise> {
        match effect {
            Effect::Start(attempt) => self.start(*attempt)?,
            Effect::Record(transition) => self.record(transition)?,
            Effect::RecordFirst(transition, token) => self.reserve(transition, *token)?,
            Effect::RecordEndpoint(record) => {
                self.note(&Fact::EndpointRecorded(*record))?;
                self.record_endpoint(record)?;
                self.served.entry(record.endpoint).and_modify(|endpoint| {
                    endpoint.status = record.status;
                    endpoint.failing_since = record.failing_since;
                });
            }
            Effect::Load(ticket, load) => self.begin_load(*ticket, *load),
            Effect::Notify(Notice { endpoint, kind: NoticeKind::BreakerOpened { .. }, .. }) => {
                self.note(&Fact::BreakerOpened(*endpoint))?;
            }
            Effect::Notify(notice) => {
                self.remark(notice_name(notice.kind), format_args!("{:?}", notice.kind));
            }
            Effect::Ignored(ignored) => {
                self.remark(&format!("ignored: {:?}", ignored.reason), ignored.reason);
            }
        }
        self.plan_flush();
        Ok(())
    }

    /// Writes down what became of an endpoint. A status that a person set, and that the process has not
    /// read yet, stays.
    fn record_endpoint(&mut self, record: &EndpointRecord) -> Result<(), BrokenPromise> {
        let status = |store: &super::Store| {
            store.endpoints().get(&record.endpoint).map(|endpoint| endpoint.status)
        };
        let before = status(&self.store);
        let overwrites = self.plant == PlantedDefect::OverwriteStatus;
        let was = before.filter(|_| overwrites).unwrap_or(record.was);
        self.store.record_endpoint(&EndpointRecord { was, ..*record });
        let paused = Some(EndpointStatus::Paused);
        let lifted = before == paused && status(&self.store) != paused;
        rule(!lifted, "a pause stays until a person lifts it")
    }

    fn start(&mut self, attempt: Attempt) -> Result<(), BrokenPromise> {
        self.note(&Fact::Started(attempt))?;
        self.wait_for(attempt);
        self.send(attempt)
    }

    fn record(&mut self, transition: &Transition) -> Result<(), BrokenPromise> {
        if !self.store.takes(transition) {
            self.remark("store: refused", Shown(&transition.delivery));
            return Ok(());
        }
        self.note(&Fact::Recorded(*transition))?;
        self.store.record(transition);
        Ok(())
    }

    fn reserve(
        &mut self,
        transition: &Transition,
        token: AttemptToken,
    ) -> Result<(), BrokenPromise> {
        let Transition { delivery, endpoint, place, progress, .. } = *transition;
        let (number, replay, follows) = (progress.attempts, progress.replay, None);
        let attempt = Attempt { token, delivery, endpoint, place, follows, number, replay };
        self.note(&Fact::Reserved(attempt))?;
        self.wait_for(attempt);
        let refused = !self.store.takes(transition);
        if !refused {
            self.store.record(transition);
        }
        if self.plant == PlantedDefect::SendUnrecorded {
            return self.confirm(token, refused);
        }
        let process = self.process.as_mut().expect("it just asked for this");
        process.reserved.push((token, refused));
        Ok(())
    }

    /// From here on the process waits for the attempt to end.
    fn wait_for(&mut self, attempt: Attempt) {
        let tenant = self.served[&attempt.endpoint].tenant.clone();
        let flight =
            InFlightAttempt { attempt, tenant, since: self.engine_time(), orphaned: false };
        self.under_way.entry(attempt.token).or_insert(flight);
    }

    fn plan_flush(&mut self) {
        let reserved = self.process.as_ref().is_some_and(|process| !process.reserved.is_empty());
        if self.flushing || (!reserved && self.store.is_durable()) {
            return;
        }
        self.flushing = true;
        let slow = !self.calm && self.rng.percent(10);
        if slow {
            self.tally.count("fault: slow flush");
        }
        let delay = if slow { self.rng.secs(1..=30) } else { self.rng.millis(1..=50) };
        self.plan_in(delay, SimEvent::Flushed);
    }

    pub(super) fn flush(&mut self) {
        self.flushing = false;
        self.store.flush();
        let Some(process) = &mut self.process else { return };
        let reserved = std::mem::take(&mut process.reserved);
        if self.plant == PlantedDefect::DropAtStop && process.stopping.is_some() {
            return reserved.iter().for_each(|(token, _)| drop(self.under_way.remove(token)));
        }
        for (token, refused) in reserved {
            self.plan_in(Span::ZERO, SimEvent::Confirmed { life: self.life, token, refused });
        }
    }

    /// An at-most-once attempt may leave, unless the store or the loss of its endpoint prevents it.
    pub(super) fn confirm(
        &mut self,
        token: AttemptToken,
        refused: bool,
    ) -> Result<(), BrokenPromise> {
        let input = if refused { Input::RecordRefused(token) } else { Input::Recorded(token) };
        let effects = self.handle(input);
        let leaves = |effect: &Effect| matches!(effect, Effect::Start(it) if it.token == token);
        if !effects.iter().any(leaves) {
            self.under_way.remove(&token);
        }
        self.perform_all(&effects)
    }

    fn begin_load(&mut self, ticket: LoadTicket, load: Load) {
        self.remark(LOADS, format_args!("{load:?}"));
        self.process.as_mut().expect("it just asked for this").loads += 1;
        let (life, delay) = (self.life, self.load_delay());
        if !self.calm && self.rng.percent(5) {
            self.tally.count("fault: load failed");
            return self.plan_in(delay, SimEvent::Loaded { life, ticket, page: None });
        }
        self.plan_in(delay, SimEvent::Read { life, ticket, load });
    }

    /// Reads what was asked for. The answer takes a while, and may be out of date when it comes.
    pub(super) fn read(&mut self, ticket: LoadTicket, load: &Load) {
        let page = self.store.load(&self.plant.load(*load));
        let page = Some(self.plant.page(page, &self.cut_off));
        let (life, delay) = (self.life, self.load_delay());
        self.plan_in(delay, SimEvent::Loaded { life, ticket, page });
    }

    pub(super) fn load_delay(&mut self) -> Span {
        let slow = !self.calm && self.rng.percent(5);
        if slow { self.rng.millis(1_000..=READ_MAX.as_millis()) } else { self.rng.millis(0..=20) }
    }

    pub(super) fn answer_load(
        &mut self,
        ticket: LoadTicket,
        page: Option<LoadedPage>,
    ) -> Result<(), BrokenPromise> {
        let shown = page.as_ref().map(|page| Shown(page).to_string());
        self.trace.line(self.now, format_args!("loaded {}", shown.as_deref().unwrap_or("nothing")));
        self.news_takes(LOAD_PAUSE);
        self.process.as_mut().expect("its life is not over").loads -= 1;
        for id in page.as_ref().map(|page| self.beyond_reason(page)).unwrap_or_default() {
            self.note(&Fact::Due(id))?;
        }
        self.feed(page.map_or(Input::LoadFailed(ticket), |page| Input::Loaded { ticket, page }))
    }

    /// What waits longer than the policy plans, by the engine's time.
    fn beyond_reason(&self, page: &LoadedPage) -> Vec<DeliveryId> {
        let now = self.engine_time();
        let is_beyond = |delivery: &&Delivery| {
            let endpoint = self.served.get(&delivery.endpoint);
            let latest = endpoint.map(|endpoint| now + endpoint.policy.retry.max_delay);
            matches!(delivery.state, DeliveryState::Waiting { until } if Some(until) > latest)
        };
        deliveries(page).filter(is_beyond).map(|delivery| delivery.id).collect()
    }
}

/// Whether a process that ends in good order still takes this in: what became of what is under way.
fn is_taken_at_stop(input: &Input) -> bool {
    matches!(
        input,
        Input::AttemptEnded { .. }
            | Input::Recorded(_)
            | Input::RecordRefused(_)
            | Input::EndpointRemoved(_)
            | Input::EndpointPaused(_)
            | Input::EndpointResumed(_)
            | Input::EndpointChanged { .. }
    )
}

/// Whether a process that ends in good order still does this: it starts nothing but what is recorded as
/// sent.
fn is_done_at_stop(effect: &Effect, under_way: &BTreeMap<AttemptToken, InFlightAttempt>) -> bool {
    match effect {
        Effect::Start(attempt) => under_way.contains_key(&attempt.token),
        Effect::RecordFirst(..) | Effect::Load(..) => false,
        _ => true,
    }
}

fn deliveries(page: &LoadedPage) -> impl Iterator<Item = &Delivery> {
    let (lanes, rest): (&[LanePage], &[Delivery]) = match page {
        LoadedPage::Lanes { lanes, .. } => (lanes, &[]),
        LoadedPage::Lane(lane) => (std::slice::from_ref(lane), &[]),
        LoadedPage::Unkeyed { deliveries, .. } => (&[], deliveries),
    };
    lanes.iter().flat_map(|lane| &lane.deliveries).chain(rest)
}

fn notice_name(notice: NoticeKind) -> &'static str {
    match notice {
        NoticeKind::BreakerOpened { .. } => "notice: breaker opened",
        NoticeKind::BreakerClosed => "notice: breaker closed",
        NoticeKind::LaneHeld { .. } => "notice: lane held",
        NoticeKind::SwitchedOff(_) => "notice: switched off",
    }
}
