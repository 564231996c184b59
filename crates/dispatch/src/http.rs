//! The HTTP sender: one signed POST, and what came of it.
//!
//! A request's way: [`Sender::send`] takes an idle connection from the [`pool`] or has [`dial`] make
//! one, hands the request to [`h1`] or [`h2`], and fills in an [`Exchange`]. Everything happens
//! inside one deadline, and all that is read is bounded.

mod exchange;
mod attempt_error;
mod tls;
mod tls_reason;

mod headers;
mod route;
mod request;

mod stream;
mod bind;
mod dial;
mod body;
mod framing;
mod chunks;
mod h1;
mod h2;
mod idle_limit;
mod pool;
mod sender;
#[cfg(test)]
mod differential_test;

pub use bind::{BadBindAddress, BindAddresses};
pub use exchange::{Body, BodyEnd, Detail, Exchange, Response, Timing};
pub use headers::{BadHeader, CustomHeaders};
pub use pool::PoolBounds;
pub use railpost_wire::{BadTraceParent, TraceParent};
pub use request::{Request, Resend};
pub use route::{BadTimeouts, Route, RouteConfig, Timeouts};
pub use sender::{BadSender, Sender, SenderConfig};
pub use tls::{BadTls, Certificates, ClientIdentity, Roots, TlsSettings, TlsVersion};
