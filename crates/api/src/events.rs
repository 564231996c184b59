//! Events: publishing and reading them.

mod cloudevents;
mod schema;
mod publish;
mod stream;
mod read;

pub(crate) use read::{
    AcceptedByView, EventHeadView, PageDetails, check_target, find as find_event, payload_response,
};

use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    [publish::routes(), stream::routes(), read::routes()].concat()
}
