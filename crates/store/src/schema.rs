//! JSON Schemas of the settings of an endpoint that are encrypted, for specifications.

use railpost_wire::HEADER_NAME_PATTERN;
use railpost_wire::limits::ROUTING_KEY_LEN_MAX;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::limits::{HEADER_VALUE_LEN_MAX, HEADERS_MAX, PEM_LEN_MAX};

pub(crate) fn headers(_: &mut SchemaGenerator) -> Schema {
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

pub(crate) fn pem(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": PEM_LEN_MAX, "pattern": "-----BEGIN [A-Z0-9 ]+-----" })
}

pub(crate) fn routing_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "pattern": "^[!-~]+$",
        "maxLength": ROUTING_KEY_LEN_MAX,
    })
}
