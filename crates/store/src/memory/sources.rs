//! Sources and parked rows in memory.

use std::sync::{MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use railpost_engine::Span;
use railpost_wire::TenantId;

use super::MemoryStore;
use super::state::{ParkedEntry, State};
use crate::backend::check;
use crate::backend::leases::SourceLeases;
use crate::limits::{BATCH_BYTES_MAX, PARKED_COMMAND_HEADS_MAX};
use crate::listing::ListKind;
use crate::{
    AuditEntry, Epoch, Hold, Listing, ParkBatch, ParkOutcome, ParkedAction, ParkedCommand,
    ParkedHolds, ParkedQuery, ParkedRow, ParkedSummary, ParkedTarget, ReleaseStep, ReleasedRow,
    Result, RowToPark, SourceLease, SourceName, SourcePosition, Sources,
};

impl MemoryStore {
    fn leases(&self) -> MutexGuard<'_, SourceLeases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Sources for MemoryStore {
    async fn lease_source(
        &self,
        source: &SourceName,
        holder: &str,
        length: Span,
    ) -> Result<SourceLease> {
        check::lease(holder)?;
        let taken = self.leases().take(source, holder, self.setup.source.steady(), length);
        let mut state = self.state();
        Ok(match taken {
            Ok(epoch) => {
                let parked = state.rows.sources.entry(source.clone()).or_default().parked;
                SourceLease::Held { epoch, parked }
            }
            Err(holder) => SourceLease::Elsewhere { holder },
        })
    }

    async fn release_source(&self, source: &SourceName, epoch: Epoch) -> Result<()> {
        self.leases().release(source, epoch);
        Ok(())
    }

    async fn source_position(&self, source: &SourceName) -> Result<Option<SourcePosition>> {
        Ok(self.state().rows.sources.get(source).and_then(|row| row.position.clone()))
    }

    async fn save_source_position(
        &self,
        source: &SourceName,
        epoch: Epoch,
        position: SourcePosition,
    ) -> Result<()> {
        check::position(&position)?;
        let leases = self.leases();
        leases.check(source, epoch)?;
        self.state().rows.sources.entry(source.clone()).or_default().position = Some(position);
        Ok(())
    }

    async fn park(&self, batch: ParkBatch) -> Result<ParkOutcome> {
        let bytes = check::park(&batch)?;
        let leases = self.leases();
        leases.check(&batch.source, batch.epoch)?;
        let now = self.setup.source.now();
        let mut state = self.state();
        let summary = state.parked_summary(&batch.source);
        if summary.version != batch.version {
            return Ok(ParkOutcome::Changed);
        }
        if !check::parked_fit(summary, batch.rows.len(), bytes) {
            return Ok(ParkOutcome::Full(summary));
        }
        for row in batch.rows {
            if state.is_parked(&batch.source, &row) {
                continue;
            }
            state.rows.last_parked += 1;
            let parked = ParkedRow {
                number: state.rows.last_parked,
                parked_at: now,
                hold: row.hold,
                bytes: check::parked_len(&row),
                refusal: row.refusal,
                released: false,
                fields: row.fields,
            };
            let source = batch.source.clone();
            let entry = ParkedEntry { source, row: parked, payload: row.payload };
            state.add_parked(entry);
        }
        Ok(ParkOutcome::Parked)
    }

    async fn parked_holds(&self, source: &SourceName) -> Result<ParkedHolds> {
        let state = self.state();
        let mut holds: Vec<Hold> = state.parked_of(source).filter_map(|row| row.hold).collect();
        holds.sort_unstable();
        holds.dedup();
        Ok(ParkedHolds { summary: state.parked_summary(source), holds })
    }

    async fn parked_rows(&self, query: ParkedQuery) -> Result<Listing<ParkedRow>> {
        let limit = query.page.limit()?;
        let after = query.page.position::<i64>(ListKind::ParkedRows)?.unwrap_or_default();
        let state = self.state();
        let rows = state.parked_of(&query.source);
        let rows = rows.filter(|row| row.number > after as u64 && query.matches(row));
        let rows = rows.take(limit + 1).map(|row| (row.number as i64, row.clone())).collect();
        Ok(Listing::cut(rows, limit, ListKind::ParkedRows))
    }

    async fn parked_row(&self, source: &SourceName, number: u64) -> Result<Option<ParkedRow>> {
        Ok(self.state().parked_of(source).find(|row| row.number == number).cloned())
    }

    async fn parked_payload(&self, source: &SourceName, number: u64) -> Result<Option<Bytes>> {
        let state = self.state();
        let entry = state.rows.parked.get(&number).filter(|entry| entry.source == *source);
        Ok(entry.and_then(|entry| entry.payload.clone()))
    }

    async fn command_parked(&self, command: ParkedCommand) -> Result<u64> {
        command.audit.as_ref().map_or(Ok(()), check::audit)?;
        let mut state = self.state();
        let heads = state.command_heads(&command)?;
        let mut about = 0;
        for head in &heads {
            about += state.command_head(&command.source, *head, command.action);
        }
        if about > 0 {
            state.rows.sources.entry(command.source).or_default().parked.version += 1;
            if let Some(entry) = command.audit {
                state.registry.audit.entry(entry.id).or_insert(entry);
            }
        }
        Ok(about)
    }

    async fn released_rows(&self, source: &SourceName, limit: u32) -> Result<Vec<ReleasedRow>> {
        let state = self.state();
        let Some(first) = state.parked_of(source).find(|row| row.released) else {
            return Ok(Vec::new());
        };
        let together = |row: &ParkedRow| match first.hold {
            None => row.number == first.number,
            hold => row.hold == hold,
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for row in state.parked_of(source).filter(|row| together(row)).take(limit as usize) {
            bytes += row.bytes;
            if bytes > BATCH_BYTES_MAX as u64 && !rows.is_empty() {
                break;
            }
            let payload = state.rows.parked[&row.number].payload.clone();
            rows.push(ReleasedRow { row: row.clone(), payload });
        }
        Ok(rows)
    }

    async fn end_release(&self, step: ReleaseStep) -> Result<()> {
        check::release_step(&step)?;
        let leases = self.leases();
        leases.check(&step.source, step.epoch)?;
        let mut state = self.state();
        for number in &step.accepted {
            let hold = state.remove_parked(&step.source, *number);
            state.release_next(&step.source, hold);
        }
        let Some((number, refusal)) = step.refused else { return Ok(()) };
        let entry = state.rows.parked.get_mut(&number);
        if let Some(entry) = entry.filter(|entry| entry.source == step.source) {
            entry.row.refusal = Some(refusal);
            entry.row.released = false;
        }
        Ok(())
    }

    async fn forget_source(&self, source: &SourceName) -> Result<()> {
        let mut state = self.state();
        check::nothing_parked(source, state.parked_summary(source).rows)?;
        state.rows.sources.remove(source);
        Ok(())
    }

    async fn known_sources(&self) -> Result<Vec<SourceName>> {
        Ok(self.state().rows.sources.keys().cloned().collect())
    }

    async fn grant_emit(&self, _: &str, _: &TenantId, _: Option<AuditEntry>) -> Result<()> {
        Err(check::no_emit_roles())
    }

    async fn revoke_emit(&self, _: &str, _: Option<AuditEntry>) -> Result<()> {
        Err(check::no_emit_roles())
    }

    async fn emit_grants(&self) -> Result<Vec<(String, TenantId)>> {
        Ok(Vec::new())
    }
}

impl State {
    fn parked_summary(&self, source: &SourceName) -> ParkedSummary {
        self.rows.sources.get(source).map(|row| row.parked).unwrap_or_default()
    }

    fn parked_of(&self, source: &SourceName) -> impl Iterator<Item = &ParkedRow> {
        let of_source = move |entry: &&ParkedEntry| entry.source == *source;
        self.rows.parked.values().filter(of_source).map(|entry| &entry.row)
    }

    fn is_parked(&self, source: &SourceName, row: &RowToPark) -> bool {
        let same = |entry: &ParkedEntry| {
            entry.source == *source
                && entry.row.fields == row.fields
                && entry.payload == row.payload
        };
        self.rows.parked.values().any(same)
    }

    fn add_parked(&mut self, entry: ParkedEntry) {
        let summary = &mut self.rows.sources.entry(entry.source.clone()).or_default().parked;
        summary.rows += 1;
        summary.bytes += entry.row.bytes;
        self.rows.parked.insert(entry.row.number, entry);
    }

    /// Removes a row, if it is there. Answers its hold.
    fn remove_parked(&mut self, source: &SourceName, number: u64) -> Option<Hold> {
        self.rows.parked.get(&number).filter(|entry| entry.source == *source)?;
        let entry = self.rows.parked.remove(&number)?;
        let summary = &mut self.rows.sources.entry(entry.source).or_default().parked;
        summary.rows -= 1;
        summary.bytes -= entry.row.bytes;
        entry.row.hold
    }

    /// The first of the rows that are left of a hold is to be handed over.
    fn release_next(&mut self, source: &SourceName, hold: Option<Hold>) {
        if hold.is_none() {
            return;
        }
        let next = self.parked_of(source).find(|row| row.hold == hold).map(|row| row.number);
        if let Some(entry) = next.and_then(|number| self.rows.parked.get_mut(&number)) {
            entry.row.released = true;
        }
    }

    /// The heads that a command is about.
    fn command_heads(&self, command: &ParkedCommand) -> Result<Vec<u64>> {
        let heads =
            self.parked_of(&command.source).filter(|row| self.is_head(&command.source, row));
        match command.target {
            ParkedTarget::Head(number) => {
                match heads.into_iter().find(|row| row.number == number) {
                    Some(_) => Ok(vec![number]),
                    None => Err(check::no_head(&command.source, number)),
                }
            }
            ParkedTarget::AllHeads => {
                let idle = heads.filter(|row| !row.released).map(|row| row.number);
                Ok(idle.take(PARKED_COMMAND_HEADS_MAX as usize).collect())
            }
        }
    }

    fn is_head(&self, source: &SourceName, row: &ParkedRow) -> bool {
        let first = |hold| self.parked_of(source).find(|row| row.hold == Some(hold));
        row.hold.is_none_or(|hold| first(hold).is_some_and(|first| first.number == row.number))
    }

    /// Answers how many rows it was about.
    fn command_head(&mut self, source: &SourceName, head: u64, action: ParkedAction) -> u64 {
        match action {
            ParkedAction::Retry => {
                self.rows.parked.get_mut(&head).expect("the head is parked").row.released = true;
                1
            }
            ParkedAction::Skip => {
                let hold = self.remove_parked(source, head);
                self.release_next(source, hold);
                1
            }
            ParkedAction::Discard => {
                let hold = self.remove_parked(source, head);
                let behind =
                    self.parked_of(source).filter(|row| hold.is_some() && row.hold == hold);
                let behind: Vec<u64> = behind.map(|row| row.number).collect();
                for number in &behind {
                    self.remove_parked(source, *number);
                }
                1 + behind.len() as u64
            }
        }
    }

    /// Removes what a tenant has parked.
    pub(super) fn erase_parked(&mut self, tenant: &TenantId) {
        let theirs =
            |entry: &ParkedEntry| entry.row.fields.tenant.as_deref() == Some(tenant.as_str());
        let theirs = self.rows.parked.values().filter(|entry| theirs(entry));
        let theirs: Vec<_> = theirs.map(|entry| (entry.source.clone(), entry.row.number)).collect();
        for (source, number) in theirs {
            self.remove_parked(&source, number);
            self.rows.sources.entry(source).or_default().parked.version += 1;
        }
    }
}
