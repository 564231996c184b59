//! Alerts and silences in memory.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{AlertId, SilenceId, TenantId};

use super::MemoryStore;
use super::state::State;
use crate::backend::check;
use crate::listing::ListKind;
use crate::{Alert, AlertQuery, Alerts, AuditEntry, Listing, Result, Silence};

#[async_trait]
impl Alerts for MemoryStore {
    async fn open_alerts(&self) -> Result<Vec<Alert>> {
        let state = self.state();
        let open = state.rows.alerts.values().filter(|alert| !alert.is_settled());
        Ok(open.cloned().collect())
    }

    async fn save_alerts(&self, alerts: Vec<Alert>) -> Result<()> {
        check::alerts(&alerts)?;
        let State { registry, rows, .. } = &mut *self.state();
        let is_there = |tenant: &TenantId| registry.tenants.contains_key(tenant);
        let alerts = alerts.into_iter().filter(|alert| alert.tenant.as_ref().is_none_or(is_there));
        rows.alerts.extend(alerts.map(|alert| (alert.id, alert)));
        Ok(())
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>> {
        Ok(self.state().rows.alerts.get(&id).cloned())
    }

    async fn alerts(&self, query: AlertQuery) -> Result<Listing<Alert>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<[u8; 16]>(ListKind::Alerts)?;
        let before = AlertId::from_bytes(after.unwrap_or([u8::MAX; 16]));
        let state = self.state();
        let alerts = state.rows.alerts.range(..before).rev().map(|(_, alert)| alert);
        let alerts = alerts.filter(|alert| query.matches(alert)).take(limit + 1);
        let found = alerts.map(|alert| (alert.id.to_bytes(), alert.clone())).collect();
        Ok(Listing::cut(found, limit, ListKind::Alerts))
    }

    async fn silences(&self) -> Result<Vec<Silence>> {
        let now = self.setup.source.now();
        Ok(self.state().silences_at(now).cloned().collect())
    }

    async fn save_silence(&self, silence: Silence, audit: AuditEntry) -> Result<()> {
        check::silence(&silence, &audit)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        silence.tenant.as_ref().map_or(Ok(()), |tenant| state.registry.tenant_exists(tenant))?;
        check::silence_fits(state.silences_at(now).filter(|other| other.id != silence.id).count())?;
        state.rows.silences.insert(silence.id, silence);
        state.registry.audit.insert(audit.id, audit);
        Ok(())
    }

    async fn end_silence(
        &self,
        id: SilenceId,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Silence> {
        check::audit(&audit)?;
        let mut state = self.state();
        let silence = state.rows.silences.get_mut(&id).filter(|silence| silence.until > at);
        let silence = silence.ok_or_else(|| check::no_silence(id))?;
        silence.until = at;
        let ended = silence.clone();
        state.registry.audit.insert(audit.id, audit);
        Ok(ended)
    }
}

impl State {
    fn silences_at(&self, now: Timestamp) -> impl Iterator<Item = &Silence> {
        self.rows.silences.values().filter(move |silence| silence.until > now)
    }

    pub(super) fn prune_alerts(&mut self, before: Timestamp) -> u64 {
        let rows = &mut self.rows;
        let count = rows.alerts.len() + rows.silences.len();
        let is_old = |at: Option<Timestamp>| at.is_some_and(|at| at < before);
        rows.alerts.retain(|_, alert| !alert.is_settled() || !is_old(alert.resolved_at));
        rows.silences.retain(|_, silence| !is_old(Some(silence.until)));
        (count - rows.alerts.len() - rows.silences.len()) as u64
    }

    pub(super) fn erase_alerts(&mut self, tenant: &TenantId) {
        self.rows.alerts.retain(|_, alert| alert.tenant.as_ref() != Some(tenant));
        self.rows.silences.retain(|_, silence| silence.tenant.as_ref() != Some(tenant));
    }
}
