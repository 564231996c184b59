//! Tenants, endpoints, secrets, event types and replays in memory.

use async_trait::async_trait;
use railpost_engine::{EndpointStatus, Timestamp};
use railpost_wire::{ApiKeyId, EndpointId, EventType, ReplayId, SecretId, TenantId};

use super::MemoryStore;
use super::state::{EndpointRow, RegistryRows, SecretRow};
use crate::backend::check::RunningReplays;
use crate::backend::{check, encryption};
use crate::limits::{LIST_LIMIT_MAX, SECRETS_MAX};
use crate::listing::ListKind;
use crate::{
    Change, DueRotation, Endpoint, EndpointPrivate, EndpointSecret, EndpointSettings,
    ErasingTenant, EventTypeRecord, Listing, NewEndpoint, NewSecret, PageRequest, Registry, Replay,
    Result, Setup, StoreError, Tenant, Write,
};

#[async_trait]
impl Registry for MemoryStore {
    async fn commit(&self, change: Change) -> Result<()> {
        check::change(&change)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        state.check_idempotency(change.idempotency.as_deref(), now)?;
        let mut transaction =
            ChangeTransaction { rows: state.registry.clone(), setup: &self.setup, now };
        change.writes.into_iter().try_for_each(|write| transaction.write(write))?;
        if let Some(entry) = change.audit {
            transaction.rows.audit.insert(entry.id, entry);
        }
        if let Some(record) = change.idempotency {
            transaction.rows.idempotency.insert(record.key.clone(), *record);
        }
        state.registry = transaction.rows;
        state.subscribers.clear();
        Ok(())
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        Ok(self.state().registry.tenants.get(id).cloned())
    }

    async fn tenants(&self, page: PageRequest) -> Result<Listing<Tenant>> {
        let (limit, after) = (page.limit()?, page.position::<String>(ListKind::Tenants)?);
        let state = self.state();
        let rows = state.registry.tenants.iter().map(|(id, row)| (id.to_string(), row.clone()));
        let rows = rows.filter(|(id, _)| after.as_ref().is_none_or(|after| id > after));
        Ok(Listing::cut(rows.take(limit + 1).collect(), limit, ListKind::Tenants))
    }

    async fn erasing_tenant(&self, id: &TenantId) -> Result<Option<ErasingTenant>> {
        Ok(self.state().registry.erasing_tenants.get(id).cloned())
    }

    async fn erasing_tenants(&self) -> Result<Vec<ErasingTenant>> {
        let mut all: Vec<_> = self.state().registry.erasing_tenants.values().cloned().collect();
        all.sort_by_key(|tenant| tenant.since);
        all.truncate(LIST_LIMIT_MAX as usize);
        Ok(all)
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        let state = self.state();
        let row = state.registry.endpoints.get(&id);
        Ok(row.map(|row| self.endpoint_of(id, row, &state.registry)))
    }

    async fn settings_of(
        &self,
        endpoints: Vec<EndpointId>,
    ) -> Result<Vec<(EndpointId, EndpointSettings)>> {
        check::page_of("endpoints", &endpoints)?;
        let state = self.state();
        let settings = |id| Some((id, state.registry.endpoints.get(&id)?.settings.clone()));
        Ok(endpoints.into_iter().filter_map(settings).collect())
    }

    async fn endpoints(
        &self,
        tenant: Option<&TenantId>,
        page: PageRequest,
    ) -> Result<Listing<Endpoint>> {
        let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Endpoints)?);
        let state = self.state();
        let rows = state.registry.endpoints.iter().filter(|(id, row)| {
            row.removed_at.is_none()
                && tenant.is_none_or(|tenant| row.tenant == *tenant)
                && after.is_none_or(|after| id.to_bytes() > after)
        });
        let rows = rows.take(limit + 1);
        let rows =
            rows.map(|(id, row)| (id.to_bytes(), self.endpoint_of(*id, row, &state.registry)));
        Ok(Listing::cut(rows.collect(), limit, ListKind::Endpoints))
    }

    async fn secrets(&self, endpoint: EndpointId) -> Result<Vec<EndpointSecret>> {
        let state = self.state();
        let rows = state.registry.secrets.iter().filter(|(_, row)| row.endpoint == endpoint);
        rows.map(|(id, row)| {
            let value = encryption::open_secret(&self.setup.master_key, *id, &row.sealed)?;
            let SecretRow { endpoint, created_at, expires_at, .. } = *row;
            Ok(EndpointSecret { id: *id, endpoint, value, created_at, expires_at })
        })
        .collect()
    }

    async fn due_rotations(
        &self,
        now: Timestamp,
        after: Option<DueRotation>,
        limit: u32,
    ) -> Result<Vec<DueRotation>> {
        check::due_rotations(limit)?;
        let state = self.state();
        let rows = state.registry.endpoints.iter();
        let scheduled = rows.filter_map(|(id, row)| {
            let at = state.registry.rotates_at(*id, row)?;
            Some(DueRotation { endpoint: *id, at })
        });
        let place = |due: &DueRotation| (due.at, due.endpoint);
        let is_after = |due: &DueRotation| after.is_none_or(|after| place(due) > place(&after));
        let mut due: Vec<_> = scheduled.filter(|due| due.at <= now && is_after(due)).collect();
        due.sort_by_key(place);
        due.truncate(limit as usize);
        Ok(due)
    }

    async fn event_type(
        &self,
        tenant: &TenantId,
        name: &EventType,
    ) -> Result<Option<EventTypeRecord>> {
        let state = self.state();
        let types = state.registry.event_types.get(tenant);
        Ok(types.and_then(|types| types.get(name)).cloned())
    }

    async fn event_types(
        &self,
        tenant: &TenantId,
        page: PageRequest,
    ) -> Result<Listing<EventTypeRecord>> {
        let (limit, after) = (page.limit()?, page.position::<String>(ListKind::EventTypes)?);
        let state = self.state();
        let rows = state.registry.event_types.get(tenant).into_iter().flatten();
        let rows = rows.map(|(name, row)| (name.to_string(), row.clone()));
        let rows = rows.filter(|(name, _)| after.as_ref().is_none_or(|after| name > after));
        Ok(Listing::cut(rows.take(limit + 1).collect(), limit, ListKind::EventTypes))
    }

    async fn replay(&self, id: ReplayId) -> Result<Option<Replay>> {
        Ok(self.state().registry.replays.get(&id).cloned())
    }

    async fn replays(&self, tenant: &TenantId, page: PageRequest) -> Result<Listing<Replay>> {
        let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Replays)?);
        let state = self.state();
        let rows = state.registry.replays.values().rev().filter(|replay| {
            replay.tenant == *tenant && after.is_none_or(|after| replay.id.to_bytes() < after)
        });
        let rows = rows.take(limit + 1).map(|replay| (replay.id.to_bytes(), replay.clone()));
        Ok(Listing::cut(rows.collect(), limit, ListKind::Replays))
    }

    async fn running_replays(&self) -> Result<Vec<Replay>> {
        Ok(self.state().registry.running_replays().cloned().collect())
    }
}

impl MemoryStore {
    fn endpoint_of(&self, id: EndpointId, row: &EndpointRow, rows: &RegistryRows) -> Endpoint {
        let private = match row.removed_at {
            Some(_) => Ok(EndpointPrivate::default()),
            None => encryption::open_endpoint(&self.setup.master_key, id, &row.private),
        };
        let EndpointRow { tenant, settings, .. } = row.clone();
        Endpoint {
            id,
            tenant,
            settings,
            private,
            status: row.status,
            status_since: row.status_since,
            failing_since: row.failing_since,
            revision: row.revision,
            created_at: row.created_at,
            updated_at: row.updated_at,
            removed_at: row.removed_at,
            rotates_at: rows.rotates_at(id, row),
        }
    }
}

impl RegistryRows {
    pub(super) fn tenant_exists(&self, id: &TenantId) -> Result<()> {
        if self.tenants.contains_key(id) {
            return Ok(());
        }
        Err(StoreError::not_found("tenant", id))
    }

    fn endpoint_mut(&mut self, id: EndpointId) -> Result<&mut EndpointRow> {
        let row = self.endpoints.get_mut(&id).filter(|row| row.removed_at.is_none());
        row.ok_or_else(|| StoreError::not_found("endpoint", id))
    }

    /// When the newest secret of an endpoint is as old as it may become.
    fn rotates_at(&self, id: EndpointId, row: &EndpointRow) -> Option<Timestamp> {
        let age_max = row.settings.secret_age_max().filter(|_| row.removed_at.is_none())?;
        let lasting = |secret: &&SecretRow| secret.endpoint == id && secret.expires_at.is_none();
        let newest = self.secrets.values().filter(lasting).map(|secret| secret.created_at).max()?;
        Some(newest + age_max)
    }

    fn running_replays(&self) -> impl Iterator<Item = &Replay> {
        self.replays.values().filter(|replay| replay.finished_at.is_none())
    }

    fn secret_mut(&mut self, endpoint: EndpointId, id: SecretId) -> Result<&mut SecretRow> {
        let row = self.secrets.get_mut(&id).filter(|row| row.endpoint == endpoint);
        row.ok_or_else(|| StoreError::not_found("secret", id))
    }
}

/// A copy of the registry that a change is made on.
struct ChangeTransaction<'a> {
    rows: RegistryRows,
    setup: &'a Setup,
    now: Timestamp,
}

impl ChangeTransaction<'_> {
    fn write(&mut self, write: Write) -> Result<()> {
        let now = self.now;
        match write {
            Write::CreateTenant(id, settings) => {
                let is_free = !self.rows.tenants.contains_key(&id);
                let erasing = self.rows.erasing_tenants.contains_key(&id);
                check::tenant_created(is_free.into(), &id, erasing)?;
                let row = Tenant { id: id.clone(), settings, created_at: now, updated_at: now };
                self.rows.tenants.insert(id, row);
            }
            Write::UpdateTenant(id, settings) => {
                let row = self.rows.tenants.get_mut(&id);
                let row = row.ok_or_else(|| StoreError::not_found("tenant", &id))?;
                (row.settings, row.updated_at) = (settings, now);
            }
            Write::EraseTenant(id) => self.mark_erasing(id)?,
            Write::CreateEndpoint(new) => self.create_endpoint(new)?,
            Write::UpdateEndpoint { id, settings, private, revision } => {
                let private = encryption::seal_endpoint(self.setup, id, &private);
                let row = self.rows.endpoint_mut(id)?;
                check::revision(id, row.revision, revision)?;
                (row.settings, row.private, row.updated_at) = (settings, private, now);
                row.revision += 1;
            }
            Write::SetEndpointStatus(id, status) => {
                let row = self.rows.endpoint_mut(id)?;
                row.set_status(status, now);
                row.failing_since = row.failing_since.filter(|_| status != EndpointStatus::Active);
            }
            Write::RemoveEndpoint(id) => {
                let row = self.rows.endpoint_mut(id)?;
                (row.removed_at, row.updated_at) = (Some(now), now);
                row.private.clear();
                self.rows.secrets.retain(|_, secret| secret.endpoint != id);
            }
            Write::CreateSecret(new) => self.create_secret(&new)?,
            Write::ExpireSecret { endpoint, id, at } => {
                self.rows.secret_mut(endpoint, id)?.expires_at = Some(at);
            }
            Write::RemoveSecret { endpoint, id } => {
                self.rows.secret_mut(endpoint, id)?;
                self.rows.secrets.remove(&id);
            }
            Write::PutEventType(record) => {
                self.rows.tenant_exists(&record.tenant)?;
                let types = self.rows.event_types.entry(record.tenant.clone()).or_default();
                types.insert(record.name.clone(), record);
            }
            Write::RemoveEventType(tenant, name) => {
                let types = self.rows.event_types.entry(tenant).or_default();
                let gone = types.remove(&name);
                gone.ok_or_else(|| StoreError::not_found("event type", &name))?;
            }
            Write::CreateApiKey(key) => self.create_api_key(key)?,
            Write::RevokeApiKey(id, at) => {
                let all: Vec<_> = self.rows.api_keys.values().cloned().collect();
                let row = self.api_key_mut(id)?;
                check::admin_key_remains(row, at, &all)?;
                row.revoked_at = row.revoked_at.or(Some(at));
            }
            Write::RenameApiKey(id, name) => self.api_key_mut(id)?.name = name,
            Write::TouchApiKey(id, at) => {
                let row = self.api_key_mut(id)?;
                row.last_used_at = row.last_used_at.max(Some(at));
            }
            Write::PutReplay(replay) => self.put_replay(*replay)?,
        }
        Ok(())
    }

    /// Hides a tenant and takes away what it could act with.
    fn mark_erasing(&mut self, id: TenantId) -> Result<()> {
        let row = self.rows.tenants.remove(&id);
        let row = row.ok_or_else(|| StoreError::not_found("tenant", &id))?;
        let RegistryRows { endpoints, secrets, api_keys, replays, .. } = &mut self.rows;
        endpoints.retain(|_, row| row.tenant != id);
        secrets.retain(|_, row| endpoints.contains_key(&row.endpoint));
        api_keys.retain(|_, key| key.tenant.as_ref() != Some(&id));
        replays.retain(|_, replay| replay.tenant != id);
        let (created_at, since) = (row.created_at, self.now);
        let erasing = ErasingTenant { id: id.clone(), created_at, since, erased: 0 };
        self.rows.erasing_tenants.insert(id, erasing);
        Ok(())
    }

    fn create_endpoint(&mut self, new: NewEndpoint) -> Result<()> {
        let NewEndpoint { id, tenant, settings, private } = new;
        self.rows.tenant_exists(&tenant)?;
        if self.rows.endpoints.contains_key(&id) {
            return Err(StoreError::conflict("id", format!("endpoint `{id}` exists")));
        }
        let row = EndpointRow {
            tenant,
            settings,
            private: encryption::seal_endpoint(self.setup, id, &private),
            status: EndpointStatus::Active,
            status_since: None,
            failing_since: None,
            revision: 1,
            created_at: self.now,
            updated_at: self.now,
            removed_at: None,
        };
        self.rows.endpoints.insert(id, row);
        Ok(())
    }

    fn create_secret(&mut self, new: &NewSecret) -> Result<()> {
        self.rows.endpoint_mut(new.endpoint)?;
        if self.rows.secrets.contains_key(&new.id) {
            return Err(StoreError::conflict("id", format!("secret `{}` exists", new.id)));
        }
        let others = self.rows.secrets.values().filter(|row| row.endpoint == new.endpoint).count();
        check::at_most("secrets (entries)", others + 1, SECRETS_MAX)?;
        let row = SecretRow {
            endpoint: new.endpoint,
            sealed: encryption::seal_secret(self.setup, new.id, &new.value),
            created_at: self.now,
            expires_at: new.expires_at,
        };
        self.rows.secrets.insert(new.id, row);
        Ok(())
    }

    fn put_replay(&mut self, replay: Replay) -> Result<()> {
        self.rows.tenant_exists(&replay.tenant)?;
        let changeable = match self.rows.replays.get(&replay.id) {
            None => {
                let of_tenant = |other: &&Replay| other.tenant == replay.tenant;
                let others = RunningReplays {
                    of_tenant: self.rows.running_replays().filter(of_tenant).count(),
                    of_all: self.rows.running_replays().count(),
                };
                check::replay_fits(others, &replay)?;
                true
            }
            Some(row) => {
                row.tenant == replay.tenant && (row.finished_at.is_none() || *row == replay)
            }
        };
        check::replay_put(changeable.into(), &replay)?;
        self.rows.replays.insert(replay.id, replay);
        Ok(())
    }

    fn api_key_mut(&mut self, id: ApiKeyId) -> Result<&mut crate::ApiKey> {
        let row = self.rows.api_keys.get_mut(&id);
        row.ok_or_else(|| StoreError::not_found("API key", id))
    }

    fn create_api_key(&mut self, key: crate::ApiKey) -> Result<()> {
        key.tenant.as_ref().map_or(Ok(()), |tenant| self.rows.tenant_exists(tenant))?;
        let taken = |row: &crate::ApiKey| row.id == key.id || row.hash == key.hash;
        if self.rows.api_keys.values().any(taken) {
            return Err(StoreError::conflict("id", format!("API key `{}` exists", key.id)));
        }
        self.rows.api_keys.insert(key.id, key);
        Ok(())
    }
}
