//! CloudEvents, as the specification describes them. What reads them is in `railpost_wire`.

use railpost_engine::Time;
use railpost_store::limits::{
    BATCH_EVENTS_MAX, CLOUDEVENT_EXTENSIONS_MAX, CLOUDEVENT_ID_LEN_MAX, CLOUDEVENT_URI_LEN_MAX,
};
use railpost_wire::limits::{ATTRIBUTE_LEN_MAX, KEY_LEN_MAX};
use railpost_wire::{ContentType, EventType};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::bounds;

/// Text without control characters and noncharacters, as the standard has it.
const PLAIN_TEXT: &str = r"^[^\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]*$";

/// Content types whose data is JSON.
const JSON_TYPES: &str = r"^[^;]*[/+][Jj][Ss][Oo][Nn] *(;.*)?$";

/// What every event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// One event in structured mode.
pub(super) struct CloudEvent;

/// A batch of events.
pub(super) fn batch(schemas: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": schemas.subschema_for::<CloudEvent>(),
        "minItems": 1,
        "maxItems": BATCH_EVENTS_MAX,
    })
}

impl JsonSchema for CloudEvent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CloudEvent".into()
    }

    fn json_schema(schemas: &mut SchemaGenerator) -> Schema {
        let scalar = json!({
            "type": ["string", "integer", "boolean", "null"],
            "pattern": PLAIN_TEXT,
            "maxLength": ATTRIBUTE_LEN_MAX,
            "minimum": i32::MIN,
            "maximum": i32::MAX,
        });
        let key = json!({
            "type": ["string", "null"],
            "pattern": PLAIN_TEXT,
            "minLength": 1,
            "maxLength": KEY_LEN_MAX,
        });
        json_schema!({
            "type": "object",
            "description": "A CloudEvent 1.0 in JSON: the attributes, extensions and data as members of one object.",
            "required": REQUIRED,
            "properties": {
                "specversion": { "type": "string", "const": "1.0" },
                "id": {
                    "type": "string",
                    "pattern": PLAIN_TEXT,
                    "minLength": 1,
                    "maxLength": CLOUDEVENT_ID_LEN_MAX,
                    "description": "Unique within its source.",
                },
                "source": {
                    "type": "string",
                    "format": "uri-reference",
                    "minLength": 1,
                    "maxLength": CLOUDEVENT_URI_LEN_MAX,
                },
                "type": schemas.subschema_for::<EventType>(),
                "subject": key,
                "partitionkey": key,
                "time": { "anyOf": [schemas.subschema_for::<Time>(), { "type": "null" }] },
                "datacontenttype": {
                    "anyOf": [schemas.subschema_for::<ContentType>(), { "type": "null" }],
                },
                "dataschema": {
                    "type": ["string", "null"],
                    "format": "uri",
                    "maxLength": ATTRIBUTE_LEN_MAX,
                },
                "schemaversion": {
                    "type": ["string", "integer", "null"],
                    "pattern": "^[0-9]{1,9}$",
                    "minimum": 0,
                    "maximum": i32::MAX,
                },
                "traceparent": bounds::traceparent(schemas),
                "data": { "description": "The payload, byte for byte." },
                "data_base64": {
                    "type": ["string", "null"],
                    "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$",
                    "description": "The payload, if it is not JSON.",
                },
            },
            "propertyNames": { "pattern": "^([a-z0-9]{1,64}|data_base64)$" },
            "additionalProperties": scalar,
            "maxProperties": REQUIRED.len() + CLOUDEVENT_EXTENSIONS_MAX,
            "not": { "required": ["data", "data_base64"] },
            "if": {
                "required": ["datacontenttype"],
                "properties": {
                    "datacontenttype": { "type": "string", "not": { "pattern": JSON_TYPES } },
                },
            },
            "then": { "properties": { "data": { "type": "string" } } },
            "examples": [{
                "specversion": "1.0",
                "id": "order-17-created",
                "source": "/shop",
                "type": "order.created",
                "subject": "17",
                "data": { "order": 17 },
            }],
        })
    }
}
