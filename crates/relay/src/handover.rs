//! From rows to accepted events: in order within each key, nothing confirmed that is not durable here.
//!
//! Rows that are refused are parked, with the later ones of their key behind them, before the caller may
//! confirm any of them at the source.

mod parking;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use railpost_store::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use railpost_store::{
    Epoch, Event, Hold, ParkBatch, ParkOutcome, ParkedSummary, Receipt, ReleaseStep, ReleasedRow,
    RowRefusal, SourceLease, StoreError,
};
use railpost_wire::TenantId;
use tokio::time::Instant;

use self::parking::{Parking, parkable};
use crate::config::{OnRefused, SourceConfig};
use crate::context::{Observation, RelayContext, now};
use crate::limits::{LEASE_LENGTH, LEASE_MARGIN, LEASE_RENEW_AFTER, RELEASE_ROWS};
use crate::row::{SourceRow, refusal};
use crate::status::StatusCell;
use crate::trouble::Trouble;

/// The reader of a source: it has the lease, and knows what is held.
pub(crate) struct Handover {
    context: RelayContext,
    config: Arc<SourceConfig>,
    status: StatusCell,
    epoch: Epoch,
    /// When the lease was asked for last.
    renewed_at: Instant,
    /// What is parked, as of the last look.
    parked: ParkedSummary,
    holds: HashSet<Hold>,
    /// The version of `holds`.
    holds_version: u64,
}

/// What became of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) accepted: u64,
    pub(crate) duplicates: u64,
    pub(crate) parked: u64,
    pub(crate) dropped: u64,
}

/// A row on its way.
struct Candidate {
    /// Its place among the rows.
    index: usize,
    hold: Option<Hold>,
    event: Event,
}

impl Handover {
    /// Takes the lease of the source.
    pub(crate) async fn begin(
        context: RelayContext,
        config: Arc<SourceConfig>,
        status: StatusCell,
    ) -> Result<Self, Trouble> {
        let renewed_at = Instant::now();
        let lease =
            context.sources.lease_source(&config.name, &context.holder, LEASE_LENGTH).await?;
        let (epoch, parked) = match lease {
            SourceLease::Held { epoch, parked } => (epoch, parked),
            SourceLease::Elsewhere { holder } => return Err(Trouble::Elsewhere(holder)),
        };
        status.lock().epoch = Some(epoch);
        let (holds, holds_version) = (HashSet::new(), 0);
        let mut handover =
            Self { context, config, status, epoch, renewed_at, parked, holds, holds_version };
        handover.load_holds().await?;
        Ok(handover)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Makes sure that this is still the reader, and carries out what people commanded. Called after
    /// what is to be handed over was read: a reader that took over before that has parked nothing of
    /// it unseen.
    pub(crate) async fn keep(&mut self) -> Result<(), Trouble> {
        if self.renewed_at.elapsed() >= LEASE_RENEW_AFTER {
            self.renew().await?;
        }
        let valid = Duration::from_millis(LEASE_LENGTH.as_millis()) - LEASE_MARGIN;
        if self.renewed_at.elapsed() >= valid {
            return Err(Trouble::Store(StoreError::Unavailable(
                "the lease was not renewed in time".to_owned(),
            )));
        }
        Ok(())
    }

    /// Renews the lease, and hands over what people released.
    pub(crate) async fn renew(&mut self) -> Result<(), Trouble> {
        let asked_at = Instant::now();
        let sources = &self.context.sources;
        match sources.lease_source(&self.config.name, &self.context.holder, LEASE_LENGTH).await? {
            SourceLease::Held { epoch, parked } if epoch == self.epoch => self.parked = parked,
            // The lease ended meanwhile: somebody else may have read.
            SourceLease::Held { .. } => {
                return Err(Trouble::Elsewhere("the lease ended before it was renewed".to_owned()));
            }
            SourceLease::Elsewhere { holder } => return Err(Trouble::Elsewhere(holder)),
        }
        self.renewed_at = asked_at;
        if self.parked.version != self.holds_version {
            self.load_holds().await?;
        }
        self.status.lock().parked = self.parked;
        if self.parked.rows > 0 { self.hand_over_released().await } else { Ok(()) }
    }

    async fn load_holds(&mut self) -> Result<(), Trouble> {
        let found = self.context.sources.parked_holds(&self.config.name).await?;
        self.holds = found.holds.into_iter().collect();
        self.holds_version = found.summary.version;
        self.parked = found.summary;
        self.status.lock().parked = found.summary;
        Ok(())
    }

    /// Hands rows over. When it answers, each of them is accepted, parked, or dropped because the
    /// configuration says so. If the source stops at a row, that holds for the rows in front of it, and
    /// the row and those behind it are left at the source: [`Trouble::Stopped`] says where.
    pub(crate) async fn hand_over(&mut self, rows: &[SourceRow]) -> Result<Handed, Trouble> {
        let began = Instant::now();
        let (handed, stop) = loop {
            let tried = self.try_hand_over(rows).await;
            let tried = tried.inspect_err(|_| self.status.wait(rows, 0))?;
            if let Some(found) = tried {
                break found;
            }
            // People have changed what is held. What was accepted already is a duplicate the next time.
            self.load_holds().await?;
        };
        let Some((before, refusal)) = stop else {
            self.note(&handed, rows, began.elapsed());
            return Ok(handed);
        };
        if before > 0 {
            self.note(&handed, &rows[..before], began.elapsed());
        }
        self.status.wait(&rows[before..], before);
        let row = &rows[before];
        let row = row.fields.id.clone().unwrap_or_else(|| row.number.to_string());
        Err(Trouble::Stopped { row, refusal, before })
    }

    fn note(&self, handed: &Handed, rows: &[SourceRow], took: Duration) {
        let mut status = self.status.lock();
        status.relayed += handed.accepted;
        status.duplicates += handed.duplicates;
        status.parked = self.parked;
        if let Some(row) = rows.first() {
            let at = now();
            status.last_row_at = Some(at);
            let time = row.fields.time.and_then(|time| u64::try_from(time).ok());
            status.lag =
                Duration::from_millis(time.map_or(0, |time| at.as_millis().saturating_sub(time)));
        }
        drop(status);
        let Handed { accepted, duplicates, parked, .. } = *handed;
        let batch = Observation::Batch { accepted, duplicates, parked, took };
        self.context.observer.observe(&self.config.name, &batch);
    }

    /// What became of the rows, and where the source stops if it does. Nothing if people have changed
    /// what is held meanwhile.
    async fn try_hand_over(
        &mut self,
        rows: &[SourceRow],
    ) -> Result<Option<(Handed, Option<(usize, RowRefusal)>)>, Trouble> {
        let mut parking = Parking::new(rows, self.config.on_refused, &self.holds);
        let mut handed = Handed::default();
        for (tenant, candidates) in self.judge(&mut parking).await? {
            self.accept_all(&tenant, candidates, &mut parking, &mut handed).await?;
        }
        self.tell_refused(&parking);
        if self.config.on_refused == OnRefused::Skip {
            handed.dropped =
                parking.refused.values().filter(|refusal| refusal.is_some()).count() as u64;
            parking.refused.retain(|_, refusal| refusal.is_none());
        }
        handed.parked = parking.refused.len() as u64;
        let stop = parking.stop.take();
        let parked = self.park(parking).await?;
        Ok(parked.then_some((handed, stop)))
    }

    fn tell_refused(&self, parking: &Parking<'_>) {
        let dropped = self.config.on_refused == OnRefused::Skip;
        for (index, refusal) in &parking.refused {
            let Some(refusal) = refusal else { continue };
            self.status.lock().refused += 1;
            let fields = &parking.rows[*index].fields;
            let refused = Observation::Refused { fields, refusal, dropped };
            self.context.observer.observe(&self.config.name, &refused);
        }
    }

    /// The events of each tenant that nothing is known against, in order.
    async fn judge(
        &self,
        parking: &mut Parking<'_>,
    ) -> Result<BTreeMap<TenantId, Vec<Candidate>>, Trouble> {
        let now = now();
        let mut refusals: BTreeMap<usize, RowRefusal> = BTreeMap::new();
        let mut by_tenant: BTreeMap<TenantId, Vec<Candidate>> = BTreeMap::new();
        for (index, row) in parking.rows.iter().enumerate() {
            match row.event(&self.config, now) {
                Ok((tenant, event)) => {
                    let hold = row.hold();
                    by_tenant.entry(tenant).or_default().push(Candidate { index, hold, event });
                }
                Err(refusal) => {
                    refusals.insert(index, refusal);
                }
            }
        }
        for (tenant, candidates) in &by_tenant {
            refusals.extend(self.check(tenant, candidates).await?);
        }
        // Whether a row waits is known when all in front of it are judged, by their tenants too.
        for (index, row) in parking.rows.iter().enumerate() {
            let hold = row.hold();
            if !parking.waits(index, hold)
                && let Some(refusal) = refusals.remove(&index)
            {
                parking.refuse(index, hold, refusal);
            }
            if parking.stop.is_some() {
                break;
            }
        }
        let end = parking.end();
        for candidates in by_tenant.values_mut() {
            candidates.retain(|candidate| {
                candidate.index < end && !parking.refused.contains_key(&candidate.index)
            });
        }
        Ok(by_tenant)
    }

    /// Why the tenant refuses rows, by their place.
    async fn check(
        &self,
        tenant: &TenantId,
        candidates: &[Candidate],
    ) -> Result<Vec<(usize, RowRefusal)>, Trouble> {
        let events: Vec<Event> =
            candidates.iter().map(|candidate| candidate.event.clone()).collect();
        let refusals = self.context.checks.check(tenant, &events).await?;
        let found = candidates.iter().zip(refusals);
        Ok(found.filter_map(|(candidate, refusal)| Some((candidate.index, refusal?))).collect())
    }

    /// Accepts a tenant's events in order. A batch that the store refuses is halved until the event is
    /// found that it refuses.
    async fn accept_all(
        &self,
        tenant: &TenantId,
        candidates: Vec<Candidate>,
        parking: &mut Parking<'_>,
        handed: &mut Handed,
    ) -> Result<(), Trouble> {
        let mut rest = &candidates[..];
        let mut most = BATCH_EVENTS_MAX;
        while let Some(first) = rest.first().filter(|first| first.index < parking.end()) {
            if parking.waits(first.index, first.hold) {
                rest = &rest[1..];
                continue;
            }
            let run = &rest[..run_len(rest, most, parking)];
            let events = run.iter().map(|candidate| candidate.event.clone()).collect();
            match self.context.accept.accept(&self.config.name, tenant, events).await {
                Ok(receipts) => {
                    count(&receipts, handed);
                    rest = &rest[run.len()..];
                    most = BATCH_EVENTS_MAX;
                }
                // A backlog that is too full for all of them may have room for some.
                Err(error) if run.len() > 1 && is_divisible(&error) => most = run.len() / 2,
                Err(error) if !is_refusal(&error) => return Err(error.into()),
                Err(error) => {
                    parking.refuse(first.index, first.hold, refusal_of(&error));
                    rest = &rest[1..];
                    most = BATCH_EVENTS_MAX;
                }
            }
        }
        Ok(())
    }

    /// Parks what is to be parked. False if people have changed what is held meanwhile.
    async fn park(&mut self, parking: Parking<'_>) -> Result<bool, Trouble> {
        if parking.refused.is_empty() {
            return Ok(true);
        }
        let rows = parking.refused.into_iter();
        let rows = rows.map(|(index, refusal)| parking.rows[index].to_park(refusal));
        // Those of the first calls are found parked if a later one fails, and stay where they are.
        for rows in parkable(rows) {
            let batch = ParkBatch {
                source: self.config.name.clone(),
                epoch: self.epoch,
                version: self.holds_version,
                rows,
            };
            match self.context.sources.park(batch).await? {
                ParkOutcome::Parked => {}
                ParkOutcome::Changed => return Ok(false),
                ParkOutcome::Full(summary) => return Err(Trouble::ParkedFull(summary)),
            }
        }
        self.load_holds().await?;
        Ok(true)
    }

    /// Hands over what people released, until nothing is left of it.
    async fn hand_over_released(&mut self) -> Result<(), Trouble> {
        loop {
            let rows = self.context.sources.released_rows(&self.config.name, RELEASE_ROWS).await?;
            if rows.is_empty() {
                return Ok(());
            }
            self.release(&rows).await?;
            self.load_holds().await?;
        }
    }

    /// Hands over rows of one hold in order, up to the first that is refused.
    async fn release(&self, rows: &[ReleasedRow]) -> Result<(), Trouble> {
        let (mut accepted, mut refused) = (Vec::new(), None);
        for released in rows {
            match self.release_one(released).await? {
                None => accepted.push(released.row.number),
                Some(refusal) => {
                    refused = Some((released.row.number, refusal));
                    break;
                }
            }
        }
        let count = accepted.len() as u64;
        let source = self.config.name.clone();
        let step = ReleaseStep { source, epoch: self.epoch, accepted, refused };
        self.context.sources.end_release(step).await?;
        self.context.observer.observe(&self.config.name, &Observation::Released(count));
        Ok(())
    }

    /// Why the row is refused again, if it is.
    async fn release_one(&self, released: &ReleasedRow) -> Result<Option<RowRefusal>, Trouble> {
        let (fields, payload) = (released.row.fields.clone(), released.payload.clone());
        if payload.is_none()
            && let Some(refusal) = released.row.refusal.clone().filter(is_of_payload)
        {
            // It was parked without its payload, and has none to hand over.
            return Ok(Some(refusal));
        }
        let row = SourceRow { fields, payload, ..SourceRow::default() };
        let (tenant, event) = match row.event(&self.config, now()) {
            Ok(found) => found,
            Err(refusal) => return Ok(Some(refusal)),
        };
        let refusals = self.context.checks.check(&tenant, std::slice::from_ref(&event)).await?;
        if let Some(refusal) = refusals.into_iter().flatten().next() {
            return Ok(Some(refusal));
        }
        match self.context.accept.accept(&self.config.name, &tenant, vec![event]).await {
            Ok(receipts) => {
                let mut handed = Handed::default();
                count(&receipts, &mut handed);
                self.status.lock().relayed += handed.accepted;
                Ok(None)
            }
            Err(error) if is_refusal(&error) => Ok(Some(refusal_of(&error))),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_of_payload(refusal: &RowRefusal) -> bool {
    refusal.code == "payload"
}

/// How many of the first candidates make one accept: within its bounds, no id twice, and none that
/// waits or is left at the source.
fn run_len(candidates: &[Candidate], most: usize, parking: &Parking<'_>) -> usize {
    let (mut ids, mut bytes) = (HashSet::new(), 0);
    for candidate in candidates.iter().take(most) {
        bytes += candidate.event.payload.len();
        let waits = parking.is_held(candidate.index, candidate.hold);
        let left = candidate.index >= parking.end();
        let too_large = bytes > BATCH_BYTES_MAX && !ids.is_empty();
        if waits || left || too_large || !ids.insert(&candidate.event.id) {
            break;
        }
    }
    ids.len()
}

fn count(receipts: &[Receipt], handed: &mut Handed) {
    for receipt in receipts {
        match receipt {
            Receipt::Accepted { .. } => handed.accepted += 1,
            Receipt::Duplicate { .. } => handed.duplicates += 1,
        }
    }
}

/// Whether the store refuses the events, and not only now.
fn is_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Conflict { .. } | StoreError::Invalid { .. } | StoreError::NotFound(_)
    )
}

/// Whether fewer events may be accepted where these are not.
fn is_divisible(error: &StoreError) -> bool {
    is_refusal(error) || matches!(error, StoreError::BacklogFull { .. })
}

fn refusal_of(error: &StoreError) -> RowRefusal {
    match error {
        StoreError::Conflict { problem, .. } => refusal("conflict", problem.clone()),
        StoreError::NotFound(what) => {
            refusal("tenant", format!("expected one that exists; there is no {what}"))
        }
        error => refusal("event", error.to_string()),
    }
}
