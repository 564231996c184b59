//! The API over real HTTP: a server in this process, a client, and receivers on loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;
mod receiver;
mod scene;
mod contract;
mod things;
mod sign_in;
mod http2;
#[allow(dead_code, reason = "the tests of the dispatcher use more of it")]
#[path = "../../../dispatch/tests/dispatcher/flaky.rs"]
mod flaky;

mod abuse;
mod alerts;
mod deadlines;
mod unreadable;
mod frugality;
mod dashboard;
mod routing;
mod shapes;
mod at_rest;
mod audit;
mod endpoints;
mod health;
mod envelopes;
mod merging;
mod event_types;
mod schema_budget;
mod isolation;
mod keys;
mod openapi;
mod publishing;
mod cloudevents;
mod streaming;
mod reading;
mod ordering;
mod replays;
mod story;
mod finding;
mod thin;
mod idempotency;
mod limits;
mod networks;
mod notices;
mod figures;
mod report;
mod objective;
mod secrets;
mod secret_rotation;
mod tenants;
mod removal;
mod erasing;
mod maintenance;
mod faults;
mod alert_rules;
