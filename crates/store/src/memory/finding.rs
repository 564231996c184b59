//! Searching in memory: everything is looked at.

use railpost_engine::LaneId;

use super::state::{EventRow, State};
use crate::backend::needle::{Needle, endpoint_field};
use crate::{FindQuery, Found, FoundItem, MatchedField};

impl State {
    pub(super) fn find(&self, needle: &Needle, query: &FindQuery) -> Vec<Found> {
        let mut found = Vec::new();
        self.find_events(needle, &mut found);
        self.find_deliveries(needle, &mut found);
        self.find_endpoints(needle, &mut found);
        self.find_lanes(needle, &mut found);
        self.find_rest(needle, &mut found);
        found.retain(|found| {
            query.tenant.as_ref().is_none_or(|tenant| found.tenant == *tenant)
                && self.registry.tenants.contains_key(&found.tenant)
        });
        needle.answer(found)
    }

    fn find_events(&self, needle: &Needle, found: &mut Vec<Found>) {
        for row in self.rows.events.values() {
            let EventRow { tenant, event, .. } = row;
            let ids = needle.text_ids();
            let id = event.id.to_string();
            let by_id = ids.is_some_and(|(from, to)| (from..=to).contains(&id));
            let by_key = event.key.as_ref().is_some_and(|key| is_key(needle, key.as_str()));
            let origin = event.cloudevent.as_ref().map(|origin| origin.id.as_str());
            let why = match (by_id, by_key, origin.is_some() && origin == needle.cloudevent_id()) {
                (true, ..) => MatchedField::Id,
                (_, true, _) => MatchedField::Key,
                (.., true) => MatchedField::CloudeventId,
                _ => continue,
            };
            let item = FoundItem::Event {
                id: event.id.clone(),
                event_type: event.event_type.clone(),
                key: event.key.clone(),
            };
            found.push(Found { tenant: tenant.clone(), why, item });
        }
    }

    fn find_deliveries(&self, needle: &Needle, found: &mut Vec<Found>) {
        let Some((from, to)) = needle.deliveries() else { return };
        for (id, row) in &self.rows.deliveries {
            if !(from..=to).contains(&id.to_bytes()) {
                continue;
            }
            let event = &self.rows.events[&row.event];
            let item = FoundItem::Delivery {
                id: *id,
                event: event.event.id.clone(),
                event_type: event.event.event_type.clone(),
                endpoint: row.endpoint,
            };
            found.push(Found { tenant: event.tenant.clone(), why: MatchedField::Id, item });
        }
    }

    fn find_endpoints(&self, needle: &Needle, found: &mut Vec<Found>) {
        let ids = needle.endpoints();
        for (id, row) in &self.registry.endpoints {
            let (url, description) = (&row.settings.url, &row.settings.description);
            let by_id = ids.is_some_and(|(from, to)| (from..=to).contains(&id.to_bytes()));
            let by_text = needle.is_part_of(url) || needle.is_part_of(description);
            let why = match (by_id, by_text && row.removed_at.is_none()) {
                (true, _) => MatchedField::Id,
                (_, true) => endpoint_field(needle, url),
                _ => continue,
            };
            let (url, description) = (url.clone(), description.clone());
            let item = FoundItem::Endpoint { id: *id, url, description };
            found.push(Found { tenant: row.tenant.clone(), why, item });
        }
    }

    fn find_lanes(&self, needle: &Needle, found: &mut Vec<Found>) {
        for (lane, row) in &self.rows.lanes {
            let Some(key) = row.key.as_ref().filter(|key| is_key(needle, key.as_str())) else {
                continue;
            };
            let Some(endpoint) = self.registry.endpoints.get(&row.endpoint) else { continue };
            let (lane, endpoint_id) = (LaneId(lane.0), row.endpoint);
            let item = FoundItem::Lane { lane, endpoint: endpoint_id, key: key.clone() };
            let tenant = endpoint.tenant.clone();
            found.push(Found { tenant, why: MatchedField::Key, item });
        }
    }

    /// Replays and tenants.
    fn find_rest(&self, needle: &Needle, found: &mut Vec<Found>) {
        let why = MatchedField::Id;
        if let Some((from, to)) = needle.replays() {
            let all = self.registry.replays.values();
            for replay in all.filter(|replay| (from..=to).contains(&replay.id.to_bytes())) {
                let item = FoundItem::Replay { id: replay.id, action: replay.action };
                found.push(Found { tenant: replay.tenant.clone(), why, item });
            }
        }
        if let Some((from, to)) = needle.text_ids() {
            let all = self.registry.tenants.keys();
            let tenants = all.filter(|id| (from.as_str()..=to.as_str()).contains(&id.as_str()));
            let item = FoundItem::Tenant;
            found.extend(tenants.map(|id| Found { tenant: id.clone(), why, item: item.clone() }));
        }
    }
}

fn is_key(needle: &Needle, key: &str) -> bool {
    let (exact, _) = needle.key();
    key.as_bytes() == exact
        || needle
            .keys()
            .is_some_and(|(from, to)| (from.as_slice()..=to.as_slice()).contains(&key.as_bytes()))
}
