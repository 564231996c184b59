//! For consumers of webhooks: verify, deduplicate, keep in order.
//!
//! A sender that delivers at least once sends some events twice. This crate makes that harmless in a
//! few lines: [`Receiver`] says whether a request is authentic, an inbox says whether its event is to
//! be applied. It knows events by their id, and their order by the line (`X-Lane`) and the seq that the
//! sender gives them. With a SQL inbox, the inbox's row and the application's effect commit in one
//! transaction, so that the event is applied once, whatever crashes when.
//!
//! It knows nothing of the sender's insides: no engine, no store, only the wire. It reads no clock but
//! in its HTTP adapters, and no bytes from outside make it panic.
//!
//! Start with [`Receiver::verify`], then [`Policy`] for the rules, then the inbox of your choice:
//!
//! | inbox | feature | after a crash |
//! |---|---|---|
//! | [`MemoryInbox`] | | everything is forgotten: what comes again is applied again |
//! | `redis::RedisInbox` | `redis` | an effect that had happened but was not yet noted happens again |
//! | `sqlite::SqliteInbox` | `sqlite` | effect and row are both there, or neither |
//! | `postgres::PostgresInbox` | `postgres` | effect and row are both there, or neither |
//!
//! The features `tower` and `axum` have adapters, `testing` sends the trouble of a real network to a
//! handler under test.
//!
//! ```
//! use railpost_receiver::{MemoryInbox, Receiver};
//! # use std::collections::HashMap;
//! # let (headers, body, now) = (HashMap::from([
//! #     ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
//! #     ("webhook-timestamp", "1614265330"),
//! #     ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
//! # ]), br#"{"test": 2432232314}"#, 1_614_265_330);
//! # let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
//! let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
//! let (receiver, inbox) = (Receiver::new(vec![secret], vec![]), MemoryInbox::default());
//!
//! let received = receiver.verify(header, body, now)?;
//! let mut applied = 0;
//! for _ in 0..2 {
//!     let verdict = inbox.apply(&received, now, || {
//!         applied += 1;
//!         Ok::<(), std::convert::Infallible>(())
//!     })?;
//!     assert_eq!(verdict.answer().status, 200);
//! }
//! assert_eq!(applied, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod limits;

mod receive;
mod delivery;
mod answer;

mod inbox;
mod gap_timers;
mod memory;
mod counters;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod work;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "postgres")]
pub mod postgres;

#[cfg(feature = "redis")]
pub mod redis;

#[cfg(feature = "tower")]
pub mod request_verifier;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "axum")]
pub mod axum;

#[cfg(feature = "testing")]
pub mod testing;

pub use answer::Answer;
pub use counters::{Counters, Counts};
pub use delivery::{Delivery, EventBody, Fetched, Thin};
pub use inbox::{InboxConfig, NotedGap, OnGap, Policy, Replays, Retention, Start, Verdict};
pub use memory::{MemoryInbox, Ticket};
pub use receive::{Receiver, Rejection};

/// The words that sender and receiver share.
pub use railpost_wire as wire;
