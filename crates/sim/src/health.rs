//! The engine switches an endpoint off when what came back says so, and only then.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::limits::FAILING_RECORD_AFTER;
use railpost_engine::{
    AttemptResult, EndpointRecord, EndpointStatus, LaneId, Outcome, Policy, Timestamp,
};
use railpost_wire::{DeliveryId, EndpointId};

use crate::fact::{Fact, InFlightAttempt};
use crate::ledger::{is_about_endpoint, meaning};
use crate::model::{BrokenPromise, View, rule};

const NEVER_BLAMED: BrokenPromise = "409 and 425 are never held against an endpoint";

/// What came back from each endpoint served.
#[derive(Default)]
pub(crate) struct HealthModel(BTreeMap<EndpointId, EndpointSigns>);

#[derive(Default)]
struct EndpointSigns {
    failing_since: Option<Timestamp>,
    /// What was refused for good since the last acknowledgement: lanes, and deliveries without one.
    refused: BTreeSet<(Option<LaneId>, Option<DeliveryId>)>,
    /// The status that has to be recorded next.
    due: Option<EndpointStatus>,
    /// Whether the last thing that came back was about the endpoint.
    concerned: bool,
    /// Whether it has failed for so long that a restart has to know.
    lasting: bool,
}

impl HealthModel {
    pub(crate) fn judge(&mut self, view: &View<'_>, fact: &Fact) -> Result<(), BrokenPromise> {
        match fact {
            Fact::Appeared(endpoint) => {
                // What was written by a clock that was ahead cannot have been later than this.
                let failing_since = endpoint.failing_since.map(|since| since.min(view.now));
                self.0.insert(
                    endpoint.id,
                    EndpointSigns { failing_since, ..EndpointSigns::default() },
                );
            }
            Fact::Left(id) => drop(self.0.remove(id)),
            Fact::Crashed | Fact::Stopped | Fact::Restored => self.0.clear(),
            Fact::Resumed(id) => {
                self.0.entry(*id).and_modify(|signs| *signs = EndpointSigns::default());
            }
            Fact::Ended(flight, result) if !flight.orphaned => self.learn(view, flight, *result),
            Fact::BreakerOpened(id) => {
                let concerned = self.0.get(id).is_some_and(|signs| signs.concerned);
                rule(concerned, NEVER_BLAMED)?;
            }
            Fact::EndpointRecorded(record) => self.recorded(view, record)?,
            Fact::Recorded(transition) => self.judge_record(view, transition.endpoint)?,
            _ => {}
        }
        Ok(())
    }

    fn learn(&mut self, view: &View<'_>, flight: &InFlightAttempt, result: AttemptResult) {
        let endpoint = &view.served[&flight.attempt.endpoint];
        let Some(signs) = self.0.get_mut(&endpoint.id) else { return };
        let outcome = meaning(result, &endpoint.policy);
        signs.concerned = is_about_endpoint(result);
        if !signs.concerned {
            return;
        }
        if outcome == Outcome::Acknowledged {
            return *signs = EndpointSigns { concerned: true, ..EndpointSigns::default() };
        }
        let since = *signs.failing_since.get_or_insert(view.now);
        signs.lasting = view.now.since(since) >= FAILING_RECORD_AFTER;
        if outcome == Outcome::Permanent {
            let lane = flight.attempt.place.map(|place| place.lane);
            signs.refused.insert((lane, lane.is_none().then_some(flight.attempt.delivery)));
        }
        let gone = matches!(result, AttemptResult::Response { status: 410, .. });
        let gone = gone && outcome == Outcome::Permanent;
        let on = endpoint.status == EndpointStatus::Active;
        signs.due = signs.switch_off(gone, &endpoint.policy, view.now).filter(|_| on);
    }

    /// By the time a delivery is recorded, its endpoint has been.
    fn judge_record(&self, view: &View<'_>, id: EndpointId) -> Result<(), BrokenPromise> {
        let Some(signs) = self.0.get(&id) else { return Ok(()) };
        rule(signs.due.is_none(), "an endpoint that is done for is switched off")?;
        let on_record = view.served[&id].failing_since.is_some();
        rule(on_record || !signs.lasting, "lasting failure is written down")
    }

    fn recorded(&mut self, view: &View<'_>, record: &EndpointRecord) -> Result<(), BrokenPromise> {
        let signs = self.0.get_mut(&record.endpoint).ok_or("only what is served is recorded")?;
        let status = signs.due.take().unwrap_or(view.served[&record.endpoint].status);
        let switched_off = record.status != view.served[&record.endpoint].status;
        rule(!switched_off || signs.concerned, NEVER_BLAMED)?;
        rule(record.status == status, "an endpoint's status follows from what came back")?;
        rule(record.failing_since == signs.failing_since, "failures are dated from the first one")
    }
}

impl EndpointSigns {
    fn switch_off(&self, gone: bool, policy: &Policy, now: Timestamp) -> Option<EndpointStatus> {
        let refused =
            policy.quarantine_after.is_some_and(|most| self.refused.len() >= most as usize);
        let lasted = self.failing_since.map(|since| now.since(since));
        let failing = policy.disable_after.is_some_and(|longest| lasted >= Some(longest));
        let signs = [
            (gone, EndpointStatus::Gone),
            (refused, EndpointStatus::Quarantined),
            (failing, EndpointStatus::Failing),
        ];
        signs.into_iter().find(|(is_so, _)| *is_so).map(|(_, status)| status)
    }
}
