//! Figures over time, read as they come: what was read before is kept, and only what may have changed is read
//! again.

use railpost_alerts::{AlertSettings, BurnWindows, FigureHistory, FigureSeries};
use railpost_engine::{Span, Timestamp};
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{FiguresScope, PageRequest, Period, Resolution, Result, Store};
use railpost_wire::TenantId;

use crate::limits::ALERTS_FIGURES_EVERY;

/// Reads figures for rules.
#[derive(Default)]
pub(super) struct FigureReader {
    history: FigureHistory,
    /// When those of long windows, and of each tenant, were read.
    rest_read_at: Option<Timestamp>,
}

impl FigureReader {
    /// Reads what is new.
    pub(super) async fn read(
        &mut self,
        store: &dyn Store,
        settings: &AlertSettings,
        now: Timestamp,
    ) -> Result<&FigureHistory> {
        let windows = (now, longest_window(settings));
        let all = &FiguresScope::All;
        read_series(store, all, &mut self.history.all, Resolution::Minute, windows).await?;
        let is_due = |read_at: Timestamp| now.since(read_at) >= ALERTS_FIGURES_EVERY;
        if self.rest_read_at.is_none_or(is_due) {
            read_series(store, all, &mut self.history.all, Resolution::Hour, windows).await?;
            self.read_tenants(store, settings, windows).await?;
            self.rest_read_at = Some(now);
        }
        Ok(&self.history)
    }

    async fn read_tenants(
        &mut self,
        store: &dyn Store,
        settings: &AlertSettings,
        windows: (Timestamp, Span),
    ) -> Result<()> {
        if !settings.looks_at_tenants() {
            return Ok(());
        }
        let tenants = tenants(store).await?;
        self.history.tenants.retain(|tenant, _| tenants.binary_search(tenant).is_ok());
        for tenant in tenants {
            let scope = FiguresScope::Tenant(tenant.clone());
            let series = self.history.tenants.entry(tenant).or_default();
            for resolution in [Resolution::Minute, Resolution::Hour] {
                read_series(store, &scope, series, resolution, windows).await?;
            }
        }
        Ok(())
    }
}

async fn read_series(
    store: &dyn Store,
    scope: &FiguresScope,
    series: &mut FigureSeries,
    resolution: Resolution,
    windows: (Timestamp, Span),
) -> Result<()> {
    let period = Period { from: Some(series.read_from(resolution, windows)), before: None };
    let read = store.figures(scope, resolution, period).await?;
    series.take(resolution, &read, windows);
    Ok(())
}

/// All tenants, by id.
async fn tenants(store: &dyn Store) -> Result<Vec<TenantId>> {
    let mut tenants = Vec::new();
    let mut page = PageRequest::first(LIST_LIMIT_MAX);
    loop {
        let listing = store.tenants(page.clone()).await?;
        tenants.extend(listing.items.into_iter().map(|tenant| tenant.id));
        match listing.next {
            Some(next) => page.after = Some(next),
            None => return Ok(tenants),
        }
    }
}

fn longest_window(settings: &AlertSettings) -> Span {
    let AlertSettings { retries_exhausted, slow_attempts, slo_burn_fast, slo_burn_slow, .. } =
        settings;
    let long = |windows: &BurnWindows| windows.long;
    let burn = slo_burn_fast.windows.iter().chain(&slo_burn_slow.windows).map(long);
    let intervals = slow_attempts.interval.times(u64::from(slow_attempts.intervals));
    burn.chain([retries_exhausted.window, intervals]).max().unwrap_or_default()
}
