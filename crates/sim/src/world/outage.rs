//! How processes end: by dying, in good order, or with their store going back to an old copy.

use railpost_engine::{DeliveryState, Span};

use super::{SimEvent, World};
use crate::fact::Fact;
use crate::model::{BrokenPromise, rule};
use crate::planted_defect::PlantedDefect;

/// How a process ends, and how long it is down then.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProcessEnd {
    Crash(Span),
    Stop(Span),
}

impl World {
    /// The process ends soon: not between two inputs, but in the middle of what one of them led to.
    pub(super) fn end_soon(&mut self, ending: ProcessEnd) {
        self.fuse = Some((self.rng.number(0..=5), ending));
    }

    /// An effect is about to be performed. Says whether the process still does that.
    pub(super) fn burn_fuse(&mut self) -> Result<bool, BrokenPromise> {
        match self.fuse {
            Some((0, ProcessEnd::Crash(down_for))) => self.die(down_for)?,
            Some((0, ProcessEnd::Stop(down_for))) => self.stop(down_for),
            Some((left, ending)) => self.fuse = Some((left - 1, ending)),
            None => {}
        }
        Ok(self.process.is_some())
    }

    /// Kills the process: what is under way has no outcome, what is not durable never was.
    fn die(&mut self, down_for: Span) -> Result<(), BrokenPromise> {
        self.store.crash();
        self.doubt(|_| true);
        self.end_process(down_for);
        self.note(&Fact::Crashed)
    }

    /// The process is told to end in good order: it starts nothing more, and waits for what is under way.
    fn stop(&mut self, down_for: Span) {
        self.fuse = None;
        if let Some(process) = &mut self.process {
            process.stopping = Some(down_for);
        }
    }

    /// A process that is told to end does so once everything is known and durable.
    pub(super) fn end_if_stopped(&mut self) -> Result<(), BrokenPromise> {
        let Some(process) = &self.process else { return Ok(()) };
        let done = process.reserved.is_empty() && self.under_way.is_empty();
        let Some(down_for) = process.stopping.filter(|_| done && self.store.is_durable()) else {
            return Ok(());
        };
        let mut sent = self.store.rows().values().filter(|row| is_in_flight(row.delivery.state));
        let known = sent.all(|row| self.in_doubt.contains(&row.delivery.id));
        rule(known, "a graceful stop leaves nothing in doubt")?;
        self.end_process(down_for);
        self.note(&Fact::Stopped)
    }

    fn end_process(&mut self, down_for: Span) {
        (self.process, self.fuse) = (None, None);
        self.life += 1;
        self.served.clear();
        let cut_off = std::mem::take(&mut self.under_way).into_values();
        self.cut_off.extend(cut_off.map(|flight| flight.attempt.delivery));
        self.plan_in(down_for, SimEvent::Restarted);
    }

    pub(super) fn copy_store(&mut self) {
        self.copy = Some(self.store.copy());
        self.remark("world: store copied", "");
    }

    /// The process dies, and its store goes back to the last copy. What was committed since is lost, and
    /// an era begins.
    pub(super) fn restore(&mut self, down_for: Span) -> Result<(), BrokenPromise> {
        // Without a process another one may already use the store.
        let Some(copy) = self.copy.clone().filter(|_| self.process.is_some()) else {
            return Ok(());
        };
        self.store = copy;
        let era = self.rng.seed();
        if self.plant != PlantedDefect::KeepLines {
            self.store.begin_era(era);
        }
        self.doubt(|_| true);
        self.end_process(down_for);
        self.note(&Fact::Restored)
    }

    /// What is recorded as sent has no known outcome from here on.
    pub(super) fn doubt(&mut self, whose: impl Fn(railpost_wire::EndpointId) -> bool) {
        let rows = self.store.rows().values().map(|row| row.delivery);
        let sent = rows.filter(|it| is_in_flight(it.state) && whose(it.endpoint));
        self.in_doubt.extend(sent.map(|delivery| delivery.id));
    }
}

fn is_in_flight(state: DeliveryState) -> bool {
    state == DeliveryState::InFlight
}
