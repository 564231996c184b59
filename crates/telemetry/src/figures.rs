//! Figures over time: gathered in memory, added to those in the store every few seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use railpost_dispatch::AttemptEnded;
use railpost_engine::{AttemptResult, DeliveryState, Outcome, Span, Timestamp};
use railpost_store::limits::FIGURES_BATCH_MAX;
use railpost_store::{Figures, FiguresScope, Receipt, Resolution, Store, StoreError};
use railpost_wire::{EndpointId, TenantId};
use rustc_hash::FxHashMap;

use super::deliveries::{is_exhausted, is_on_time, made_at};
use super::words;

/// What happened since it was last written down, by the minute.
#[derive(Debug)]
pub(crate) struct FigureCollector {
    /// A delivery that is acknowledged within this is on time.
    objective_within: Span,
    minutes: Mutex<BTreeMap<Timestamp, Minute>>,
}

/// What happened in one minute. What tenants and all have is the sum over endpoints, so that the
/// hot path counts once.
#[derive(Debug, Default)]
struct Minute {
    endpoints: FxHashMap<EndpointId, (TenantId, Figures)>,
    events_accepted: FxHashMap<TenantId, u64>,
}

type Entry = (FiguresScope, Timestamp, Figures);

impl FigureCollector {
    pub(super) fn new(objective_within: Span) -> Self {
        Self { objective_within, minutes: Mutex::default() }
    }

    pub(super) fn accepted(&self, tenant: &TenantId, receipts: &[Receipt]) {
        let mut minutes = self.lock();
        for receipt in receipts {
            let Receipt::Accepted { accepted_at, deliveries } = receipt else { continue };
            let minute = minutes.entry(Resolution::Minute.start_of(*accepted_at)).or_default();
            *minute.events_accepted.entry(tenant.clone()).or_default() += 1;
            for delivery in deliveries {
                minute.of(delivery.accepted.endpoint, tenant).accepted += 1;
            }
        }
    }

    pub(super) fn attempt_ended(&self, ended: &AttemptEnded<'_>) {
        let Some(parcel) = ended.parcel else { return };
        let mut minutes = self.lock();
        let minute = minutes.entry(Resolution::Minute.start_of(ended.transition.at)).or_default();
        let figures = minute.of(parcel.endpoint, &parcel.tenant);
        count_attempt(figures, ended);
        count_delivery(figures, ended, parcel.accepted_at);
        figures.on_time += u64::from(is_on_time(ended, self.objective_within));
    }

    /// Adds what was gathered to the store's figures. What the store does not take is lost: adding
    /// it again might count it twice. Says how many entries that were.
    pub(crate) async fn write_to(&self, store: &dyn Store) -> Result<(), (StoreError, usize)> {
        let mut entries = self.take();
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(FIGURES_BATCH_MAX));
            let left = rest.len() + entries.len();
            store.add_figures(entries).await.map_err(|error| (error, left))?;
            entries = rest;
        }
        Ok(())
    }

    fn take(&self) -> Vec<Entry> {
        let minutes = std::mem::take(&mut *self.lock());
        minutes.into_iter().flat_map(|(at, minute)| minute.entries(at)).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Timestamp, Minute>> {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Minute {
    fn of(&mut self, endpoint: EndpointId, tenant: &TenantId) -> &mut Figures {
        let fresh = || (tenant.clone(), Figures::default());
        &mut self.endpoints.entry(endpoint).or_insert_with(fresh).1
    }

    fn entries(self, at: Timestamp) -> Vec<Entry> {
        let mut sums: BTreeMap<FiguresScope, Figures> = BTreeMap::new();
        for (tenant, accepted) in self.events_accepted {
            let events = Figures { accepted, ..Figures::default() };
            for scope in [FiguresScope::Tenant(tenant), FiguresScope::All] {
                sums.entry(scope).or_default().merge(&events);
            }
        }
        for (endpoint, (tenant, figures)) in self.endpoints {
            // An event that goes to three endpoints was accepted once.
            let attempts = Figures { accepted: 0, ..figures.clone() };
            for scope in [FiguresScope::Tenant(tenant), FiguresScope::All] {
                sums.entry(scope).or_default().merge(&attempts);
            }
            sums.insert(FiguresScope::Endpoint(endpoint), figures);
        }
        sums.into_iter().map(|(scope, figures)| (scope, at, figures)).collect()
    }
}

fn count_attempt(figures: &mut Figures, ended: &AttemptEnded<'_>) {
    figures.attempts += 1;
    match words::outcome(ended.transition) {
        Outcome::Acknowledged => figures.acknowledged += 1,
        Outcome::Retryable => figures.retryable += 1,
        Outcome::Permanent => figures.permanent += 1,
    }
    let status = match ended.detail.result {
        AttemptResult::Response { status, .. } => status,
        AttemptResult::Failed(failure) => {
            let name = words::failure_name(failure).to_owned();
            *figures.by_failure.entry(name).or_default() += 1;
            0
        }
    };
    *figures.by_status.entry(status).or_default() += 1;
    figures.attempt_us.record(u64::from(ended.detail.timing.total_us));
}

fn count_delivery(figures: &mut Figures, ended: &AttemptEnded<'_>, accepted_at: Timestamp) {
    let transition = ended.transition;
    if ended.detail.number == 1 {
        figures.first_attempts += 1;
        let waited = ended.detail.started_at.since(made_at(transition.delivery));
        figures.first_attempt_ms.record(waited.as_millis());
    }
    figures.exhausted += u64::from(is_exhausted(transition.state));
    match transition.state {
        DeliveryState::Dead { .. } => figures.dead += 1,
        DeliveryState::Delivered => {
            figures.deliver_ms.record(transition.at.since(accepted_at).as_millis());
        }
        _ => {}
    }
}
