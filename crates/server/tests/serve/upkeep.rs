//! Retention.

use railpost::config::Config;
use railpost::serve::Server;
use railpost_engine::Span;
use railpost_store::AcceptBatch;
use railpost_telemetry::{Level, Log};

use super::process::{PATIENCE, call};
use super::seeded::tenant;

#[test]
fn events_past_their_time_are_deleted_while_the_server_runs() {
    let mut config = Config::default();
    config.store.url = "memory:".to_owned();
    config.server.listen = "127.0.0.1:0".parse().unwrap();
    config.retention.closed = Span::ZERO;
    config.retention.prune_every = Span::from_millis(10);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::start(config, Log::new(Level::Error, std::io::sink()));
    let server = runtime.block_on(server).unwrap();
    let event = railpost_store::Event {
        id: "evt_1".parse().unwrap(),
        event_type: "order.paid".parse().unwrap(),
        key: None,
        payload: "1".into(),
        content_type: "application/json".parse().unwrap(),
        schema_version: None,
        time: Default::default(),
        traceparent: None,
        cloudevent: None,
    };
    let batch =
        AcceptBatch { tenant: tenant(), events: vec![event], accepted_by: None, idempotency: None };
    runtime.block_on(server.app().dispatcher.accept(batch)).unwrap();
    let page =
        || call(http::Request::get(format!("{}/metrics", server.url())).body(vec![]).unwrap()).1;
    let until = std::time::Instant::now() + PATIENCE;
    while !page().contains("railpost_pruned_events_total 1\n") {
        assert!(std::time::Instant::now() < until, "{}", page());
    }
    assert!(runtime.block_on(server.drain()));
}
