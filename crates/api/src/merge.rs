//! JSON merge patches (RFC 7396): fields that are left out stay as they are, at every depth. All `PATCH` routes
//! use this.
//!
//! A patch is merged into the settings as JSON, and the result is parsed and checked like new settings. `null`
//! removes an optional field, and sets any other field to its default. Lists are replaced.

use std::fmt;
use std::marker::PhantomData;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::body::{FromBody, check_media_type, from_value, parse_json, read};
use super::problem::{Code, Problem};
use crate::app::App;
use crate::limits::SMALL_BODY_LEN_MAX;

mod schema;

pub(crate) use schema::Shape;

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// Settings that can be changed in part.
pub(crate) trait Settings:
    Serialize + DeserializeOwned + JsonSchema + Send + 'static
{
    /// What a change to them is called in the specification, and what it says of it.
    const CHANGE: (&'static str, &'static str);

    /// What a change may say beside them, with the schema of each.
    fn beside(_: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        Vec::new()
    }

    /// A change, as an example.
    fn example() -> Value;
}

/// A change to settings.
pub(crate) struct MergePatch<T> {
    members: Map<String, Value>,
    settings: PhantomData<fn() -> T>,
}

impl<T: Settings> FromBody for MergePatch<T> {
    async fn from_body(
        app: &App,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        check_media_type(parts, &MEDIA_TYPES)?;
        let bytes = read(app, body, SMALL_BODY_LEN_MAX).await?;
        let patch = parse_json(if bytes.is_empty() { b"{}" } else { &bytes })?;
        let Unambiguous(Value::Object(members)) = patch else {
            return Err(Problem::new(Code::InvalidField, "expected an object"));
        };
        Ok((Self { members, settings: PhantomData }, Some(bytes)))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        let change = schema::of_change::<T>(schemas);
        MEDIA_TYPES.map(|kind| (kind, change.clone())).into()
    }
}

impl<T: Settings> MergePatch<T> {
    /// Takes out what stands beside the settings, if it is there.
    pub(crate) fn take<V: DeserializeOwned>(&mut self, name: &str) -> Result<Option<V>, Problem> {
        let value = self.members.remove(name).unwrap_or_default();
        from_value(&value).map_err(|problem| problem.within(name))
    }

    /// Whether it says something about this.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// The settings as the change leaves them.
    pub(crate) fn apply(self, settings: &T) -> Result<T, Problem> {
        let mut merged = serde_json::to_value(settings).map_err(|error| {
            Problem::new(Code::Internal, format!("settings that cannot be written: {error}"))
        })?;
        let document = Shape::document::<T>();
        merge(&mut merged, self.members.into(), Some(Shape::of(&document)));
        from_value(&merged)
    }
}

/// What tells apart kinds of objects that have different fields: of another kind, nothing stays.
const DISCRIMINATOR: &str = "strategy";

fn merge(target: &mut Value, patch: Value, shape: Option<Shape<'_>>) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    let kind = patch.get(DISCRIMINATOR).filter(|kind| !kind.is_null());
    if !target.is_object() || kind.is_some_and(|kind| *kind != target[DISCRIMINATOR]) {
        *target = Map::new().into();
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        let shape = shape.and_then(|shape| shape.member(&name));
        match value {
            // What nobody knows stays, to be refused by its name.
            Value::Null if shape.is_some_and(|shape| !shape.allows_null()) => {
                members.remove(&name);
            }
            value => merge(members.entry(name).or_insert(Value::Null), value, shape),
        }
    }
}

/// A JSON value in which no object names a field twice.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor).map(Unambiguous)
    }
}

struct UnambiguousVisitor;

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unambiguous(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((name, Unambiguous(value))) = members.next_entry::<String, _>()? {
            if values.contains_key(&name) {
                return Err(Error::custom(format_args!("duplicate field `{name}`")));
            }
            values.insert(name, value);
        }
        Ok(values.into())
    }
}
