//! The parameters in a route's path.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use schemars::{Schema, SchemaGenerator};

use crate::problem::Problem;

/// Reads what a path names. The names are those between braces in the route's path.
pub trait FromPath: Sized + Send + 'static {
    /// The parameters, in order, each with what it is and its schema.
    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)>;

    /// Reads it; the problem names the parameter.
    fn from_path(params: &Params<'_>) -> Result<Self, Problem>;
}

/// A path without parameters.
#[derive(Clone, Copy, Debug)]
pub struct NoPath;

impl FromPath for NoPath {
    fn describe(_: &mut SchemaGenerator) -> Vec<(&'static str, &'static str, Schema)> {
        Vec::new()
    }

    fn from_path(_: &Params<'_>) -> Result<Self, Problem> {
        Ok(NoPath)
    }
}

/// Types of paths: each with its parameters, what each is, and its words for the specification.
#[macro_export]
macro_rules! path_types {
    ($($(#[doc = $doc:literal])+ $name:ident { $($field:ident: $kind:ty = $about:literal),+ })+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Debug)]
            pub(crate) struct $name { $(pub(crate) $field: $kind),+ }

            impl $crate::path::FromPath for $name {
                fn describe(
                    schemas: &mut $crate::SchemaGenerator,
                ) -> Vec<(&'static str, &'static str, $crate::Schema)> {
                    vec![$((stringify!($field), $about, schemas.subschema_for::<$kind>())),+]
                }

                fn from_path(params: &$crate::path::Params<'_>) -> Result<Self, $crate::problem::Problem> {
                    Ok(Self { $($field: $crate::path::parse_param(params, stringify!($field))?),+ })
                }
            }
        )+
    };
}

/// The parameters of a path, found in it when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Params<'p> {
    pattern: &'static str,
    path: &'p str,
}

impl<'p> Params<'p> {
    /// Those of a path that matches the pattern, where they stand between braces.
    pub fn new(pattern: &'static str, path: &'p str) -> Self {
        Self { pattern, path }
    }

    /// The parameter `name`, if the pattern has it.
    pub fn get(&self, name: &str) -> Result<Option<Cow<'p, str>>, Problem> {
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

/// The parameter `name` as a value. An id that cannot be is one that nothing has: it is not found, like any other unknown one.
pub fn parse_param<T: std::str::FromStr<Err: std::fmt::Display>>(
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
