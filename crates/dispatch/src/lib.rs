//! How deliveries leave: the HTTP sender and the outbound guard.
//!
//! A [`Guard`] says where requests may go. A [`Target`] is a URL that it let through. A [`Sender`]
//! makes a [`Route`] of a target and an endpoint's settings, once, and sends each attempt along it:
//!
//! ```no_run
//! # use railpost_dispatch::*;
//! # async fn deliver() -> Result<(), Box<dyn std::error::Error>> {
//! let guard = Guard::default();
//! let target = Target::parse("https://example.com/hooks", &guard)?;
//! let sender = Sender::new(SenderConfig { guard, ..SenderConfig::default() })?;
//! let route = sender.route(&RouteConfig::new(target))?;
//! let headers = [("webhook-id", "evt_1".to_owned())];
//! let exchange = sender.send(Request::new(&route, headers, "{}".into())?).await;
//! println!("{:?} in {:?}", exchange.result, exchange.detail.timing.total);
//! # Ok(())
//! # }
//! ```
//!
//! This crate decides nothing that the engine decides: it says what came of an attempt, never what
//! happens next. It knows no SQL and no API; it reads no configuration and no environment.
//!
//! Start with [`Sender::send`], then the guard's table of ranges and [`Target::parse`].

pub mod limits;

mod guard;
mod http;
mod dispatcher;

pub use dispatcher::{
    AttemptEnded, Dispatcher, DispatcherConfig, EndpointSurvey, Observer, Parts, Probe,
    ProbeRefused, ServedConcern, ServedConcerns, ServedHealth, ServedLane, Stopped, ThinUrl,
};
pub use guard::{
    Allowed, BadNetwork, Blocked, Guard, GuardConfig, Host, Lookup, Loopback, NamedNetwork,
    Resolve, Scheme, SystemResolver, Target, TargetError,
};
pub use http::{
    BadBindAddress, BadHeader, BadSender, BadTimeouts, BadTls, BadTraceParent, BindAddresses, Body,
    BodyEnd, Certificates, ClientIdentity, CustomHeaders, Detail, Exchange, PoolBounds, Request,
    Resend, Response, Roots, Route, RouteConfig, Sender, SenderConfig, Timeouts, Timing,
    TlsSettings, TlsVersion, TraceParent,
};
