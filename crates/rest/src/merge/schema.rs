//! The schema of a merge patch, derived from the schema of the settings.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Settings;
use crate::openapi::{referred_name, without_null};

/// A place in settings, by its schema.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'s> {
    /// Where references lead into.
    definitions: &'s Value,
    schema: &'s Value,
}

impl<'s> Shape<'s> {
    /// The schema of a type with all that it refers to.
    pub(crate) fn document<T: JsonSchema>() -> Value {
        SchemaGenerator::default().into_root_schema_for::<T>().into()
    }

    /// The whole of a document.
    pub(crate) fn of(document: &'s Value) -> Self {
        Self { definitions: &document["$defs"], schema: document }
    }

    /// The schema of a field, or of the entries of a map; nothing if there can be none of that name.
    pub(crate) fn member(self, name: &str) -> Option<Self> {
        let choices = self.choices();
        let field = choices.iter().find_map(|choice| choice.schema["properties"].get(name));
        let entry =
            || choices.iter().find_map(|choice| choice.entries().map(|(_, _, entry)| entry));
        field.or_else(entry).map(|schema| Self { schema, ..self })
    }

    /// Whether `null` may stand here.
    pub(crate) fn allows_null(self) -> bool {
        self.choices().iter().any(|choice| match &choice.schema["type"] {
            Value::Array(kinds) => kinds.contains(&json!("null")),
            kind => kind == "null",
        })
    }

    /// The schema, what it refers to, and the schemas among which it lets choose.
    fn choices(self) -> Vec<Self> {
        let definition = self.schema["$ref"].as_str().map(referred_name);
        let definition = definition.map(|name| &self.definitions[name]);
        let lists = ["anyOf", "oneOf"].map(|list| self.schema[list].as_array());
        let within = definition.into_iter().chain(lists.into_iter().flatten().flatten());
        let within = within.flat_map(|schema| Self { schema, ..self }.choices());
        [self].into_iter().chain(within).collect()
    }

    /// If it is a map: where its schema has the schema of the entries, by which pattern of names, and that.
    fn entries(self) -> Option<(&'static str, Option<&'s str>, &'s Value)> {
        let any = self.schema["additionalProperties"].is_object();
        let any = any.then(|| ("additionalProperties", None, &self.schema["additionalProperties"]));
        let named = self.schema["patternProperties"].as_object().and_then(|all| all.iter().next());
        named.map(|(name, entry)| ("patternProperties", Some(name.as_str()), entry)).or(any)
    }
}

/// The schema of a change to settings: the same fields, all of which may be left out, and `null` for those
/// that have a default.
pub(super) fn of_change<T: Settings>(schemas: &mut SchemaGenerator) -> Schema {
    let (name, about) = T::CHANGE;
    let schema = schemas.subschema_for::<T>().into();
    let definitions = schemas.definitions().clone().into();
    let mut change = change(Shape { definitions: &definitions, schema: &schema });
    for (name, schema) in T::beside(schemas) {
        change["properties"][name] = schema.into();
    }
    change["description"] = about.into();
    change["examples"] = json!([T::example()]);
    schemas.definitions_mut().insert(name.to_owned(), change);
    schemars::json_schema!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The schema of a change to what stands at this place, without `null`.
fn change(place: Shape<'_>) -> Value {
    let choices = place.choices();
    let objects = choices.iter().filter(|choice| choice.schema["properties"].is_object());
    let objects: Vec<Shape<'_>> = objects.copied().collect();
    let map = choices.iter().find(|choice| choice.entries().is_some());
    let mut schema = match (&objects[..], map) {
        ([], None) => without_null(place.schema.clone()),
        ([], Some(map)) => map_change(*map),
        (objects, _) => object_change(objects),
    };
    let about = choices.iter().find_map(|choice| choice.schema.get("description"));
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
        fields.extend(about.map(|about| ("description".to_owned(), about.clone())));
    }
    schema
}

/// A map whose entries are added, replaced, or removed by `null`.
fn map_change(map: Shape<'_>) -> Value {
    let mut schema = map.schema.clone();
    if let Some((list, pattern, entry)) = map.entries() {
        let entry = or_null(change(Shape { schema: entry, ..map }));
        match pattern {
            Some(pattern) => schema[list][pattern] = entry,
            None => schema[list] = entry,
        }
    }
    schema
}

/// An object, or one of several kinds of objects, any field of which is left out, changed, or set back.
fn object_change(objects: &[Shape<'_>]) -> Value {
    let mut properties = Map::new();
    for object in objects {
        add_properties(*object, &mut properties, objects.len() > 1);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// Adds the properties of an object. If it is one of several kinds, what tells them apart has one of several
/// values.
fn add_properties(object: Shape<'_>, properties: &mut Map<String, Value>, one_of_several: bool) {
    let required = object.schema["required"].as_array().cloned().unwrap_or_default();
    for (name, schema) in object.schema["properties"].as_object().into_iter().flatten() {
        let kind = schema.get("const").filter(|_| one_of_several);
        if let Some(kind) = kind {
            let known = properties.entry(name).or_insert_with(|| json!({ "enum": [] }));
            known["enum"].as_array_mut().into_iter().for_each(|all| all.push(kind.clone()));
            continue;
        }
        let changed = change(Shape { schema, ..object });
        let has_default = !required.contains(&json!(name));
        properties.insert(name.clone(), if has_default { or_null(changed) } else { changed });
    }
}

fn or_null(mut schema: Value) -> Value {
    if let (Some(Value::String(kind)), None) = (schema.get("type"), schema.get("enum")) {
        schema["type"] = json!([kind, "null"]);
        return schema;
    }
    let about = schema.as_object_mut().and_then(|fields| fields.remove("description"));
    let mut either = json!({ "anyOf": [schema, { "type": "null" }] });
    if let Some(about) = about {
        either["description"] = about;
    }
    either
}
