//! For the authors of stores: what every backend shares. Callers of a store need none of it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`check`] | bounds and conflicts, refused before anything is written |
//! | [`fanout`], [`delivery_ids`] | which endpoints get an event, and the ids of its deliveries |
//! | [`listing`], [`loading`] | pages of lists for people, and of lanes for the engine |
//! | [`needle`] | the words of a search as ranges of columns, and the order of what it finds |
//! | [`codes`], [`accepted_by`], [`brief_attempt`], [`packed_figures`] | stored values in numbers and bytes: stable |
//! | [`encryption`] | encryption of what is secret, for its own row |
//! | [`leases`] | leases of sources, for backends that one process has |
//! | [`figures`] | figures by the minute and by the hour |
//! | [`judging`] | which rows are late deliveries |
//! | [`rows`], [`lines`] | for databases in SQL: columns that are read back, a restored store's new lines |
//!
//! A new backend passes the suite of `railpost-conformance`.

pub mod accepted_by;
pub mod brief_attempt;
pub mod check;
pub mod delivery_ids;
pub mod fanout;
pub mod judging;
pub mod leases;
pub mod lines;
pub mod loading;
pub mod needle;
pub mod codes;
pub mod packed_figures;
pub mod encryption;
pub mod rows;

pub mod figures {
    //! Figures by the minute and by the hour, as rows.

    pub use crate::figures::{Bucket, READ_MAX, by_bucket, read_buckets};
}

pub mod listing {
    //! Lists in pages: what each is ordered by, and how a page is cut out of it.

    pub use crate::listing::{ListKind, Position, scan};
}
