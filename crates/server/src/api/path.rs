//! What a route's path names.

use axum::extract::RawPathParams;
use railpost_wire::{
    ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, SecretId, TenantId,
};

use super::problem::Problem;

/// Reads what a path names. The names are those between braces in the route's path.
pub(crate) trait FromPath: Sized + Send + 'static {
    /// The parameters, in order, each with what it is.
    const PARAMS: &[(&'static str, &'static str)];

    fn from_path(params: &RawPathParams) -> Result<Self, Problem>;
}

/// A path without parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPath;

impl FromPath for NoPath {
    const PARAMS: &[(&'static str, &'static str)] = &[];

    fn from_path(_: &RawPathParams) -> Result<Self, Problem> {
        Ok(NoPath)
    }
}

macro_rules! paths {
    ($($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $kind:ty = $about:literal),+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug)]
            pub(crate) struct $name { $(pub(crate) $field: $kind),+ }

            impl FromPath for $name {
                const PARAMS: &[(&'static str, &'static str)] =
                    &[$((stringify!($field), $about)),+];

                fn from_path(params: &RawPathParams) -> Result<Self, Problem> {
                    Ok(Self { $($field: one(params, stringify!($field))?),+ })
                }
            }
        )+
    };
}

paths! {
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
    /// An event, as an endpoint may fetch it.
    OfThinEvent {
        tenant: TenantId = "The tenant's id.",
        endpoint: EndpointId = "The endpoint's id.",
        event: EventId = "The event's id."
    }
}

/// The parameter `name`, if the path has it.
pub(crate) fn param<'p>(params: &'p RawPathParams, name: &str) -> Option<&'p str> {
    params.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
}

/// An id that cannot be is one that nothing has: it is not found, like any other unknown one.
fn one<T: std::str::FromStr<Err: std::fmt::Display>>(
    params: &RawPathParams,
    name: &'static str,
) -> Result<T, Problem> {
    let text = param(params, name).unwrap_or_default();
    text.parse().map_err(|error: T::Err| {
        let problem = Problem::not_found(name, text);
        Problem { field: Some(name.to_owned()), detail: error.to_string(), ..problem }
    })
}
