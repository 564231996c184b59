//! The event types of tenants that publish, in memory, with their schemas compiled: publishing asks
//! the store about them once in a while, not once per event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use jsonschema::{PatternOptions, ValidationError, Validator};
use railpost_engine::Timestamp;
use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Event, EventTypeRecord, PageRequest, Validation};
use railpost_wire::{EventType, TenantId};
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::api::problem::{Code, Problem};
use crate::app::App;
use crate::limits::{EVENT_TYPES_BELIEVED_FOR, EVENT_TYPES_TENANTS_MAX, SCHEMA_PROBLEMS_MAX};

/// What tenants say about their event types, as far as it was asked for lately.
#[derive(Debug, Default)]
pub(crate) struct Catalogue(Mutex<FxHashMap<TenantId, Remembered>>);

#[derive(Clone, Debug)]
struct Remembered {
    types: Arc<Types>,
    until: Timestamp,
}

impl Catalogue {
    /// The event types of a tenant, as they were a moment ago at most.
    pub(crate) async fn types(&self, app: &App, tenant: &TenantId) -> Result<Arc<Types>, Problem> {
        let now = app.source.now();
        let known = self.lock().get(tenant).cloned();
        if let Some(known) = known.as_ref().filter(|known| now < known.until) {
            return Ok(known.types.clone());
        }
        let types = Arc::new(Types::load(app, tenant, known.map(|known| known.types)).await?);
        let mut tenants = self.lock();
        if tenants.len() >= EVENT_TYPES_TENANTS_MAX {
            tenants.retain(|_, remembered| now < remembered.until);
        }
        if tenants.len() < EVENT_TYPES_TENANTS_MAX {
            let until = now + EVENT_TYPES_BELIEVED_FOR;
            tenants.insert(tenant.clone(), Remembered { types: types.clone(), until });
        }
        Ok(types)
    }

    /// Forgets a tenant's types, so that a change counts at once.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        self.lock().remove(tenant);
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<TenantId, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event types of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Types(FxHashMap<EventType, Arc<Described>>);

impl Types {
    /// Reads them; what is as it was keeps its compiled schemas.
    async fn load(
        app: &App,
        tenant: &TenantId,
        before: Option<Arc<Types>>,
    ) -> Result<Self, Problem> {
        let mut types = FxHashMap::default();
        let mut page = PageRequest::first(LIST_LIMIT_MAX);
        loop {
            let listing = app.store.event_types(tenant, page.clone()).await?;
            for record in listing.items {
                let old = before.as_ref().and_then(|before| before.0.get(&record.name));
                let same = old.filter(|old| old.record == record).cloned();
                let name = record.name.clone();
                types.insert(name, same.unwrap_or_else(|| Arc::new(Described::new(record))));
            }
            match listing.next {
                Some(next) => page.after = Some(next),
                None => return Ok(Self(types)),
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn describes(&self, name: &EventType) -> bool {
        self.0.contains_key(name)
    }

    /// Refuses the event, or says what does not fit, as its type wants it.
    pub(super) fn check(&self, event: &Event) -> Result<Vec<String>, Problem> {
        let Some(described) = self.0.get(&event.event_type) else { return Ok(Vec::new()) };
        match described.record.validation {
            Validation::Off => Ok(Vec::new()),
            Validation::Warn => {
                Ok(described.misfits(event).iter().map(Misfit::to_string).collect())
            }
            Validation::Reject => described.misfits(event).into_iter().next().map_or_else(
                || Ok(Vec::new()),
                |Misfit { field, problem }| {
                    let refused = Problem::new(Code::SchemaMismatch, problem);
                    Err(Problem { field: Some(field), ..refused })
                },
            ),
        }
    }
}

/// An event type, with those of its schemas compiled that were needed.
#[derive(Debug)]
struct Described {
    record: EventTypeRecord,
    compiled: BTreeMap<u32, OnceLock<Result<Validator, String>>>,
}

/// Where an event does not fit, and how.
#[derive(Debug, PartialEq, Eq)]
struct Misfit {
    field: String,
    problem: String,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl Described {
    fn new(record: EventTypeRecord) -> Self {
        let compiled = record.schemas.keys().map(|version| (*version, OnceLock::new())).collect();
        Self { record, compiled }
    }

    fn misfits(&self, event: &Event) -> Vec<Misfit> {
        match self.validator(event.schema_version) {
            Ok(None) => Vec::new(),
            Ok(Some(validator)) => misfits(validator, &event.payload),
            Err(misfit) => vec![misfit],
        }
    }

    /// The schema of that version, or the newest; nothing when there is none to hold against.
    fn validator(&self, version: Option<u32>) -> Result<Option<&Validator>, Misfit> {
        let newest = || self.record.schemas.keys().next_back().copied();
        let Some(version) = version.or_else(newest) else { return Ok(None) };
        let at = |problem: String| Misfit { field: "schema_version".to_owned(), problem };
        let Some(schema) = self.record.schemas.get(&version) else {
            return Err(at(self.unknown(version)));
        };
        match self.compiled[&version].get_or_init(|| compile(schema)) {
            Ok(validator) => Ok(Some(validator)),
            Err(problem) => Err(at(format!("its schema cannot be used: {problem}"))),
        }
    }

    fn unknown(&self, version: u32) -> String {
        let known: Vec<String> = self.record.schemas.keys().map(u32::to_string).collect();
        let (name, known) = (&self.record.name, known.join(", "));
        format!("`{name}` has no schema of version {version}; it has: {known}")
    }
}

/// Compiles a schema, or says why it is none. References lead into the schema alone: nothing is
/// fetched. Patterns are matched in linear time, so that no payload can make one run for ever.
pub(super) fn compile(schema: &Value) -> Result<Validator, String> {
    if !(schema.is_object() || schema.is_boolean()) {
        return Err("expected a JSON Schema: an object, or a boolean".to_owned());
    }
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    options.build(schema).map_err(|error| {
        let at = error.instance_path().to_string();
        let problem = error.masked().to_string();
        if at.is_empty() { problem } else { format!("{at}: {problem}") }
    })
}

fn misfits(validator: &Validator, payload: &[u8]) -> Vec<Misfit> {
    match serde_json::from_slice::<Value>(payload) {
        Ok(payload) => {
            validator.iter_errors(&payload).take(SCHEMA_PROBLEMS_MAX).map(|e| misfit(&e)).collect()
        }
        Err(error) => {
            let problem = format!("expected JSON, as its type has a schema: {error}");
            vec![Misfit { field: "payload".to_owned(), problem }]
        }
    }
}

/// The payload's values stay out of the text: where it does not fit is enough.
fn misfit(error: &ValidationError<'_>) -> Misfit {
    let field = format!("payload{}", path_of(error.instance_path().as_str()));
    Misfit { field, problem: error.masked().to_string() }
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
    use super::*;
    use serde_json::json;

    fn types(validation: Validation, schemas: &[(u32, Value)]) -> Types {
        let record = EventTypeRecord {
            tenant: "acme".parse().unwrap(),
            name: "order.created".parse().unwrap(),
            description: String::new(),
            schemas: schemas.iter().cloned().collect(),
            validation,
        };
        let described = Arc::new(Described::new(record));
        Types([("order.created".parse().unwrap(), described)].into_iter().collect())
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
        let types = types(Validation::Reject, &[(1, json!(true)), (2, order())]);
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
            let refused = types.check(&event(payload, version)).err();
            let refused = refused.map(|problem| (problem.code, problem.field.unwrap()));
            let expected = field.map(|field| (Code::SchemaMismatch, field.to_owned()));
            assert_eq!(refused, expected, "{payload} as version {version:?}");
        }
    }

    #[test]
    fn each_kind_of_validation_does_its_own_with_a_misfit() {
        for (validation, warnings) in
            [(Validation::Off, Some(0)), (Validation::Warn, Some(1)), (Validation::Reject, None)]
        {
            let checked = types(validation, &[(1, order())]).check(&event("{}", None));
            assert_eq!(checked.ok().map(|found| found.len()), warnings, "{validation:?}");
        }
        let other = Event { event_type: "order.sent".parse().unwrap(), ..event("{}", None) };
        assert_eq!(types(Validation::Reject, &[(1, order())]).check(&other).unwrap().len(), 0);
        let bare = types(Validation::Reject, &[]);
        assert!(bare.check(&event("{}", None)).unwrap().is_empty());
        assert!(bare.check(&event("{}", Some(1))).is_err());
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

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let nested = json!({"properties": {"next": {"$ref": "#"}}, "required": ["next"]});
        let validator = compile(&nested).unwrap();
        assert!(!validator.is_valid(&json!({"next": {"next": {}}})));
        if let Ok(validator) = compile(&json!({"$ref": "#"})) {
            let _ = validator.is_valid(&json!(1));
        }
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
