//! Held lanes: the engine says which, and the store says why. That is read once of each, when it may become an
//! alert.

use std::collections::BTreeMap;

use railpost_alerts::limits::ALERTS_OPEN_PER_RULE_MAX;
use railpost_alerts::{HeldLanesSeen, LaneSeen, Rule, Tracker};
use railpost_dispatch::ServedLane;
use railpost_engine::{LaneId, Timestamp};
use railpost_store::{Result, Store};

/// Reads what is to be said of held lanes.
#[derive(Default)]
pub(super) struct LaneReader {
    read: BTreeMap<LaneId, LaneSeen>,
}

impl LaneReader {
    /// The held lanes, `others` of which are not listed.
    pub(super) async fn read(
        &mut self,
        store: &dyn Store,
        mut lanes: Vec<ServedLane>,
        others: u64,
        tracker: &Tracker,
    ) -> Result<HeldLanesSeen> {
        lanes.sort_unstable_by(|a, b| {
            (&a.tenant, a.endpoint, a.lane).cmp(&(&b.tenant, b.endpoint, b.lane))
        });
        let read = std::mem::take(&mut self.read);
        let (mut seen, mut to_read) = (Vec::with_capacity(lanes.len()), ALERTS_OPEN_PER_RULE_MAX);
        for lane in lanes {
            let known = read.get(&lane.lane).cloned();
            let is_open = known.is_some() || is_open(tracker, &lane);
            let found = match known {
                Some(known) => Some(known),
                None if is_open || to_read == 0 => Some(unread(&lane)),
                None => {
                    to_read -= 1;
                    held_lane(store, &lane).await?
                }
            };
            if let Some(found) = found {
                if !found.held_by.is_empty() {
                    self.read.insert(lane.lane, found.clone());
                }
                seen.push(found);
            }
        }
        Ok(HeldLanesSeen { lanes: seen, others })
    }
}

fn is_open(tracker: &Tracker, lane: &ServedLane) -> bool {
    let subject = format!("{}/{}", lane.endpoint, lane.lane.0);
    tracker.is_open(Rule::LaneHeld, Some(&lane.tenant), &subject)
}

/// A lane of which nobody asks more than that it is held.
fn unread(lane: &ServedLane) -> LaneSeen {
    LaneSeen {
        lane: lane.lane.0.to_string(),
        endpoint: lane.endpoint,
        tenant: lane.tenant.clone(),
        url: lane.url.clone(),
        key: None,
        held_by: String::new(),
        since: Timestamp::default(),
        reason: String::new(),
        behind: 0,
    }
}

/// What the store says of a lane; nothing if it is not written yet that it is held.
async fn held_lane(store: &dyn Store, lane: &ServedLane) -> Result<Option<LaneSeen>> {
    let Some(held) = store.held_lane(&lane.tenant, lane.lane).await? else { return Ok(None) };
    let reason = serde_json::to_value(held.reason).ok();
    let reason = reason.as_ref().and_then(|reason| reason.as_str()).unwrap_or_default();
    Ok(Some(LaneSeen {
        key: held.key,
        held_by: held.held_by.to_string(),
        since: held.since,
        reason: reason.replace('_', " "),
        behind: held.last.get().saturating_sub(held.held_at.get()),
        ..unread(lane)
    }))
}
