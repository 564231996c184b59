//! Replays in PostgreSQL.

use railpost_wire::{ReplayId, TenantId};

use super::errors::Translate;
use super::link::Values;
use super::node::Node;
use super::registry::ChangeTransaction;
use super::rows::{RowReader, all, one};
use railpost_store::backend::check::{self, RunningReplays, replay_put};
use railpost_store::backend::codes::millis;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{Columns, to_json};
use railpost_store::{Listing, PageRequest, Replay, Result};

impl ChangeTransaction<'_> {
    pub(super) async fn put_replay(&self, replay: &Replay) -> Result<()> {
        let tenant = self.tenant(&replay.tenant).await?;
        let id = replay.id.to_bytes();
        let sql = "SELECT count(*) FILTER (WHERE tenant = $2), count(*) FROM replays \
                   WHERE finished_at IS NULL AND NOT EXISTS (SELECT FROM replays WHERE id = $1)";
        let rows = self.transaction.query(sql, &[&id.as_slice(), &tenant]).await.translated()?;
        let others = one(&rows, running)?;
        check::replay_fits(others.unwrap_or_default(), replay)?;
        let sql = "INSERT INTO replays AS r (id, tenant, finished_at, record) \
                   VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE \
                   SET finished_at = excluded.finished_at, record = excluded.record \
                   WHERE r.tenant = excluded.tenant \
                   AND (r.finished_at IS NULL OR r.record = excluded.record)";
        let (finished_at, record) = (replay.finished_at.map(millis), to_json(replay));
        let values: Values<'_> = &[&id.as_slice(), &tenant, &finished_at, &record];
        replay_put(self.execute(sql, values).await?, replay)
    }
}

fn running(columns: &mut RowReader<'_>) -> Result<RunningReplays> {
    Ok(RunningReplays { of_tenant: columns.number("a count")?, of_all: columns.number("a count")? })
}

pub(super) async fn replay(node: &Node, id: ReplayId) -> Result<Option<Replay>> {
    let sql = "SELECT record FROM replays WHERE id = $1";
    let rows = node.reader().query(sql, &[&id.to_bytes().as_slice()]).await?;
    one(&rows, |columns| columns.json("a replay"))
}

pub(super) async fn replays(
    node: &Node,
    tenant: &TenantId,
    page: &PageRequest,
) -> Result<Listing<Replay>> {
    let (limit, after) = (page.limit()?, page.position::<[u8; 16]>(ListKind::Replays)?);
    let sql = "SELECT id, record FROM replays WHERE id < $2 \
               AND tenant = (SELECT num FROM tenants WHERE id = $1) ORDER BY id DESC LIMIT $3";
    let after = after.unwrap_or([u8::MAX; 16]);
    let values: Values<'_> = &[&tenant.as_str(), &after.as_slice(), &(limit as i64 + 1)];
    let found = all(&node.reader().query(sql, values).await?, |columns| {
        Ok((columns.array::<16>("an id")?, columns.json("a replay")?))
    });
    Ok(Listing::cut(found?, limit, ListKind::Replays))
}

pub(super) async fn running_replays(node: &Node) -> Result<Vec<Replay>> {
    let sql = "SELECT record FROM replays WHERE finished_at IS NULL ORDER BY id";
    all(&node.reader().query(sql, &[]).await?, |columns| columns.json("a replay"))
}
