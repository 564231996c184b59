//! Leases of sources where one process has the store: they end with it, so memory is where they belong.

use std::collections::HashMap;
use std::time::Duration;

use railpost_engine::Span;

use crate::sources::lease_lost;
use crate::{Epoch, Result, SourceName};

/// Who reads which source.
#[derive(Debug, Default)]
pub struct SourceLeases {
    leases: HashMap<SourceName, Lease>,
}

#[derive(Debug)]
struct Lease {
    epoch: Epoch,
    /// Nobody after it was released.
    holder: Option<String>,
    until: Duration,
}

impl SourceLeases {
    /// Takes or renews a lease. If somebody else has it, answers who.
    pub fn take(
        &mut self,
        source: &SourceName,
        holder: &str,
        now: Duration,
        length: Span,
    ) -> std::result::Result<Epoch, String> {
        let until = now + Duration::from_millis(length.as_millis());
        let mut epoch = Epoch(1);
        if let Some(lease) = self.leases.get(source) {
            let running = lease.holder.as_deref().filter(|_| lease.until > now);
            epoch = match running {
                Some(other) if other != holder => return Err(other.to_owned()),
                Some(_) => lease.epoch,
                None => Epoch(lease.epoch.0 + 1),
            };
        }
        let lease = Lease { epoch, holder: Some(holder.to_owned()), until };
        self.leases.insert(source.clone(), lease);
        Ok(epoch)
    }

    /// Ends a lease, if it is this one.
    pub fn release(&mut self, source: &SourceName, epoch: Epoch) {
        if let Some(lease) = self.leases.get_mut(source).filter(|lease| lease.epoch == epoch) {
            lease.holder = None;
        }
    }

    /// Refuses an epoch that is not the lease's.
    pub fn check(&self, source: &SourceName, epoch: Epoch) -> Result<()> {
        match self.leases.get(source) {
            Some(lease) if lease.epoch == epoch => Ok(()),
            _ => Err(lease_lost(source)),
        }
    }
}
