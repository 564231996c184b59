//! What the paths of routes name.

use railpost_rest::path_types;
use railpost_wire::{
    AlertId, ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, SecretId, SilenceId,
    TenantId,
};

use super::outbox::{RoleParam, SourceParam};

pub(crate) use railpost_rest::path::{FromPath, NoPath, Params};

path_types! {
    /// A tenant.
    OfTenant { tenant: TenantId = "The tenant's id." }
    /// An endpoint of a tenant.
    OfEndpoint { tenant: TenantId = "The tenant's id.", endpoint: EndpointId = "The endpoint's id." }
    /// A secret of an endpoint.
    OfSecret {
        tenant: TenantId = "The tenant's id.",
        endpoint: EndpointId = "The endpoint's id.",
        secret: SecretId = "The secret's id."
    }
    /// An event type of a tenant.
    OfEventType { tenant: TenantId = "The tenant's id.", name: EventType = "The event type's name." }
    /// An event of a tenant.
    OfEvent { tenant: TenantId = "The tenant's id.", event: EventId = "The event's id." }
    /// A delivery of a tenant.
    OfDelivery { tenant: TenantId = "The tenant's id.", delivery: DeliveryId = "The delivery's id." }
    /// A lane of a tenant.
    OfLane { tenant: TenantId = "The tenant's id.", lane: u64 = "The lane's number." }
    /// A replay of a tenant.
    OfReplay { tenant: TenantId = "The tenant's id.", replay: ReplayId = "The replay's id." }
    /// An API key of a tenant.
    OfTenantKey { tenant: TenantId = "The tenant's id.", key: ApiKeyId = "The API key's id." }
    /// An API key.
    OfKey { key: ApiKeyId = "The API key's id." }
    /// A source that events are relayed from.
    OfSource { source: SourceParam = "The source's name." }
    /// A parked row of a source.
    OfParkedRow { source: SourceParam = "The source's name.", number: u64 = "The row's number." }
    /// A role of the store's database.
    OfRole { role: RoleParam = "The role's name." }
    /// An alert of a tenant.
    OfTenantAlert { tenant: TenantId = "The tenant's id.", alert: AlertId = "The alert's id." }
    /// An alert.
    OfAlert { alert: AlertId = "The alert's id." }
    /// A silence.
    OfSilence { silence: SilenceId = "The silence's id." }
    /// An event, as an endpoint may fetch it.
    OfThinEvent {
        tenant: TenantId = "The tenant's id.",
        endpoint: EndpointId = "The endpoint's id.",
        event: EventId = "The event's id."
    }
}
