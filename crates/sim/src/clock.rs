//! Clocks: what a wall clock shows that people and time servers set, and the time that the engine is
//! handed in spite of it.

use railpost_engine::{Span, Timestamp};

use crate::limits::CLOCK_FOLLOWS;
use crate::planted_defect::PlantedDefect;

/// A wall clock: it steps and drifts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WallClock {
    /// By how many milliseconds it was wrong at `since`.
    offset: i64,
    /// How many milliseconds it gains in a million.
    drift: i64,
    since: Timestamp,
}

impl WallClock {
    /// What it shows at the true time `now`.
    pub(crate) fn at(&self, now: Timestamp) -> Timestamp {
        let elapsed = now.since(self.since).as_millis() as i64;
        let wrong_by = self.offset + elapsed * self.drift / 1_000_000;
        Timestamp::from_millis(now.as_millis().saturating_add_signed(wrong_by))
    }

    /// It is set, and it drifts differently from then on.
    pub(crate) fn step(&mut self, now: Timestamp, millis: i64, drift: i64) {
        let wrong_by = self.at(now).as_millis() as i64 - now.as_millis() as i64;
        *self = Self { offset: wrong_by + millis, drift, since: now };
    }

    /// It is right from here on.
    pub(crate) fn correct(&mut self) {
        *self = Self::default();
    }
}

/// The engine's time: the wall clock at the start plus the time that passed since, following the wall
/// clock slowly. It never stands still and never jumps, whatever the wall clock does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineClock {
    shown: Timestamp,
    read_at: Timestamp,
    plant: PlantedDefect,
}

impl EngineClock {
    pub(crate) fn start(now: Timestamp, wall: &WallClock, plant: PlantedDefect) -> Self {
        Self { shown: wall.at(now), read_at: now, plant }
    }

    /// What it shows at the true time `now`.
    pub(crate) fn at(&self, now: Timestamp, wall: &WallClock) -> Timestamp {
        if self.plant == PlantedDefect::RatchetClock {
            return self.shown.max(wall.at(now));
        }
        let elapsed = now.since(self.read_at).as_millis();
        let steady = self.shown.as_millis() + elapsed;
        let most = (elapsed / CLOCK_FOLLOWS) as i64;
        let behind = wall.at(now).as_millis() as i64 - steady as i64;
        Timestamp::from_millis(steady.saturating_add_signed(behind.clamp(-most, most)))
    }

    pub(crate) fn read(&mut self, now: Timestamp, wall: &WallClock) -> Timestamp {
        (self.shown, self.read_at) = (self.at(now, wall), now);
        self.shown
    }

    /// The true time at which it shows `instant`; nothing if that is not within a month.
    pub(crate) fn reaches(
        &self,
        instant: Timestamp,
        now: Timestamp,
        wall: &WallClock,
    ) -> Option<Timestamp> {
        let is_there = |millis: u64| self.at(now + Span::from_millis(millis), wall) >= instant;
        let (mut early, mut late) = (0, Span::from_days(30).as_millis());
        if is_there(early) {
            return Some(now);
        }
        if !is_there(late) {
            return None;
        }
        while late - early > 1 {
            let middle = early + (late - early) / 2;
            (early, late) = if is_there(middle) { (early, middle) } else { (middle, late) };
        }
        Some(now + Span::from_millis(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(100 * HOUR as u64 + millis)
    }

    #[test]
    fn a_wall_clock_steps_and_drifts() {
        let mut wall = WallClock::default();
        wall.step(at(0), HOUR, 1_000);
        assert_eq!(wall.at(at(5_000)), at(HOUR as u64 + 5_005));
        wall.step(at(5_000), -HOUR, 0);
        assert_eq!(wall.at(at(9_000)), at(9_005));
        wall.correct();
        assert_eq!(wall.at(at(9_000)), at(9_000));
    }

    #[test]
    fn the_engines_time_neither_stands_still_nor_jumps_when_the_wall_clock_steps() {
        for step in [HOUR, -HOUR] {
            let mut wall = WallClock::default();
            let mut clock = EngineClock::start(at(0), &wall, PlantedDefect::Nothing);
            wall.step(at(0), step, 0);
            let (mut last, mut now) = (clock.read(at(0), &wall), at(0));
            for _ in 0..2_000 {
                now = now + Span::from_secs(60);
                let next = clock.read(now, &wall);
                let passed = next.since(last).as_millis();
                assert!((56_000..=64_000).contains(&passed), "{passed} ms in a minute");
                last = next;
            }
            assert_eq!(last, wall.at(now), "in the end it shows what the wall clock shows");
        }
    }

    #[test]
    fn it_is_known_when_an_instant_will_be_reached() {
        let mut wall = WallClock::default();
        let clock = EngineClock::start(at(0), &wall, PlantedDefect::Nothing);
        assert_eq!(clock.reaches(at(500), at(0), &wall), Some(at(500)));
        assert_eq!(clock.reaches(at(0), at(200), &wall), Some(at(200)));
        wall.step(at(0), -HOUR, 0);
        let late = clock.reaches(at(1_500), at(0), &wall).unwrap();
        assert!(clock.at(late, &wall) >= at(1_500) && late > at(1_590), "{late:?}");
    }
}
