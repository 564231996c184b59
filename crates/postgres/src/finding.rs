//! Searching in PostgreSQL, by indexes that are there for other reasons. Where there is none, so much is looked
//! through and no more.

use railpost_engine::LaneId;
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use super::link::Values;
use super::node::Node;
use super::rows::{RowReader, all};
use railpost_store::backend::needle::{Needle, endpoint_field};
use railpost_store::backend::rows::Columns;
use railpost_store::limits::{FIND_RESULTS_MAX, FIND_ROWS_SCANNED, FIND_TENANTS_MAX};
use railpost_store::{FindQuery, Found, FoundItem, MatchedField, Replay, Result};

pub(super) async fn find(node: &Node, query: &FindQuery) -> Result<Vec<Found>> {
    let needle = Needle::new(query)?;
    let search = Search { node, needle: &needle, tenants: tenants(node, query).await? };
    let mut found = search.events_by_id().await?;
    found.extend(search.late_events().await?);
    found.extend(search.deliveries().await?);
    found.extend(search.endpoints().await?);
    found.extend(search.lanes().await?);
    found.extend(search.replays().await?);
    found.extend(search.matching_tenants().await?);
    Ok(needle.answer(found))
}

/// The numbers of the tenants in which to look.
async fn tenants(node: &Node, query: &FindQuery) -> Result<Vec<i64>> {
    let sql = "SELECT num FROM tenants WHERE ($1::text IS NULL OR id = $1) AND NOT erasing \
               ORDER BY id LIMIT $2";
    let tenant = query.tenant.as_ref().map(TenantId::as_str);
    let most = FIND_TENANTS_MAX as i64;
    let rows = node.reader().query(sql, &[&tenant, &most]).await?;
    all(&rows, |columns| columns.number("a tenant's number"))
}

const RESULTS: i64 = FIND_RESULTS_MAX as i64;
const SCANNED: i64 = FIND_ROWS_SCANNED as i64;

struct Search<'s> {
    node: &'s Node,
    needle: &'s Needle,
    tenants: Vec<i64>,
}

impl Search<'_> {
    async fn all(
        &self,
        sql: &'static str,
        values: Values<'_>,
        read: impl FnMut(&mut RowReader<'_>) -> Result<Found>,
    ) -> Result<Vec<Found>> {
        all(&self.node.reader().query(sql, values).await?, read)
    }

    async fn events_by_id(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.text_ids() else { return Ok(vec![]) };
        let sql = "SELECT t.id, e.id, e.type, e.key FROM tenants AS t CROSS JOIN LATERAL ( \
                     SELECT * FROM events AS e WHERE e.tenant = t.num AND e.id >= $2 AND e.id <= $3 \
                     ORDER BY e.id LIMIT $4) AS e WHERE t.num = ANY ($1) LIMIT $4";
        let values: Values<'_> = &[&self.tenants, &from, &to, &RESULTS];
        self.all(sql, values, |columns| event(columns, MatchedField::Id)).await
    }

    /// Keys and CloudEvents' ids of events have no index: the latest events are looked through.
    async fn late_events(&self) -> Result<Vec<Found>> {
        let each = (SCANNED / (self.tenants.len().max(1) as i64)).max(RESULTS);
        let sql = "SELECT t.id, e.id, e.type, e.key FROM tenants AS t CROSS JOIN LATERAL ( \
                     SELECT id, type, key FROM events WHERE tenant = t.num \
                     ORDER BY num DESC LIMIT $5) AS e \
                   WHERE t.num = ANY ($1) AND e.key >= $2 AND e.key <= $3 LIMIT $4";
        let mut found = Vec::new();
        for (from, to) in self.key_ranges() {
            let values: Values<'_> = &[&self.tenants, &from, &to, &RESULTS, &each];
            found.extend(self.all(sql, values, |c| event(c, MatchedField::Key)).await?);
        }
        let sql = "SELECT t.id, e.id, e.type, e.key FROM tenants AS t CROSS JOIN LATERAL ( \
                     SELECT id, type, key, cloudevent FROM events WHERE tenant = t.num \
                     ORDER BY num DESC LIMIT $4) AS e \
                   WHERE t.num = ANY ($1) AND e.cloudevent IS NOT NULL \
                   AND e.cloudevent::json ->> 'id' = $2 LIMIT $3";
        if let Some(id) = self.needle.cloudevent_id() {
            let values: Values<'_> = &[&self.tenants, &id, &RESULTS, &each];
            found.extend(self.all(sql, values, |c| event(c, MatchedField::CloudeventId)).await?);
        }
        Ok(found)
    }

    /// The key that is just these words, and then those that begin so.
    fn key_ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (from, to) = self.needle.key();
        let exact = (from.to_vec(), to.to_vec());
        [Some(exact), self.needle.keys()].into_iter().flatten().collect()
    }

    async fn deliveries(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.deliveries() else { return Ok(vec![]) };
        let sql = "SELECT t.id, d.id, e.id, e.type, p.id FROM endpoints AS p \
                   CROSS JOIN LATERAL (SELECT * FROM deliveries AS d WHERE d.endpoint = p.num \
                     AND d.id >= $2 AND d.id <= $3 ORDER BY d.id LIMIT $4) AS d \
                   JOIN events AS e ON e.num = d.event JOIN tenants AS t ON t.num = p.tenant \
                   WHERE p.tenant = ANY ($1) LIMIT $4";
        let values: Values<'_> = &[&self.tenants, &from.as_slice(), &to.as_slice(), &RESULTS];
        let read = |columns: &mut RowReader<'_>| {
            let tenant = columns.parsed("a tenant's id")?;
            let item = FoundItem::Delivery {
                id: DeliveryId::from_bytes(columns.array("a delivery's id")?),
                event: columns.parsed("an event's id")?,
                event_type: columns.parsed("an event's type")?,
                endpoint: EndpointId::from_bytes(columns.array("an endpoint's id")?),
            };
            Ok(Found { tenant, why: MatchedField::Id, item })
        };
        self.all(sql, values, read).await
    }

    async fn endpoints(&self) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        if let Some((from, to)) = self.needle.endpoints() {
            let sql = "SELECT t.id, p.id, p.settings::json ->> 'url', \
                         p.settings::json ->> 'description' \
                       FROM endpoints AS p JOIN tenants AS t ON t.num = p.tenant \
                       WHERE p.tenant = ANY ($1) AND p.id >= $2 AND p.id <= $3 LIMIT $4";
            let values: Values<'_> = &[&self.tenants, &from.as_slice(), &to.as_slice(), &RESULTS];
            found = self.all(sql, values, |c| endpoint(c, |_| MatchedField::Id)).await?;
        }
        if let Some(part) = self.needle.part() {
            let sql = "SELECT t.id, p.id, p.url, p.description FROM ( \
                         SELECT id, tenant, (settings::json ->> 'url') COLLATE \"C\" AS url, \
                           (settings::json ->> 'description') COLLATE \"C\" AS description \
                         FROM endpoints WHERE tenant = ANY ($1) AND removed_at IS NULL LIMIT $4) AS p \
                       JOIN tenants AS t ON t.num = p.tenant \
                       WHERE strpos(lower(p.url), $2) > 0 OR strpos(lower(p.description), $2) > 0 \
                       LIMIT $3";
            let values: Values<'_> = &[&self.tenants, &part, &RESULTS, &SCANNED];
            let why = |url: &str| endpoint_field(self.needle, url);
            found.extend(self.all(sql, values, |columns| endpoint(columns, why)).await?);
        }
        Ok(found)
    }

    async fn lanes(&self) -> Result<Vec<Found>> {
        let sql = "SELECT t.id, l.id, p.id, l.key FROM endpoints AS p CROSS JOIN LATERAL ( \
                     SELECT id, key FROM lanes WHERE endpoint = p.num AND key >= $2 AND key <= $3 \
                     ORDER BY key LIMIT $4) AS l JOIN tenants AS t ON t.num = p.tenant \
                   WHERE p.tenant = ANY ($1) AND l.key <> ''::bytea LIMIT $4";
        let mut found = Vec::new();
        for (from, to) in self.key_ranges() {
            let values: Values<'_> = &[&self.tenants, &from, &to, &RESULTS];
            found.extend(self.all(sql, values, lane).await?);
        }
        Ok(found)
    }

    async fn replays(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.replays() else { return Ok(vec![]) };
        let sql = "SELECT record FROM replays WHERE tenant = ANY ($1) AND id >= $2 AND id <= $3 \
                   ORDER BY id LIMIT $4";
        let values: Values<'_> = &[&self.tenants, &from.as_slice(), &to.as_slice(), &RESULTS];
        let read = |columns: &mut RowReader<'_>| {
            let Replay { id, tenant, action, .. } = columns.json("a replay")?;
            Ok(Found { tenant, why: MatchedField::Id, item: FoundItem::Replay { id, action } })
        };
        self.all(sql, values, read).await
    }

    async fn matching_tenants(&self) -> Result<Vec<Found>> {
        let Some((from, to)) = self.needle.text_ids() else { return Ok(vec![]) };
        let sql = "SELECT id FROM tenants WHERE num = ANY ($1) AND id >= $2 AND id <= $3 LIMIT $4";
        let values: Values<'_> = &[&self.tenants, &from, &to, &RESULTS];
        let read = |columns: &mut RowReader<'_>| {
            let tenant = columns.parsed("a tenant's id")?;
            Ok(Found { tenant, why: MatchedField::Id, item: FoundItem::Tenant })
        };
        self.all(sql, values, read).await
    }
}

fn event(columns: &mut RowReader<'_>, why: MatchedField) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let item = FoundItem::Event {
        id: columns.parsed("an event's id")?,
        event_type: columns.parsed("an event's type")?,
        key: columns.key()?,
    };
    Ok(Found { tenant, why, item })
}

fn endpoint(columns: &mut RowReader<'_>, why: impl FnOnce(&str) -> MatchedField) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let id = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let (url, description) = (columns.word()?, columns.text()?.unwrap_or_default());
    let why = why(&url);
    Ok(Found { tenant, why, item: FoundItem::Endpoint { id, url, description } })
}

fn lane(columns: &mut RowReader<'_>) -> Result<Found> {
    let tenant = columns.parsed("a tenant's id")?;
    let lane = LaneId(columns.number("a lane")?);
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let key = columns.parsed_key()?;
    Ok(Found { tenant, why: MatchedField::Key, item: FoundItem::Lane { lane, endpoint, key } })
}
