//! Searching in SQLite, by indexes that are there for other reasons. Where there is none, so much is looked
//! through and no more.

use railpost_engine::LaneId;
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::rows::{RowReader, all};
use railpost_store::backend::needle::{Needle, endpoint_field};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::{
    FIND_CLOUDEVENT_PAYLOAD_MAX, FIND_RESULTS_MAX, FIND_ROWS_SCANNED, FIND_TENANTS_MAX,
};
use railpost_store::{FindQuery, Found, FoundItem, MatchedField, Replay, Result};

pub(super) fn find(db: &Connection, query: &FindQuery) -> Result<Vec<Found>> {
    let needle = Needle::new(query)?;
    let search = Search { db, needle: &needle, tenants: tenants(db, query)? };
    let mut found = search.events_by_id()?;
    found.extend(search.late_events()?);
    found.extend(search.deliveries()?);
    found.extend(search.endpoints_by_id()?);
    found.extend(search.endpoints_by_text()?);
    found.extend(search.lanes()?);
    found.extend(search.replays()?);
    found.extend(search.matching_tenants()?);
    Ok(needle.answer(found))
}

/// The numbers of the tenants in which to look.
fn tenants(db: &Connection, query: &FindQuery) -> Result<Vec<i64>> {
    let which = if query.tenant.is_some() { "id = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT num FROM tenants WHERE {which} AND NOT erasing ORDER BY id LIMIT {FIND_TENANTS_MAX}"
    );
    let tenant = query.tenant.as_ref().map(TenantId::as_str);
    all(db, &sql, [tenant], |columns| columns.number("a tenant's number"))
}

struct Search<'s> {
    db: &'s Connection,
    needle: &'s Needle,
    tenants: Vec<i64>,
}

impl Search<'_> {
    /// What a statement finds in each tenant. Its first value is the tenant, and it ends with a limit.
    fn in_tenants(
        &self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&mut RowReader<'_, '_>) -> Result<Found>,
    ) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for tenant in &self.tenants {
            let tenant = [Value::from(*tenant)];
            let values = params_from_iter(tenant.iter().chain(values));
            found.extend(all(self.db, sql, values, &read)?);
            if found.len() >= FIND_RESULTS_MAX {
                break;
            }
        }
        Ok(found)
    }

    fn events_by_id(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.text_ids() else { return Ok(vec![]) };
        let sql = format!(
            "SELECT t.id, e.id, e.type, e.key FROM events AS e INDEXED BY events_by_id \
             CROSS JOIN tenants AS t ON t.num = e.tenant \
             WHERE e.tenant = ?1 AND e.id >= ?2 AND e.id <= ?3 ORDER BY e.id LIMIT {FIND_RESULTS_MAX}"
        );
        self.in_tenants(&sql, &[from.into(), to.into()], |columns| event(columns, MatchedField::Id))
    }

    /// Keys and CloudEvents' ids of events have no index: the latest events are looked through.
    fn late_events(&self) -> Result<Vec<Found>> {
        let Some(latest) = self.latest_events() else { return Ok(vec![]) };
        let tenants = "JOIN tenants AS t ON t.num = e.tenant AND NOT t.erasing";
        let by_key = format!(
            "SELECT t.id, e.id, e.type, e.key FROM ({latest}) AS e {tenants} \
             WHERE e.key >= ?1 AND e.key <= ?2 LIMIT {FIND_RESULTS_MAX}"
        );
        let mut found = Vec::new();
        for (from, to) in self.key_ranges() {
            let events = all(self.db, &by_key, (from, to), |c| event(c, MatchedField::Key))?;
            found.extend(events);
        }
        // A column behind a payload is read through the payload, so large ones are left out.
        let by_cloudevent = format!(
            "SELECT t.id, e.id, e.type, e.key FROM ({latest}) AS e {tenants} \
             WHERE e.len <= {FIND_CLOUDEVENT_PAYLOAD_MAX} \
             AND (SELECT json_extract(o.cloudevent, '$.id') FROM events AS o WHERE o.num = e.num) = ?1 \
             LIMIT {FIND_RESULTS_MAX}"
        );
        if let Some(id) = self.needle.cloudevent_id() {
            let read = |c: &mut RowReader<'_, '_>| event(c, MatchedField::CloudeventId);
            found.extend(all(self.db, &by_cloudevent, [id], read)?);
        }
        Ok(found)
    }

    /// The latest events of the tenant, or of all if there are several.
    fn latest_events(&self) -> Option<String> {
        let columns = "num, tenant, id, type, key, length(payload) AS len";
        let whose = match self.tenants[..] {
            [] => return None,
            [tenant] => format!("INDEXED BY events_by_tenant WHERE tenant = {tenant}"),
            _ => String::new(),
        };
        let order = format!("ORDER BY num DESC LIMIT {FIND_ROWS_SCANNED}");
        Some(format!("SELECT {columns} FROM events {whose} {order}"))
    }

    /// The key that is just these words, and then those that begin so.
    fn key_ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (from, to) = self.needle.key();
        let exact = (from.to_vec(), to.to_vec());
        [Some(exact), self.needle.keys()].into_iter().flatten().collect()
    }

    fn deliveries(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.deliveries() else { return Ok(vec![]) };
        let sql = format!(
            "SELECT t.id, d.id, e.id, e.type, p.id FROM endpoints AS p \
             CROSS JOIN deliveries AS d INDEXED BY deliveries_by_endpoint \
             ON d.endpoint = p.num AND d.id >= ?2 AND d.id <= ?3 \
             CROSS JOIN events AS e ON e.num = d.event CROSS JOIN tenants AS t ON t.num = p.tenant \
             WHERE p.tenant = ?1 LIMIT {FIND_RESULTS_MAX}"
        );
        self.in_tenants(&sql, &[from.to_vec().into(), to.to_vec().into()], |columns| {
            let tenant = columns.parsed("a tenant's id")?;
            let item = FoundItem::Delivery {
                id: DeliveryId::from_bytes(columns.array("a delivery's id")?),
                event: columns.parsed("an event's id")?,
                event_type: columns.parsed("an event's type")?,
                endpoint: EndpointId::from_bytes(columns.array("an endpoint's id")?),
            };
            Ok(Found { tenant, why: MatchedField::Id, item })
        })
    }

    fn endpoints_by_id(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.endpoints() else { return Ok(vec![]) };
        let sql = format!(
            "SELECT t.id, p.id, json_extract(p.settings, '$.url'), \
               json_extract(p.settings, '$.description') \
             FROM endpoints AS p JOIN tenants AS t ON t.num = p.tenant \
             WHERE p.tenant = ?1 AND p.id >= ?2 AND p.id <= ?3 ORDER BY p.id LIMIT {FIND_RESULTS_MAX}"
        );
        self.in_tenants(&sql, &[from.to_vec().into(), to.to_vec().into()], |columns| {
            endpoint(columns, |_| MatchedField::Id)
        })
    }

    fn endpoints_by_text(&self) -> Result<Vec<Found>> {
        let Some(part) = self.needle.part() else { return Ok(vec![]) };
        let sql = format!(
            "SELECT t.id, p.id, p.url, p.description FROM ( \
               SELECT id, tenant, json_extract(settings, '$.url') AS url, \
                 json_extract(settings, '$.description') AS description FROM endpoints \
               WHERE tenant = ?1 AND removed_at IS NULL LIMIT {FIND_ROWS_SCANNED}) AS p \
             JOIN tenants AS t ON t.num = p.tenant \
             WHERE instr(lower(p.url), ?2) OR instr(lower(p.description), ?2) LIMIT {FIND_RESULTS_MAX}"
        );
        self.in_tenants(&sql, &[part.into()], |columns| {
            endpoint(columns, |url| endpoint_field(self.needle, url))
        })
    }

    fn lanes(&self) -> Result<Vec<Found>> {
        let sql = format!(
            "SELECT t.id, k.lane, p.id, k.key FROM endpoints AS p \
             CROSS JOIN lane_keys AS k ON k.endpoint = p.num AND k.key >= ?2 AND k.key <= ?3 \
             CROSS JOIN tenants AS t ON t.num = p.tenant \
             WHERE p.tenant = ?1 AND k.key <> x'' LIMIT {FIND_RESULTS_MAX}"
        );
        let mut found = Vec::new();
        for (from, to) in self.key_ranges() {
            found.extend(self.in_tenants(&sql, &[from.into(), to.into()], lane)?);
        }
        Ok(found)
    }

    fn replays(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.replays() else { return Ok(vec![]) };
        let sql = format!(
            "SELECT record FROM replays INDEXED BY replays_by_tenant \
             WHERE tenant = ?1 AND id >= ?2 AND id <= ?3 ORDER BY id LIMIT {FIND_RESULTS_MAX}"
        );
        self.in_tenants(&sql, &[from.to_vec().into(), to.to_vec().into()], |columns| {
            let Replay { id, tenant, action, .. } = columns.json("a replay")?;
            Ok(Found { tenant, why: MatchedField::Id, item: FoundItem::Replay { id, action } })
        })
    }

    fn matching_tenants(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.text_ids() else { return Ok(vec![]) };
        let sql = "SELECT id FROM tenants WHERE num = ?1 AND id >= ?2 AND id <= ?3";
        self.in_tenants(sql, &[from.into(), to.into()], |columns| {
            let tenant = columns.parsed("a tenant's id")?;
            Ok(Found { tenant, why: MatchedField::Id, item: FoundItem::Tenant })
        })
    }
}

fn event(columns: &mut RowReader<'_, '_>, why: MatchedField) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let item = FoundItem::Event {
        id: columns.parsed("an event's id")?,
        event_type: columns.parsed("an event's type")?,
        key: columns.key()?,
    };
    Ok(Found { tenant, why, item })
}

fn endpoint(
    columns: &mut RowReader<'_, '_>,
    why: impl FnOnce(&str) -> MatchedField,
) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let id = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let (url, description) = (columns.word()?, columns.text()?.unwrap_or_default());
    let why = why(&url);
    Ok(Found { tenant, why, item: FoundItem::Endpoint { id, url, description } })
}

fn lane(columns: &mut RowReader<'_, '_>) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let lane = LaneId(columns.number("a lane")?);
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let key = columns.parsed_key()?;
    Ok(Found { tenant, why: MatchedField::Key, item: FoundItem::Lane { lane, endpoint, key } })
}
