//! Tenants, endpoints, secrets and event types in PostgreSQL, and changes to them.

use railpost_engine::{EndpointStatus, Timestamp};
use railpost_wire::{ApiKeyId, EndpointId, EventType, TenantId};
use rustc_hash::FxHashMap;

use super::errors::Translate;
use super::link::Values;
use super::node::{HeldTransaction, Node};
use super::rows::{all, one};
use railpost_store::backend::check::{created, found, tenant_created};
use railpost_store::backend::codes::{endpoint_status_code, millis};
use railpost_store::backend::encryption::separate_unreadable;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{
    self, Columns, endpoint_columns, erasing_tenant_columns, tenant_columns, to_json,
};
use railpost_store::backend::{check, encryption};
use railpost_store::limits::{LIST_LIMIT_MAX, SECRETS_MAX};
use railpost_store::{
    ApiKey, AuditEntry, Change, DueRotation, Endpoint, EndpointPrivate, EndpointSecret,
    EndpointSettings, ErasingTenant, EventTypeRecord, IdempotencyRecord, Listing, NewEndpoint,
    NewSecret, PageRequest, Result, Setup, StoreError, Tenant, Write,
};

pub(super) async fn commit(node: &Node, change: &Change) -> Result<()> {
    let changed = node
        .changes
        .run(async |transaction| {
            let (setup, now) = (&node.setup, node.setup.source.now());
            let changed = ChangedTenants::default();
            ChangeTransaction { transaction, setup, now, changed }.commit(change).await
        })
        .await?;
    node.tenants.forget(&changed.tenants);
    node.tenants.forget_backlogs(&changed.backlogs);
    Ok(())
}

/// The tenants, by their numbers, of which something else is to be known from here on.
#[derive(Default)]
pub(super) struct ChangedTenants {
    /// Their endpoints or settings.
    tenants: Vec<i64>,
    /// How many open deliveries they have.
    backlogs: Vec<i64>,
}

/// Whether accepts of the tenant have to know of it: which endpoints there are, what they want, and how
/// much may be open.
fn concerns_accepts(write: &Write) -> bool {
    matches!(
        write,
        Write::UpdateTenant(..)
            | Write::EraseTenant(_)
            | Write::CreateEndpoint(_)
            | Write::UpdateEndpoint { .. }
            | Write::RemoveEndpoint(_)
    )
}

/// A transaction that makes a change.
pub(super) struct ChangeTransaction<'a> {
    pub(super) transaction: &'a HeldTransaction<'a>,
    setup: &'a Setup,
    now: Timestamp,
    changed: ChangedTenants,
}

impl ChangeTransaction<'_> {
    async fn commit(mut self, change: &Change) -> Result<ChangedTenants> {
        if change.writes.iter().any(concerns_accepts) {
            self.transaction.lock_registry().await?;
        } else {
            self.transaction.share_registry().await?;
        }
        if let Some(record) = &change.idempotency {
            remember(self.transaction, record, self.now).await?;
        }
        for write in &change.writes {
            self.write(write).await?;
        }
        if let Some(entry) = &change.audit {
            created(write_audit(self.transaction, entry).await?, "audit entry", entry.id)?;
        }
        Ok(self.changed)
    }

    /// Counts a change that accepts of the tenant have to know of.
    async fn tenant_changed(&mut self, num: i64) -> Result<()> {
        self.execute("UPDATE tenants SET changes = changes + 1 WHERE num = $1", &[&num]).await?;
        self.changed.tenants.push(num);
        Ok(())
    }

    pub(super) async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64> {
        self.transaction.execute(sql, values).await.translated()
    }

    async fn write(&mut self, write: &Write) -> Result<()> {
        let at = millis(self.now);
        match write {
            Write::CreateTenant(id, settings) => {
                let sql = "INSERT INTO tenants (id, settings, created_at, updated_at) \
                           VALUES ($1, $2, $3, $3) ON CONFLICT DO NOTHING";
                let added = self.execute(sql, &[&id.as_str(), &to_json(settings), &at]).await?;
                tenant_created(added, id, self.is_erasing(id).await?)
            }
            Write::UpdateTenant(id, settings) => {
                let sql = "UPDATE tenants SET settings = $2, updated_at = $3 \
                           WHERE id = $1 AND NOT erasing";
                let changed = self.execute(sql, &[&id.as_str(), &to_json(settings), &at]).await?;
                found(changed, "tenant", id)?;
                let num = self.tenant(id).await?;
                self.tenant_changed(num).await
            }
            Write::EraseTenant(id) => self.mark_erasing(id, at).await,
            Write::CreateEndpoint(new) => self.create_endpoint(new, at).await,
            Write::UpdateEndpoint { id, settings, private, revision } => {
                let stored = self.endpoint(*id).await?;
                check::revision(id, stored.revision, *revision)?;
                self.update_endpoint(*id, settings, private, at).await?;
                self.schedule_rotation(*id).await?;
                self.tenant_changed(stored.tenant).await
            }
            Write::SetEndpointStatus(id, status) => {
                let sql = "UPDATE endpoints SET status = $2, updated_at = $3, failing_since = \
                           CASE WHEN $4 THEN NULL ELSE failing_since END \
                           WHERE id = $1 AND removed_at IS NULL";
                let on = *status == EndpointStatus::Active;
                let (bytes, number) = (id.to_bytes(), endpoint_status_code(*status));
                let changed = self.execute(sql, &[&bytes.as_slice(), &number, &at, &on]).await?;
                found(changed, "endpoint", id)
            }
            Write::RemoveEndpoint(id) => self.remove_endpoint(*id, at).await,
            Write::CreateSecret(new) => self.create_secret(new, at).await,
            Write::ExpireSecret { endpoint, id, at: until } => {
                let sql = "UPDATE secrets SET expires_at = $3 WHERE id = $1 \
                           AND endpoint = (SELECT num FROM endpoints WHERE id = $2)";
                let (secret, of_endpoint) = (id.to_bytes(), endpoint.to_bytes());
                let values: Values<'_> =
                    &[&secret.as_slice(), &of_endpoint.as_slice(), &millis(*until)];
                found(self.execute(sql, values).await?, "secret", id)?;
                self.schedule_rotation(*endpoint).await
            }
            Write::RemoveSecret { endpoint, id } => {
                let sql = "DELETE FROM secrets WHERE id = $1 \
                           AND endpoint = (SELECT num FROM endpoints WHERE id = $2)";
                let (secret, of_endpoint) = (id.to_bytes(), endpoint.to_bytes());
                let values: Values<'_> = &[&secret.as_slice(), &of_endpoint.as_slice()];
                found(self.execute(sql, values).await?, "secret", id)?;
                self.schedule_rotation(*endpoint).await
            }
            Write::PutEventType(record) => self.put_event_type(record).await,
            Write::RemoveEventType(tenant, name) => {
                let sql = "DELETE FROM event_types WHERE name = $2 \
                           AND tenant = (SELECT num FROM tenants WHERE id = $1)";
                let gone = self.execute(sql, &[&tenant.as_str(), &name.as_str()]).await?;
                found(gone, "event type", name)
            }
            Write::CreateApiKey(key) => self.create_api_key(key).await,
            Write::RevokeApiKey(id, at) => {
                let all = self.api_keys_without_tenant().await?;
                let revoke = |key: &mut ApiKey| {
                    check::admin_key_remains(key, *at, &all)?;
                    key.revoked_at = key.revoked_at.or(Some(*at));
                    Ok(())
                };
                self.change_api_key(*id, revoke).await
            }
            Write::RenameApiKey(id, name) => {
                let rename = |key: &mut ApiKey| {
                    key.name.clone_from(name);
                    Ok(())
                };
                self.change_api_key(*id, rename).await
            }
            Write::TouchApiKey(id, at) => {
                let touch = |key: &mut ApiKey| {
                    key.last_used_at = key.last_used_at.max(Some(*at));
                    Ok(())
                };
                self.change_api_key(*id, touch).await
            }
            Write::PutReplay(replay) => self.put_replay(replay).await,
        }
    }

    pub(super) async fn tenant(&self, id: &TenantId) -> Result<i64> {
        let sql = "SELECT num FROM tenants WHERE id = $1 AND NOT erasing";
        let rows = self.transaction.query(sql, &[&id.as_str()]).await.translated()?;
        let num = one(&rows, |columns| columns.number("a tenant's number"))?;
        num.ok_or_else(|| StoreError::not_found("tenant", id))
    }

    async fn is_erasing(&self, id: &TenantId) -> Result<bool> {
        let sql = "SELECT FROM tenants WHERE id = $1 AND erasing";
        Ok(!self.transaction.query(sql, &[&id.as_str()]).await.translated()?.is_empty())
    }

    /// Hides a tenant and takes away what it could act with. The rest goes step by step.
    async fn mark_erasing(&mut self, id: &TenantId, at: i64) -> Result<()> {
        let num = self.tenant(id).await?;
        let sql = "UPDATE tenants SET erasing = true, settings = '{}', erasing_since = $2 \
                   WHERE num = $1";
        self.execute(sql, &[&num, &at]).await?;
        for sql in [
            "DELETE FROM secrets WHERE endpoint IN (SELECT num FROM endpoints WHERE tenant = $1)",
            "DELETE FROM api_keys WHERE tenant = $1",
            "DELETE FROM replays WHERE tenant = $1 AND finished_at IS NULL",
            "UPDATE endpoints SET removed_at = coalesce(removed_at, 0), private = '', \
             rotate_at = NULL WHERE tenant = $1",
        ] {
            self.execute(sql, &[&num]).await?;
        }
        self.tenant_changed(num).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<StoredEndpoint> {
        let sql = "SELECT num, tenant, revision FROM endpoints \
                   WHERE id = $1 AND removed_at IS NULL";
        let rows = self.transaction.query(sql, &[&id.to_bytes().as_slice()]).await.translated()?;
        let found = one(&rows, |columns| {
            Ok(StoredEndpoint {
                num: columns.number("an endpoint's number")?,
                tenant: columns.number("a tenant's number")?,
                revision: columns.number("a revision")?,
            })
        })?;
        found.ok_or_else(|| StoreError::not_found("endpoint", id))
    }

    async fn create_endpoint(&mut self, new: &NewEndpoint, at: i64) -> Result<()> {
        let tenant = self.tenant(&new.tenant).await?;
        let sealed = encryption::seal_endpoint(self.setup, new.id, &new.private);
        let sql = "INSERT INTO endpoints \
                   (id, tenant, settings, private, status, revision, created_at, updated_at) \
                   VALUES ($1, $2, $3, $4, $5, 1, $6, $6) ON CONFLICT DO NOTHING";
        let status = endpoint_status_code(EndpointStatus::Active);
        let (id, settings) = (new.id.to_bytes(), to_json(&new.settings));
        let values: Values<'_> = &[&id.as_slice(), &tenant, &settings, &sealed, &status, &at];
        created(self.execute(sql, values).await?, "endpoint", new.id)?;
        self.tenant_changed(tenant).await
    }

    async fn update_endpoint(
        &self,
        id: EndpointId,
        settings: &EndpointSettings,
        private: &EndpointPrivate,
        at: i64,
    ) -> Result<()> {
        let sealed = encryption::seal_endpoint(self.setup, id, private);
        let sql = "UPDATE endpoints SET settings = $2, private = $3, updated_at = $4, \
                   revision = revision + 1 WHERE id = $1 AND removed_at IS NULL";
        let (bytes, settings) = (id.to_bytes(), to_json(settings));
        let changed = self.execute(sql, &[&bytes.as_slice(), &settings, &sealed, &at]).await?;
        found(changed, "endpoint", id)
    }

    async fn remove_endpoint(&mut self, id: EndpointId, at: i64) -> Result<()> {
        let StoredEndpoint { num, tenant, .. } = self.endpoint(id).await?;
        self.execute("DELETE FROM secrets WHERE endpoint = $1", &[&num]).await?;
        let sql = "UPDATE endpoints SET removed_at = $2, updated_at = $2, private = '', \
                   rotate_at = NULL, to_close = true WHERE num = $1";
        self.execute(sql, &[&num, &at]).await?;
        self.changed.backlogs.push(tenant);
        self.tenant_changed(tenant).await
    }

    async fn create_secret(&self, new: &NewSecret, at: i64) -> Result<()> {
        let StoredEndpoint { num: endpoint, .. } = self.endpoint(new.endpoint).await?;
        let sealed = encryption::seal_secret(self.setup, new.id, &new.value);
        let sql = "INSERT INTO secrets (id, endpoint, sealed, created_at, expires_at) \
                   VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        let (id, expires_at) = (new.id.to_bytes(), new.expires_at.map(millis));
        let values: Values<'_> = &[&id.as_slice(), &endpoint, &sealed, &at, &expires_at];
        created(self.execute(sql, values).await?, "secret", new.id)?;
        let sql = "SELECT count(*) FROM secrets WHERE endpoint = $1";
        let count: i64 = self.transaction.query_one(sql, &[&endpoint]).await.translated()?.get(0);
        check::at_most("secrets (entries)", count as usize, SECRETS_MAX)?;
        self.schedule_rotation(new.endpoint).await
    }

    /// Writes when the newest secret of an endpoint is as old as it may become.
    async fn schedule_rotation(&self, id: EndpointId) -> Result<()> {
        let id = id.to_bytes();
        let sql = "SELECT settings FROM endpoints WHERE id = $1 AND removed_at IS NULL";
        let rows = self.transaction.query(sql, &[&id.as_slice()]).await.translated()?;
        let settings: Option<EndpointSettings> =
            one(&rows, |columns| columns.json("an endpoint's settings"))?;
        let age_max = settings.and_then(|settings| settings.secret_age_max());
        let age_max = age_max.map(|span| span.as_millis() as i64);
        let sql = "UPDATE endpoints SET rotate_at = (SELECT max(s.created_at) + $2 \
                   FROM secrets AS s WHERE s.endpoint = num AND s.expires_at IS NULL) \
                   WHERE id = $1";
        self.execute(sql, &[&id.as_slice(), &age_max]).await?;
        Ok(())
    }

    async fn put_event_type(&self, record: &EventTypeRecord) -> Result<()> {
        let tenant = self.tenant(&record.tenant).await?;
        let sql = "INSERT INTO event_types (tenant, name, record) VALUES ($1, $2, $3) \
                   ON CONFLICT (tenant, name) DO UPDATE SET record = excluded.record";
        self.execute(sql, &[&tenant, &record.name.as_str(), &to_json(record)]).await?;
        Ok(())
    }

    async fn create_api_key(&self, key: &ApiKey) -> Result<()> {
        let tenant = match &key.tenant {
            Some(tenant) => Some(self.tenant(tenant).await?),
            None => None,
        };
        let sql = "INSERT INTO api_keys (id, tenant, hash, record) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT DO NOTHING";
        let id = key.id.to_bytes();
        let values: Values<'_> = &[&id.as_slice(), &tenant, &key.hash.as_slice(), &to_json(key)];
        created(self.execute(sql, values).await?, "API key", key.id)
    }

    /// The API keys that are no tenant's: there are few. No other transaction changes them before this one is committed.
    async fn api_keys_without_tenant(&self) -> Result<Vec<ApiKey>> {
        let sql = "SELECT record FROM api_keys WHERE tenant IS NULL ORDER BY id FOR UPDATE";
        let rows = self.transaction.query(sql, &[]).await.translated()?;
        all(&rows, |columns| columns.json("an API key"))
    }

    async fn change_api_key(
        &self,
        id: ApiKeyId,
        change: impl FnOnce(&mut ApiKey) -> Result<()>,
    ) -> Result<()> {
        let bytes = id.to_bytes();
        let sql = "SELECT record FROM api_keys WHERE id = $1";
        let rows = self.transaction.query(sql, &[&bytes.as_slice()]).await.translated()?;
        let key: Option<ApiKey> = one(&rows, |columns| columns.json("an API key"))?;
        let mut key = key.ok_or_else(|| StoreError::not_found("API key", id))?;
        change(&mut key)?;
        let sql = "UPDATE api_keys SET record = $2 WHERE id = $1";
        self.execute(sql, &[&bytes.as_slice(), &to_json(&key)]).await?;
        Ok(())
    }
}

/// What a change needs to know of an endpoint.
struct StoredEndpoint {
    num: i64,
    tenant: i64,
    revision: u64,
}

/// Writes an entry unless it is on record, and says how many rows that are.
pub(super) async fn write_audit(
    transaction: &HeldTransaction<'_>,
    entry: &AuditEntry,
) -> Result<u64> {
    let sql = "INSERT INTO audit (id, at, tenant, target, record) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT DO NOTHING";
    let (id, at) = (entry.id.to_bytes(), millis(entry.at));
    let tenant = entry.tenant.as_ref().map(TenantId::as_str);
    let values: Values<'_> = &[&id.as_slice(), &at, &tenant, &entry.target, &to_json(entry)];
    transaction.execute(sql, values).await.translated()
}

/// Writes down what was answered, unless something else was.
pub(super) async fn remember(
    transaction: &HeldTransaction<'_>,
    record: &IdempotencyRecord,
    now: Timestamp,
) -> Result<()> {
    let IdempotencyRecord { key, fingerprint, response, tenant, expires_at } = record;
    let sql = "INSERT INTO idempotency AS i \
               (owner, route, key, fingerprint, status, body, tenant, expires_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (owner, route, key) DO UPDATE \
               SET fingerprint = excluded.fingerprint, status = excluded.status, \
               body = excluded.body, tenant = excluded.tenant, expires_at = excluded.expires_at \
               WHERE i.expires_at <= $9";
    let tenant = tenant.as_ref().map(TenantId::as_str);
    let (fingerprint, body) = (fingerprint.as_slice(), &response.body[..]);
    let values: Values<'_> = &[
        &key.owner,
        &key.route,
        &key.key,
        &fingerprint,
        &i32::from(response.status),
        &body,
        &tenant,
        &millis(*expires_at),
        &millis(now),
    ];
    match transaction.execute(sql, values).await.translated()? {
        0 => Err(StoreError::Repeated),
        _ => Ok(()),
    }
}

pub(super) async fn tenant(node: &Node, id: &TenantId) -> Result<Option<Tenant>> {
    let sql = concat!("SELECT ", tenant_columns!(), " FROM tenants WHERE id = $1 AND NOT erasing");
    one(&node.reader().query(sql, &[&id.as_str()]).await?, |columns| rows::tenant(columns))
}

pub(super) async fn tenants(node: &Node, page: &PageRequest) -> Result<Listing<Tenant>> {
    let (limit, after) = (page.limit()?, page.position::<String>(ListKind::Tenants)?);
    let sql = concat!(
        "SELECT ",
        tenant_columns!(),
        " FROM tenants \
         WHERE id > $1 AND NOT erasing ORDER BY id LIMIT $2"
    );
    let values: Values<'_> = &[&after.unwrap_or_default(), &(limit as i64 + 1)];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        let tenant = rows::tenant(columns)?;
        Ok((tenant.id.to_string(), tenant))
    });
    Ok(Listing::cut(found?, limit, ListKind::Tenants))
}

pub(super) async fn erasing_tenant(node: &Node, id: &TenantId) -> Result<Option<ErasingTenant>> {
    let sql =
        concat!("SELECT ", erasing_tenant_columns!(), " FROM tenants WHERE id = $1 AND erasing");
    let rows = node.reader().query(sql, &[&id.as_str()]).await?;
    one(&rows, |columns| rows::erasing_tenant(columns))
}

pub(super) async fn erasing_tenants(node: &Node) -> Result<Vec<ErasingTenant>> {
    let sql = concat!(
        "SELECT ",
        erasing_tenant_columns!(),
        " FROM tenants WHERE erasing ORDER BY coalesce(erasing_since, updated_at), num LIMIT $1"
    );
    let rows = node.reader().query(sql, &[&i64::from(LIST_LIMIT_MAX)]).await?;
    all(&rows, |columns| rows::erasing_tenant(columns))
}

pub(super) async fn endpoint(node: &Node, id: EndpointId) -> Result<Option<Endpoint>> {
    let sql = concat!(
        "SELECT ",
        endpoint_columns!(),
        " FROM endpoints AS p \
         JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = $1"
    );
    let rows = node.reader().query(sql, &[&id.to_bytes().as_slice()]).await?;
    one(&rows, |columns| rows::endpoint(columns, &node.setup.master_key))
}

pub(super) async fn settings_of(
    node: &Node,
    endpoints: &[EndpointId],
) -> Result<Vec<(EndpointId, EndpointSettings)>> {
    let sql = "SELECT p.id, p.settings FROM endpoints AS p \
               JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing WHERE p.id = ANY ($1)";
    let ids: Vec<Vec<u8>> = endpoints.iter().map(|id| id.to_bytes().to_vec()).collect();
    all(&node.reader().query(sql, &[&ids]).await?, |columns| {
        let id = EndpointId::from_bytes(columns.array("an endpoint's id")?);
        Ok((id, columns.json("an endpoint's settings")?))
    })
}

pub(super) async fn endpoints(
    node: &Node,
    tenant: Option<&TenantId>,
    page: &PageRequest,
) -> Result<Listing<Endpoint>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Endpoints)?);
    let sql = concat!(
        "SELECT ",
        endpoint_columns!(),
        " FROM endpoints AS p \
         JOIN tenants AS t ON t.num = p.tenant AND NOT t.erasing \
         WHERE ($3::text IS NULL OR t.id = $3) AND p.id > $1 AND p.removed_at IS NULL \
         ORDER BY p.id LIMIT $2"
    );
    let after = after.unwrap_or_default();
    let tenant = tenant.map(TenantId::as_str);
    let values: Values<'_> = &[&after.as_slice(), &(limit as i64 + 1), &tenant];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        let endpoint = rows::endpoint(columns, &node.setup.master_key)?;
        Ok((endpoint.id.to_bytes(), endpoint))
    });
    Ok(Listing::cut(found?, limit, ListKind::Endpoints))
}

pub(super) async fn secrets(node: &Node, endpoint: EndpointId) -> Result<Vec<EndpointSecret>> {
    let sql = "SELECT s.id, s.sealed, s.created_at, s.expires_at FROM endpoints AS p \
               JOIN secrets AS s ON s.endpoint = p.num WHERE p.id = $1 ORDER BY s.id";
    let rows = node.reader().query(sql, &[&endpoint.to_bytes().as_slice()]).await?;
    all(&rows, |columns| rows::secret(columns, endpoint, &node.setup.master_key))
}

/// In one round trip.
pub(super) async fn secrets_of(
    node: &Node,
    endpoints: &[EndpointId],
) -> Result<Vec<Result<Vec<EndpointSecret>>>> {
    let sql = "SELECT p.id, s.id, s.sealed, s.created_at, s.expires_at FROM endpoints AS p \
               JOIN secrets AS s ON s.endpoint = p.num WHERE p.id = ANY($1) ORDER BY s.id";
    let ids: Vec<Vec<u8>> = endpoints.iter().map(|id| id.to_bytes().to_vec()).collect();
    let rows = node.reader().query(sql, &[&ids]).await?;
    let mut found: FxHashMap<EndpointId, Result<Vec<EndpointSecret>>> = FxHashMap::default();
    all(&rows, |columns| {
        let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
        let secret = separate_unreadable(rows::secret(columns, endpoint, &node.setup.master_key))?;
        let secrets = found.entry(endpoint).or_insert_with(|| Ok(Vec::new()));
        match (secret, secrets) {
            (Ok(secret), Ok(secrets)) => secrets.push(secret),
            (Err(trouble), secrets) => *secrets = Err(trouble),
            (Ok(_), Err(_)) => {}
        }
        Ok(())
    })?;
    Ok(endpoints.iter().map(|id| found.remove(id).unwrap_or_else(|| Ok(Vec::new()))).collect())
}

pub(super) async fn due_rotations(
    node: &Node,
    now: Timestamp,
    after: Option<DueRotation>,
    limit: u32,
) -> Result<Vec<DueRotation>> {
    let sql = "SELECT id, rotate_at FROM endpoints \
               WHERE rotate_at <= $1 AND (rotate_at, id) > ($2, $3) ORDER BY rotate_at, id LIMIT $4";
    let (at, id) = after.map_or((0, [0; 16]), |due| (millis(due.at), due.endpoint.to_bytes()));
    let values: Values<'_> = &[&millis(now), &at, &id.as_slice(), &i64::from(limit)];
    all(&node.reader().query(sql, values).await?, |columns| rows::due_rotation(columns))
}

pub(super) async fn event_type(
    node: &Node,
    tenant: &TenantId,
    name: &EventType,
) -> Result<Option<EventTypeRecord>> {
    let sql = "SELECT y.record FROM tenants AS t JOIN event_types AS y ON y.tenant = t.num \
               WHERE t.id = $1 AND NOT t.erasing AND y.name = $2";
    let rows = node.reader().query(sql, &[&tenant.as_str(), &name.as_str()]).await?;
    one(&rows, |columns| columns.json("an event type"))
}

pub(super) async fn event_types(
    node: &Node,
    tenant: &TenantId,
    page: &PageRequest,
) -> Result<Listing<EventTypeRecord>> {
    let (limit, after) = (page.limit()?, page.position::<String>(ListKind::EventTypes)?);
    let sql = "SELECT y.name, y.record FROM tenants AS t JOIN event_types AS y ON y.tenant = t.num \
               WHERE t.id = $1 AND NOT t.erasing AND y.name > $2 ORDER BY y.name LIMIT $3";
    let values: Values<'_> = &[&tenant.as_str(), &after.unwrap_or_default(), &(limit as i64 + 1)];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        Ok((columns.word()?, columns.json("an event type")?))
    });
    Ok(Listing::cut(found?, limit, ListKind::EventTypes))
}
