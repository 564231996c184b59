//! Events: publishing and reading them.

mod cloudevents;
mod schema;
mod publish;
mod stream;
mod read;

pub(crate) use read::{check_target, payload_response};

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    [publish::routes(), stream::routes(), read::routes()].concat()
}
