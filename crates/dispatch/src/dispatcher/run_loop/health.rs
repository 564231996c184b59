//! How endpoints are doing, for those who ask.

use std::collections::BTreeSet;

use railpost_engine::{Span, Timestamp};
use railpost_wire::{EndpointId, TenantId};

use super::RunLoop;
use crate::dispatcher::{EndpointSurvey, ServedConcern, ServedConcerns, ServedHealth, ServedLane};

impl RunLoop {
    pub(super) fn health(&self, id: EndpointId) -> Option<ServedHealth> {
        let health = self.engine.health(id)?;
        let prepared = self.prepared.get(&id);
        let blocked = prepared.and_then(|prepared| prepared.blocked(self.time_of_day()));
        Some(ServedHealth { health, blocked })
    }

    pub(super) fn survey(&self, tenant: Option<&TenantId>, named_max: usize) -> EndpointSurvey {
        let survey = self.engine.survey(tenant, named_max);
        let named = |ids: Vec<EndpointId>| {
            ids.into_iter().filter_map(|id| Some((id, self.health(id)?))).collect()
        };
        EndpointSurvey {
            in_flight: survey.in_flight,
            counts: survey.counts,
            attention: named(survey.attention),
            paused: named(survey.paused),
        }
    }

    /// Endpoints that are not well or whose last secret ends by `signs_until`, and held lanes.
    pub(super) fn concerns(&self, signs_until: Timestamp, lanes_max: usize) -> ServedConcerns {
        let concerns = self.engine.concerns(lanes_max);
        let mut named = BTreeSet::new();
        let mut endpoints = Vec::with_capacity(concerns.endpoints.len());
        for concern in concerns.endpoints {
            named.insert(concern.id);
            endpoints.extend(self.concern(concern.id, concern.disable_after));
        }
        for (id, prepared) in &self.prepared {
            let ends = prepared.signs_until().is_some_and(|end| end <= signs_until);
            if ends && !named.contains(id) {
                endpoints.extend(self.concern(*id, None));
            }
        }
        let held_lanes = concerns.held_lanes.into_iter().filter_map(|held| {
            let prepared = self.prepared.get(&held.endpoint)?;
            let (tenant, url) = (prepared.tenant().clone(), prepared.url().to_owned());
            Some(ServedLane { lane: held.lane, endpoint: held.endpoint, tenant, url })
        });
        ServedConcerns {
            endpoints,
            paused: concerns.paused,
            held_lanes: held_lanes.collect(),
            held_lanes_count: concerns.held_lanes_count,
        }
    }

    fn concern(&self, id: EndpointId, disable_after: Option<Span>) -> Option<ServedConcern> {
        let prepared = self.prepared.get(&id)?;
        Some(ServedConcern {
            id,
            tenant: prepared.tenant().clone(),
            url: prepared.url().to_owned(),
            served: self.health(id)?,
            disable_after,
            signs_until: prepared.signs_until(),
        })
    }
}
