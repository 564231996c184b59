//! Interop with libraries that nobody here wrote: PyPI's and npm's `standardwebhooks` and `stripe`, PyPI's
//! `cloudevents`; with verifiers as people write them by hand; and the small receivers of
//! docs/receiving.md, in Python and TypeScript.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
#![allow(clippy::print_stdout, reason = "what it shows is part of the proof")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/running.rs"]
mod running;

mod tools;
mod signatures;
mod timestamped;
mod cloudevents;
mod documented;
