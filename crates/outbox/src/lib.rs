//! The transactional outbox, for producers: an event exists if and only if the transaction committed.

pub mod sql;
