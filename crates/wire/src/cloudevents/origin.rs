//! What of a CloudEvent no other event has: it goes with the event from its producer to its receivers.

use super::{CloudEvent, Data, Value};
use crate::EventId;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, ops::Not};

/// The attributes of an event that came as a CloudEvent, beyond those that every event has. Its serde form
/// is stable: stores keep it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The attribute `id`: unique within its source only.
    pub id: String,
    /// The attribute `source`.
    pub source: String,
    /// The attribute `subject`, where a partition key is the event's key instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The attribute `dataschema`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataschema: Option<String>,
    /// All extension attributes, as they came.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, Value<'static>>,
    /// Whether it had no data at all, which is not the same as empty data.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub no_data: bool,
}

/// The extension that orders events, where it is there, instead of the subject.
pub const PARTITION_KEY: &str = "partitionkey";

/// The extension that names the version of the schema that the data follows.
pub const SCHEMA_VERSION: &str = "schemaversion";

impl Origin {
    /// What is to be kept of `event`.
    pub fn of(event: &CloudEvent<'_>) -> Self {
        let extensions = event.extensions.iter();
        let subject =
            event.subject.as_deref().filter(|_| event.extensions.contains_key(PARTITION_KEY));
        Self {
            id: event.id.to_string(),
            source: event.source.to_string(),
            subject: subject.map(str::to_owned),
            dataschema: event.dataschema.as_deref().map(str::to_owned),
            extensions: extensions
                .map(|(name, value)| (name.to_string(), value.to_static()))
                .collect(),
            no_data: matches!(event.data, Data::None),
        }
    }

    /// The event's own id: the same for the same source and id, and for no other. Stable: receivers know
    /// duplicates by it.
    pub fn event_id(&self) -> EventId {
        event_id(&self.source, &self.id)
    }

    /// How many bytes it has, as far as a producer can choose.
    pub fn bytes(&self) -> usize {
        let optional = [&self.subject, &self.dataschema].into_iter().flatten();
        let texts = [&self.id, &self.source].into_iter().chain(optional);
        texts.map(String::len).sum::<usize>() + self.extension_bytes()
    }

    /// How many bytes its extensions have, names and values.
    pub fn extension_bytes(&self) -> usize {
        self.extensions.iter().map(|(name, value)| name.len() + value.text_len()).sum()
    }
}

/// The id of the event that a CloudEvent of this source and id becomes.
pub(crate) fn event_id(source: &str, id: &str) -> EventId {
    let mut context = Context::new(&SHA256);
    // With its length, so that no other source and id make the same bytes.
    context.update(&(source.len() as u64).to_be_bytes());
    context.update(source.as_bytes());
    context.update(id.as_bytes());
    let digest = context.finish();
    let hex: String = digest.as_ref()[..24].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("ce_{hex}").parse().expect("letters, digits and `_` are an event id")
}

impl Value<'_> {
    /// The same in memory of its own.
    pub fn to_static(&self) -> Value<'static> {
        match self {
            Self::Boolean(truth) => Value::Boolean(*truth),
            Self::Integer(number) => Value::Integer(*number),
            Self::String(text) => Value::String(Cow::Owned(text.to_string())),
        }
    }

    /// The same, borrowed.
    pub(crate) fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Boolean(truth) => Value::Boolean(*truth),
            Self::Integer(number) => Value::Integer(*number),
            Self::String(text) => Value::String(Cow::Borrowed(text)),
        }
    }

    /// How many bytes it has as a text.
    fn text_len(&self) -> usize {
        match self {
            Self::String(text) => text.len(),
            other => other.to_string().len(),
        }
    }
}
