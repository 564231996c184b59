//! An event type with its compiled schemas, and the validation of an event.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jsonschema::{PatternOptions, ValidationError, Validator};
use railpost_store::{Event, EventTypeRecord, Validation};
use serde_json::Value;

use super::budget::{Cost, CostBound, SchemaError};
use super::threads::ThreadError;
use crate::limits::{SCHEMA_INLINE_LEN_MAX, SCHEMA_PATTERN_LEN_MAX, SCHEMA_PROBLEMS_MAX};

/// Bytes of a payload that are parsed in the time of one step.
const BYTES_PARSED_PER_STEP: u64 = 4;

/// The field of an event that schemas are about.
const PAYLOAD: &str = "payload";

/// What a receipt says of an event that was let pass without being held against its schema.
fn unchecked(problem: &str) -> String {
    format!("{PAYLOAD}: it was not held against its schema: {problem}")
}

/// What came of holding an event against its schema.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Where it does not fit; nothing if it fits.
    Checked(Vec<Mismatch>),
    /// It was not tried, because of what it could cost.
    TooCostly(String),
}

impl Verdict {
    fn refuse(self) -> Result<Vec<String>, Rejection> {
        match self {
            Verdict::Checked(mismatches) => match mismatches.into_iter().next() {
                None => Ok(Vec::new()),
                Some(mismatch) => Err(Rejection::Mismatch(mismatch)),
            },
            Verdict::TooCostly(problem) => Err(Rejection::TooCostly(problem)),
        }
    }

    fn warnings(self) -> Vec<String> {
        match self {
            Verdict::Checked(mismatches) => mismatches.iter().map(Mismatch::to_string).collect(),
            Verdict::TooCostly(problem) => vec![unchecked(&problem)],
        }
    }
}

/// Why an event is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It does not match its schema.
    Mismatch(Mismatch),
    /// To validate it could cost more than it may.
    TooCostly(String),
    /// No thread validated it.
    NotValidated(ThreadError),
}

impl Rejection {
    /// The field of the event that it is about, and what is wrong with it.
    pub fn into_parts(self) -> (String, String) {
        match self {
            Rejection::Mismatch(Mismatch { field, problem }) => (field, problem),
            Rejection::TooCostly(problem) => (PAYLOAD.to_owned(), problem),
            Rejection::NotValidated(error) => (PAYLOAD.to_owned(), error.to_string()),
        }
    }
}

/// An event type, with those of its schemas compiled that were needed.
#[derive(Debug)]
pub(super) struct CompiledEventType {
    record: EventTypeRecord,
    len: OnceLock<usize>,
    compiled: BTreeMap<u32, OnceLock<Result<CompiledSchema, SchemaError>>>,
}

/// A schema that can be used, and what it can cost.
#[derive(Debug)]
pub struct CompiledSchema {
    validator: Validator,
    bound: CostBound,
}

/// Where an event does not fit, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The path of the field, such as `payload.items[0].price`.
    pub field: String,
    /// What is wrong there.
    pub problem: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl CompiledEventType {
    pub(super) fn new(record: EventTypeRecord) -> Self {
        let compiled = record.schemas.keys().map(|version| (*version, OnceLock::new())).collect();
        Self { record, len: OnceLock::new(), compiled }
    }

    pub(super) fn is_of(&self, record: &EventTypeRecord) -> bool {
        self.record == *record
    }

    /// Whether anybody looks whether events of it fit.
    pub(super) fn is_validated(&self) -> bool {
        self.record.validation != Validation::Off
    }

    /// Refuses an event, or says what does not fit, as its type wants it.
    pub(super) fn conclude(
        &self,
        verdict: Result<Verdict, ThreadError>,
    ) -> Result<Vec<String>, Rejection> {
        let refuses = self.record.validation == Validation::Reject;
        match verdict {
            Ok(verdict) if refuses => verdict.refuse(),
            Ok(verdict) => Ok(verdict.warnings()),
            Err(error) if refuses => Err(Rejection::NotValidated(error)),
            Err(error) => Ok(vec![unchecked(&error.to_string())]),
        }
    }

    /// Bytes of its schemas. Written out once, when somebody asks.
    pub(super) fn len(&self) -> usize {
        *self.len.get_or_init(|| schemas_len(&self.record))
    }

    /// The verdict, if it costs so little that it need not have a thread of its own: the schema is compiled,
    /// the payload is small, and the bound of both fits into what is left of the allowance.
    pub(super) fn validate_inline(&self, event: &Event, allowance: &mut u64) -> Option<Verdict> {
        let version = match self.version(event.schema_version) {
            Err(mismatch) => return Some(Verdict::Checked(vec![mismatch])),
            Ok(None) => return Some(Verdict::Checked(Vec::new())),
            Ok(Some(version)) => version,
        };
        let compiled = match self.compiled[&version].get()? {
            Ok(compiled) => compiled,
            Err(unusable) => return Some(unusable_schema(unusable)),
        };
        let parsing = event.payload.len() as u64 / BYTES_PARSED_PER_STEP;
        if event.payload.len() > SCHEMA_INLINE_LEN_MAX || *allowance < parsing {
            return None;
        }
        *allowance -= parsing;
        match parse(&event.payload) {
            Err(verdict) => Some(verdict),
            Ok(payload) => {
                let cost = compiled.bound.cost(&payload);
                cost.take_from(allowance).then(|| compiled.validate(&payload, cost))
            }
        }
    }

    /// The verdict, whatever it costs within the budget.
    pub(super) fn validate(&self, event: &Event) -> Verdict {
        let version = match self.version(event.schema_version) {
            Err(mismatch) => return Verdict::Checked(vec![mismatch]),
            Ok(None) => return Verdict::Checked(Vec::new()),
            Ok(Some(version)) => version,
        };
        let schema = &self.record.schemas[&version];
        match self.compiled[&version].get_or_init(|| compile(schema)) {
            Err(unusable) => unusable_schema(unusable),
            Ok(compiled) => match parse(&event.payload) {
                Err(verdict) => verdict,
                Ok(payload) => compiled.validate(&payload, compiled.bound.cost(&payload)),
            },
        }
    }

    /// The version to hold against: the one that is named, or the newest; nothing when there is none.
    fn version(&self, version: Option<u32>) -> Result<Option<u32>, Mismatch> {
        match version {
            None => Ok(self.record.schemas.keys().next_back().copied()),
            Some(version) if self.record.schemas.contains_key(&version) => Ok(Some(version)),
            Some(version) => Err(of_version(self.unknown(version))),
        }
    }

    fn unknown(&self, version: u32) -> String {
        let known: Vec<String> = self.record.schemas.keys().map(u32::to_string).collect();
        let (name, known) = (&self.record.name, known.join(", "));
        format!("`{name}` has no schema of version {version}; it has: {known}")
    }
}

fn of_version(problem: String) -> Mismatch {
    Mismatch { field: "schema_version".to_owned(), problem }
}

/// The verdict on any payload of a schema that cannot be used. One may be stored: it was written before there
/// was a budget, or by other means.
fn unusable_schema(unusable: &SchemaError) -> Verdict {
    match unusable {
        SchemaError::Invalid(problem) => {
            Verdict::Checked(vec![of_version(format!("its schema cannot be used: {problem}"))])
        }
        SchemaError::TooCostly(problem) => {
            Verdict::TooCostly(format!("its schema is over the budget: {problem}"))
        }
    }
}

/// Bytes of all schemas of an event type.
pub fn schemas_len(record: &EventTypeRecord) -> usize {
    record.schemas.values().map(|schema| schema.to_string().len()).sum()
}

/// Compiles a schema, or says why it is none. References lead into the schema alone: nothing is
/// fetched. What it can cost is judged first: to compile it may take as much as to use it. Patterns are
/// matched in linear time, so that no payload can make one run for ever.
pub fn compile(schema: &Value) -> Result<CompiledSchema, SchemaError> {
    if !(schema.is_object() || schema.is_boolean()) {
        let problem = "expected a JSON Schema: an object, or a boolean";
        return Err(SchemaError::Invalid(problem.to_owned()));
    }
    let bound = CostBound::of(schema)?;
    let patterns = PatternOptions::regex()
        .size_limit(SCHEMA_PATTERN_LEN_MAX)
        .dfa_size_limit(SCHEMA_PATTERN_LEN_MAX);
    let built = jsonschema::options().with_pattern_options(patterns).build(schema);
    let validator = built.map_err(|error| {
        let at = error.instance_path().to_string();
        let problem = error.masked().to_string();
        SchemaError::Invalid(if at.is_empty() { problem } else { format!("{at}: {problem}") })
    })?;
    Ok(CompiledSchema { validator, bound })
}

/// The payload, if it is JSON.
fn parse(payload: &[u8]) -> Result<Value, Verdict> {
    serde_json::from_slice(payload).map_err(|error| {
        let text = error.to_string();
        if text.starts_with("recursion limit") {
            return Verdict::TooCostly("its values are nested deeper than 128".to_owned());
        }
        let problem = format!("expected JSON, as its type has a schema: {text}");
        Verdict::Checked(vec![Mismatch { field: PAYLOAD.to_owned(), problem }])
    })
}

impl CompiledSchema {
    /// First it is seen whether the payload fits, which needs no memory. Where it does not is found out only
    /// if that is cheap: the validator gathers all misfits, however few are wanted.
    fn validate(&self, payload: &Value, cost: Cost) -> Verdict {
        if let Err(problem) = cost.check() {
            return Verdict::TooCostly(problem);
        }
        if self.validator.is_valid(payload) {
            return Verdict::Checked(Vec::new());
        }
        if !cost.can_explain() {
            let problem = "it does not match its schema; to find out where would take too long";
            let (field, problem) = (PAYLOAD.to_owned(), problem.to_owned());
            return Verdict::Checked(vec![Mismatch { field, problem }]);
        }
        let mismatches = self.validator.iter_errors(payload).take(SCHEMA_PROBLEMS_MAX);
        Verdict::Checked(mismatches.map(|error| mismatch(&error)).collect())
    }
}

/// The payload's values stay out of the text: where it does not fit is enough.
fn mismatch(error: &ValidationError<'_>) -> Mismatch {
    let field = format!("payload{}", path_of(error.instance_path().as_str()));
    Mismatch { field, problem: error.masked().to_string() }
}

/// A JSON Pointer as the API writes paths: `/items/0/price` as `.items[0].price`.
fn path_of(pointer: &str) -> String {
    let parts = pointer.split('/').skip(1);
    let parts = parts.map(|part| match part.bytes().all(|c| c.is_ascii_digit()) {
        true => format!("[{part}]"),
        false => format!(".{}", part.replace("~1", "/").replace("~0", "~")),
    });
    parts.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use railpost_engine::Timestamp;

    use super::*;
    use crate::limits::SCHEMA_INLINE_COST_MAX;
    use serde_json::json;

    fn described(schemas: &[(u32, Value)]) -> CompiledEventType {
        CompiledEventType::new(EventTypeRecord {
            tenant: "acme".parse().unwrap(),
            name: "order.created".parse().unwrap(),
            description: String::new(),
            schemas: schemas.iter().cloned().collect(),
            validation: Validation::Reject,
        })
    }

    fn event(payload: &str, schema_version: Option<u32>) -> Event {
        Event {
            id: "evt-1".parse().unwrap(),
            event_type: "order.created".parse().unwrap(),
            key: None,
            payload: payload.to_owned().into(),
            content_type: "application/json".parse().unwrap(),
            schema_version,
            time: Timestamp::from_millis(0),
            traceparent: None,
            cloudevent: None,
        }
    }

    fn order() -> Value {
        let item = json!({ "type": "object", "properties": { "price": { "type": "number" } } });
        json!({
            "type": "object",
            "required": ["order"],
            "properties": { "items": { "type": "array", "items": item } },
        })
    }

    #[test]
    fn a_misfit_is_named_by_its_place_in_the_payload() {
        let order = described(&[(1, json!(true)), (2, order())]);
        for (payload, version, field) in [
            (r#"{"order": 1}"#, None, None),
            (r#"{"order": 1}"#, Some(2), None),
            ("{}", Some(1), None),
            ("{}", None, Some("payload")),
            ("[]", Some(2), Some("payload")),
            ("no json", Some(2), Some("payload")),
            (
                r#"{"order": 1, "items": [{"price": 1}, {"price": "1"}]}"#,
                None,
                Some("payload.items[1].price"),
            ),
            (r#"{"order": 1}"#, Some(3), Some("schema_version")),
        ] {
            let refused = order.validate(&event(payload, version)).refuse().err();
            let refused = refused.map(|rejection| match rejection {
                Rejection::Mismatch(mismatch) => mismatch.field,
                other => panic!("{payload} as version {version:?}: {other:?}"),
            });
            assert_eq!(refused.as_deref(), field, "{payload} as version {version:?}");
        }
    }

    #[test]
    fn a_type_without_schemas_has_nothing_to_hold_against() {
        let bare = described(&[]);
        assert!(bare.validate(&event("{}", None)).refuse().is_ok());
        assert!(bare.validate(&event("{}", Some(1))).refuse().is_err());
    }

    #[test]
    fn a_schema_that_is_not_compiled_yet_and_a_large_payload_need_a_thread() {
        let order = described(&[(1, order())]);
        let (small, mut allowance) = (event(r#"{"order": 1}"#, None), SCHEMA_INLINE_COST_MAX);
        assert_eq!(order.validate_inline(&small, &mut allowance), None);
        assert_eq!(order.validate(&small), Verdict::Checked(vec![]));
        assert_eq!(order.validate_inline(&small, &mut allowance), Some(Verdict::Checked(vec![])));
        assert!(allowance < SCHEMA_INLINE_COST_MAX);
        assert_eq!(order.validate_inline(&small, &mut 0), None, "the request has done enough");
        let large = format!("{{\"order\": \"{}\"}}", "x".repeat(SCHEMA_INLINE_LEN_MAX));
        assert_eq!(order.validate_inline(&event(&large, None), &mut allowance), None);
    }

    #[test]
    fn a_stored_schema_over_the_budget_refuses_payloads_and_warns_where_that_is_all() {
        let again = json!({"$ref": "#"});
        let order = described(&[(1, json!({"anyOf": [again, again]}))]);
        let refused = order.validate(&event("{}", None)).refuse().unwrap_err();
        let Rejection::TooCostly(problem) = refused else { panic!("{refused:?}") };
        assert!(problem.contains("over the budget"), "{problem}");
        let warnings = order.validate(&event("{}", None)).warnings();
        assert!(warnings[0].contains("not held against its schema"), "{warnings:?}");
    }

    #[test]
    fn where_a_payload_does_not_fit_is_told_unless_that_would_take_too_long() {
        let mismatches = json!({"anyOf": vec![json!({"required": ["a", "b", "c"]}); 100]});
        let schema = json!({"items": {"anyOf": [mismatches, mismatches]}});
        let order = described(&[(1, schema)]);
        let of = |count: usize| {
            let payload = serde_json::to_string(&vec![json!({}); count]).unwrap();
            match order.validate(&event(&payload, None)).refuse().unwrap_err() {
                Rejection::Mismatch(mismatch) => mismatch,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(1).field, "payload[0]");
        let vague = of(2_000);
        assert_eq!(vague.field, "payload");
        assert!(vague.problem.contains("take too long"), "{vague}");
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for schema in [
            json!("object"),
            json!({"type": "obect"}),
            json!({"minimum": "1"}),
            json!({"pattern": "("}),
            json!({"$ref": "https://example.com/schema.json"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"$ref": "#/$defs/none"}),
        ] {
            assert!(compile(&schema).is_err(), "{schema}");
        }
    }

    /// Definitions that each apply the next one a level deeper: as many schemas as there may be.
    fn longest_chain() -> Value {
        let levels = crate::limits::SCHEMA_NODES_MAX / 2 - 2;
        let next = |n: usize| json!({"items": {"$ref": format!("#/$defs/d{}", n + 1)}});
        let mut defs: serde_json::Map<String, Value> =
            (0..levels).map(|n| (format!("d{n}"), next(n))).collect();
        defs.insert(format!("d{levels}"), json!(true));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    }

    #[test]
    fn the_longest_chain_of_schemas_is_compiled_within_the_stack_of_a_thread() {
        let thread = std::thread::Builder::new().stack_size(crate::limits::VALIDATION_STACK_LEN);
        let compiled = thread.spawn(|| compile(&longest_chain()).map(drop)).unwrap();
        assert_eq!(compiled.join().unwrap(), Ok(()));
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let nested = json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]});
        let compiled = compile(&nested).unwrap();
        assert!(!compiled.validator.is_valid(&json!({"next": {"next": {}}})));
        assert!(matches!(compile(&json!({"$ref": "#"})), Err(SchemaError::TooCostly(_))));
    }

    #[test]
    fn a_pointer_reads_like_a_path() {
        for (pointer, path) in
            [("", ""), ("/a", ".a"), ("/a/0/b", ".a[0].b"), ("/a~1b/c~0d", ".a/b.c~d")]
        {
            assert_eq!(path_of(pointer), path);
        }
    }
}
