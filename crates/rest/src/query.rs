//! The query parameters of a route.

use railpost_store::limits::LIST_LIMIT_MAX;
use railpost_store::{Cursor, PageRequest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{CURSOR_LEN_MAX, PAGE_LIMIT_DEFAULT};
use crate::problem::Problem;

/// Reads a query.
pub trait FromQuery: Sized + Send + 'static {
    /// Reads it; the problem names the parameter.
    fn from_query(query: &str) -> Result<Self, Problem>;

    /// Schemas of objects whose properties are the parameters.
    fn schemas(schemas: &mut SchemaGenerator) -> Vec<Schema>;
}

/// A query without parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoQuery;

impl FromQuery for NoQuery {
    fn from_query(query: &str) -> Result<Self, Problem> {
        Query::<Nothing>::from_query(query).map(|_| NoQuery)
    }

    fn schemas(_: &mut SchemaGenerator) -> Vec<Schema> {
        Vec::new()
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The parameters of `T`.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> FromQuery for Query<T> {
    fn from_query(query: &str) -> Result<Self, Problem> {
        parse(query).map(Query)
    }

    fn schemas(schemas: &mut SchemaGenerator) -> Vec<Schema> {
        vec![schemas.subschema_for::<T>()]
    }
}

/// A part of a list: the parameters of `T`, which say what the list shows, and those of a page.
#[derive(Clone, Debug)]
pub struct PagedQuery<T> {
    /// What the list shows.
    pub filter: T,
    /// Which part of it.
    pub page: PageRequest,
}

/// A list that shows everything.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoFilter {}

/// Which part of a list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PageParameters {
    /// Most items: 1 to 500. 50 if not given.
    #[schemars(range(min = 1, max = LIST_LIMIT_MAX))]
    limit: Option<u32>,
    /// The `next` of the page before; nothing for the first page.
    #[serde(default)]
    #[schemars(schema_with = "cursor")]
    cursor: Option<String>,
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> FromQuery for PagedQuery<T> {
    fn from_query(query: &str) -> Result<Self, Problem> {
        let of_page = |pair: &&str| pair.starts_with("limit=") || pair.starts_with("cursor=");
        let (page, filter): (Vec<&str>, Vec<&str>) =
            query.split('&').partition(|pair| of_page(pair));
        let page: PageParameters = parse(&page.join("&"))?;
        let after = page.cursor.map(|cursor| cursor.parse::<Cursor>());
        let after = after.transpose()?;
        let limit = page.limit.unwrap_or(PAGE_LIMIT_DEFAULT);
        if !(1..=LIST_LIMIT_MAX).contains(&limit) {
            let detail = format!("expected 1 to {LIST_LIMIT_MAX}; got {limit}");
            return Err(Problem::parameter("limit", detail));
        }
        let page = PageRequest { limit, after };
        Ok(Self { filter: parse(&filter.join("&"))?, page })
    }

    fn schemas(schemas: &mut SchemaGenerator) -> Vec<Schema> {
        vec![schemas.subschema_for::<T>(), schemas.subschema_for::<PageParameters>()]
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let deserializer = serde_urlencoded::Deserializer::new(pairs);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let name = error.path().to_string();
        Problem::parameter(
            if name == "." { String::new() } else { name },
            error.into_inner().to_string(),
        )
    })
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct ListPage<T> {
    /// The items. There may be fewer than asked for, even none, with more to come.
    pub items: Vec<T>,
    /// What `cursor` must be for the next page; nothing when this was the last.
    #[schemars(schema_with = "cursor")]
    pub next: Option<String>,
}

impl<T> ListPage<T> {
    /// A page of what a store listed, each item as the API shows it.
    pub fn of<S>(listing: railpost_store::Listing<S>, view: impl FnMut(S) -> T) -> Self {
        let next = listing.next.map(|cursor| cursor.to_string());
        Self { items: listing.items.into_iter().map(view).collect(), next }
    }
}

/// Where a list goes on.
fn cursor(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["string", "null"],
        "pattern": "^[A-Za-z0-9_-]+$",
        "maxLength": CURSOR_LEN_MAX,
    })
}
