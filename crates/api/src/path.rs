//! The parameters in a route's path.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use railpost_wire::{
    ApiKeyId, DeliveryId, EndpointId, EventId, EventType, ReplayId, SecretId, TenantId,
};

use schemars::{Schema, SchemaGenerator};

use super::outbox::{RoleParam, SourceParam};
use super::problem::Problem;

/// Reads what a path names. The names are those between braces in the route's path.
pub(crate) trait FromPath: Sized + Send + 'static {
    /// The parameters, in order, each with what it is and its schema.
    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)>;

    fn from_path(params: &Params<'_>) -> Result<Self, Problem>;
}

/// A path without parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPath;

impl FromPath for NoPath {
    fn describe(_: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)> {
        Vec::new()
    }

    fn from_path(_: &Params<'_>) -> Result<Self, Problem> {
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
                fn describe(
                    schemas: &mut SchemaGenerator,
                ) -> Vec<(&'static str, &'static str, Schema)> {
                    vec![$((stringify!($field), $about, schemas.subschema_for::<$kind>())),+]
                }

                fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
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
    /// A source that events are relayed from.
    OfSource { source: SourceParam = "The source's name." }
    /// A parked row of a source.
    OfParkedRow { source: SourceParam = "The source's name.", number: u64 = "The row's number." }
    /// A role of the store's database.
    OfRole { role: RoleParam = "The role's name." }
    /// An event, as an endpoint may fetch it.
    OfThinEvent {
        tenant: TenantId = "The tenant's id.",
        endpoint: EndpointId = "The endpoint's id.",
        event: EventId = "The event's id."
    }
}

/// The parameters of a path, found in it when they are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params<'p> {
    pattern: &'static str,
    path: &'p str,
}

impl<'p> Params<'p> {
    /// Those of a path that matches the pattern, where they stand between braces.
    pub(super) fn new(pattern: &'static str, path: &'p str) -> Self {
        Self { pattern, path }
    }

    /// The parameter `name`, if the pattern has it.
    pub(super) fn get(&self, name: &str) -> Result<Option<Cow<'p, str>>, Problem> {
        let is_it = |part: &str| {
            part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) == Some(name)
        };
        let mut found = segments(self.pattern).zip(segments(self.path));
        let value = found.find_map(|(part, value)| is_it(part).then_some(value));
        let value = value.map(|value| percent_decode_str(value).decode_utf8());
        value.transpose().map_err(|_| {
            Problem::parameter("path", format!("expected UTF-8 in the path's `{name}`"))
        })
    }
}

/// What stands between slashes. Every request looks for its parameters, and in texts this short to look
/// byte by byte takes half the instructions that `split` takes.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let path = rest?;
        let Some(end) = path.bytes().position(|c| c == b'/') else { return rest.take() };
        rest = Some(&path[end + 1..]);
        Some(&path[..end])
    })
}

/// An id that cannot be is one that nothing has: it is not found, like any other unknown one.
fn one<T: std::str::FromStr<Err: std::fmt::Display>>(
    params: &Params<'_>,
    name: &'static str,
) -> Result<T, Problem> {
    let text = &*params.get(name)?.unwrap_or_default();
    text.parse().map_err(|error: T::Err| {
        let problem = Problem::not_found(name, text);
        Problem { field: Some(name.to_owned()), detail: error.to_string(), ..problem }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const PATTERN: &str = "/v1/tenants/{tenant}/endpoints/{endpoint}/test";

    fn get(path: &str, name: &str) -> Result<Option<String>, Problem> {
        let value = Params::new(PATTERN, path).get(name)?;
        Ok(value.map(Cow::into_owned))
    }

    #[test]
    fn a_parameter_is_what_stands_in_its_place() {
        let path = "/v1/tenants/acme/endpoints/ep%5f1/test";
        assert_eq!(get(path, "tenant").unwrap().as_deref(), Some("acme"));
        assert_eq!(get(path, "endpoint").unwrap().as_deref(), Some("ep_1"));
        assert_eq!(get(path, "tenants").unwrap(), None);
        assert_eq!(get(path, "test").unwrap(), None);
    }

    #[test]
    fn what_is_not_text_is_refused_by_name() {
        let refused = get("/v1/tenants/%ff/endpoints/x/test", "tenant").unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("path"));
        assert!(refused.detail.contains("`tenant`"), "{}", refused.detail);
    }
}
