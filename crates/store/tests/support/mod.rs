//! What several test files need. Not each of them needs all of it.

#![allow(dead_code, missing_docs)]

pub(crate) mod postgres;
pub(crate) mod proxy;
