//! JSON Schemas with a budget: what a schema may cost, compiling it, and validating payloads within bounds.
//!
//! It must not know HTTP, problems or routes: payloads are validated wherever they come from. It logs nothing
//! by itself. It reads event types from the store and writes nothing.
//!
//! Start with [`Catalogue`], which has a tenant's event types at hand, then [`EventTypes::check`]. `budget`
//! has the argument why nothing can run for ever.

pub mod limits;

mod budget;
mod event_type;
mod threads;
mod catalogue;

pub use budget::SchemaError;
pub use catalogue::{Catalogue, EventTypes};
pub use event_type::{CompiledSchema, Mismatch, Rejection, compile, schemas_len};
pub use threads::{ThreadError, ValidationThreads};
