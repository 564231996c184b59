//! The transactional outbox, for producers: an event exists if and only if the transaction committed.
//!
//! An application that changes its database and then posts an event can die between the two. So it writes
//! the event to a table of its own database, in the transaction that makes the change. Railpost reads
//! the table and delivers. `docs/outbox.md` has the whole picture, and snippets for other languages.
//!
//! [`Event`] checks an event before it is written. [`sql`] has the texts for any driver, and
//! [`Event::parameters`] what belongs to them. The features `tokio-postgres`, `sqlx`, `diesel` and `rusqlite`
//! each add a module of that name with `emit`. Nothing is on by default.
//!
//! ```
//! use railpost_outbox::{Event, rusqlite::emit, sql};
//!
//! let mut connection = rusqlite::Connection::open_in_memory()?;
//! connection.execute_batch(sql::SQLITE_TABLE)?;
//! connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER) STRICT")?;
//!
//! let event = Event::new("order.paid", r#"{"order": 42}"#).key("order-42").build()?;
//! let mut transaction = connection.transaction()?;
//! transaction.execute("INSERT INTO orders (id, paid) VALUES (42, 1)", [])?;
//! emit(&mut transaction, &event)?;
//! transaction.commit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Write the event last**, after the rows that it is about. Two transactions that change the same row
//! then wait for each other before either has an event, so the events of a key are in the order of the
//! changes. Where the event has to come first, [`EventBuilder::strict`] makes the events of a key wait
//! instead.
//!
//! This crate knows nothing of Railpost's server: it opens no connection, reads no clock and draws no
//! random numbers. The database gives an event its id and its time where the producer has none.

pub mod sql;

mod event;

#[cfg(feature = "diesel")]
pub mod diesel;
#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use event::{Event, EventBuilder, InvalidEvent, Parameters};
