//! A client for PostgreSQL's logical replication protocol: it connects, creates and drops slots, and reads a
//! slot's stream of inserts and logical messages as `pgoutput` sends it, in commit order.
//!
//! It knows nothing of what the changes mean, where they go or how far they were stored: the caller confirms
//! every position itself, and nothing is confirmed that the caller did not confirm. It never reconnects by
//! itself: an error ends the stream, and the caller starts again from the position it has stored.
//!
//! Start with [`Target`], then [`Connection::connect`], [`Connection::start`] and [`Stream::next`].
//!
//! ```no_run
//! # async fn example() -> Result<(), railpost_replication::Error> {
//! use railpost_replication::pgoutput::Message;
//! use railpost_replication::{Connection, Frame, Lsn, Start, Target};
//!
//! let target = Target::new("postgres://app@localhost/shop", None)?;
//! let connection = Connection::connect(&target).await?;
//! let start = Start { slot: "shop", from: Lsn::ZERO, publications: &["shop"], messages: false };
//! let mut stream = connection.start(&start).await?;
//! loop {
//!     match stream.next().await? {
//!         Frame::Message(Message::Commit(commit)) => stream.confirm(commit.end_lsn),
//!         Frame::Message(_) => {}
//!         Frame::Idle(lsn) => stream.confirm(lsn),
//!     }
//! }
//! # }
//! ```

mod lsn;
mod error;
mod target;
mod connection;
mod stream;
pub mod pgoutput;
pub mod limits;

mod auth;
mod backend;
mod cursor;
mod tls;
mod transport;

pub use connection::{Connection, NewSlot, Slot, Start, SystemIdentity, WalStatus};
pub use error::{Error, ErrorKind, ServerError};
pub use lsn::Lsn;
pub use stream::{Frame, Stream};
pub use target::Target;
