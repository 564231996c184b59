//! JSON merge patches (RFC 7396): fields that are left out stay as they are, at every depth. All `PATCH` routes
//! use this.
//!
//! A patch is merged into the settings as JSON, and the result is parsed and checked like new settings. `null`
//! removes an optional field, and sets any other field to its default. Lists are replaced.

use std::marker::PhantomData;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::body::{BodyLimits, FromBody};
use crate::members::{FromMembers, Members};
use crate::problem::{Code, Problem};

mod schema;

pub(crate) use schema::Shape;

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// Settings that can be changed in part.
pub trait Settings: Serialize + FromMembers {
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
pub struct MergePatch<T> {
    members: Members,
    settings: PhantomData<fn() -> T>,
}

impl<T: Settings> FromBody for MergePatch<T> {
    async fn from_body(
        limits: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        let (members, bytes) = Members::read(limits, parts, body, &MEDIA_TYPES).await?;
        Ok((Self { members, settings: PhantomData }, Some(bytes)))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        let change = schema::of_change::<T>(schemas);
        MEDIA_TYPES.map(|kind| (kind, change.clone())).into()
    }
}

impl<T: Settings> MergePatch<T> {
    /// Takes out what stands beside the settings, if it is there.
    pub fn take<V: DeserializeOwned>(&mut self, name: &str) -> Result<Option<V>, Problem> {
        self.members.take(name)
    }

    /// Whether it says something about this.
    pub fn names(&self, name: &str) -> bool {
        self.members.contain(name)
    }

    /// The settings as the change leaves them.
    pub fn apply(self, settings: &T) -> Result<T, Problem> {
        let mut merged = serde_json::to_value(settings).map_err(|error| {
            Problem::new(Code::Internal, format!("settings that cannot be written: {error}"))
        })?;
        let document = Shape::document::<T>();
        merge(&mut merged, self.members.into(), Some(Shape::of(&document)));
        let members = Members::from(merged);
        members.check_names(&document)?;
        T::from_members(members)
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
