//! Requests and answers of an API whose handlers' types are its specification: paths, queries and strict bodies in,
//! answers and problems out, and the OpenAPI document and pages made of them.
//!
//! It knows no route, no store and no state of the server: what an operation does is the API's.
//!
//! Start with [`operation`], then [`body`] and [`answer`].

pub mod answer;
pub mod body;
pub mod client_address;
pub mod limits;
pub mod members;
pub mod merge;
pub mod needs;
pub mod openapi;
pub mod operation;
pub mod pages;
pub mod path;
pub mod problem;
pub mod query;
pub mod run_despite_disconnect;

mod strict;

pub use schemars::{Schema, SchemaGenerator};
