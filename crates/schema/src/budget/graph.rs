//! A schema as a graph: which schemas it applies, and to what.

use percent_encoding::percent_decode_str;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use super::{SchemaError, pattern};
use crate::limits::{SCHEMA_NODES_MAX, SCHEMA_PATTERNS_MAX};

/// Schemas of which at most one applies to any value.
type Group = Vec<usize>;

/// All schemas that are reached from one.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// The nodes in such an order that each comes after those that it applies to the same value.
    order: Vec<usize>,
}

/// One schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Steps of its own keywords.
    pub(super) weight: u64,
    /// Cost of its own keywords for each byte of the value's text.
    pub(super) per_byte: u64,
    /// What it applies to the same value.
    pub(super) in_place: Vec<Group>,
    /// What it applies to the items of an array.
    pub(super) items: Vec<Group>,
    /// What it applies to the members of an object.
    pub(super) members: Vec<Group>,
    /// Whether what it applies is run once to see whether it holds and once more to see why not.
    pub(super) repeats: bool,
}

impl Graph {
    pub(super) fn root(&self) -> usize {
        0
    }

    pub(super) fn inner_first(&self) -> impl Iterator<Item = usize> {
        self.order.iter().copied()
    }

    pub(super) fn read(schema: &Value) -> Result<Self, SchemaError> {
        let mut reader = GraphReader::new(schema);
        reader.number(schema, Role::Applied);
        while let Some((number, next, role)) = reader.waiting.pop() {
            let node = match role {
                Role::Applied => reader.node(next)?,
                Role::Marked => reader.marker(next)?,
            };
            reader.nodes[number] = node;
            if reader.nodes.len() > SCHEMA_NODES_MAX {
                let problem = format!("it has more than {SCHEMA_NODES_MAX} schemas inside");
                return Err(SchemaError::TooCostly(problem));
            }
        }
        let order = inner_first(&reader.nodes)?;
        Ok(Self { nodes: reader.nodes, order })
    }
}

/// What a node stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// The schema is applied to a value.
    Applied,
    /// It is found out what the schema evaluates of a value, for `unevaluatedProperties` or
    /// `unevaluatedItems`: what it applies to the same value is run once more.
    Marked,
}

/// What is being read.
struct GraphReader<'s> {
    /// Schemas that a reference may be relative to: the whole, and those with an id, each with it.
    resources: Vec<(Option<&'s str>, &'s Value)>,
    anchors: FxHashMap<&'s str, Vec<&'s Value>>,
    /// The number of each schema that was reached, by where it lies in memory.
    numbers: FxHashMap<(usize, Role), usize>,
    nodes: Vec<Node>,
    waiting: Vec<(usize, &'s Value, Role)>,
    /// The node that stands for comparing all that lies below a value.
    comparison: Option<usize>,
    patterns: usize,
}

impl<'s> GraphReader<'s> {
    fn new(root: &'s Value) -> Self {
        let mut reader = Self {
            resources: vec![(None, root)],
            anchors: FxHashMap::default(),
            numbers: FxHashMap::default(),
            nodes: Vec::new(),
            waiting: Vec::new(),
            comparison: None,
            patterns: 0,
        };
        reader.find_names(root);
        reader
    }

    /// Notes all ids and anchors, wherever they stand: what is none of a schema costs nothing but a
    /// candidate more.
    fn find_names(&mut self, value: &'s Value) {
        match value {
            Value::Object(map) => {
                for name in ["$id", "id"] {
                    if let Some(id) = map.get(name).and_then(Value::as_str) {
                        self.resources.push((Some(id), value));
                        self.note_anchor(id.strip_prefix('#'), value);
                    }
                }
                for name in ["$anchor", "$dynamicAnchor"] {
                    self.note_anchor(map.get(name).and_then(Value::as_str), value);
                }
                map.values().for_each(|inner| self.find_names(inner));
            }
            Value::Array(items) => items.iter().for_each(|inner| self.find_names(inner)),
            _ => {}
        }
    }

    fn note_anchor(&mut self, name: Option<&'s str>, value: &'s Value) {
        if let Some(name) = name {
            self.anchors.entry(name).or_default().push(value);
        }
    }

    /// The number of a schema. One that was not reached before waits to be read.
    fn number(&mut self, schema: &'s Value, role: Role) -> usize {
        let (place, next) = (std::ptr::from_ref(schema) as usize, self.nodes.len());
        let number = *self.numbers.entry((place, role)).or_insert(next);
        if number == next {
            self.nodes.push(Node::default());
            self.waiting.push((number, schema, role));
        }
        number
    }

    fn node(&mut self, schema: &'s Value) -> Result<Node, SchemaError> {
        let mut node = Node { weight: 1, ..Node::default() };
        let Value::Object(map) = schema else { return Ok(node) };
        for (keyword, value) in map {
            self.keyword(&mut node, keyword, value)?;
        }
        let unevaluated = ["unevaluatedProperties", "unevaluatedItems"];
        if unevaluated.iter().any(|keyword| map.contains_key(*keyword)) {
            node.in_place.push(vec![self.number(schema, Role::Marked)]);
        }
        Ok(node)
    }

    /// What it takes to find out what a schema evaluates: all that it applies to the same value is run, and
    /// looked at in the same way.
    fn marker(&mut self, schema: &'s Value) -> Result<Node, SchemaError> {
        let mut node = Node { weight: 1, ..Node::default() };
        let Value::Object(map) = schema else { return Ok(node) };
        for (keyword, value) in map {
            match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    let targets = self.targets(keyword, value)?;
                    node.in_place.push(self.all(&targets, Role::Applied));
                    node.in_place.push(self.all(&targets, Role::Marked));
                }
                "allOf" | "anyOf" | "oneOf" | "if" | "then" | "else" | "dependentSchemas"
                | "dependencies" => {
                    for inner in schemas_in(keyword, value) {
                        node.in_place.push(self.all(&[inner], Role::Applied));
                        node.in_place.push(self.all(&[inner], Role::Marked));
                    }
                }
                "patternProperties" | "unevaluatedProperties" | "unevaluatedItems" => {
                    self.keyword(&mut node, keyword, value)?;
                }
                _ => node.weight += 1 + values_in(value, keyword) / 16,
            }
        }
        Ok(node)
    }

    fn keyword(
        &mut self,
        node: &mut Node,
        keyword: &str,
        value: &'s Value,
    ) -> Result<(), SchemaError> {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let targets = self.targets(keyword, value)?;
                node.in_place.push(self.all(&targets, Role::Applied));
            }
            "allOf" | "anyOf" | "oneOf" => {
                node.in_place.extend(self.each(value));
                node.repeats |= keyword != "allOf";
            }
            "not" | "if" | "then" | "else" => {
                node.in_place.push(self.one(value));
                node.repeats = true;
            }
            "dependentSchemas" | "dependencies" => node.in_place.extend(self.each(value)),
            "properties" => node.members.push(self.each(value).concat()),
            "patternProperties" => {
                node.members.extend(self.each(value));
                for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                    node.per_byte += self.pattern(pattern)?;
                }
            }
            "additionalProperties" | "propertyNames" => node.members.push(self.one(value)),
            "prefixItems" => node.items.push(self.each(value).concat()),
            "items" if value.is_array() => node.items.push(self.each(value).concat()),
            "items" | "additionalItems" | "contains" => node.items.push(self.one(value)),
            "unevaluatedProperties" => node.members.push(self.one(value)),
            "unevaluatedItems" => node.items.push(self.one(value)),
            "uniqueItems" => node.items.push(vec![self.comparison()]),
            "pattern" => node.per_byte += self.pattern(value.as_str().unwrap_or_default())?,
            // The text is compiled as a pattern.
            "format" if value == "regex" => {
                (node.weight, node.per_byte) = (node.weight + 20_000, node.per_byte + 4_000);
            }
            "format" | "contentEncoding" | "contentMediaType" => node.per_byte += 8,
            _ => {}
        }
        // Lists of values and of names: each entry is a comparison at most.
        node.weight += 1 + values_in(value, keyword) / 16;
        Ok(())
    }

    /// Each schema of a list or a map, by itself.
    fn each(&mut self, value: &'s Value) -> Vec<Group> {
        schemas_of(value).map(|inner| self.one(inner)).collect()
    }

    fn one(&mut self, schema: &'s Value) -> Group {
        self.all(&[schema], Role::Applied)
    }

    /// Those that are schemas, as one group.
    fn all(&mut self, schemas: &[&'s Value], role: Role) -> Group {
        let schemas = schemas.iter().filter(|schema| schema.is_object() || schema.is_boolean());
        schemas.map(|schema| self.number(schema, role)).collect()
    }

    /// The node that compares a value, and all below it.
    fn comparison(&mut self) -> usize {
        if let Some(number) = self.comparison {
            return number;
        }
        let number = self.nodes.len();
        let below = vec![vec![number]];
        let (items, members) = (below.clone(), below);
        self.nodes.push(Node { weight: 15, per_byte: 15, items, members, ..Node::default() });
        self.comparison = Some(number);
        number
    }

    fn pattern(&mut self, pattern: &str) -> Result<u64, SchemaError> {
        self.patterns += 1;
        if self.patterns > SCHEMA_PATTERNS_MAX {
            let problem = format!("it has more than {SCHEMA_PATTERNS_MAX} patterns");
            return Err(SchemaError::TooCostly(problem));
        }
        pattern::cost_per_byte(pattern)
    }

    /// All that a reference may lead to: which of them it is depends on ids and, if it is dynamic, on the
    /// way to it.
    fn targets(&self, keyword: &str, value: &Value) -> Result<Vec<&'s Value>, SchemaError> {
        let Some(text) = value.as_str() else { return Ok(Vec::new()) };
        let (base, fragment) = text.split_once('#').unwrap_or((text, ""));
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        let found: Vec<&'s Value> = match fragment.as_ref() {
            "" => self.bases(base).collect(),
            pointer if pointer.starts_with('/') => {
                self.bases(base).filter_map(|base| base.pointer(pointer)).collect()
            }
            anchor => self.anchors.get(anchor).cloned().unwrap_or_default(),
        };
        match found.is_empty() {
            true => {
                let problem = format!("{keyword} `{text}` leads to nothing inside the schema");
                Err(SchemaError::Invalid(problem))
            }
            false => Ok(found),
        }
    }

    /// The schemas that a URI may name: those whose id ends with the same name, or all for none.
    fn bases(&self, uri: &str) -> impl Iterator<Item = &'s Value> {
        let last = |uri: &str| uri.trim_end_matches('#').rsplit('/').next().map(str::to_owned);
        let (any, name) = (uri.is_empty(), last(uri));
        let bases = self.resources.iter().filter(move |(id, _)| any || id.and_then(last) == name);
        bases.map(|(_, schema)| *schema).collect::<Vec<_>>().into_iter()
    }
}

/// The schemas that a keyword holds: one, or those of a list or a map.
fn schemas_in<'s>(keyword: &str, value: &'s Value) -> Vec<&'s Value> {
    match keyword {
        "if" | "then" | "else" => vec![value],
        _ => schemas_of(value).collect(),
    }
}

/// The values of a list or a map.
fn schemas_of(value: &Value) -> impl Iterator<Item = &Value> {
    let items = value.as_array().into_iter().flatten();
    items.chain(value.as_object().into_iter().flat_map(Map::values))
}

/// How many values a keyword lists.
fn values_in(value: &Value, keyword: &str) -> u64 {
    match (keyword, value) {
        ("enum" | "const", value) => all_values(value),
        ("dependentRequired" | "dependencies", value) => all_values(value),
        ("required" | "type", Value::Array(items)) => items.len() as u64,
        ("properties" | "patternProperties", Value::Object(map)) => map.len() as u64,
        _ => 0,
    }
}

fn all_values(value: &Value) -> u64 {
    let inner: u64 = match value {
        Value::Array(items) => items.iter().map(all_values).sum(),
        Value::Object(map) => map.values().map(all_values).sum(),
        Value::String(text) => text.len() as u64 / 64,
        _ => 0,
    };
    1 + inner
}

/// Orders the nodes so that each comes after those it applies to the same value, without recursion: a
/// chain may be long. What applies itself to the same value would never end.
fn inner_first(nodes: &[Node]) -> Result<Vec<usize>, SchemaError> {
    let (mut order, mut state) =
        (Vec::with_capacity(nodes.len()), vec![VisitState::New; nodes.len()]);
    for start in 0..nodes.len() {
        let mut open = vec![start];
        while let Some(&number) = open.last() {
            if state[number] != VisitState::New {
                open.pop();
                if state[number] == VisitState::Open {
                    state[number] = VisitState::Done;
                    order.push(number);
                }
                continue;
            }
            state[number] = VisitState::Open;
            for inner in nodes[number].in_place.iter().flatten() {
                match state[*inner] {
                    VisitState::New => open.push(*inner),
                    VisitState::Open => {
                        return Err(SchemaError::TooCostly(SELF_APPLYING.to_owned()));
                    }
                    VisitState::Done => {}
                }
            }
        }
    }
    Ok(order)
}

const SELF_APPLYING: &str = "it applies itself to the same value: a reference leads back to where it \
                             stands without going into the payload";

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    Open,
    Done,
}
