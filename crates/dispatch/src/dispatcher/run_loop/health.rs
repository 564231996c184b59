//! How endpoints are doing, for those who ask.

use railpost_wire::{EndpointId, TenantId};

use super::RunLoop;
use crate::dispatcher::{EndpointSurvey, ServedHealth};

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
}
