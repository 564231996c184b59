//! Deleting what is past its time.

use std::sync::atomic::Ordering;

use railpost_engine::{Span, Timestamp};
use railpost_store::limits::UPKEEP_STEP_MAX;
use railpost_store::{PruneStep, Pruned, StoreError};

use super::app::App;

/// Deletes what is past its time, in small steps, until nothing is left of it. Says how much that was.
pub async fn prune(app: &App) -> Result<Pruned, StoreError> {
    let now = app.source.now();
    let retention = &app.settings.retention;
    let before =
        |span: Span| Timestamp::from_millis(now.as_millis().saturating_sub(span.as_millis()));
    let mut step = PruneStep {
        closed_before: before(retention.closed),
        dead_before: before(retention.dead),
        lanes_before: before(retention.lanes),
        alerts_before: before(retention.alerts),
        after: None,
        limit: UPKEEP_STEP_MAX,
    };
    let mut all = Pruned::default();
    loop {
        let pruned = app.store.prune(step.clone()).await?;
        all.events += pruned.events;
        all.deliveries += pruned.deliveries;
        all.lanes += pruned.lanes;
        all.others += pruned.others;
        app.telemetry.metrics.pruned_events.fetch_add(pruned.events, Ordering::Relaxed);
        match pruned.next {
            Some(next) => step.after = Some(next),
            None => return Ok(all),
        }
    }
}
