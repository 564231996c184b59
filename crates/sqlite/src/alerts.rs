//! Alerts and silences in SQLite.

use async_trait::async_trait;
use railpost_engine::Timestamp;
use railpost_wire::{AlertId, SilenceId, TenantId};
use rusqlite::Connection;

use super::rows::{all, one};
use super::session::WriteSession;
use super::{SqliteStore, durable};
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{Columns, to_json};
use railpost_store::{Alert, AlertQuery, Alerts, AuditEntry, Listing, Result, Silence};

#[async_trait]
impl Alerts for SqliteStore {
    async fn open_alerts(&self) -> Result<Vec<Alert>> {
        self.readers.read(open_alerts).await
    }

    async fn save_alerts(&self, alerts: Vec<Alert>) -> Result<()> {
        check::alerts(&alerts)?;
        let save = move |session: &mut WriteSession<'_>| {
            alerts.iter().try_for_each(|alert| session.save_alert(alert))
        };
        self.writer.write(durable(1, 0), save).await
    }

    async fn alert(&self, id: AlertId) -> Result<Option<Alert>> {
        self.readers.read(move |db| alert(db, id)).await
    }

    async fn alerts(&self, query: AlertQuery) -> Result<Listing<Alert>> {
        self.readers.read(move |db| alerts(db, &query)).await
    }

    async fn silences(&self) -> Result<Vec<Silence>> {
        let now = self.setup.source.now();
        self.readers.read(move |db| silences(db, now)).await
    }

    async fn save_silence(&self, silence: Silence, audit: AuditEntry) -> Result<()> {
        check::silence(&silence, &audit)?;
        let save = move |session: &mut WriteSession<'_>| session.save_silence(&silence, &audit);
        self.writer.write(durable(1, 0), save).await
    }

    async fn end_silence(
        &self,
        id: SilenceId,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Silence> {
        check::audit(&audit)?;
        let end = move |session: &mut WriteSession<'_>| session.end_silence(id, at, &audit);
        self.writer.write(durable(1, 0), end).await
    }
}

impl WriteSession<'_> {
    fn save_alert(&self, alert: &Alert) -> Result<()> {
        let sql = "INSERT INTO alerts (id, tenant, rule, fired_at, resolved_at, settled, record) \
                   SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE ?2 IS NULL \
                   OR EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND NOT erasing) \
                   ON CONFLICT (id) DO UPDATE SET resolved_at = excluded.resolved_at, \
                   settled = excluded.settled, record = excluded.record";
        let values = (
            alert.id.to_bytes(),
            alert.tenant.as_ref().map(TenantId::as_str),
            &alert.rule,
            millis(alert.fired_at),
            alert.resolved_at.map(millis),
            alert.is_settled(),
            to_json(alert),
        );
        self.execute(sql, values)?;
        Ok(())
    }

    fn save_silence(&self, silence: &Silence, audit: &AuditEntry) -> Result<()> {
        silence.tenant.as_ref().map_or(Ok(0), |tenant| self.tenant_num(tenant))?;
        let others = silences(self.db, self.now())?;
        check::silence_fits(others.iter().filter(|other| other.id != silence.id).count())?;
        self.put_silence(silence)?;
        self.write_audit(audit)?;
        Ok(())
    }

    fn put_silence(&self, silence: &Silence) -> Result<()> {
        let sql = "INSERT INTO silences (id, tenant, until, record) VALUES (?1, ?2, ?3, ?4) \
                   ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, until = excluded.until, \
                   record = excluded.record";
        let tenant = silence.tenant.as_ref().map(TenantId::as_str);
        let values = (silence.id.to_bytes(), tenant, millis(silence.until), to_json(silence));
        self.execute(sql, values)?;
        Ok(())
    }

    fn end_silence(&self, id: SilenceId, at: Timestamp, audit: &AuditEntry) -> Result<Silence> {
        let sql = "SELECT record FROM silences WHERE id = ?1 AND until > ?2";
        let found: Option<Silence> =
            one(self.db, sql, (id.to_bytes(), millis(at)), |columns| columns.json("a silence"))?;
        let ended = Silence { until: at, ..found.ok_or_else(|| check::no_silence(id))? };
        self.put_silence(&ended)?;
        self.write_audit(audit)?;
        Ok(ended)
    }

    /// Deletes up to `limit` settled alerts and as many silences that ended before `before`.
    pub(super) fn prune_alerts(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let mut gone = 0;
        for sql in [
            "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts \
             WHERE settled AND resolved_at < ?1 ORDER BY resolved_at LIMIT ?2)",
            "DELETE FROM silences WHERE id IN (SELECT id FROM silences \
             WHERE until < ?1 ORDER BY until LIMIT ?2)",
        ] {
            gone += self.execute(sql, (millis(before), limit))?;
        }
        Ok(gone)
    }
}

fn open_alerts(db: &Connection) -> Result<Vec<Alert>> {
    let sql = "SELECT record FROM alerts WHERE NOT settled ORDER BY id";
    all(db, sql, [], |columns| columns.json("an alert"))
}

fn alert(db: &Connection, id: AlertId) -> Result<Option<Alert>> {
    let sql = "SELECT record FROM alerts WHERE id = ?1";
    one(db, sql, [id.to_bytes()], |columns| columns.json("an alert"))
}

fn alerts(db: &Connection, query: &AlertQuery) -> Result<Listing<Alert>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::Alerts)?.unwrap_or([u8::MAX; 16]);
    let (from, before) = query.overlapping.millis();
    let sql = "SELECT id, record FROM alerts WHERE id < ?1 \
               AND (?2 IS NULL OR tenant = ?2 OR (?3 AND tenant IS NULL)) \
               AND (?4 IS NULL OR rule = ?4) AND (?5 IS NULL OR (resolved_at IS NULL) = ?5) \
               AND fired_at < ?6 AND (resolved_at IS NULL OR resolved_at >= ?7) \
               ORDER BY id DESC LIMIT ?8";
    let tenant = query.tenant.as_ref().map(TenantId::as_str);
    let (servers_own, rule, open) = (query.with_servers_own, &query.rule, query.open);
    let values = (after, tenant, servers_own, rule, open, before, from, limit + 1);
    let found = all(db, sql, values, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("an alert")?))
    })?;
    Ok(Listing::cut(found, limit, ListKind::Alerts))
}

fn silences(db: &Connection, now: Timestamp) -> Result<Vec<Silence>> {
    let sql = "SELECT record FROM silences WHERE until > ?1 ORDER BY id";
    all(db, sql, [millis(now)], |columns| columns.json("a silence"))
}
