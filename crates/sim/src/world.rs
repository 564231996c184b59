//! The world around the engine: its clock, what is about to happen, and the loop that makes it
//! happen. First faults strike; then they stop, and everything has to finish.

mod shell;
mod outage;
mod sweep;
mod transport;
mod disturb;
mod operate;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use railpost_engine::{
    Accepted, AttemptResult, AttemptToken, Command, Delivery, Endpoint, Load, LoadTicket,
    LoadedPage, Span, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId};

use crate::applied::Receivers;
use crate::clock::WallClock;
use crate::fact::{Fact, InFlightAttempt};
use crate::judges::Judges;
use crate::limits::{CALM_MAX, REST};
use crate::model::{BrokenPromise, View, rule};
use crate::network::FaultRates;
use crate::planted_defect::PlantedDefect;
use crate::receiver::{Arrival, Receiver, ReceiverNo};
use crate::scenario::{BEGINNING, Disturbance, Scenario};
use crate::seeded_rng::SeededRng;
use crate::store::{Event, EventNo, Store};
use crate::tally::Tally;
use crate::trace::{Shown, Trace};
use crate::{Options, Report, Violation};
use outage::ProcessEnd;
use shell::Process;

/// What loads are counted under.
const LOADS: &str = "effect: load";

pub(crate) struct World {
    scenario: Scenario,
    rng: SeededRng,
    /// The true time.
    now: Timestamp,
    /// What the sender's wall clock shows.
    wall: WallClock,
    /// When that was last set.
    wall_set_at: Timestamp,
    /// What is about to happen, by time; what is due at one instant, in the order it was planned.
    queue: BTreeMap<(Timestamp, u64), SimEvent>,
    turn: u64,
    /// Whether the faults have stopped.
    calm: bool,
    /// Nothing while it is down.
    process: Option<Process>,
    /// After how many more effects the process ends, and how.
    fuse: Option<(u32, ProcessEnd)>,
    /// Counts processes, so that what was meant for a dead one does not reach its successor.
    life: u32,
    store: Store,
    /// A copy of the store to go back to.
    copy: Option<Store>,
    /// Whether a flush is about to happen.
    flushing: bool,
    odds: FaultRates,
    receivers: BTreeMap<ReceiverNo, Receiver>,
    /// Which receiver an endpoint's URL leads to, those of removed endpoints included.
    behind: BTreeMap<EndpointId, ReceiverNo>,
    /// The endpoints that the process serves, as it last read them.
    served: BTreeMap<EndpointId, Endpoint>,
    /// Since when it serves each of them, by the true time and by its own.
    appeared: BTreeMap<EndpointId, (Timestamp, Timestamp)>,
    /// Endpoints that another engine serves for a while.
    away: BTreeSet<EndpointId>,
    /// Attempts that the process waits for.
    under_way: BTreeMap<AttemptToken, InFlightAttempt>,
    /// What was under way when a process died.
    cut_off: BTreeSet<DeliveryId>,
    /// At-most-once deliveries that were recorded as sent when their process died or gave them up.
    in_doubt: BTreeSet<DeliveryId>,
    events: EventNo,
    deliveries: u64,
    plant: PlantedDefect,
    judges: Judges,
    tally: Tally,
    trace: Trace,
    /// What the model objected to.
    objection: String,
}

/// Something about to happen.
#[derive(Debug)]
enum SimEvent {
    Disturbed(Box<Disturbance>),
    Restarted,
    Returned(EndpointId),
    /// The engine hears of a delivery that was accepted at this time.
    Hinted(Accepted, Timestamp),
    /// A producer that got no answer publishes its event again.
    PublishedAgain(EventNo, Event),
    /// The process reads an endpoint that was changed.
    ChangeRead(EndpointId),
    SweepDue {
        life: u32,
    },
    Swept {
        life: u32,
        found: Option<Vec<Accepted>>,
    },
    Told(Command, Delivery),
    Flushed,
    Confirmed {
        life: u32,
        token: AttemptToken,
        refused: bool,
    },
    Read {
        life: u32,
        ticket: LoadTicket,
        load: Load,
    },
    Loaded {
        life: u32,
        ticket: LoadTicket,
        page: Option<LoadedPage>,
    },
    Arrived {
        request: Request,
        back: Option<Span>,
    },
    /// A receiver is done with what took long.
    Finished {
        work: u64,
        request: Request,
        back: Option<Span>,
    },
    Answered {
        life: u32,
        token: AttemptToken,
        result: AttemptResult,
    },
    Calmed,
}

/// What travels through the network.
#[derive(Clone, Debug)]
struct Request {
    life: u32,
    token: AttemptToken,
    to: ReceiverNo,
    arrival: Rc<Arrival>,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut scenario = Scenario::draw(&mut rng);
        let plan = std::mem::take(&mut scenario.plan);
        let mut world = Self {
            now: BEGINNING,
            wall: WallClock::default(),
            wall_set_at: BEGINNING,
            queue: BTreeMap::new(),
            turn: 0,
            calm: false,
            process: None,
            fuse: None,
            life: 0,
            store: Store::default(),
            copy: None,
            flushing: false,
            odds: scenario.odds,
            receivers: BTreeMap::new(),
            behind: BTreeMap::new(),
            served: BTreeMap::new(),
            appeared: BTreeMap::new(),
            away: BTreeSet::new(),
            under_way: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            events: 0,
            deliveries: 0,
            plant: options.plant,
            judges: Judges::default(),
            tally: Tally::default(),
            trace: Trace::new(options.trace),
            objection: String::new(),
            rng,
            scenario,
        };
        world.plan_at(BEGINNING, SimEvent::Restarted);
        for (at, disturbance) in plan {
            world.plan_at(at, SimEvent::Disturbed(Box::new(disturbance)));
        }
        world.plan_at(world.scenario.calm_at, SimEvent::Calmed);
        world
    }

    /// Lives through the faults and the calm after them.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        let judgement = catch_unwind(AssertUnwindSafe(|| self.live()));
        let broken = judgement.unwrap_or(Err("nothing panics")).err();
        let breach = broken.map(|promise| self.breach(promise));
        Report { seed, breach, tally: self.tally, trace: self.trace.into_text() }
    }

    fn breach(&mut self, promise: BrokenPromise) -> Violation {
        self.trace.line(self.now, format_args!("BROKEN: {promise}"));
        Violation { promise, after: format!("{} {}", Shown(&self.now), self.objection) }
    }

    fn live(&mut self) -> Result<(), BrokenPromise> {
        let deadline = self.scenario.calm_at + CALM_MAX;
        while !self.is_settled() {
            self.step()?;
            if self.now > deadline {
                return Err("when faults stop, everything ends delivered, dead or discarded");
            }
        }
        self.rest()?;
        let receivers = Receivers { all: &self.receivers, behind: &self.behind };
        self.judges.judge_end(&self.view(), &receivers)
    }

    /// Where nothing is left to be done, the engine asks for little: what a late hint makes it look for.
    fn rest(&mut self) -> Result<(), BrokenPromise> {
        let (until, before) = (self.now + REST, self.tally.of(LOADS));
        let is_hint = |what: &&SimEvent| matches!(what, SimEvent::Hinted(..));
        let hints = self.queue.values().filter(is_hint).count() as u64;
        while self.now < until {
            self.step()?;
        }
        let lanes = |id| self.store.lanes(id).count() as u64;
        let most: u64 = self.store.endpoints().keys().map(|id| 2 + lanes(*id)).sum();
        let most = most + hints;
        rule(self.tally.of(LOADS) - before <= most, "a world at rest is left in peace")
    }

    /// Lets the next thing happen: the engine's own alarm, or what is planned.
    fn step(&mut self) -> Result<(), BrokenPromise> {
        let (&(at, turn), _) = self.queue.first_key_value().expect("a calm world makes its rounds");
        if let Some(wake) = self.wake_at().filter(|wake| *wake < at) {
            self.pass_time(wake)?;
            return self.wake();
        }
        self.pass_time(at)?;
        let what = self.queue.remove(&(at, turn)).expect("it was just looked at");
        self.happen(what)
    }

    /// Nothing may have idled up to the moment before.
    fn pass_time(&mut self, to: Timestamp) -> Result<(), BrokenPromise> {
        if to > self.now {
            self.now = Timestamp::from_millis(to.as_millis() - 1);
            if self.engine_is_informed() {
                self.judges.judge_idle(&self.view())?;
            }
            self.now = to;
        }
        Ok(())
    }

    fn happen(&mut self, what: SimEvent) -> Result<(), BrokenPromise> {
        match what {
            SimEvent::Disturbed(disturbance) => self.disturb(*disturbance)?,
            SimEvent::Restarted => self.restart()?,
            SimEvent::Returned(id) => self.take_back(id)?,
            SimEvent::Hinted(accepted, made_at) => self.hear(accepted, made_at)?,
            SimEvent::PublishedAgain(number, event) => self.publish_again(number, event)?,
            SimEvent::ChangeRead(id) => self.read_change(id)?,
            SimEvent::SweepDue { life } if life == self.life => self.sweep(),
            SimEvent::Swept { life, found } if life == self.life => self.swept(found)?,
            SimEvent::Told(command, delivery) => self.command(command, delivery)?,
            SimEvent::Flushed => self.flush(),
            SimEvent::Confirmed { life, token, refused } if life == self.life => {
                self.confirm(token, refused)?;
            }
            SimEvent::Read { life, ticket, load } if life == self.life => self.read(ticket, &load),
            SimEvent::Loaded { life, ticket, page } if life == self.life => {
                self.answer_load(ticket, page)?;
            }
            SimEvent::Arrived { request, back } => self.arrive(&request, back)?,
            SimEvent::Finished { work, request, back } => self.finish(work, &request, back),
            SimEvent::Answered { life, token, result } if life == self.life => {
                self.answer(token, result)?;
            }
            SimEvent::Calmed => self.calm_down()?,
            // It was meant for a process that is dead.
            _ => {}
        }
        self.end_if_stopped()
    }

    fn plan_at(&mut self, at: Timestamp, what: SimEvent) {
        self.turn += 1;
        self.queue.insert((at, self.turn), what);
    }

    fn plan_in(&mut self, span: Span, what: SimEvent) {
        self.plan_at(self.now + span, what);
    }

    /// Takes a fact to everyone who wants to know.
    fn note(&mut self, fact: &Fact) -> Result<(), BrokenPromise> {
        self.trace.line(self.now, fact);
        self.tally.count(&fact.name());
        let judgement = self.judge(fact);
        if judgement.is_err() {
            self.objection = fact.to_string();
        }
        judgement
    }

    fn judge(&mut self, fact: &Fact) -> Result<(), BrokenPromise> {
        let mut judges = std::mem::take(&mut self.judges);
        let judgement = judges.judge(&self.view(), fact);
        self.judges = judges;
        judgement
    }

    /// What the judges may look at.
    fn view(&self) -> View<'_> {
        let (now, config) = (self.engine_time(), &self.scenario.config);
        let Self { store, served, under_way, .. } = self;
        View { now, config, store, served, under_way }
    }

    /// Takes note of something that is no concern of the model.
    fn remark(&mut self, name: &str, details: impl Display) {
        self.trace.line(self.now, format_args!("{name} {details}"));
        self.tally.count(name);
    }
}
