//! The run loop's part that reads payloads: what attempts wait for, and what starts next.

use std::sync::Arc;

use railpost_engine::{Failure, Timestamp};
use railpost_store::{Parcel, StoreError};
use railpost_wire::DeliveryId;

use super::RunLoop;
use crate::dispatcher::messages::TaskReport;
use crate::dispatcher::recorder::retry_until_ok;
use crate::limits::UNDER_WAY_BYTES_MAX;

impl RunLoop {
    pub(super) fn read_payloads(&mut self) {
        for endpoint in self.reads.take_due() {
            self.reads.look_ahead(endpoint, self.engine.ready(endpoint), &self.payloads);
        }
        while self.under_way_bytes < UNDER_WAY_BYTES_MAX
            && let Some(ids) = self.reads.next()
        {
            let (parts, context) = (self.parts.clone(), self.context.clone());
            tokio::spawn(async move {
                let parcels =
                    retry_until_ok(&*parts.observer, || parts.store.parcels(ids.clone())).await;
                let _ = context.reports.send(TaskReport::PayloadsRead(ids, parcels));
            });
        }
    }

    pub(super) fn payloads_read(
        &mut self,
        asked: &[DeliveryId],
        parcels: Vec<(DeliveryId, Result<Parcel, StoreError>)>,
    ) {
        let now = self.now();
        for (id, parcel) in parcels {
            match parcel {
                Ok(parcel) => self.payload_arrived(Arc::new(parcel), now),
                Err(error) => self.payload_unreadable(id, &error),
            }
        }
        for attempt in self.reads.missing(asked) {
            self.end_unsent(attempt, None, (Failure::PayloadMissing, String::new()));
        }
    }

    fn payload_arrived(&mut self, parcel: Arc<Parcel>, now: Timestamp) {
        match self.reads.arrived(&parcel) {
            Some(attempt) => self.send(attempt, parcel),
            None => self.payloads.put_ahead(parcel, now),
        }
    }

    /// What cannot be read now may be readable later: only its own attempt fails.
    fn payload_unreadable(&mut self, id: DeliveryId, error: &StoreError) {
        self.parts.observer.store_trouble(error);
        for attempt in self.reads.missing(&[id]) {
            self.end_unsent(attempt, None, (Failure::NotSent, error.to_string()));
        }
    }
}
