//! Retention, erasure and backup in memory.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use async_trait::async_trait;
use railpost_engine::{DeliveryState, DiscardReason, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, TenantId};
use serde::{Deserialize, Serialize};

use super::MemoryStore;
use super::state::{DeliveryRow, EventRow, RegistryRows, Rows, State};
use crate::backend::check;
use crate::limits::UPKEEP_STEP_MAX;
use crate::listing::ListKind;
use crate::{
    AuditEntry, Cursor, Figures, FiguresScope, Health, KeyChecks, MasterKey, PruneStep, Pruned,
    Result, Source, StoreError, Upkeep,
};

/// The version of the backup's form.
const SCHEMA: u32 = 8;

#[async_trait]
impl Upkeep for MemoryStore {
    async fn prune(&self, step: PruneStep) -> Result<Pruned> {
        check::prune(&step)?;
        let after = step.position()?;
        let now = self.setup.source.now();
        let mut state = self.state();
        let mut pruned = Pruned {
            others: state.prune_others(&step, now),
            lanes: state.prune_lanes(&step),
            ..Pruned::default()
        };
        let range = state.rows.events.range(after + 1..).take(step.limit as usize);
        let seen: Vec<i64> = range.map(|(num, _)| *num).collect();
        for num in &seen {
            if state.is_prunable(&state.rows.events[num], &step) {
                pruned.deliveries += state.delete_event(*num);
                pruned.events += 1;
            }
        }
        let more = seen.len() == step.limit as usize;
        pruned.next = seen.last().filter(|_| more).map(|num| Cursor::at(ListKind::Events, num));
        Ok(pruned)
    }

    async fn erase_tenant(&self, tenant: &TenantId, ended: &AuditEntry) -> Result<bool> {
        check::audit(ended)?;
        let mut state = self.state();
        if !state.registry.erasing_tenants.contains_key(tenant) {
            return check::is_erasing(!state.registry.tenants.contains_key(tenant), tenant)
                .map(|()| true);
        }
        let of_tenant = state.rows.events.iter().filter(|(_, row)| row.tenant == *tenant);
        let nums: Vec<i64> =
            of_tenant.map(|(num, _)| *num).take(UPKEEP_STEP_MAX as usize).collect();
        for num in &nums {
            state.delete_event(*num);
        }
        let done = nums.len() < UPKEEP_STEP_MAX as usize;
        if done {
            state.erase_rest(tenant);
            state.registry.audit.insert(ended.id, ended.clone());
        } else if let Some(erasing) = state.registry.erasing_tenants.get_mut(tenant) {
            erasing.erased += nums.len() as u64;
        }
        Ok(done)
    }

    async fn close_removed(&self, limit: u32) -> Result<u64> {
        check::step(limit)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        let needless = |row: &DeliveryRow| {
            let dead = matches!(row.state, DeliveryState::Dead { .. });
            (dead || row.state.is_open()) && state.is_removed(row.endpoint)
        };
        let rows = state.rows.deliveries.iter().filter(|(_, row)| needless(row));
        let ids: Vec<_> = rows.map(|(id, _)| *id).take(limit as usize).collect();
        for id in &ids {
            state.discard_with_endpoint(*id, now);
        }
        Ok(ids.len() as u64)
    }

    async fn begin_era(&self) -> Result<()> {
        self.state().begin_era(&*self.setup.source);
        Ok(())
    }

    /// Memory is not looked through: the machine does that.
    async fn verify(&self) -> Result<()> {
        Ok(())
    }

    async fn backup(&self, to: &Path) -> Result<()> {
        let state = self.state();
        let KeyChecks { current, next } = self.setup.master_key.checks(&*self.setup.source);
        let backup = BackupRef {
            schema: SCHEMA,
            key_check: current,
            new_key_check: next,
            registry: &state.registry,
            rows: &state.rows,
        };
        write_backup(to, &backup).map_err(|error| {
            StoreError::Unavailable(format!("cannot write the backup {}: {error}", to.display()))
        })
    }

    async fn add_figures(&self, batch: Vec<(FiguresScope, Timestamp, Figures)>) -> Result<()> {
        check::figures(&batch)?;
        self.state().add_figures(batch)
    }

    async fn check(&self) -> Result<Health> {
        let state = self.state();
        let size = |row: &EventRow| row.event.payload.len() as u64;
        let size_bytes = state.rows.events.values().map(size).sum();
        Ok(Health { backend: "memory", schema: SCHEMA, size_bytes })
    }
}

impl State {
    fn is_prunable(&self, row: &EventRow, step: &PruneStep) -> bool {
        row.accepted_at < step.closed_before
            && row.deliveries.iter().filter_map(|id| self.rows.deliveries.get(id)).all(|delivery| {
                match delivery.state {
                    _ if self.is_removed(delivery.endpoint) => true,
                    DeliveryState::Dead { holds: false, .. } => row.accepted_at < step.dead_before,
                    state => !state.is_open(),
                }
            })
    }

    fn is_removed(&self, endpoint: EndpointId) -> bool {
        self.registry.endpoints.get(&endpoint).is_none_or(|row| row.removed_at.is_some())
    }

    pub(super) fn begin_era(&mut self, source: &dyn Source) {
        let mut id = [0; 8];
        source.fill_random(&mut id);
        self.rows.eras.push(u64::from_be_bytes(id));
    }

    fn discard_with_endpoint(&mut self, id: DeliveryId, now: Timestamp) {
        let Some(row) = self.rows.deliveries.get_mut(&id) else { return };
        let (endpoint, place, was) = (row.endpoint, row.place, row.state);
        row.state = DeliveryState::Discarded { reason: DiscardReason::EndpointRemoved };
        row.changed_at = now;
        let state = row.state;
        self.leave(id, endpoint, place, was);
        self.enter(id, endpoint, place, state);
    }

    fn prune_lanes(&mut self, step: &PruneStep) -> u64 {
        let Self { rows, open_lanes, lane_ids, .. } = self;
        let before = rows.lanes.len();
        rows.lanes.retain(|id, lane| {
            let needed =
                lane.used_at >= step.lanes_before || open_lanes.contains_key(&(lane.endpoint, *id));
            if !needed {
                lane_ids.remove(&(lane.endpoint, lane.key.clone()));
            }
            needed
        });
        (before - rows.lanes.len()) as u64
    }

    fn prune_others(&mut self, step: &PruneStep, now: Timestamp) -> u64 {
        let registry = &mut self.registry;
        let count = |registry: &RegistryRows| {
            registry.audit.len() + registry.idempotency.len() + registry.replays.len()
        };
        let before = count(registry);
        registry.audit.retain(|_, entry| entry.at >= step.closed_before);
        registry.idempotency.retain(|_, record| record.expires_at > now);
        let needed = |end: Timestamp| end >= step.closed_before;
        registry.replays.retain(|_, replay| replay.finished_at.is_none_or(needed));
        let registry = (before - count(registry)) as u64;
        registry + self.prune_figures(now) + self.prune_alerts(step.alerts_before)
    }

    /// Deletes an event with its deliveries and says how many those were.
    fn delete_event(&mut self, num: i64) -> u64 {
        let Some(row) = self.rows.events.remove(&num) else { return 0 };
        self.event_nums.remove(&(row.tenant, row.event.id));
        for id in &row.deliveries {
            self.rows.attempts.remove(id);
            let Some(delivery) = self.rows.deliveries.remove(id) else { continue };
            self.leave(*id, delivery.endpoint, delivery.place, delivery.state);
        }
        row.deliveries.len() as u64
    }

    /// All of a tenant but its events.
    fn erase_rest(&mut self, tenant: &TenantId) {
        self.erase_figures(tenant);
        self.erase_parked(tenant);
        self.erase_alerts(tenant);
        let registry = &mut self.registry;
        registry.erasing_tenants.remove(tenant);
        registry.event_types.remove(tenant);
        registry.audit.retain(|_, entry| entry.tenant.as_ref() != Some(tenant));
        registry.idempotency.retain(|_, record| record.tenant.as_ref() != Some(tenant));
        let endpoints = &self.registry.endpoints;
        self.rows.lanes.retain(|_, lane| endpoints.contains_key(&lane.endpoint));
        self.lane_ids.retain(|(endpoint, _), _| endpoints.contains_key(endpoint));
        self.counts.retain(|endpoint, _| endpoints.contains_key(endpoint));
        self.open_unkeyed.retain(|endpoint, _| endpoints.contains_key(endpoint));
    }
}

#[derive(Serialize)]
struct BackupRef<'a> {
    schema: u32,
    key_check: Vec<u8>,
    new_key_check: Option<Vec<u8>>,
    registry: &'a RegistryRows,
    rows: &'a Rows,
}

#[derive(Deserialize)]
struct Backup {
    schema: u32,
    key_check: Vec<u8>,
    /// Made by the key that a rotation goes to. Since schema 8.
    #[serde(default)]
    new_key_check: Option<Vec<u8>>,
    registry: RegistryRows,
    rows: Rows,
}

fn write_backup(to: &Path, backup: &BackupRef<'_>) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create_new(to)?);
    serde_json::to_writer(&mut file, backup)?;
    file.flush()?;
    file.get_ref().sync_all()
}

pub(super) fn read_backup(from: &Path, key: &MasterKey) -> Result<State> {
    let file = File::open(from).map_err(|error| {
        StoreError::Unavailable(format!("cannot read the backup {}: {error}", from.display()))
    })?;
    let backup: Backup = serde_json::from_reader(BufReader::new(file))
        .map_err(|error| StoreError::Corrupt(format!("{}: {error}", from.display())))?;
    if backup.schema > SCHEMA {
        return Err(StoreError::NewerSchema { found: backup.schema, known: SCHEMA });
    }
    key.verify(&KeyChecks { current: backup.key_check, next: backup.new_key_check })?;
    Ok(State::from_rows(backup.registry, backup.rows))
}
