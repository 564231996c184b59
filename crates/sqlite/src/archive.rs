//! The read side of SQLite.

use railpost_engine::{DeliveryStage, LaneId};
use railpost_wire::{DeliveryId, EndpointId, EventId, TenantId};
use rusqlite::{Connection, Params};

use super::rows::{Scan, all, listing, one, open_deliveries};
use railpost_store::backend::brief_attempt;
use railpost_store::backend::delivery_ids::nth;
use railpost_store::backend::listing::ListKind;
use railpost_store::backend::rows::{
    self, Columns, attempt_columns, event_columns, event_head_columns, held_lane_columns,
    last_attempt_columns, open_count_columns, state_count_columns, view_columns, view_joins,
};
use railpost_store::limits::LIST_SCAN_MAX;
use railpost_store::{
    AttemptView, Counts, DeliveryFilter, DeliveryQuery, DeliveryView, EventDetails, EventHead,
    EventQuery, HeldLane, HeldLaneQuery, LastAttempt, Listing, PageRequest, Result, StoredEvent,
};

pub(super) fn event(
    db: &Connection,
    tenant: &TenantId,
    id: &EventId,
) -> Result<Option<StoredEvent>> {
    let sql = concat!(
        "SELECT e.accepted_at, ",
        event_columns!(),
        " FROM tenants AS t \
         JOIN events AS e ON e.tenant = t.num WHERE t.id = ?1 AND NOT t.erasing AND e.id = ?2"
    );
    one(db, sql, (tenant.as_str(), id.to_string()), |columns| {
        let accepted_at = columns.instant()?;
        Ok(StoredEvent { tenant: tenant.clone(), accepted_at, event: rows::event(columns)? })
    })
}

pub(super) fn events(db: &Connection, query: &EventQuery) -> Result<Listing<EventHead>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<i64>(ListKind::Events)?.unwrap_or(i64::MAX);
    let sql = concat!(
        "SELECT e.num, ",
        event_head_columns!(),
        " FROM events AS e INDEXED BY events_by_tenant \
         WHERE e.tenant = (SELECT num FROM tenants WHERE id = ?1 AND NOT erasing) \
         AND e.num < ?2 ORDER BY e.num DESC"
    );
    let scan = Scan {
        kind: ListKind::Events,
        limit,
        most: LIST_SCAN_MAX as usize,
        wants: &|head| query.wants(head),
    };
    listing(db, sql, (query.tenant.as_str(), after), &scan, |columns| {
        Ok((columns.number::<i64>("an event's number")?, rows::event_head(columns)?))
    })
}

pub(super) fn delivery(db: &Connection, id: DeliveryId) -> Result<Option<DeliveryView>> {
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id = ?1"
    );
    one(db, sql, [id.to_bytes()], |columns| rows::view(columns))
}

/// The numbers of a tenant's endpoints, or of the one that is asked for; with those removed, if `removed`.
fn endpoints(
    db: &Connection,
    tenant: &TenantId,
    endpoint: Option<EndpointId>,
    removed: bool,
) -> Result<Vec<i64>> {
    let which = if endpoint.is_some() { "p.id = ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT p.num FROM tenants AS t JOIN endpoints AS p ON p.tenant = t.num \
         WHERE t.id = ?1 AND NOT t.erasing AND (?2 OR p.removed_at IS NULL) AND {which}"
    );
    let values = (tenant.as_str(), removed, endpoint.map(EndpointId::to_bytes));
    all(db, &sql, values, |columns| columns.number("an endpoint's number"))
}

/// Each endpoint's deliveries are in order; the lists of several are merged, page by page.
pub(super) fn deliveries(db: &Connection, query: &DeliveryQuery) -> Result<Listing<DeliveryView>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::Deliveries)?;
    let (oldest, newest) = query.filter.created.delivery_ids();
    let after = after.map_or(newest, |after| after.min(newest));
    let dead = query.filter.stage == Some(DeliveryStage::Dead);
    let among = if dead { "deliveries_dead" } else { "deliveries_by_endpoint" };
    let standing = if dead { "AND d.standing IN (3, 4)" } else { "" };
    let sql = format!(
        "SELECT {} FROM deliveries AS d INDEXED BY {among} {} \
         WHERE d.endpoint = ?1 AND d.id < ?2 AND d.id >= ?3 {standing} ORDER BY d.id DESC",
        view_columns!(),
        view_joins!()
    );
    let mut pages = Vec::new();
    let endpoints = endpoints(db, &query.tenant, query.filter.endpoint, true)?;
    // However many endpoints there are, together they are looked at no longer than one.
    let most = (LIST_SCAN_MAX as usize / endpoints.len().max(1)).max(limit + 1);
    let scan =
        Scan { kind: ListKind::Deliveries, limit, most, wants: &|row: &WantedRow| row.wanted };
    for endpoint in endpoints {
        let page = listing(db, &sql, (endpoint, after, oldest), &scan, |columns| {
            let view = rows::view(columns)?;
            let wanted = wants(db, &query.filter, &view)?;
            Ok((view.delivery.id.to_bytes(), WantedRow { view, wanted }))
        })?;
        let items = page.items.into_iter().map(|row| row.view).collect();
        pages.push(Listing { items, next: page.next, looked_at: page.looked_at });
    }
    merge(pages, limit)
}

/// A row that a list looked at.
struct WantedRow {
    view: DeliveryView,
    wanted: bool,
}

/// The last attempt is looked up only where all else fits.
fn wants(db: &Connection, filter: &DeliveryFilter, view: &DeliveryView) -> Result<bool> {
    if !filter.wants(view) || !filter.needs_last_attempt() {
        return Ok(filter.wants(view));
    }
    let last = last_attempt(db, view.delivery.id)?;
    Ok(filter.wants_last_attempt(last.map(|last| last.result)))
}

/// One page out of one page per endpoint. Where an endpoint's page ended early, nothing older than
/// its end is shown yet.
fn merge(pages: Vec<Listing<DeliveryView>>, limit: usize) -> Result<Listing<DeliveryView>> {
    let mut ends = Vec::new();
    let mut all = Vec::new();
    let looked_at = pages.iter().map(|page| page.looked_at).sum();
    for page in pages {
        if let Some(next) = page.next {
            ends.push(next.position::<[u8; 16]>(ListKind::Deliveries)?);
        }
        all.extend(page.items.into_iter().map(|view| (view.delivery.id.to_bytes(), view)));
    }
    all.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
    let Some(end) = ends.into_iter().max() else {
        return Ok(Listing { looked_at, ..Listing::cut(all, limit, ListKind::Deliveries) });
    };
    all.retain(|(id, _)| *id >= end);
    if all.len() > limit {
        return Ok(Listing { looked_at, ..Listing::cut(all, limit, ListKind::Deliveries) });
    }
    let items = all.into_iter().map(|(_, view)| view).collect();
    Ok(Listing {
        items,
        next: Some(railpost_store::Cursor::at(ListKind::Deliveries, &end)),
        looked_at,
    })
}

/// Where the deliveries of an event are: those made with it from `first` up to `end`, its redeliveries by
/// its number.
struct EventDeliveries {
    num: i64,
    first: [u8; 16],
    end: [u8; 16],
}

fn event_deliveries(
    db: &Connection,
    tenant: &TenantId,
    event: &EventId,
) -> Result<Option<EventDeliveries>> {
    let sql = "SELECT e.num, e.first, e.fanout FROM tenants AS t JOIN events AS e \
               ON e.tenant = t.num WHERE t.id = ?1 AND NOT t.erasing AND e.id = ?2";
    one(db, sql, (tenant.as_str(), event.to_string()), |columns| {
        let num = columns.number("an event's number")?;
        let first = DeliveryId::from_bytes(columns.array("a delivery's id")?);
        let end = nth(first, columns.number("a number of deliveries")?);
        Ok(EventDeliveries { num, first: first.to_bytes(), end: end.to_bytes() })
    })
}

/// One event after the other, in one look-up: the file is near. Who brought an event stands behind its payload,
/// so it is read for the events of a page alone, and not for all that a list looks at.
pub(super) fn event_details(
    db: &Connection,
    tenant: &TenantId,
    events: Vec<EventId>,
) -> Result<Vec<(EventId, EventDetails)>> {
    let sql = concat!(
        "SELECT (SELECT accepted_by FROM events WHERE num = ?3), ",
        state_count_columns!(),
        " FROM (SELECT standing FROM deliveries WHERE id >= ?1 AND id < ?2 UNION ALL \
           SELECT standing FROM deliveries INDEXED BY deliveries_again \
           WHERE event = ?3 AND again = 1) AS d"
    );
    let mut found = Vec::with_capacity(events.len());
    for event in events {
        let Some(at) = event_deliveries(db, tenant, &event)? else { continue };
        let values = (at.first, at.end, at.num);
        let details = one(db, sql, values, |columns| rows::event_details(columns))?;
        found.push((event, details.unwrap_or_default()));
    }
    Ok(found)
}

pub(super) fn deliveries_of(
    db: &Connection,
    tenant: &TenantId,
    event: &EventId,
) -> Result<Vec<DeliveryView>> {
    let Some(EventDeliveries { num, first, end }) = event_deliveries(db, tenant, event)? else {
        return Ok(vec![]);
    };
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id >= ?1 AND d.id < ?2 ORDER BY d.id"
    );
    let mut views = all(db, sql, (first, end), |columns| rows::view(columns))?;
    let sql = concat!(
        "SELECT ",
        view_columns!(),
        " FROM deliveries AS d INDEXED BY deliveries_again ",
        view_joins!(),
        " WHERE d.event = ?1 AND d.again = 1 ORDER BY d.id"
    );
    views.extend(all(db, sql, [num], |columns| rows::view(columns))?);
    Ok(views)
}

pub(super) fn attempts(
    db: &Connection,
    delivery: DeliveryId,
    page: &PageRequest,
) -> Result<Listing<AttemptView>> {
    let (limit, after) = (page.limit()?, page.position::<i64>(ListKind::Attempts)?.unwrap_or(0));
    let sql = "SELECT brief FROM deliveries WHERE id = ?1 AND brief IS NOT NULL";
    let brief = one(db, sql, [delivery.to_bytes()], |columns| columns.bytes())?;
    if let Some(brief) = brief {
        let only = Some(brief_attempt::decode(&brief)?).filter(|_| after < 1);
        return Ok(Listing { items: only.into_iter().collect(), next: None, looked_at: 1 });
    }
    let sql = concat!(
        "SELECT ",
        attempt_columns!(),
        " FROM attempts \
         WHERE delivery = ?1 AND number > ?2 ORDER BY number LIMIT ?3"
    );
    let found = all(db, sql, (delivery.to_bytes(), after, limit + 1), |columns| {
        let view = rows::attempt(columns)?;
        Ok((i64::from(view.detail.number), view))
    });
    Ok(Listing::cut(found?, limit, ListKind::Attempts))
}

/// One after the other, in one look-up: the file is near.
pub(super) fn last_attempts(
    db: &Connection,
    deliveries: &[DeliveryId],
) -> Result<Vec<(DeliveryId, LastAttempt)>> {
    let mut found = Vec::with_capacity(deliveries.len());
    for id in deliveries {
        found.extend(last_attempt(db, *id)?.map(|last| (*id, last)));
    }
    Ok(found)
}

fn last_attempt(db: &Connection, delivery: DeliveryId) -> Result<Option<LastAttempt>> {
    let id = delivery.to_bytes();
    let sql = "SELECT brief FROM deliveries WHERE id = ?1 AND brief IS NOT NULL";
    if let Some(brief) = one(db, sql, [id], |columns| columns.bytes())? {
        return Ok(Some(brief_attempt::decode(&brief)?.into()));
    }
    let sql = concat!(
        "SELECT ",
        last_attempt_columns!(),
        " FROM attempts AS a WHERE a.delivery = ?1 ORDER BY a.number DESC LIMIT 1"
    );
    one(db, sql, [id], |columns| rows::last_attempt(columns))
}

pub(super) fn held_lanes(db: &Connection, query: &HeldLaneQuery) -> Result<Listing<HeldLane>> {
    let limit = query.page.limit()?;
    let after = query.page.position::<[u8; 16]>(ListKind::HeldLanes)?.unwrap_or_default();
    let sql = concat!(
        "SELECT ",
        held_lane_columns!("k.key"),
        " FROM deliveries AS d INDEXED BY deliveries_dead \
               JOIN events AS e ON e.num = d.event JOIN endpoints AS p ON p.num = d.endpoint \
               JOIN lanes AS l ON l.id = d.lane LEFT JOIN lane_keys AS k \
               ON k.endpoint = d.endpoint AND k.key = e.key AND k.lane = l.id \
               WHERE d.endpoint = ?1 AND d.id > ?2 AND d.standing IN (3, 4) AND d.standing = 3 \
               ORDER BY d.id LIMIT ?3"
    );
    let mut found = Vec::new();
    for endpoint in endpoints(db, &query.tenant, query.endpoint, false)? {
        let values = (endpoint, after, limit + 1);
        found.extend(all(db, sql, values, |columns| rows::held_lane(columns))?);
    }
    found.sort_unstable_by_key(|(id, _)| *id);
    found.truncate(limit + 1);
    Ok(Listing::cut(found, limit, ListKind::HeldLanes))
}

/// The lane's open deliveries are looked at in their order: the one that holds it comes first.
pub(super) fn held_lane(
    db: &Connection,
    tenant: &TenantId,
    lane: LaneId,
) -> Result<Option<HeldLane>> {
    let sql = concat!(
        "SELECT ",
        held_lane_columns!("k.key"),
        " FROM lanes AS l CROSS JOIN endpoints AS p ON p.num = l.endpoint \
         CROSS JOIN tenants AS t ON t.num = p.tenant \
         CROSS JOIN deliveries AS d INDEXED BY deliveries_open \
         ON d.endpoint = l.endpoint AND d.lane = l.id AND d.standing <= 3 \
         CROSS JOIN events AS e ON e.num = d.event LEFT JOIN lane_keys AS k \
         ON k.endpoint = d.endpoint AND k.key = e.key AND k.lane = l.id \
         WHERE l.id = ?2 AND t.id = ?1 AND NOT t.erasing AND p.removed_at IS NULL \
         AND d.standing = 3 ORDER BY d.seq LIMIT 1"
    );
    let Ok(lane) = i64::try_from(lane.0) else { return Ok(None) };
    one(db, sql, (tenant.as_str(), lane), |columns| Ok(rows::held_lane(columns)?.1))
}

pub(super) fn counts(db: &Connection, endpoint: EndpointId) -> Result<Counts> {
    count(db, "p.id = ?1", [endpoint.to_bytes()])
}

pub(super) fn totals(db: &Connection, tenant: Option<&TenantId>) -> Result<Counts> {
    match tenant {
        Some(id) => {
            let theirs = "p.tenant = (SELECT num FROM tenants WHERE id = ?1)";
            count(db, theirs, [id.as_str()])
        }
        None => count(db, "true", []),
    }
}

/// Counts the deliveries of those endpoints from the indexes of what is open and what is dead.
fn count(db: &Connection, whose: &str, values: impl Params) -> Result<Counts> {
    let sql = format!(
        "WITH whose AS (SELECT num FROM endpoints AS p WHERE {whose} AND p.removed_at IS NULL) \
         SELECT {}, \
         (SELECT count(*) FROM deliveries INDEXED BY deliveries_dead \
            WHERE endpoint IN (SELECT num FROM whose) AND standing IN (3, 4) AND standing = 4), \
         min(d.id), \
         (SELECT min(id) FROM deliveries INDEXED BY deliveries_dead \
            WHERE endpoint IN (SELECT num FROM whose) AND standing IN (3, 4)) \
         FROM {} AS d",
        open_count_columns!(),
        open_deliveries!()
    );
    Ok(one(db, &sql, values, |columns| rows::counts(columns))?.unwrap_or_default())
}
