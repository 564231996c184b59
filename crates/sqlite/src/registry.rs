//! Tenants, endpoints, secrets and event types in SQLite, and changes to them.

use railpost_engine::{EndpointStatus, Span, Timestamp};
use railpost_wire::{ApiKeyId, EndpointId, EventType, TenantId};
use rusqlite::{Connection, OptionalExtension, Params};

use super::errors::Translate;
use super::rows::{all, one};
use super::session::WriteSession;
use railpost_store::backend::check::{created, found, tenant_created};
use railpost_store::backend::codes::{endpoint_status_code, millis};
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{
    self, Columns, endpoint_columns, erasing_tenant_columns, tenant_columns, to_json,
};
use railpost_store::backend::{check, encryption};
use railpost_store::limits::{LIST_LIMIT_MAX, SECRETS_MAX};
use railpost_store::{
    ApiKey, AuditEntry, Change, DueRotation, Endpoint, EndpointPrivate, EndpointSecret,
    EndpointSettings, ErasingTenant, EventTypeRecord, Listing, MasterKey, NewEndpoint, NewSecret,
    PageRequest, Result, StoreError, Tenant, Write,
};

impl WriteSession<'_> {
    /// All of the change or nothing of it: its writes may find out late that they contradict what is
    /// stored.
    pub(super) fn commit(&mut self, change: &Change) -> Result<()> {
        self.add_accepted()?;
        let now = self.now();
        self.check_idempotency(change.idempotency.as_deref(), now)?;
        let removed = self.open_of_removed(change)?;
        self.db.execute_batch("SAVEPOINT change").at("the start of a change")?;
        let done = self.write_change(change, now);
        let end =
            if done.is_ok() { "RELEASE change" } else { "ROLLBACK TO change; RELEASE change" };
        self.db.execute_batch(end).at("the end of a change")?;
        if change.concerns_accepts() {
            self.cache.registry_changed();
        }
        if done.is_ok() {
            for (tenant, open) in removed {
                self.cache.backlog.change(tenant, -open);
            }
        }
        done
    }

    /// How many open deliveries the endpoints have that a change removes, each with its tenant's num.
    fn open_of_removed(&self, change: &Change) -> Result<Vec<(i64, i64)>> {
        let mut removed = Vec::new();
        for write in &change.writes {
            let Write::RemoveEndpoint(id) = write else { continue };
            let sql = "SELECT p.tenant, (SELECT count(*) FROM deliveries INDEXED BY deliveries_open \
                       WHERE endpoint = p.num AND standing <= 3) \
                       FROM endpoints AS p WHERE p.id = ?1 AND p.removed_at IS NULL";
            removed.extend(one(self.db, sql, [id.to_bytes()], |columns| {
                Ok((columns.number("a tenant's number")?, columns.number("a count")?))
            })?);
        }
        Ok(removed)
    }

    fn write_change(&self, change: &Change, now: Timestamp) -> Result<()> {
        change.writes.iter().try_for_each(|write| self.write(write, now))?;
        if let Some(entry) = &change.audit {
            created(self.write_audit(entry)?, "audit entry", entry.id)?;
        }
        self.remember(change.idempotency.as_deref())
    }

    fn write(&self, write: &Write, now: Timestamp) -> Result<()> {
        let at = millis(now);
        match write {
            Write::CreateTenant(id, settings) => {
                let sql = "INSERT INTO tenants (id, settings, created_at, updated_at) \
                           VALUES (?1, ?2, ?3, ?3) ON CONFLICT DO NOTHING";
                let added = self.execute(sql, (id.as_str(), to_json(settings), at))?;
                tenant_created(added, id, self.is_erasing(id)?)
            }
            Write::UpdateTenant(id, settings) => {
                let sql = "UPDATE tenants SET settings = ?2, updated_at = ?3 \
                           WHERE id = ?1 AND erasing = 0";
                found(self.execute(sql, (id.as_str(), to_json(settings), at))?, "tenant", id)
            }
            Write::EraseTenant(id) => self.mark_erasing(id, at),
            Write::CreateEndpoint(new) => self.create_endpoint(new, at),
            Write::UpdateEndpoint { id, settings, private, revision } => {
                let stored = self.endpoint_revision(*id)?;
                check::revision(id, stored, *revision)?;
                self.update_endpoint(*id, settings, private, at)?;
                self.schedule_rotation(*id)
            }
            Write::SetEndpointStatus(id, status) => {
                let sql = "UPDATE endpoints SET status = ?2, updated_at = ?3, failing_since = \
                           CASE WHEN ?4 THEN NULL ELSE failing_since END, \
                           status_since = CASE WHEN status = ?2 THEN status_since ELSE ?3 END \
                           WHERE id = ?1 AND removed_at IS NULL";
                let on = *status == EndpointStatus::Active;
                let values = (id.to_bytes(), endpoint_status_code(*status), at, on);
                found(self.execute(sql, values)?, "endpoint", id)
            }
            Write::RemoveEndpoint(id) => self.remove_endpoint(*id, at),
            Write::CreateSecret(new) => self.create_secret(new, at),
            Write::ExpireSecret { endpoint, id, at: until } => {
                let sql = "UPDATE secrets SET expires_at = ?3 WHERE id = ?1 \
                           AND endpoint = (SELECT num FROM endpoints WHERE id = ?2)";
                let values = (id.to_bytes(), endpoint.to_bytes(), millis(*until));
                found(self.execute(sql, values)?, "secret", id)?;
                self.schedule_rotation(*endpoint)
            }
            Write::RemoveSecret { endpoint, id } => {
                let sql = "DELETE FROM secrets WHERE id = ?1 \
                           AND endpoint = (SELECT num FROM endpoints WHERE id = ?2)";
                let gone = self.execute(sql, (id.to_bytes(), endpoint.to_bytes()))?;
                found(gone, "secret", id)?;
                self.schedule_rotation(*endpoint)
            }
            Write::PutEventType(record) => {
                let tenant = self.tenant_num(&record.tenant)?;
                let sql = "REPLACE INTO event_types (tenant, name, record) VALUES (?1, ?2, ?3)";
                self.execute(sql, (tenant, record.name.as_str(), to_json(record)))?;
                Ok(())
            }
            Write::RemoveEventType(tenant, name) => {
                let sql = "DELETE FROM event_types WHERE name = ?2 \
                           AND tenant = (SELECT num FROM tenants WHERE id = ?1)";
                let gone = self.execute(sql, (tenant.as_str(), name.as_str()))?;
                found(gone, "event type", name)
            }
            Write::CreateApiKey(key) => self.create_api_key(key),
            Write::RevokeApiKey(id, at) => {
                let all = super::access::api_keys_without_tenant(self.db)?;
                self.change_api_key(*id, |key| {
                    check::admin_key_remains(key, *at, &all)?;
                    key.revoked_at = key.revoked_at.or(Some(*at));
                    Ok(())
                })
            }
            Write::RenameApiKey(id, name) => self.change_api_key(*id, |key| {
                key.name.clone_from(name);
                Ok(())
            }),
            Write::TouchApiKey(id, at) => self.change_api_key(*id, |key| {
                key.last_used_at = key.last_used_at.max(Some(*at));
                Ok(())
            }),
            Write::PutReplay(replay) => self.put_replay(replay),
        }
    }

    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<u64> {
        Ok(self.db.prepare_cached(sql).translated()?.execute(values).translated()? as u64)
    }

    fn is_erasing(&self, id: &TenantId) -> Result<bool> {
        let sql = "SELECT 1 FROM tenants WHERE id = ?1 AND erasing";
        self.db.prepare_cached(sql).translated()?.exists([id.as_str()]).translated()
    }

    /// Hides a tenant and takes away what it could act with. The rest goes step by step.
    fn mark_erasing(&self, id: &TenantId, at: i64) -> Result<()> {
        let num = self.tenant_num(id)?;
        let sql = "UPDATE tenants SET erasing = 1, settings = '{}', erasing_since = ?2 \
                   WHERE num = ?1";
        self.execute(sql, (num, at))?;
        for sql in [
            "DELETE FROM secrets WHERE endpoint IN (SELECT num FROM endpoints WHERE tenant = ?1)",
            "DELETE FROM api_keys WHERE tenant = ?1",
            "DELETE FROM replays WHERE tenant = ?1 AND finished_at IS NULL",
            "UPDATE endpoints SET removed_at = coalesce(removed_at, 0), private = x'', \
             rotate_at = NULL WHERE tenant = ?1",
        ] {
            self.execute(sql, [num])?;
        }
        Ok(())
    }

    pub(super) fn tenant_num(&self, id: &TenantId) -> Result<i64> {
        let sql = "SELECT num FROM tenants WHERE id = ?1 AND erasing = 0";
        let num =
            self.db.prepare_cached(sql).translated()?.query_row([id.as_str()], |row| row.get(0));
        num.optional().translated()?.ok_or_else(|| StoreError::not_found("tenant", id))
    }

    fn endpoint_num(&self, id: EndpointId) -> Result<i64> {
        let sql = "SELECT num FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
        let num =
            self.db.prepare_cached(sql).translated()?.query_row([id.to_bytes()], |row| row.get(0));
        num.optional().translated()?.ok_or_else(|| StoreError::not_found("endpoint", id))
    }

    fn endpoint_revision(&self, id: EndpointId) -> Result<u64> {
        let sql = "SELECT revision FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
        let revision =
            self.db.prepare_cached(sql).translated()?.query_row([id.to_bytes()], |row| row.get(0));
        revision.optional().translated()?.ok_or_else(|| StoreError::not_found("endpoint", id))
    }

    fn create_endpoint(&self, new: &NewEndpoint, at: i64) -> Result<()> {
        let tenant = self.tenant_num(&new.tenant)?;
        let sealed = encryption::seal_endpoint(self.setup, new.id, &new.private);
        let sql = "INSERT INTO endpoints \
                   (id, tenant, settings, private, status, revision, created_at, updated_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6) ON CONFLICT DO NOTHING";
        let status = endpoint_status_code(EndpointStatus::Active);
        let values = (new.id.to_bytes(), tenant, to_json(&new.settings), sealed, status, at);
        created(self.execute(sql, values)?, "endpoint", new.id)
    }

    fn update_endpoint(
        &self,
        id: EndpointId,
        settings: &EndpointSettings,
        private: &EndpointPrivate,
        at: i64,
    ) -> Result<()> {
        let sealed = encryption::seal_endpoint(self.setup, id, private);
        let sql = "UPDATE endpoints SET settings = ?2, private = ?3, updated_at = ?4, \
                   revision = revision + 1 WHERE id = ?1 AND removed_at IS NULL";
        let changed = self.execute(sql, (id.to_bytes(), to_json(settings), sealed, at))?;
        found(changed, "endpoint", id)
    }

    fn remove_endpoint(&self, id: EndpointId, at: i64) -> Result<()> {
        let num = self.endpoint_num(id)?;
        self.execute("DELETE FROM secrets WHERE endpoint = ?1", [num])?;
        let sql = "UPDATE endpoints SET removed_at = ?2, updated_at = ?2, private = x'', \
                   rotate_at = NULL WHERE num = ?1";
        self.execute(sql, (num, at))?;
        Ok(())
    }

    fn create_secret(&self, new: &NewSecret, at: i64) -> Result<()> {
        let endpoint = self.endpoint_num(new.endpoint)?;
        let sealed = encryption::seal_secret(self.setup, new.id, &new.value);
        let sql = "INSERT INTO secrets (id, endpoint, sealed, created_at, expires_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
        let values = (new.id.to_bytes(), endpoint, sealed, at, new.expires_at.map(millis));
        created(self.execute(sql, values)?, "secret", new.id)?;
        let sql = "SELECT count(*) FROM secrets WHERE endpoint = ?1";
        let count = self
            .db
            .prepare_cached(sql)
            .translated()?
            .query_row([endpoint], |row| row.get(0))
            .translated()?;
        check::at_most("secrets (entries)", count, SECRETS_MAX)?;
        self.schedule_rotation(new.endpoint)
    }

    /// Writes when the newest secret of an endpoint is as old as it may become.
    fn schedule_rotation(&self, id: EndpointId) -> Result<()> {
        let sql = "SELECT p.settings FROM endpoints AS p WHERE p.id = ?1 AND p.removed_at IS NULL";
        let settings: Option<EndpointSettings> =
            one(self.db, sql, [id.to_bytes()], |columns| columns.json("an endpoint's settings"))?;
        let age_max = settings.and_then(|settings| settings.secret_age_max());
        let sql = "UPDATE endpoints SET rotate_at = (SELECT max(s.created_at) + ?2 \
                   FROM secrets AS s WHERE s.endpoint = num AND s.expires_at IS NULL) \
                   WHERE id = ?1";
        self.execute(sql, (id.to_bytes(), age_max.map(Span::as_millis)))?;
        Ok(())
    }

    fn create_api_key(&self, key: &ApiKey) -> Result<()> {
        let tenant = key.tenant.as_ref().map(|id| self.tenant_num(id)).transpose()?;
        let sql = "INSERT INTO api_keys (id, tenant, hash, record) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT DO NOTHING";
        let added = self.execute(sql, (key.id.to_bytes(), tenant, key.hash, to_json(key)))?;
        created(added, "API key", key.id)
    }

    fn change_api_key(
        &self,
        id: ApiKeyId,
        change: impl FnOnce(&mut ApiKey) -> Result<()>,
    ) -> Result<()> {
        let key = super::access::api_key(self.db, id)?;
        let mut key = key.ok_or_else(|| StoreError::not_found("API key", id))?;
        change(&mut key)?;
        self.execute(
            "UPDATE api_keys SET record = ?2 WHERE id = ?1",
            (id.to_bytes(), to_json(&key)),
        )?;
        Ok(())
    }

    /// Writes an entry unless it is on record, and says how many rows that are.
    pub(super) fn write_audit(&self, entry: &AuditEntry) -> Result<u64> {
        let tenant = entry.tenant.as_ref().map(TenantId::as_str);
        let sql = "INSERT INTO audit (id, at, tenant, target, record) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT DO NOTHING";
        let (id, at) = (entry.id.to_bytes(), millis(entry.at));
        self.execute(sql, (id, at, tenant, &entry.target, to_json(entry)))
    }
}

pub(super) fn tenant(db: &Connection, id: &TenantId) -> Result<Option<Tenant>> {
    let sql = concat!("SELECT ", tenant_columns!(), " FROM tenants WHERE id = ?1 AND NOT erasing");
    one(db, sql, [id.as_str()], |columns| rows::tenant(columns))
}

pub(super) fn tenants(db: &Connection, page: &PageRequest) -> Result<Listing<Tenant>> {
    let (limit, after) = (page.limit()?, page.position::<String>(ListKind::Tenants)?);
    let sql = concat!(
        "SELECT ",
        tenant_columns!(),
        " FROM tenants \
         WHERE id > ?1 AND NOT erasing ORDER BY id LIMIT ?2"
    );
    let found = all(db, sql, (after.unwrap_or_default(), limit + 1), |columns| {
        let tenant = rows::tenant(columns)?;
        Ok((tenant.id.to_string(), tenant))
    });
    Ok(Listing::cut(found?, limit, ListKind::Tenants))
}

pub(super) fn erasing_tenant(db: &Connection, id: &TenantId) -> Result<Option<ErasingTenant>> {
    let sql =
        concat!("SELECT ", erasing_tenant_columns!(), " FROM tenants WHERE id = ?1 AND erasing");
    one(db, sql, [id.as_str()], |columns| rows::erasing_tenant(columns))
}

pub(super) fn erasing_tenants(db: &Connection) -> Result<Vec<ErasingTenant>> {
    let sql = concat!(
        "SELECT ",
        erasing_tenant_columns!(),
        " FROM tenants WHERE erasing ORDER BY coalesce(erasing_since, updated_at), num LIMIT ?1"
    );
    all(db, sql, [LIST_LIMIT_MAX], |columns| rows::erasing_tenant(columns))
}

pub(super) fn endpoint(
    db: &Connection,
    id: EndpointId,
    key: &MasterKey,
) -> Result<Option<Endpoint>> {
    let sql = concat!(
        "SELECT ",
        endpoint_columns!(),
        " FROM endpoints AS p \
         JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = ?1"
    );
    one(db, sql, [id.to_bytes()], |columns| rows::endpoint(columns, key))
}

/// One after the other, in one look-up: the file is near.
pub(super) fn settings_of(
    db: &Connection,
    endpoints: &[EndpointId],
) -> Result<Vec<(EndpointId, EndpointSettings)>> {
    let sql = "SELECT p.settings FROM endpoints AS p \
               JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = ?1";
    let mut found = Vec::with_capacity(endpoints.len());
    for id in endpoints {
        let settings =
            one(db, sql, [id.to_bytes()], |columns| columns.json("an endpoint's settings"))?;
        found.extend(settings.map(|settings| (*id, settings)));
    }
    Ok(found)
}

pub(super) fn endpoints(
    db: &Connection,
    tenant: Option<&TenantId>,
    page: &PageRequest,
    key: &MasterKey,
) -> Result<Listing<Endpoint>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Endpoints)?);
    let whose = if tenant.is_some() { "t.id = ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT {} FROM endpoints AS p JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing \
         WHERE {whose} AND p.id > ?1 AND p.removed_at IS NULL ORDER BY p.id LIMIT ?2",
        endpoint_columns!()
    );
    let values = (after.unwrap_or_default(), limit + 1, tenant.map(TenantId::as_str));
    let found = all(db, &sql, values, |columns| {
        let endpoint = rows::endpoint(columns, key)?;
        Ok((endpoint.id.to_bytes(), endpoint))
    });
    Ok(Listing::cut(found?, limit, ListKind::Endpoints))
}

pub(super) fn secrets(
    db: &Connection,
    endpoint: EndpointId,
    key: &MasterKey,
) -> Result<Vec<EndpointSecret>> {
    let sql = "SELECT s.id, s.sealed, s.created_at, s.expires_at FROM endpoints AS p \
               JOIN secrets AS s ON s.endpoint = p.num WHERE p.id = ?1 ORDER BY s.id";
    all(db, sql, [endpoint.to_bytes()], |columns| rows::secret(columns, endpoint, key))
}

pub(super) fn due_rotations(
    db: &Connection,
    now: Timestamp,
    after: Option<DueRotation>,
    limit: u32,
) -> Result<Vec<DueRotation>> {
    let sql = "SELECT id, rotate_at FROM endpoints \
               WHERE rotate_at <= ?1 AND (rotate_at, id) > (?2, ?3) ORDER BY rotate_at, id LIMIT ?4";
    let (at, id) = after.map_or((0, [0; 16]), |due| (millis(due.at), due.endpoint.to_bytes()));
    all(db, sql, (millis(now), at, id, limit), |columns| rows::due_rotation(columns))
}

pub(super) fn event_type(
    db: &Connection,
    tenant: &TenantId,
    name: &EventType,
) -> Result<Option<EventTypeRecord>> {
    let sql = "SELECT y.record FROM tenants AS t JOIN event_types AS y ON y.tenant = t.num \
               WHERE t.id = ?1 AND t.erasing = 0 AND y.name = ?2";
    one(db, sql, (tenant.as_str(), name.as_str()), |columns| columns.json("an event type"))
}

pub(super) fn event_types(
    db: &Connection,
    tenant: &TenantId,
    page: &PageRequest,
) -> Result<Listing<EventTypeRecord>> {
    let (limit, after) = (page.limit()?, page.position::<String>(ListKind::EventTypes)?);
    let sql = "SELECT y.name, y.record FROM tenants AS t JOIN event_types AS y ON y.tenant = t.num \
               WHERE t.id = ?1 AND t.erasing = 0 AND y.name > ?2 ORDER BY y.name LIMIT ?3";
    let values = (tenant.as_str(), after.unwrap_or_default(), limit + 1);
    let found =
        all(db, sql, values, |columns| Ok((columns.word()?, columns.json("an event type")?)));
    Ok(Listing::cut(found?, limit, ListKind::EventTypes))
}
