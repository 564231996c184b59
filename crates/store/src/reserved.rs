//! What is the server's own: the tenant of its notices, and the types of events that only it publishes.

use railpost_wire::{EventType, TenantId};

/// The tenant of the server's notices. It exists from the start on; nobody creates, deletes or publishes to it.
pub const RESERVED_TENANT: &str = "railpost";

/// Whether it is the tenant of the server's notices.
pub fn is_reserved_tenant(tenant: &TenantId) -> bool {
    tenant.as_str() == RESERVED_TENANT
}

/// Whether only the server publishes events of this type.
pub fn is_reserved_type(event_type: &EventType) -> bool {
    event_type.as_str().starts_with("railpost.")
}
