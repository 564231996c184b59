//! What the specification says about texts and maps whose types do not say it themselves. The code that reads
//! them keeps the same bounds.

use railpost_engine::{Span, optional_span_between};
use railpost_store::limits::{
    BACKLOG_MAX, HEADER_VALUE_LEN_MAX, HEADERS_MAX, PEM_LEN_MAX, SCHEMA_VERSIONS_MAX, TEXT_LEN_MAX,
    URL_LEN_MAX,
};
use railpost_wire::{EventTypeFilter, HEADER_NAME_PATTERN};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::limits::{BACKUP_PATH_LEN_MAX, CURSOR_LEN_MAX, REPLAY_RATE_MAX, SECRET_OVERLAP_MAX};

/// What people call something, or say about it: any text without NUL.
pub(super) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": TEXT_LEN_MAX, "pattern": r"^[^\x00]*$" })
}

/// The same for what may be absent.
pub(super) fn optional_text(schemas: &mut SchemaGenerator) -> Schema {
    let mut schema = text(schemas);
    schema.insert("type".to_owned(), serde_json::json!(["string", "null"]));
    schema
}

/// The same, and not blank.
pub(super) fn name(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^[^\x00]*[^\s\x00][^\x00]*$";
    json_schema!({ "type": "string", "minLength": 1, "maxLength": TEXT_LEN_MAX, "pattern": pattern })
}

/// Where attempts go.
pub(super) fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "format": "uri",
        "maxLength": URL_LEN_MAX,
        "pattern": r"^https?://[^\s/?#@\\]+([/?][^\s#\\]*)?$",
    })
}

pub(super) fn event_type_filters(schemas: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": schemas.subschema_for::<EventTypeFilter>(),
        "minItems": 1,
        "maxItems": railpost_store::limits::FILTERS_MAX,
    })
}

pub(super) fn optional_event_type_filters(schemas: &mut SchemaGenerator) -> Schema {
    let filters = event_type_filters(schemas);
    json_schema!({ "anyOf": [filters, { "type": "null" }] })
}

/// Static headers of an endpoint.
pub(super) fn headers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": { "pattern": HEADER_NAME_PATTERN, "maxLength": HEADER_VALUE_LEN_MAX },
        "additionalProperties": {
            "type": "string",
            "pattern": "^[ -~]+$",
            "maxLength": HEADER_VALUE_LEN_MAX,
        },
        "maxProperties": HEADERS_MAX,
    })
}

pub(super) fn pem(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": PEM_LEN_MAX, "pattern": "-----BEGIN [A-Z0-9 ]+-----" })
}

pub(super) fn optional_pem(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "maxLength": PEM_LEN_MAX,
        "pattern": "-----BEGIN [A-Z0-9 ]+-----",
    })
}

/// How long one attempt may take.
pub(super) fn timeout(_: &mut SchemaGenerator) -> Schema {
    let max = railpost_dispatch::limits::TIMEOUT_MAX.as_secs();
    optional_span_between(Span::from_millis(1), Span::from_secs(max))
}

pub(super) fn overlap(_: &mut SchemaGenerator) -> Schema {
    optional_span_between(Span::ZERO, SECRET_OVERLAP_MAX)
}

pub(super) fn backlog_max(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "null"], "minimum": 0, "maximum": BACKLOG_MAX })
}

pub(super) fn rate_per_s(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "null"], "minimum": 1, "maximum": REPLAY_RATE_MAX })
}

/// Where a list goes on.
pub(super) fn cursor(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "pattern": "^[A-Za-z0-9_-]+$",
        "maxLength": CURSOR_LEN_MAX,
    })
}

/// A trace, as W3C Trace Context writes it.
pub(super) fn traceparent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "pattern": "^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$",
    })
}

/// JSON Schemas by version.
pub(super) fn schemas_by_version(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "patternProperties": { "^[1-9][0-9]{0,8}$": { "type": ["object", "boolean"] } },
        "additionalProperties": false,
        "maxProperties": SCHEMA_VERSIONS_MAX,
    })
}

/// A file below the folder of backups: names of visible ASCII that do not begin with a dot.
pub(super) fn backup_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "pattern": "^[!--0-~][!-.0-~]{0,99}(/[!--0-~][!-.0-~]{0,99}){0,3}$",
        "maxLength": BACKUP_PATH_LEN_MAX,
    })
}

/// The text of a shared secret: the base64 of 24 to 64 bytes.
pub(super) fn shared_secret(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": SHARED_SECRET })
}

/// The text of a secret of either kind.
pub(super) fn secret(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "pattern": "^(whsec_|whsk_)[A-Za-z0-9+/]+={0,2}$" })
}

/// What `value` has to be for each `kind` of secret.
pub(super) fn secret_of_its_kind() -> serde_json::Value {
    serde_json::json!([
        {
            "properties": {
                "kind": { "const": "shared" },
                "value": { "type": ["string", "null"], "pattern": SHARED_SECRET },
            },
        },
        {
            "properties": {
                "kind": { "const": "signing" },
                "value": { "type": ["string", "null"], "pattern": SIGNING_KEY },
            },
            "required": ["kind"],
        },
    ])
}

const SHARED_SECRET: &str = "^whsec_([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=\
                             |([A-Za-z0-9+/]{4})?[A-Za-z0-9+/][AQgw]==)?$";
const SIGNING_KEY: &str = "^whsk_([A-Za-z0-9+/]{4}){10}[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=$";
