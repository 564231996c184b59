//! The way of relayed events into the server: the same checks and the same intake as published ones.

use std::sync::Arc;

use async_trait::async_trait;
use railpost_api::{App, reserved_type};
use railpost_dispatch::Dispatcher;
use railpost_relay::{Accept, EventCheck};
use railpost_schema::{Rejection, ThreadError};
use railpost_store::{
    AcceptBatch, AcceptedBy, Event, Receipt, RowRefusal, SourceName, StoreError, is_reserved_tenant,
};
use railpost_wire::TenantId;

/// Hands events to the dispatcher, so that the engine hears of them at once.
pub(super) struct DispatchedEvents(pub(super) Dispatcher);

#[async_trait]
impl Accept for DispatchedEvents {
    async fn accept(
        &self,
        source: &SourceName,
        tenant: &TenantId,
        events: Vec<Event>,
    ) -> Result<Vec<Receipt>, StoreError> {
        let (tenant, accepted_by) = (tenant.clone(), Some(AcceptedBy::Source(source.clone())));
        self.0.accept(AcceptBatch { tenant, events, accepted_by, idempotency: None }).await
    }
}

/// Holds events against the event types of their tenant.
pub(super) struct CheckedByTypes(pub(super) Arc<App>);

#[async_trait]
impl EventCheck for CheckedByTypes {
    async fn check(
        &self,
        tenant: &TenantId,
        events: &[Event],
    ) -> Result<Vec<Option<RowRefusal>>, StoreError> {
        let said = self.0.check_events(tenant, events).await?.into_iter();
        let said = said.zip(events).map(|(said, event)| match (reserved(tenant, event), said) {
            (Some(refused), _) => Ok(Some(refused)),
            (None, Ok(_)) => Ok(None),
            (None, Err(rejection)) => refusal(rejection).map(Some),
        });
        said.collect()
    }
}

/// The refusal of a row that only the server itself may publish.
fn reserved(tenant: &TenantId, event: &Event) -> Option<RowRefusal> {
    let reason = match is_reserved_tenant(tenant) {
        true => Some(format!("the tenant `{tenant}` is reserved for the server's own notices")),
        false => reserved_type(&event.event_type),
    };
    reason.map(|reason| RowRefusal { code: "reserved".to_owned(), reason })
}

/// The refusal of a row. If all threads are busy, its source tries it again later.
fn refusal(rejection: Rejection) -> Result<RowRefusal, StoreError> {
    if let Rejection::NotValidated(ThreadError::Busy) = rejection {
        return Err(StoreError::Unavailable(ThreadError::Busy.to_string()));
    }
    let (field, problem) = rejection.into_parts();
    Ok(RowRefusal { code: "schema".to_owned(), reason: format!("{field}: {problem}") })
}
