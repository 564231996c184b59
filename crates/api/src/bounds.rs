//! Bounds in the specification for strings and maps whose types do not have them. The code that reads them
//! applies the same bounds.

use railpost_alerts::Rule;
use railpost_engine::{Span, optional_span_between, span_between};
use railpost_store::limits::{
    ALERT_SUBJECT_LEN_MAX, BACKLOG_MAX, FIND_WORDS_LEN_MAX, PEM_LEN_MAX, ROTATE_EVERY_MAX,
    ROTATE_EVERY_MIN, SCHEMA_VERSIONS_MAX, SILENCE_REASON_LEN_MAX, TEXT_LEN_MAX, URL_LEN_MAX,
};
use railpost_wire::EventTypeFilter;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::limits::{
    BACKUP_PATH_LEN_MAX, KEY_FILE_LEN_MAX, REPLAY_RATE_MAX, SECRET_OVERLAP_MAX, SILENCE_MAX,
};

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

/// Certificates, or nothing.
pub(super) fn optional_pem(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "maxLength": PEM_LEN_MAX,
        "pattern": "-----BEGIN [A-Z0-9 ]+-----",
    })
}

/// The body of an envelope, or nothing.
pub(super) fn template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "maxLength": railpost_wire::limits::TEMPLATE_LEN_MAX })
}

/// How long one attempt may take.
pub(super) fn timeout(_: &mut SchemaGenerator) -> Schema {
    let max = railpost_dispatch::limits::TIMEOUT_MAX.as_secs();
    optional_span_between(Span::from_millis(1), Span::from_secs(max))
}

/// How old the newest secret of an endpoint may become.
pub(super) fn rotate_every(_: &mut SchemaGenerator) -> Schema {
    optional_span_between(ROTATE_EVERY_MIN, ROTATE_EVERY_MAX)
}

/// A file on the server's machine.
pub(super) fn key_file(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "minLength": 1, "maxLength": KEY_FILE_LEN_MAX })
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

/// The words of a search.
pub(super) fn find_words(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": FIND_WORDS_LEN_MAX, "pattern": r"\S" })
}

/// The name of a rule of alerts, or nothing.
pub(super) fn optional_rule(_: &mut SchemaGenerator) -> Schema {
    let names = Rule::ALL.map(|rule| Value::from(rule.name())).into_iter();
    let names: Vec<Value> = names.chain([Value::Null]).collect();
    json_schema!({ "type": ["string", "null"], "enum": names })
}

/// What an alert is about, or nothing.
pub(super) fn alert_subject(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "maxLength": ALERT_SUBJECT_LEN_MAX,
        "pattern": r"^[^\x00]*$",
    })
}

/// How long a silence lasts.
pub(super) fn silence_length(_: &mut SchemaGenerator) -> Schema {
    span_between(Span::from_secs(1), SILENCE_MAX)
}

/// Why alerts are silenced.
pub(super) fn silence_reason(_: &mut SchemaGenerator) -> Schema {
    let pattern = r"^[^\x00]*[^\s\x00][^\x00]*$";
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": SILENCE_REASON_LEN_MAX,
        "pattern": pattern,
    })
}

/// A status that an attempt can be answered with.
pub(super) fn answer_status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["integer", "null"], "minimum": 100, "maximum": 599 })
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
        "type": ["string", "null"],
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use railpost_engine::{PolicyFields, RateLimit, RetryPolicy};
    use railpost_wire::*;
    use serde_json::{Value, json};

    /// Whether the value fits the schema of a type, or of a field of it.
    fn fits<T: schemars::JsonSchema>(pointer: &str, value: &Value) -> bool {
        let mut schema: Value = SchemaGenerator::default().into_root_schema_for::<T>().into();
        if !pointer.is_empty() {
            // The fields that are looked at refer to nothing.
            schema = schema.pointer(pointer).unwrap().clone();
        }
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&schema).unwrap().is_valid(value)
    }

    #[test]
    fn what_the_specification_says_of_a_text_is_what_is_taken() {
        fn agree<T: schemars::JsonSchema + std::str::FromStr>(texts: &[&str]) {
            for text in texts {
                let (said, taken) = (fits::<T>("", &json!(text)), text.parse::<T>().is_ok());
                assert_eq!(said, taken, "{} {text:?}", T::schema_name());
            }
        }
        let (a64, a65, a128, a129) =
            ("a".repeat(64), "a".repeat(65), "a".repeat(128), "a".repeat(129));
        let below = format!("{a128}.*");
        let generated = "ep_01h455vb4pex5vsknk084sn02q";
        agree::<EndpointId>(&[
            generated,
            "ep_81h455vb4pex5vsknk084sn02q",
            "ep_",
            "key_1",
            "",
            "\n",
        ]);
        agree::<EndpointId>(&["ep_01h455vb4pex5vsknk084sn02u", "ep_01H455VB4PEX5VSKNK084SN02Q"]);
        agree::<EventId>(&["a", "a.b", "order-1:paid", &a64, &a65, "", "a\n", "é", " "]);
        agree::<TenantId>(&["a", "-a", "_a", "0-_", "A", &a64, &a65, "", "a\n"]);
        agree::<LineId>(&["a", "!~", " ", "", &a64, &a65, "é"]);
        agree::<EventType>(&["a", "a.b", ".a", "a.", "a..b", "a*", "é", "", "a\n", &a128, &a129]);
        agree::<EventTypeFilter>(&["*", "a.*", "a*", ".*", "*.a", "a.b", "", &below, &a129]);
        agree::<Key>(&["", " ", "é", &"a".repeat(256), &"a".repeat(257)]);
        agree::<ContentType>(&["a/b", "a", "a/", "/", "a/b;c", "a/b ; c", "a/b;é", "", "a b/c"]);
        agree::<railpost_engine::Time>(&[
            "2026-01-31T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-01-31T12:00:00.123456789+05:30",
            "2026-01-31 12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2016-12-31T23:59:60Z",
            "2026-01-31T12:00:00.1234567890Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31t12:00:00z",
            "2026-01-31T12:00:00+24:00",
            "1969-12-31T23:59:59Z",
            "2026-01-31T12:00:00",
            "2026-01-31",
            "",
        ]);
    }

    #[test]
    fn what_the_specification_says_of_a_length_of_time_is_what_is_taken() {
        for text in ["0ms", "1ms", "00s", "001s", "30d", "31d", "720h", "721h", "43200m", "43201m"]
        {
            let retry =
                json!({ "max_delay": text, "backoff": { "strategy": "fixed", "delay": "1ms" } });
            let taken = serde_json::from_value::<PolicyFields>(json!({ "retry": retry }))
                .is_ok_and(|fields| railpost_engine::Policy::new(fields).is_ok());
            let said = fits::<RetryPolicy>("/properties/max_delay", &json!(text));
            assert_eq!(said, taken, "{text}");
        }
        for text in
            ["2592000000ms", "2592000001ms", "2592000s", "2592001s", "1 s", "1w", "s", "-1s"]
        {
            let said = fits::<RetryPolicy>("/properties/max_delay", &json!(text));
            let taken = text.parse::<Span>().is_ok_and(|span| span <= Span::from_days(30));
            assert_eq!(said, taken, "{text}");
        }
        for (text, fits_it) in [("59999ms", false), ("60000ms", true), ("1m", true), ("90d", true)]
        {
            assert_eq!(fits::<PolicyFields>("/properties/disable_after", &json!(text)), fits_it);
        }
        for (text, fits_it) in [("1d", true), ("86400s", true), ("86401s", false)] {
            assert_eq!(fits::<RateLimit>("/properties/per", &json!(text)), fits_it, "{text}");
        }
    }

    #[test]
    fn what_the_specification_says_of_a_secret_is_what_is_taken() {
        use base64::Engine;
        let base64 = |len| base64::engine::general_purpose::STANDARD.encode(vec![0xff; len]);
        for len in 20..70 {
            let (shared, signing) =
                (format!("whsec_{}", base64(len)), format!("whsk_{}", base64(len)));
            let is = |pattern: &str, text: &str| {
                jsonschema::is_valid(&json!({ "pattern": pattern }), &json!(text))
            };
            assert_eq!(is(SHARED_SECRET, &shared), shared.parse::<Secret>().is_ok(), "{len}");
            assert_eq!(is(SIGNING_KEY, &signing), signing.parse::<SigningKey>().is_ok(), "{len}");
        }
    }
}
