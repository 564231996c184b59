//! Alerts and silences in PostgreSQL.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{AlertId, SilenceId, TenantId};

use super::PostgresStore;
use super::errors::Translate;
use super::link::Values;
use super::node::{HeldTransaction, Node};
use super::registry::write_audit;
use super::rows::{all, one};
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{Columns, to_json};
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{Alert, AlertQuery, Alerts, AuditEntry, Listing, Result, Silence, StoreError};

#[async_trait]
impl Alerts for PostgresStore {
    async fn open_alerts(&self) -> Result<Vec<Alert>> {
        let sql = "SELECT record FROM alerts WHERE NOT settled ORDER BY id";
        let rows = self.node.reader().query(sql, &[]).await?;
        all(&rows, |columns| columns.json("an alert"))
    }

    async fn save_alerts(&self, alerts: Vec<Alert>) -> Result<()> {
        check::alerts(&alerts)?;
        let saving = async |held: &HeldTransaction<'_>| save_alerts(held, &alerts).await;
        self.node.changes.run(saving).await
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>> {
        let sql = "SELECT record FROM alerts WHERE id = $1";
        let rows = self.node.reader().query(sql, &[&id.to_bytes().as_slice()]).await?;
        one(&rows, |columns| columns.json("an alert"))
    }

    async fn alerts(&self, query: AlertQuery) -> Result<Listing<Alert>> {
        alerts(&self.node, &query).await
    }

    async fn silences(&self) -> Result<Vec<Silence>> {
        let now = millis(self.node.setup.source.now());
        let sql = "SELECT record FROM silences WHERE until > $1 ORDER BY id";
        let rows = self.node.reader().query(sql, &[&now]).await?;
        all(&rows, |columns| columns.json("a silence"))
    }

    async fn save_silence(&self, silence: Silence, audit: AuditEntry) -> Result<()> {
        check::silence(&silence, &audit)?;
        let now = self.node.setup.source.now();
        let saving = async |held: &HeldTransaction<'_>| {
            check_silence(held, &silence, now).await?;
            put_silence(held, &silence).await?;
            write_audit(held, &audit).await?;
            Ok(())
        };
        self.node.changes.run(saving).await
    }

    async fn end_silence(
        &self,
        id: SilenceId,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Silence> {
        check::audit(&audit)?;
        let ending = async |held: &HeldTransaction<'_>| {
            let sql = "SELECT record FROM silences WHERE id = $1 AND until > $2 FOR UPDATE";
            let key = id.to_bytes();
            let values: Values<'_> = &[&key.as_slice(), &millis(at)];
            let rows = held.query(sql, values).await.translated()?;
            let found: Option<Silence> = one(&rows, |columns| columns.json("a silence"))?;
            let ended = Silence { until: at, ..found.ok_or_else(|| check::no_silence(id))? };
            put_silence(held, &ended).await?;
            write_audit(held, &audit).await?;
            Ok(ended)
        };
        self.node.changes.run(ending).await
    }
}

async fn save_alerts(held: &HeldTransaction<'_>, alerts: &[Alert]) -> Result<()> {
    let sql = "INSERT INTO alerts (id, tenant, rule, fired_at, resolved_at, settled, record) \
               SELECT $1, $2, $3, $4, $5, $6, $7 WHERE $2::text IS NULL \
               OR EXISTS (SELECT FROM tenants WHERE id = $2 AND NOT erasing) \
               ON CONFLICT (id) DO UPDATE SET resolved_at = excluded.resolved_at, \
               settled = excluded.settled, record = excluded.record";
    for alert in alerts {
        let id = alert.id.to_bytes();
        let values: Values<'_> = &[
            &id.as_slice(),
            &alert.tenant.as_ref().map(TenantId::as_str),
            &alert.rule,
            &millis(alert.fired_at),
            &alert.resolved_at.map(millis),
            &alert.is_settled(),
            &to_json(alert),
        ];
        held.execute(sql, values).await.translated()?;
    }
    Ok(())
}

async fn alerts(node: &Node, query: &AlertQuery) -> Result<Listing<Alert>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::Alerts)?.unwrap_or([u8::MAX; 16]);
    let (from, before) = query.overlapping.millis();
    let sql = "SELECT id, record FROM alerts WHERE id < $1 \
               AND ($2::text IS NULL OR tenant = $2 OR ($3 AND tenant IS NULL)) \
               AND ($4::text IS NULL OR rule = $4) \
               AND ($5::boolean IS NULL OR (resolved_at IS NULL) = $5) \
               AND fired_at < $6 AND (resolved_at IS NULL OR resolved_at >= $7) \
               ORDER BY id DESC LIMIT $8";
    let values: Values<'_> = &[
        &after.as_slice(),
        &query.tenant.as_ref().map(TenantId::as_str),
        &query.with_servers_own,
        &query.rule,
        &query.open,
        &before,
        &from,
        &(limit as i64 + 1),
    ];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an alert")?))
    })?;
    Ok(Listing::cut(found, limit, ListKind::Alerts))
}

/// Its tenant exists, and there is room for it.
async fn check_silence(
    held: &HeldTransaction<'_>,
    silence: &Silence,
    now: Timestamp,
) -> Result<()> {
    if let Some(tenant) = &silence.tenant {
        let sql = "SELECT FROM tenants WHERE id = $1 AND NOT erasing";
        if held.query(sql, &[&tenant.as_str()]).await.translated()?.is_empty() {
            return Err(StoreError::not_found("tenant", tenant));
        }
    }
    let sql = "SELECT count(*) FROM silences WHERE until > $1 AND id <> $2";
    let id = silence.id.to_bytes();
    let values: Values<'_> = &[&millis(now), &id.as_slice()];
    let others: i64 = held.query_one(sql, values).await.translated()?.get(0);
    check::silence_fits(others as usize)
}

async fn put_silence(held: &HeldTransaction<'_>, silence: &Silence) -> Result<()> {
    let sql = "INSERT INTO silences (id, tenant, until, record) VALUES ($1, $2, $3, $4) \
               ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, until = excluded.until, \
               record = excluded.record";
    let tenant = silence.tenant.as_ref().map(TenantId::as_str);
    let (id, until) = (silence.id.to_bytes(), millis(silence.until));
    let values: Values<'_> = &[&id.as_slice(), &tenant, &until, &to_json(silence)];
    held.execute(sql, values).await.translated()?;
    Ok(())
}

/// Deletes some settled alerts and silences that ended before `before`.
pub(super) async fn prune_alerts(held: &HeldTransaction<'_>, before: Timestamp) -> Result<u64> {
    let mut gone = 0;
    for sql in [
        "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts \
         WHERE settled AND resolved_at < $1 ORDER BY resolved_at LIMIT $2)",
        "DELETE FROM silences WHERE id IN (SELECT id FROM silences \
         WHERE until < $1 ORDER BY until LIMIT $2)",
    ] {
        let values: Values<'_> = &[&millis(before), &i64::from(UPKEEP_STEP_MAX)];
        gone += held.execute(sql, values).await.translated()?;
    }
    Ok(gone)
}
