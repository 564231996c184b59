//! The read side of PostgreSQL.

use std::collections::HashMap;

use railpost_engine::{DeliveryStage, LaneId};
use railpost_wire::{DeliveryId, EndpointId, EventId, TenantId};

use super::link::Values;
use super::node::Node;
use super::rows::{all, one, open_deliveries};
use crate::limits::LIST_SCAN_CHUNK;
use railpost_store::backend::brief_attempt;
use railpost_store::backend::listing::{ListKind, Position, scan};
use railpost_store::backend::rows::{
    self, Columns, attempt_columns, event_columns, event_head_columns, held_lane_columns,
    last_attempt_columns, open_count_columns, state_count_columns, view_columns, view_joins,
};
use railpost_store::limits::LIST_SCAN_MAX;
use railpost_store::{
    AttemptView, Counts, DeliveryFilter, DeliveryQuery, DeliveryView, EventDetails, EventHead,
    EventQuery, HeldLane, HeldLaneQuery, LastAttempt, Listing, PageRequest, Result, StoredEvent,
};

pub(super) async fn event(
    node: &Node,
    tenant: &TenantId,
    id: &EventId,
) -> Result<Option<StoredEvent>> {
    let sql = concat!(
        "SELECT e.accepted_at, ",
        event_columns!(),
        " FROM tenants AS t \
         JOIN events AS e ON e.tenant = t.num WHERE t.id = $1 AND NOT t.erasing AND e.id = $2"
    );
    let rows = node.reader().query(sql, &[&tenant.as_str(), &id.to_string()]).await?;
    one(&rows, |columns| {
        let accepted_at = columns.instant()?;
        Ok(StoredEvent { tenant: tenant.clone(), accepted_at, event: rows::event(columns)? })
    })
}

/// A list that is read chunk by chunk until there are enough wanted rows, or enough was looked at.
struct ChunkedScan<P, T> {
    limit: usize,
    /// How many rows to read at once.
    chunk: usize,
    /// Where the next chunk starts; nothing when there is none.
    after: Option<P>,
    rows: Vec<(P, T)>,
    wanted: usize,
}

impl<P: Position + Clone, T> ChunkedScan<P, T> {
    /// If all rows are wanted, one chunk is enough.
    fn new(limit: usize, first: P, all_wanted: bool) -> Self {
        let chunk = if all_wanted { limit + 1 } else { LIST_SCAN_CHUNK as usize };
        Self { limit, chunk, after: Some(first), rows: Vec::new(), wanted: 0 }
    }

    /// Where to read on, if that is needed.
    fn next(&self) -> Option<P> {
        let enough = self.wanted > self.limit || self.rows.len() >= LIST_SCAN_MAX as usize;
        self.after.clone().filter(|_| !enough)
    }

    fn add(&mut self, chunk: Vec<(P, T)>, wants: impl Fn(&T) -> bool) {
        let last = chunk.len() < self.chunk;
        self.wanted += chunk.iter().filter(|(_, item)| wants(item)).count();
        self.after = chunk.last().filter(|_| !last).map(|(position, _)| position.clone());
        self.rows.extend(chunk);
    }

    fn page(self, kind: ListKind, wants: impl Fn(&T) -> bool) -> Result<Listing<T>> {
        let (looked_at, most) = (self.rows.len() as u64, LIST_SCAN_MAX as usize);
        let page = scan(self.rows.into_iter().map(Ok), (self.limit, most), kind, wants)?;
        Ok(Listing { looked_at, ..page })
    }
}

pub(super) async fn events(node: &Node, query: &EventQuery) -> Result<Listing<EventHead>> {
    let limit = query.page.limit()?;
    let first = query.page.position::<i64>(ListKind::Events)?.unwrap_or(i64::MAX);
    let sql = concat!(
        "SELECT e.num, ",
        event_head_columns!(),
        " FROM events AS e \
         WHERE e.tenant = (SELECT num FROM tenants WHERE id = $1 AND NOT erasing) \
         AND e.num < $2 ORDER BY e.num DESC LIMIT $3"
    );
    let mut scan = ChunkedScan::new(limit, first, query.wants_all());
    while let Some(after) = scan.next() {
        let most = scan.chunk as i64;
        let rows = node.reader().query(sql, &[&query.tenant.as_str(), &after, &most]).await?;
        let chunk = all(&rows, |columns| {
            Ok((columns.number::<i64>("an event's number")?, rows::event_head(columns)?))
        })?;
        scan.add(chunk, |head| query.wants(head));
    }
    scan.page(ListKind::Events, |head| query.wants(head))
}

pub(super) async fn delivery(node: &Node, id: DeliveryId) -> Result<Option<DeliveryView>> {
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id = $1"
    );
    let rows = node.reader().query(sql, &[&id.to_bytes().as_slice()]).await?;
    one(&rows, |columns| rows::view(columns))
}

/// Each endpoint's deliveries are in order; the database merges them.
macro_rules! deliveries_sql {
    ($standing:literal) => {
        concat!(
            "SELECT ", view_columns!(), " FROM (SELECT d.* FROM endpoints AS q CROSS JOIN LATERAL ( \
               SELECT * FROM deliveries AS d WHERE d.endpoint = q.num AND d.id < $3 AND d.id >= $4 ",
            $standing, " ORDER BY d.id DESC LIMIT $5) AS d \
             WHERE q.tenant = (SELECT num FROM tenants WHERE id = $1 AND NOT erasing) \
             AND ($2::bytea IS NULL OR q.id = $2) \
             ORDER BY d.id DESC LIMIT $5) AS d ",
            view_joins!(), " ORDER BY d.id DESC"
        )
    };
}

pub(super) async fn deliveries(
    node: &Node,
    query: &DeliveryQuery,
) -> Result<Listing<DeliveryView>> {
    let limit = query.page.limit()?;
    let (oldest, newest) = query.filter.created.delivery_ids();
    let first = query.page.position::<[u8; 16]>(ListKind::Deliveries)?;
    let first = first.map_or(newest, |after| after.min(newest));
    let sql = match query.filter.stage {
        Some(DeliveryStage::Dead) => deliveries_sql!("AND d.standing IN (3, 4)"),
        _ => deliveries_sql!(""),
    };
    let endpoint = query.filter.endpoint.map(|endpoint| endpoint.to_bytes().to_vec());
    let (mut scan, tenant) =
        (ChunkedScan::new(limit, first, query.filter.wants_all()), query.tenant.as_str());
    let wants = |row: &WantedRow| row.wanted;
    while let Some(after) = scan.next() {
        let most = scan.chunk as i64;
        let values: Values<'_> =
            &[&tenant, &endpoint, &after.as_slice(), &oldest.as_slice(), &most];
        let mut chunk = all(&node.reader().query(sql, values).await?, |columns| {
            let view = rows::view(columns)?;
            let wanted = query.filter.wants(&view);
            Ok((view.delivery.id.to_bytes(), WantedRow { view, wanted }))
        })?;
        if query.filter.needs_last_attempt() {
            judge_last_attempts(node, &query.filter, &mut chunk).await?;
        }
        scan.add(chunk, wants);
    }
    let page = scan.page(ListKind::Deliveries, wants)?;
    let items = page.items.into_iter().map(|row| row.view).collect();
    Ok(Listing { items, next: page.next, looked_at: page.looked_at })
}

/// A row that a list looked at.
struct WantedRow {
    view: DeliveryView,
    wanted: bool,
}

/// Looks the last attempts up where all else fits, and wants no row whose last attempt does not.
async fn judge_last_attempts(
    node: &Node,
    filter: &DeliveryFilter,
    chunk: &mut [([u8; 16], WantedRow)],
) -> Result<()> {
    let wanted = chunk.iter().filter(|(_, row)| row.wanted);
    let ids: Vec<DeliveryId> = wanted.map(|(_, row)| row.view.delivery.id).collect();
    let last: HashMap<DeliveryId, LastAttempt> =
        last_attempts(node, &ids).await?.into_iter().collect();
    for (_, row) in chunk.iter_mut().filter(|(_, row)| row.wanted) {
        let result = last.get(&row.view.delivery.id).map(|last| last.result);
        row.wanted = filter.wants_last_attempt(result);
    }
    Ok(())
}

/// The deliveries of an event are counted by its own index entries, one event after the other.
pub(super) async fn event_details(
    node: &Node,
    tenant: &TenantId,
    events: &[EventId],
) -> Result<Vec<(EventId, EventDetails)>> {
    let sql = concat!(
        "SELECT e.id, e.accepted_by, c.* FROM tenants AS t JOIN events AS e ON e.tenant = t.num AND e.id = ANY ($2) \
         CROSS JOIN LATERAL (SELECT ",
        state_count_columns!(),
        " FROM (SELECT standing FROM deliveries WHERE id BETWEEN e.first AND e.last UNION ALL \
             SELECT standing FROM deliveries WHERE event = e.num AND again) AS d) AS c \
         WHERE t.id = $1 AND NOT t.erasing"
    );
    let ids: Vec<String> = events.iter().map(EventId::to_string).collect();
    all(&node.reader().query(sql, &[&tenant.as_str(), &ids]).await?, |columns| {
        Ok((columns.parsed("an event's id")?, rows::event_details(columns)?))
    })
}

pub(super) async fn deliveries_of(
    node: &Node,
    tenant: &TenantId,
    event: &EventId,
) -> Result<Vec<DeliveryView>> {
    let sql = concat!(
        "WITH wanted AS (SELECT e.num, e.first, e.last FROM tenants AS t JOIN events AS e \
           ON e.tenant = t.num WHERE t.id = $1 AND NOT t.erasing AND e.id = $2), \
         theirs AS ( \
           SELECT d.* FROM wanted AS w JOIN deliveries AS d ON d.id BETWEEN w.first AND w.last \
           UNION ALL \
           SELECT d.* FROM wanted AS w JOIN deliveries AS d ON d.event = w.num AND d.again) \
         SELECT ",
        view_columns!(),
        " FROM theirs AS d ",
        view_joins!(),
        " ORDER BY d.again, d.id"
    );
    let rows = node.reader().query(sql, &[&tenant.as_str(), &event.to_string()]).await?;
    all(&rows, |columns| rows::view(columns))
}

pub(super) async fn attempts(
    node: &Node,
    delivery: DeliveryId,
    page: &PageRequest,
) -> Result<Listing<AttemptView>> {
    let (limit, after) = (page.limit()?, page.position::<i64>(ListKind::Attempts)?.unwrap_or(0));
    let id = delivery.to_bytes();
    let sql = "SELECT brief FROM deliveries WHERE id = $1 AND brief IS NOT NULL";
    let rows = node.reader().query(sql, &[&id.as_slice()]).await?;
    if let Some(brief) = one(&rows, |columns| columns.bytes())? {
        let only = Some(brief_attempt::decode(&brief)?).filter(|_| after < 1);
        return Ok(Listing { items: only.into_iter().collect(), next: None, looked_at: 1 });
    }
    let sql = concat!(
        "SELECT ",
        attempt_columns!(),
        " FROM attempts \
         WHERE delivery = $1 AND number > $2 ORDER BY number LIMIT $3"
    );
    let rows = node.reader().query(sql, &[&id.as_slice(), &after, &(limit as i64 + 1)]).await?;
    let found = all(&rows, |columns| {
        let view = rows::attempt(columns)?;
        Ok((i64::from(view.detail.number), view))
    });
    Ok(Listing::cut(found?, limit, ListKind::Attempts))
}

pub(super) async fn last_attempts(
    node: &Node,
    deliveries: &[DeliveryId],
) -> Result<Vec<(DeliveryId, LastAttempt)>> {
    let sql = concat!(
        "SELECT d.id, d.brief, ",
        last_attempt_columns!(),
        " FROM unnest($1::bytea[]) AS w (id) JOIN deliveries AS d ON d.id = w.id \
         LEFT JOIN LATERAL (SELECT * FROM attempts AS a WHERE a.delivery = d.id \
           ORDER BY a.number DESC LIMIT 1) AS a ON d.brief IS NULL \
         WHERE d.brief IS NOT NULL OR a.number IS NOT NULL"
    );
    let ids: Vec<Vec<u8>> = deliveries.iter().map(|id| id.to_bytes().to_vec()).collect();
    all(&node.reader().query(sql, &[&ids]).await?, |columns| {
        let id = DeliveryId::from_bytes(columns.array("a delivery's id")?);
        let last = match columns.blob()? {
            Some(brief) => brief_attempt::decode(&brief)?.into(),
            None => rows::last_attempt(columns)?,
        };
        Ok((id, last))
    })
}

pub(super) async fn held_lanes(node: &Node, query: &HeldLaneQuery) -> Result<Listing<HeldLane>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::HeldLanes)?.unwrap_or_default();
    let sql = concat!(
        "SELECT ",
        held_lane_columns!("nullif(l.key, ''::bytea)"),
        " FROM tenants AS t \
         JOIN endpoints AS p ON p.tenant = t.num \
         JOIN deliveries AS d ON d.endpoint = p.num AND d.standing IN (3, 4) \
         JOIN lanes AS l ON l.id = d.lane \
         WHERE t.id = $1 AND NOT t.erasing AND p.removed_at IS NULL \
         AND ($2::bytea IS NULL OR p.id = $2) AND d.standing = 3 AND d.id > $3 \
         ORDER BY d.id LIMIT $4"
    );
    let endpoint = query.endpoint.map(|endpoint| endpoint.to_bytes().to_vec());
    let most = limit as i64 + 1;
    let values: Values<'_> = &[&query.tenant.as_str(), &endpoint, &after.as_slice(), &most];
    let found = all(&node.reader().query(sql, values).await?, |columns| rows::held_lane(columns));
    Ok(Listing::cut(found?, limit, ListKind::HeldLanes))
}

/// The lane's open deliveries are looked at in their order: the one that holds it comes first.
pub(super) async fn held_lane(
    node: &Node,
    tenant: &TenantId,
    lane: LaneId,
) -> Result<Option<HeldLane>> {
    let sql = concat!(
        "SELECT ",
        held_lane_columns!("nullif(l.key, ''::bytea)"),
        " FROM lanes AS l JOIN endpoints AS p ON p.num = l.endpoint \
         JOIN tenants AS t ON t.num = p.tenant \
         CROSS JOIN LATERAL (SELECT * FROM deliveries AS d WHERE d.endpoint = l.endpoint \
           AND d.lane = l.id AND d.standing <= 3 AND d.lane IS NOT NULL AND d.standing = 3 \
           ORDER BY d.seq LIMIT 1) AS d \
         WHERE l.id = $2 AND t.id = $1 AND NOT t.erasing AND p.removed_at IS NULL"
    );
    let Ok(lane) = i64::try_from(lane.0) else { return Ok(None) };
    let rows = node.reader().query(sql, &[&tenant.as_str(), &lane]).await?;
    one(&rows, |columns| Ok(rows::held_lane(columns)?.1))
}

/// Counts the deliveries of some endpoints, by the indexes of what is open and of what is dead alone.
/// The lowest id is looked for as text, because not every version of the database knows a minimum of
/// bytes.
macro_rules! counts_sql {
    ($whose:literal) => {
        concat!(
            "WITH whose AS MATERIALIZED ( \
               SELECT p.num FROM endpoints AS p WHERE p.removed_at IS NULL AND ", $whose, ") \
             SELECT ", open_count_columns!(), ", \
               (SELECT count(*) FROM deliveries WHERE endpoint = ANY (ARRAY(SELECT num FROM whose)) \
                AND standing IN (3, 4) AND standing = 4), \
               decode(min(encode(d.id, 'hex') COLLATE \"C\"), 'hex'), \
               (SELECT decode(min(encode(id, 'hex') COLLATE \"C\"), 'hex') FROM deliveries \
                WHERE endpoint = ANY (ARRAY(SELECT num FROM whose)) AND standing IN (3, 4)) \
             FROM ", open_deliveries!(), " AS d"
        )
    };
}

pub(super) async fn counts(node: &Node, endpoint: EndpointId) -> Result<Counts> {
    count(node, counts_sql!("p.id = $1"), &[&endpoint.to_bytes().as_slice()]).await
}

pub(super) async fn totals(node: &Node, tenant: Option<&TenantId>) -> Result<Counts> {
    match tenant {
        Some(id) => {
            let sql = counts_sql!("p.tenant = (SELECT num FROM tenants WHERE id = $1)");
            count(node, sql, &[&id.as_str()]).await
        }
        None => count(node, counts_sql!("true"), &[]).await,
    }
}

async fn count(node: &Node, sql: &'static str, values: Values<'_>) -> Result<Counts> {
    let rows = node.reader().query(sql, values).await?;
    Ok(one(&rows, |columns| rows::counts(columns))?.unwrap_or_default())
}
