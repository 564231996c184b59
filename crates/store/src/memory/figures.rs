//! Figures over time in memory.

use railpost_engine::Timestamp;
use railpost_wire::TenantId;

use super::state::State;
use crate::figures::{Bucket, READ_MAX, by_bucket, read_buckets};
use crate::{Figures, FiguresScope, Period, Resolution, Result};

impl State {
    pub(super) fn add_figures(
        &mut self,
        batch: Vec<(FiguresScope, Timestamp, Figures)>,
    ) -> Result<()> {
        for (bucket, figures) in by_bucket(batch) {
            if self.has_scope(&bucket.scope) {
                let sum = figures
                    .merged_with_stored(self.rows.figures.get(&bucket).map(Vec::as_slice))?;
                self.rows.figures.insert(bucket, sum);
            }
        }
        Ok(())
    }

    fn has_scope(&self, scope: &FiguresScope) -> bool {
        match scope {
            FiguresScope::All => true,
            FiguresScope::Tenant(tenant) => self.registry.tenants.contains_key(tenant),
            FiguresScope::Endpoint(endpoint) => self.registry.endpoints.contains_key(endpoint),
        }
    }

    pub(super) fn figures(
        &self,
        scope: &FiguresScope,
        resolution: Resolution,
        period: Period,
    ) -> Result<Vec<(Timestamp, Figures)>> {
        let wanted = |bucket: &Bucket| {
            bucket.scope == *scope && bucket.resolution == resolution && period.contains(bucket.at)
        };
        if !self.has_scope(scope) {
            return Ok(vec![]);
        }
        let rows = self.rows.figures.iter().filter(|(bucket, _)| wanted(bucket));
        read_buckets(rows.take(READ_MAX).map(|(bucket, sum)| (bucket.at, sum.clone())).collect())
    }

    /// Deletes what is past its time and says how many rows that were.
    pub(super) fn prune_figures(&mut self, now: Timestamp) -> u64 {
        let before = self.rows.figures.len();
        self.rows.figures.retain(|bucket, _| bucket.at >= bucket.resolution.kept_from(now));
        (before - self.rows.figures.len()) as u64
    }

    /// Deletes those of a tenant and its endpoints.
    pub(super) fn erase_figures(&mut self, tenant: &TenantId) {
        let endpoints = &self.registry.endpoints;
        self.rows.figures.retain(|bucket, _| match &bucket.scope {
            FiguresScope::All => true,
            FiguresScope::Tenant(owner) => owner != tenant,
            FiguresScope::Endpoint(id) => endpoints.get(id).is_some_and(|e| e.tenant != *tenant),
        });
    }
}
