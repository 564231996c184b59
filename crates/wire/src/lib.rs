//! What a webhook's sender and receiver must agree on: ids, header names, signatures, envelopes.
//!
//! This crate is pure. It does no I/O, reads no clock and draws no randomness: the time and random
//! bytes it needs are arguments. It knows nothing of stores, queues, retries or HTTP libraries. No
//! bytes from outside make it panic, and what it hands out is safe as a header value.
//!
//! Start with [`Attempt::headers`] to see what a request carries, and with [`Verifier`] to see what a
//! receiver makes of it. The repository's `vectors` say the same as data, for any language.
//!
//! A sender wraps an event, signs it and sends the headers of both:
//!
//! ```
//! use railpost_wire::{Attempt, Envelope, Event, HeaderNames, LineId, Secret, Seq, Signer};
//!
//! let signers = [Signer::Secret(Secret::generate(&[7; 32]))];
//! let (id, key) = ("order-1:paid".parse()?, "order-1".parse()?);
//! let (event_type, source) = ("order.paid".parse()?, "/tenants/acme".parse()?);
//! let content_type = "application/json".parse()?;
//! let event = Event {
//!     id: &id,
//!     event_type: &event_type,
//!     key: Some(&key),
//!     payload: br#"{"total": 12}"#,
//!     content_type: &content_type,
//!     schema_version: None,
//!     unix_ms: 1_767_225_600_000,
//!     source: &source,
//!     cloudevent: None,
//!     url: "https://railpost.example/v1/events/order-1:paid",
//! };
//! let content = Envelope::CloudeventsStructured.wrap(&event);
//! let attempt = Attempt {
//!     event_id: &id,
//!     event_type: &event_type,
//!     event_unix_ms: event.unix_ms,
//!     schema_version: event.schema_version,
//!     key: Some(&key),
//!     line: Some(&LineId::of(1, 7)),
//!     seq: Some(Seq::FIRST),
//!     after: None,
//!     number: 1,
//!     replay: false,
//!     thin: false,
//!     timestamp: 1_767_225_600,
//!     body: &content.body,
//!     signers: &signers,
//! };
//! let names = HeaderNames::default();
//! let headers = attempt.headers(&names);
//! assert_eq!(headers[0], ("webhook-id", "order-1:paid".to_owned()));
//! # Ok::<(), railpost_wire::Unexpected>(())
//! ```
//!
//! A receiver verifies the bytes that arrived, then reads what the headers say:
//!
//! ```
//! use railpost_wire::{HeaderNames, Received, Refusal, Verifier};
//! use std::collections::HashMap;
//!
//! let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
//! let headers = HashMap::from([
//!     ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
//!     ("webhook-timestamp", "1614265330"),
//!     ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
//! ]);
//! let header = |name: &str| headers.get(name).map(|value| value.as_bytes());
//!
//! let verifier = Verifier::new(vec![secret], vec![]);
//! let verified = verifier.verify(header, br#"{"test": 2432232314}"#, 1_614_265_330)?;
//! assert_eq!(verified.timestamp, 1_614_265_330);
//! let received = Received::parse(&HeaderNames::default(), header)?;
//! assert_eq!(received.event_id.to_string(), "msg_p5jXN8AQM9LWM0D4loKWxJek");
//!
//! let forged = verifier.verify(header, br#"{"test": 1}"#, 1_614_265_330);
//! assert_eq!(forged, Err(Refusal::NoMatch));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod limits;

mod text;
mod ids;
mod names;
mod percent;
mod rfc3339;

mod secrets;
mod sign;
mod refusal;
mod verify;

mod headers;
mod attempt;
mod retry_after;
mod traceparent;

pub mod cloudevents;
mod envelope;

pub use attempt::{Attempt, HeaderValues, Received};
pub use cloudevents::{Content, Source};
pub use envelope::{BadTemplate, Envelope, EnvelopeSettings, Event, Template};
#[cfg(feature = "schema")]
pub use headers::HEADER_NAME_PATTERN;
pub use headers::{BadHeaderName, Header, HeaderNames};
pub use ids::{
    AlertId, ApiKeyId, AttemptId, AuditId, DeliveryId, EndpointId, EventId, LineId, NodeId,
    ReplayId, SecretId, Seq, SilenceId, TenantId,
};
pub use names::{ContentType, EventType, EventTypeFilter, Key};
pub use refusal::Refusal;
pub use retry_after::retry_after;
pub use secrets::{BadSecret, Secret, SigningKey, VerifyingKey};
pub use sign::{Signer, standard_signature, timestamped_signature};
pub use text::Unexpected;
pub use traceparent::{BadTraceParent, TraceParent};
pub use verify::{SignatureForm, Verified, Verifier};
