//! The members of a JSON object in a request's body, for bodies that have the fields of several types.
//!
//! A type with a `flatten` cannot be read strictly (see [`strict`](super::strict)). Such a body is read as an
//! object first, and then each part from its own members.

use std::fmt;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::body::{BodyLimits, FromBody, check_media_type, from_value, parse_json, read};
use crate::limits::SMALL_BODY_LEN_MAX;
use crate::merge::Shape;
use crate::problem::{Code, Problem};

/// The members of an object, by their names.
pub struct Members(Map<String, Value>);

impl Members {
    /// Reads a body of one of these media types. An empty body is an empty object.
    pub async fn read(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
        media_types: &[&str],
    ) -> Result<(Self, Bytes), Problem> {
        check_media_type(parts, media_types)?;
        let bytes = read(limits, body, SMALL_BODY_LEN_MAX).await?;
        let value = parse_json(if bytes.is_empty() { b"{}" } else { &bytes })?;
        let Unambiguous(Value::Object(members)) = value else {
            return Err(Problem::new(Code::InvalidField, "expected an object"));
        };
        Ok((Self(members), bytes))
    }

    /// Refuses a name that the schema of the whole body does not have.
    pub fn check_names(&self, schema: &Value) -> Result<(), Problem> {
        let known = schema["properties"].as_object();
        let is_known = |name: &String| known.is_some_and(|known| known.contains_key(name));
        let Some(unknown) = self.0.keys().find(|name| !is_known(name)) else { return Ok(()) };
        let known: Vec<_> =
            known.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
        let detail = format!("unknown field `{unknown}`, expected one of {}", known.join(", "));
        Err(Problem::field(unknown, detail))
    }

    /// Takes one out, if it is there and not `null`.
    pub fn take<V: DeserializeOwned>(&mut self, name: &str) -> Result<Option<V>, Problem> {
        let value = self.0.remove(name).unwrap_or_default();
        from_value(&value).map_err(|problem| problem.within(name))
    }

    /// Takes these out, as far as they are there.
    pub fn take_all(&mut self, names: &[&str]) -> Self {
        Self(names.iter().filter_map(|name| self.0.remove_entry(*name)).collect())
    }

    /// Whether one of this name is there.
    pub fn contain(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All of them as the fields of one type.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, Problem> {
        from_value(&self.into())
    }
}

impl From<Value> for Members {
    /// The members of an object; of anything else none.
    fn from(value: Value) -> Self {
        Self(match value {
            Value::Object(members) => members,
            _ => Map::new(),
        })
    }
}

impl From<Members> for Value {
    fn from(members: Members) -> Self {
        Value::Object(members.0)
    }
}

/// What is read from the members of an object.
pub trait FromMembers: JsonSchema + Send + Sized + 'static {
    /// Reads it; the problem names the member.
    fn from_members(members: Members) -> Result<Self, Problem>;
}

/// A body that is an object, read by [`FromMembers`].
pub struct ObjectBody<T>(pub T);

impl<T: FromMembers> FromBody for ObjectBody<T> {
    async fn from_body(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        let (members, bytes) = Members::read(limits, parts, body, &["application/json"]).await?;
        members.check_names(&Shape::document::<T>())?;
        Ok((Self(T::from_members(members)?), Some(bytes)))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        vec![("application/json", schemas.subschema_for::<T>())]
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
