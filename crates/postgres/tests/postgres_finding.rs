//! Searching in a database with many events.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use railpost_conformance::many::each_kind_is_found_among;
use support::postgres::fresh_address;
use support::store::connect;

#[tokio::test]
async fn each_kind_of_thing_is_found_among_100_000_events() {
    let store = connect(&fresh_address().await).await;
    each_kind_is_found_among(&store, 100_000).await;
}
