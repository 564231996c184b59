//! One operation of the API, and what the types of its handler say about it.

use http::{Method, StatusCode};
use schemars::{Schema, SchemaGenerator};

use crate::answer::{Answer, DescribedAnswer};
use crate::body::FromBody;
use crate::needs::Needs;
use crate::path::FromPath;
use crate::query::FromQuery;

/// A method of a path.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its method.
    pub method: Method,
    /// Its path, with parameters between braces.
    pub path: &'static str,
    /// What it needs of its caller.
    pub needs: Needs,
    /// What it does, in a line.
    pub summary: &'static str,
    /// What its answer means to the caller, unless the answer's type says so.
    pub meaning: Option<&'static str>,
    /// Statuses with which it refuses beside those that all like it have.
    pub refusals: &'static [StatusCode],
    /// What the types of its handler say about it.
    pub describe: fn(&mut SchemaGenerator) -> HandlerTypes,
}

/// What the types of a handler say about its operation.
#[derive(Clone, Debug)]
pub struct HandlerTypes {
    /// The parameters, each with what it is and its schema.
    pub path: Vec<(&'static str, &'static str, Schema)>,
    /// The schemas of objects whose properties are the parameters of the query.
    pub query: Vec<Schema>,
    /// The content types of the body, and the schema of each.
    pub body: Vec<(&'static str, Schema)>,
    /// Whether a request that comes again can be known as such.
    pub repeatable: bool,
    /// The answers when all went well.
    pub answers: Vec<DescribedAnswer>,
}

impl HandlerTypes {
    /// Those of a handler that takes a path, a query and a body and gives an answer.
    pub fn of<P: FromPath, Q: FromQuery, B: FromBody, A: Answer>(
        schemas: &mut SchemaGenerator,
    ) -> Self {
        Self {
            path: P::describe(schemas),
            query: Q::schemas(schemas),
            body: B::describe(schemas),
            repeatable: B::REPEATABLE,
            answers: A::describe(schemas),
        }
    }
}
