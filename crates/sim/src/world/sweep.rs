//! Sweeps: what the store has open is shown to the engine, so that nothing that it did not hear of is
//! left lying. A watermark keeps them short.

use railpost_engine::{Accepted, Input, Span, Timestamp};
use railpost_wire::DeliveryId;

use super::{SimEvent, World};
use crate::limits::{LOAD_PAUSE, READ_MAX, SWEEP_OVERLAP, SWEEPS_TO_A_FULL_ONE};
use crate::model::BrokenPromise;
use crate::planted_defect::PlantedDefect;

/// How far the store has been swept. Delivery ids are made of what the wall clock shows, which may step.
pub(super) struct Sweeper {
    /// What the wall clock showed when the last sweep that went well began.
    swept_at: Timestamp,
    /// What it shows now that one is under way.
    begun_at: Timestamp,
    count: u32,
}

impl Sweeper {
    pub(super) fn new(wall: Timestamp) -> Self {
        Self { swept_at: wall, begun_at: wall, count: 0 }
    }

    /// Begins a sweep; says above which id it looks. If the clock was set back, ids go back, too.
    fn begin(&mut self, wall: Timestamp, plant: PlantedDefect) -> DeliveryId {
        if plant == PlantedDefect::RatchetSweeps {
            self.begun_at = self.begun_at.max(wall);
            let since = self.swept_at.as_millis().saturating_sub(SWEEP_OVERLAP.as_millis());
            return DeliveryId::from_u128(u128::from(since) << 80);
        }
        self.begun_at = wall;
        self.count += 1;
        let since = self.swept_at.min(wall).as_millis();
        let since = since.saturating_sub(SWEEP_OVERLAP.as_millis());
        let full = self.count.is_multiple_of(SWEEPS_TO_A_FULL_ONE);
        DeliveryId::from_u128(if full { 0 } else { u128::from(since) << 80 })
    }

    fn succeed(&mut self) {
        self.swept_at = self.begun_at;
    }
}

impl World {
    pub(super) fn plan_sweep(&mut self) {
        if self.plant != PlantedDefect::NeverSweep {
            self.plan_in(self.scenario.sweep_every, SimEvent::SweepDue { life: self.life });
        }
    }

    /// Looks for what is open. The answer takes a while, and may be out of date when it comes.
    pub(super) fn sweep(&mut self) {
        let wall = self.wall.at(self.now);
        let Some(process) = &mut self.process else { return };
        let after = process.sweeper.begin(wall, self.plant);
        let found = Some(self.store.sweep(after)).filter(|_| !self.sweep_fails());
        let (life, delay) = (self.life, self.load_delay());
        self.plan_in(delay, SimEvent::Swept { life, found });
    }

    fn sweep_fails(&mut self) -> bool {
        let fails = !self.calm && self.rng.percent(5);
        if fails {
            self.tally.count("fault: sweep failed");
            self.news_takes(self.sweep_takes());
        }
        fails
    }

    pub(super) fn swept(&mut self, found: Option<Vec<Accepted>>) -> Result<(), BrokenPromise> {
        self.plan_sweep();
        let Some(mut found) = found else { return Ok(()) };
        let process = self.process.as_mut().expect("its life is not over");
        process.sweeper.succeed();
        found.retain(|accepted| !self.plant.loses(accepted.id));
        self.tally.count("effect: sweep");
        self.feed(Input::Swept(found))
    }

    /// How long it takes at most until a sweep has found what the engine was not told of.
    pub(super) fn sweep_takes(&self) -> Span {
        // A clock that is set back and forth between two sweeps leaves ids to the next full one.
        let recent = self.now.since(self.wall_set_at) <= self.scenario.sweep_every.times(2);
        let sweeps = if recent { u64::from(SWEEPS_TO_A_FULL_ONE) } else { 1 };
        (self.scenario.sweep_every + READ_MAX).times(sweeps + 1) + LOAD_PAUSE
    }
}
