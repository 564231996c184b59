//! Replays in SQLite.

use railpost_wire::{ReplayId, TenantId};
use rusqlite::Connection;

use super::rows::{RowReader, all, one};
use super::session::WriteSession;
use railpost_store::backend::check::{self, RunningReplays, replay_put};
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{Columns, to_json};
use railpost_store::{Listing, PageRequest, Replay, Result};

impl WriteSession<'_> {
    pub(super) fn put_replay(&self, replay: &Replay) -> Result<()> {
        let tenant = self.tenant_num(&replay.tenant)?;
        let id = replay.id.to_bytes();
        let sql = "SELECT count(*) FILTER (WHERE tenant = ?2), count(*) FROM replays \
                   WHERE finished_at IS NULL \
                   AND NOT EXISTS (SELECT 1 FROM replays WHERE id = ?1)";
        let others = one(self.db, sql, (id, tenant), running)?;
        check::replay_fits(others.unwrap_or_default(), replay)?;
        let sql = "INSERT INTO replays AS r (id, tenant, finished_at, record) \
                   VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO UPDATE \
                   SET finished_at = excluded.finished_at, record = excluded.record \
                   WHERE r.tenant = excluded.tenant \
                   AND (r.finished_at IS NULL OR r.record = excluded.record)";
        let values = (id, tenant, replay.finished_at.map(millis), to_json(replay));
        replay_put(self.execute(sql, values)?, replay)
    }
}

fn running(columns: &mut RowReader<'_, '_>) -> Result<RunningReplays> {
    Ok(RunningReplays { of_tenant: columns.number("a count")?, of_all: columns.number("a count")? })
}

pub(super) fn replay(db: &Connection, id: ReplayId) -> Result<Option<Replay>> {
    let sql = "SELECT record FROM replays WHERE id = ?1";
    one(db, sql, [id.to_bytes()], |columns| columns.json("a replay"))
}

pub(super) fn replays(
    db: &Connection,
    tenant: &TenantId,
    page: &PageRequest,
) -> Result<Listing<Replay>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Replays)?);
    let sql = "SELECT id, record FROM replays WHERE id < ?2 \
               AND tenant = (SELECT num FROM tenants WHERE id = ?1) ORDER BY id DESC LIMIT ?3";
    let values = (tenant.as_str(), after.unwrap_or([u8::MAX; 16]), limit + 1);
    let found = all(db, sql, values, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("a replay")?))
    });
    Ok(Listing::cut(found?, limit, ListKind::Replays))
}

pub(super) fn running_replays(db: &Connection) -> Result<Vec<Replay>> {
    let sql = "SELECT record FROM replays WHERE finished_at IS NULL ORDER BY id";
    all(db, sql, [], |columns| columns.json("a replay"))
}
