//! Events as JSON: one alone (structured mode) or an array of them (batched mode).

use super::{Attributes, BadCloudEvent, CloudEvent, Data, JSON, Value, rules};
use crate::limits::{BATCH_EVENTS_MAX, EXTENSIONS_MAX};
use crate::names::is_json;
use crate::text::Unexpected;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// Most members that an event can have: extensions, the standard's eight attributes, and its data.
const MEMBERS_MAX: usize = EXTENSIONS_MAX + 10;

impl<'a> CloudEvent<'a> {
    /// Reads an event in structured mode.
    pub fn from_json(body: &'a [u8]) -> Result<Self, BadCloudEvent> {
        let refused = |_| Unexpected::bytes("a JSON object of at most 74 members", body);
        let members = serde_json::from_slice::<RawMembers<'_>>(body).map_err(refused);
        Self::from_members(members.map_err(|problem| BadCloudEvent::new("body", problem))?)
    }

    /// Reads a batch, which may be empty. An error says which event it is about.
    pub fn from_json_batch(body: &'a [u8]) -> Result<Vec<Self>, BadCloudEvent> {
        let refused = || BadCloudEvent::new("body", Unexpected::bytes(BATCH_EXPECTED, body));
        let events: Vec<&RawValue> = serde_json::from_slice(body).map_err(|_| refused())?;
        if events.len() > BATCH_EVENTS_MAX {
            return Err(refused());
        }
        let read = |(index, event): (usize, &'a RawValue)| {
            Self::from_json(event.get().as_bytes()).map_err(|bad| bad.at(index))
        };
        events.into_iter().enumerate().map(read).collect()
    }

    fn from_members(members: RawMembers<'a>) -> Result<Self, BadCloudEvent> {
        let mut attributes = Attributes(BTreeMap::new());
        let (mut data, mut data_base64) = (None, None);
        for (name, value) in members.0 {
            match name.as_str() {
                "data" => set_once(&mut data, &name, value)?,
                "data_base64" => set_once(&mut data_base64, &name, value)?,
                _ => attributes.add_json(name, value)?,
            }
        }
        let data = attributes.read_data(data, data_base64)?;
        attributes.into_event(data)
    }

    /// Writes it in structured mode.
    pub fn to_json(&self) -> Result<Vec<u8>, BadCloudEvent> {
        self.check()?;
        Ok(self.to_json_unchecked())
    }

    /// Writes it without checking it: for events whose parts are right by their types.
    pub(crate) fn to_json_unchecked(&self) -> Vec<u8> {
        serde_json::to_vec(&Structured(self)).expect("a CloudEvent is a JSON object")
    }

    /// Writes a batch.
    pub fn to_json_batch(events: &[Self]) -> Result<Vec<u8>, BadCloudEvent> {
        if events.len() > BATCH_EVENTS_MAX {
            let problem = Unexpected::new(BATCH_EXPECTED, &events.len().to_string());
            return Err(BadCloudEvent::new("body", problem));
        }
        for (index, event) in events.iter().enumerate() {
            event.check().map_err(|bad| bad.at(index))?;
        }
        let events: Vec<_> = events.iter().map(Structured).collect();
        Ok(serde_json::to_vec(&events).expect("a batch is a JSON array"))
    }
}

const BATCH_EXPECTED: &str = "a JSON array of at most 1000 events";

fn set_once<'a>(
    slot: &mut Option<&'a RawValue>,
    name: &str,
    value: &'a RawValue,
) -> Result<(), BadCloudEvent> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(BadCloudEvent::repeated(name)),
    }
}

impl<'a> Attributes<'a> {
    /// Adds an attribute, unless its value is `null`, which means that it is not set.
    fn add_json(&mut self, name: String, value: &RawValue) -> Result<(), BadCloudEvent> {
        rules::check_name(&name)?;
        let refused = || {
            let expected = "a string, a whole number of 32 bits, or true or false";
            BadCloudEvent::new(name.clone(), Unexpected::new(expected, value.get()))
        };
        let value = match serde_json::from_str(value.get()).map_err(|_| refused())? {
            serde_json::Value::Null => return Ok(()),
            serde_json::Value::Bool(truth) => Value::Boolean(truth),
            serde_json::Value::String(text) => Value::String(text.into()),
            serde_json::Value::Number(number) => {
                let number = number.as_i64().and_then(|number| i32::try_from(number).ok());
                Value::Integer(number.ok_or_else(refused)?)
            }
            _ => return Err(refused()),
        };
        self.add(name.into(), value)
    }

    /// The data, from whichever of its two members is there, by the content type declared for it.
    fn read_data(
        &self,
        data: Option<&'a RawValue>,
        data_base64: Option<&'a RawValue>,
    ) -> Result<Data<'a>, BadCloudEvent> {
        match (data, data_base64.filter(|value| value.get() != "null")) {
            (None, None) => Ok(Data::None),
            (None, Some(encoded)) => read_base64(encoded),
            (Some(value), None) if self.declares_json() => Ok(Data::Json(value)),
            (Some(value), None) => read_text(value),
            (Some(_), Some(encoded)) => {
                let problem =
                    Unexpected::new("either `data` or `data_base64`, not both", encoded.get());
                Err(BadCloudEvent::new("data_base64", problem))
            }
        }
    }

    fn declares_json(&self) -> bool {
        match self.0.get("datacontenttype") {
            Some(Value::String(declared)) => is_json(declared),
            _ => is_json(JSON),
        }
    }
}

fn read_base64<'a>(value: &RawValue) -> Result<Data<'a>, BadCloudEvent> {
    let text: Option<Cow<'_, str>> = serde_json::from_str(value.get()).ok();
    let bytes = text.and_then(|text| STANDARD.decode(text.as_bytes()).ok());
    let refused = || Unexpected::new("a string of base64", value.get());
    let bytes = bytes.ok_or_else(|| BadCloudEvent::new("data_base64", refused()))?;
    Ok(Data::Binary(bytes.into()))
}

fn read_text<'a>(value: &RawValue) -> Result<Data<'a>, BadCloudEvent> {
    let text: Result<String, _> = serde_json::from_str(value.get());
    let expected = "a string, because its content type is not JSON";
    let refused = |_| BadCloudEvent::new("data", Unexpected::new(expected, value.get()));
    Ok(Data::Text(text.map_err(refused)?.into()))
}

/// An object's members in their order, duplicates and all, values unread.
struct RawMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RawMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawMembersVisitor)
    }
}

struct RawMembersVisitor;

impl<'de> Visitor<'de> for RawMembersVisitor {
    type Value = RawMembers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMembers<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
            if members.len() > MEMBERS_MAX {
                return Err(de::Error::custom("too many members"));
            }
        }
        Ok(RawMembers(members))
    }
}

/// An event, seen as the JSON object of structured mode.
struct Structured<'e, 'a>(&'e CloudEvent<'a>);

impl Serialize for Structured<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.attributes() {
            map.serialize_entry(name, value)?;
        }
        for (name, value) in &self.0.extensions {
            map.serialize_entry(name, value)?;
        }
        match &self.0.data {
            Data::None => {}
            Data::Json(value) => map.serialize_entry("data", value)?,
            Data::Text(text) => map.serialize_entry("data", text)?,
            Data::Binary(bytes) => map.serialize_entry("data_base64", &STANDARD.encode(bytes))?,
        }
        map.end()
    }
}
