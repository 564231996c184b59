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

    pub(super) fn survey(&self, tenant: Option<&TenantId>, attention_max: usize) -> EndpointSurvey {
        let survey = self.engine.survey(tenant, attention_max);
        let attention = survey.attention.into_iter();
        let attention = attention.filter_map(|id| Some((id, self.health(id)?)));
        EndpointSurvey { counts: survey.counts, attention: attention.collect() }
    }
}
