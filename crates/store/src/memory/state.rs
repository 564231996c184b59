//! What a memory store holds: rows as the databases have them, and the same few indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use railpost_engine::{
    Delivery, DeliveryState, EndpointStatus, LaneId, Place, Progress, Timestamp,
};
use railpost_wire::{
    AlertId, ApiKeyId, AuditId, DeliveryId, EndpointId, EventId, EventType, Key, ReplayId,
    SecretId, Seq, SilenceId, TenantId,
};
use serde::{Deserialize, Serialize};

use crate::backend::codes::{DEAD, HELD, STATE_CODES, StateCode};
use crate::backend::delivery_ids::DeliveryIds;
use crate::backend::fanout::Subscriber;
use crate::figures::Bucket;
use crate::{
    AcceptedBy, Alert, ApiKey, AttemptView, AuditEntry, Counts, EndpointSettings, ErasingTenant,
    Event, EventTypeRecord, IdempotencyKey, IdempotencyRecord, LinePlace, ParkedRow, ParkedSummary,
    Replay, Silence, SourceName, SourcePosition, Tenant,
};

/// Everything. Rows are in `rows`; the rest is derived from them.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) registry: RegistryRows,
    pub(crate) rows: Rows,
    pub(crate) ids: DeliveryIds,
    /// Open deliveries with a place in line.
    pub(crate) open_lanes: BTreeMap<(EndpointId, LaneId), BTreeMap<Seq, DeliveryId>>,
    /// Open deliveries without one.
    pub(crate) open_unkeyed: BTreeMap<EndpointId, BTreeSet<DeliveryId>>,
    /// How many deliveries of an endpoint are where, by state code.
    pub(crate) counts: HashMap<EndpointId, [u64; STATE_CODES]>,
    /// Who wants what, by tenant; forgotten with every change.
    pub(crate) subscribers: HashMap<TenantId, Arc<[Subscriber]>>,
    pub(crate) event_nums: HashMap<(TenantId, EventId), i64>,
    pub(crate) lane_ids: HashMap<(EndpointId, Option<Key>), LaneId>,
}

/// What is configured. Small: a change is made on a copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RegistryRows {
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    /// Tenants of whom only rows to be erased are left. Since schema 4.
    #[serde(default)]
    pub(crate) erasing_tenants: BTreeMap<TenantId, ErasingTenant>,
    pub(crate) endpoints: BTreeMap<EndpointId, EndpointRow>,
    pub(crate) secrets: BTreeMap<SecretId, SecretRow>,
    pub(crate) event_types: BTreeMap<TenantId, BTreeMap<EventType, EventTypeRecord>>,
    pub(crate) api_keys: BTreeMap<ApiKeyId, ApiKey>,
    pub(crate) audit: BTreeMap<AuditId, AuditEntry>,
    pub(crate) partitions: BTreeMap<u8, u64>,
    /// Since schema 2.
    #[serde(default)]
    pub(crate) replays: BTreeMap<ReplayId, Replay>,
    #[serde(with = "as_list")]
    pub(crate) idempotency: BTreeMap<IdempotencyKey, IdempotencyRecord>,
}

/// What grows with traffic.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rows {
    /// The last number given to an event.
    pub(crate) last_event: i64,
    /// The last number given to a lane.
    pub(crate) last_lane: u64,
    /// The random ids of the store's eras; the last one is the current. Since schema 3.
    #[serde(default)]
    pub(crate) eras: Vec<u64>,
    pub(crate) events: BTreeMap<i64, EventRow>,
    pub(crate) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    pub(crate) lanes: BTreeMap<LaneId, LaneRow>,
    pub(crate) attempts: BTreeMap<DeliveryId, BTreeMap<u32, AttemptView>>,
    /// Packed. Since schema 2.
    #[serde(default, with = "as_list")]
    pub(crate) figures: BTreeMap<Bucket, Vec<u8>>,
    /// How far deliveries were judged. Since schema 7.
    #[serde(default)]
    pub(crate) judged_before: Option<DeliveryId>,
    /// Since schema 5, as all that follows.
    #[serde(default)]
    pub(crate) sources: BTreeMap<SourceName, SourceRow>,
    /// The last number given to a parked row.
    #[serde(default)]
    pub(crate) last_parked: u64,
    #[serde(default)]
    pub(crate) parked: BTreeMap<u64, ParkedEntry>,
    /// Since schema 7, as all that follows.
    #[serde(default)]
    pub(crate) alerts: BTreeMap<AlertId, Alert>,
    #[serde(default)]
    pub(crate) silences: BTreeMap<SilenceId, Silence>,
}

/// What is kept of a source.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SourceRow {
    pub(crate) position: Option<SourcePosition>,
    pub(crate) parked: ParkedSummary,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ParkedEntry {
    pub(crate) source: SourceName,
    pub(crate) row: ParkedRow,
    pub(crate) payload: Option<Bytes>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EndpointRow {
    pub(crate) tenant: TenantId,
    pub(crate) settings: EndpointSettings,
    /// Sealed.
    pub(crate) private: Vec<u8>,
    pub(crate) status: EndpointStatus,
    pub(crate) status_since: Option<Timestamp>,
    pub(crate) failing_since: Option<Timestamp>,
    pub(crate) revision: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) removed_at: Option<Timestamp>,
}

impl EndpointRow {
    pub(crate) fn set_status(&mut self, status: EndpointStatus, at: Timestamp) {
        if self.status != status {
            self.status_since = Some(at);
        }
        (self.status, self.updated_at) = (status, at);
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SecretRow {
    pub(crate) endpoint: EndpointId,
    pub(crate) sealed: Vec<u8>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EventRow {
    pub(crate) tenant: TenantId,
    pub(crate) event: Event,
    pub(crate) accepted_at: Timestamp,
    /// Since schema 6.
    #[serde(default)]
    pub(crate) accepted_by: Option<AcceptedBy>,
    /// In the order in which they were made.
    pub(crate) deliveries: Vec<DeliveryId>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DeliveryRow {
    pub(crate) event: i64,
    pub(crate) endpoint: EndpointId,
    pub(crate) place: Option<Place>,
    /// The place it has or had. Since schema 3.
    #[serde(default)]
    pub(crate) stood: Option<Place>,
    pub(crate) state: DeliveryState,
    pub(crate) progress: Progress,
    pub(crate) changed_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaneRow {
    pub(crate) endpoint: EndpointId,
    pub(crate) key: Option<Key>,
    pub(crate) last: Seq,
    /// The line that it is in. Since schema 3, as all that follows.
    #[serde(default)]
    pub(crate) line: Line,
    /// The lines before it, by the last number of each.
    #[serde(default)]
    pub(crate) old_lines: BTreeMap<u64, Line>,
    /// By seq: which one it follows, where that is not the one before.
    #[serde(default)]
    pub(crate) follows: BTreeMap<u64, u64>,
    /// When its last delivery was made.
    #[serde(default)]
    pub(crate) used_at: Timestamp,
}

/// One run of a lane's numbers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Line {
    /// The id of the era in which it began.
    pub(crate) era: u64,
    /// How many numbers the lane had given out before.
    pub(crate) before: u64,
}

impl LaneRow {
    /// The line that a number of the lane belongs to.
    fn line_of(&self, seq: Seq) -> Line {
        let old = self.old_lines.range(seq.get()..).next().map(|(_, line)| *line);
        old.unwrap_or(self.line)
    }

    /// Begins a line with the first of the open deliveries. Only those are sent in it: each of them, and
    /// the lane's next one, follows the open one before it.
    fn begin_line(&mut self, era: u64, open: &BTreeMap<Seq, DeliveryId>) {
        let mut seqs = open.keys().map(|seq| seq.get()).chain([self.last.get() + 1]);
        let Some(first) = seqs.next() else { return };
        let before = first - 1;
        self.old_lines.insert(self.last.get(), self.line);
        self.line = Line { era, before };
        let left = self.old_lines.split_off(&first).into_values();
        self.old_lines.extend(left.filter(|line| line.before < before).map(|line| (before, line)));
        let mut follows = first;
        for seq in seqs {
            if follows != seq - 1 {
                self.follows.insert(seq, follows);
            }
            follows = seq;
        }
    }

    /// Notes that a number was closed without being delivered.
    pub(crate) fn skipped(&mut self, seq: Seq) {
        let before = self.follows.remove(&seq.get()).unwrap_or(seq.get() - 1);
        match self.follows.values_mut().find(|follows| **follows == seq.get()) {
            Some(follows) => *follows = before,
            None => drop(self.follows.insert(seq.get() + 1, before)),
        }
    }
}

impl State {
    /// The state with these rows, its indexes built from them.
    pub(crate) fn from_rows(registry: RegistryRows, rows: Rows) -> Self {
        let mut state = Self { registry, ..Self::default() };
        for (num, row) in &rows.events {
            state.event_nums.insert((row.tenant.clone(), row.event.id.clone()), *num);
        }
        for (id, lane) in &rows.lanes {
            state.lane_ids.insert((lane.endpoint, lane.key.clone()), *id);
        }
        for (id, row) in &rows.deliveries {
            state.enter(*id, row.endpoint, row.place, row.state);
        }
        state.rows = rows;
        state
    }

    pub(crate) fn era(&self) -> u64 {
        self.rows.eras.last().copied().unwrap_or_default()
    }

    /// Moves all lanes with open deliveries into the current era.
    pub(crate) fn move_open_lanes(&mut self) {
        let era = self.era();
        for ((_, lane), open) in &self.open_lanes {
            let row = self.rows.lanes.get_mut(lane).expect("a lane with open deliveries has a row");
            row.begin_line(era, open);
        }
    }

    /// A place in a lane, as its line has it. Nothing if the lane was pruned.
    pub(crate) fn line_place(&self, place: Option<Place>) -> Option<LinePlace> {
        let Place { lane, seq } = place?;
        let line = self.rows.lanes.get(&lane)?.line_of(seq);
        Some(LinePlace::new(line.era, lane, seq, line.before))
    }

    /// A delivery stands here from now on.
    pub(crate) fn enter(
        &mut self,
        id: DeliveryId,
        endpoint: EndpointId,
        place: Option<Place>,
        state: DeliveryState,
    ) {
        self.counts.entry(endpoint).or_default()[StateCode::from(state).code as usize] += 1;
        match place {
            _ if !state.is_open() => {}
            Some(Place { lane, seq }) => {
                self.open_lanes.entry((endpoint, lane)).or_default().insert(seq, id);
            }
            None => {
                self.open_unkeyed.entry(endpoint).or_default().insert(id);
            }
        }
    }

    /// A delivery left this state.
    pub(crate) fn leave(
        &mut self,
        id: DeliveryId,
        endpoint: EndpointId,
        place: Option<Place>,
        state: DeliveryState,
    ) {
        self.counts.entry(endpoint).or_default()[StateCode::from(state).code as usize] -= 1;
        match place {
            _ if !state.is_open() => {}
            Some(Place { lane, seq }) => {
                let window = self.open_lanes.entry((endpoint, lane)).or_default();
                window.remove(&seq);
                if window.is_empty() {
                    self.open_lanes.remove(&(endpoint, lane));
                }
            }
            None => {
                self.open_unkeyed.entry(endpoint).or_default().remove(&id);
            }
        }
    }

    /// The open lanes of one endpoint above `after`, by id.
    pub(crate) fn lanes_of(
        &self,
        endpoint: EndpointId,
        after: Option<LaneId>,
    ) -> impl Iterator<Item = (LaneId, &BTreeMap<Seq, DeliveryId>)> {
        let from = (endpoint, after.map_or(LaneId(0), |lane| LaneId(lane.0.saturating_add(1))));
        let range = self.open_lanes.range(from..=(endpoint, LaneId(u64::MAX)));
        range.map(|((_, lane), window)| (*lane, window))
    }

    /// All open deliveries of one endpoint.
    pub(crate) fn open_of(&self, endpoint: EndpointId) -> impl Iterator<Item = DeliveryId> {
        let placed = self.lanes_of(endpoint, None).flat_map(|(_, window)| window.values());
        placed.chain(self.open_unkeyed.get(&endpoint).into_iter().flatten()).copied()
    }

    pub(crate) fn delivery(&self, id: DeliveryId) -> Option<Delivery> {
        let row = self.rows.deliveries.get(&id)?;
        let DeliveryRow { endpoint, place, state, progress, .. } = *row;
        Some(Delivery { id, endpoint, place, state, progress })
    }

    /// How many open deliveries a tenant's endpoints have.
    pub(crate) fn backlog(&mut self, tenant: &TenantId) -> u64 {
        let subscribers = self.subscribers(tenant);
        let counts = subscribers.iter().filter_map(|subscriber| self.counts.get(&subscriber.id));
        counts.map(|counts| Counts::by_state_code(counts, None, None).open()).sum()
    }

    /// Looks at the head of each open lane for the oldest: what follows it is younger.
    pub(crate) fn counts_of(&self, endpoint: EndpointId) -> Counts {
        let Some(counts) = self.counts.get(&endpoint) else { return Counts::default() };
        let heads = self.lanes_of(endpoint, None).filter_map(|(_, window)| window.values().next());
        let unkeyed = self.open_unkeyed.get(&endpoint).and_then(BTreeSet::first);
        let oldest = heads.chain(unkeyed).min();
        let made_at = |id: &DeliveryId| Timestamp::from_millis(id.unix_ms());
        let dead = self.oldest_dead(endpoint, counts);
        Counts::by_state_code(counts, oldest.map(made_at), dead.as_ref().map(made_at))
    }

    /// Looks at deliveries by age, and only if one of them is dead.
    fn oldest_dead(&self, endpoint: EndpointId, counts: &[u64; STATE_CODES]) -> Option<DeliveryId> {
        let is_dead = |row: &DeliveryRow| {
            row.endpoint == endpoint && matches!(row.state, DeliveryState::Dead { .. })
        };
        let any = counts[HELD as usize] + counts[DEAD as usize] > 0;
        let mut rows = self.rows.deliveries.iter().filter(|_| any);
        rows.find(|(_, row)| is_dead(row)).map(|(id, _)| *id)
    }

    /// The endpoints that may want a tenant's events.
    pub(crate) fn subscribers(&mut self, tenant: &TenantId) -> Arc<[Subscriber]> {
        let Self { subscribers, registry, .. } = self;
        let found = subscribers.entry(tenant.clone()).or_insert_with(|| {
            let live = registry.live_endpoints(tenant);
            live.map(|(id, row)| Subscriber::new(0, id, &row.settings)).collect()
        });
        found.clone()
    }
}

impl RegistryRows {
    /// A tenant's endpoints without those removed.
    pub(crate) fn live_endpoints(
        &self,
        tenant: &TenantId,
    ) -> impl Iterator<Item = (EndpointId, &EndpointRow)> {
        let live = |row: &EndpointRow| row.tenant == *tenant && row.removed_at.is_none();
        self.endpoints.iter().filter(move |(_, row)| live(row)).map(|(id, row)| (*id, row))
    }
}

/// A map whose keys are no texts, as a list of its entries.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Vec::<(K, V)>::deserialize(deserializer).map(BTreeMap::from_iter)
    }
}
