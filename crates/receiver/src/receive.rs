//! Verifying: the first thing a receiver does, on the bytes as they arrived.

use railpost_wire::{
    Header, HeaderNames, Received, Refusal, Secret, Verifier, VerifyingKey,
    cloudevents::BadCloudEvent,
};
use std::{fmt, time::Duration};

/// Believes requests that one of its secrets or keys signed.
///
/// It requires the standard form (`webhook-signature`), because the other form does not cover the
/// event id, and deduplication is worth nothing if an attacker who captured a request can change its id.
#[derive(Debug, Clone)]
pub struct Receiver {
    verifier: Verifier,
    names: HeaderNames,
}

impl Receiver {
    /// Trusts any of these, within five minutes of their timestamps. During a rotation there are two.
    pub fn new(secrets: Vec<Secret>, keys: Vec<VerifyingKey>) -> Self {
        let verifier = Verifier::new(secrets, keys);
        Self { verifier: verifier.standard_only(), names: HeaderNames::default() }
    }

    /// Trusts any of these, and takes `X-Webhook-Signature` alone too. The event id is then only as
    /// trustworthy as the connection: a captured request can be applied again under another id until
    /// its timestamp is too old.
    pub fn with_timestamped_form(secrets: Vec<Secret>, keys: Vec<VerifyingKey>) -> Self {
        Self { verifier: Verifier::new(secrets, keys), names: HeaderNames::default() }
    }

    /// Lets timestamps be off by so much, to either side.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { verifier: self.verifier.tolerance(tolerance), ..self }
    }

    /// Looks for headers under the names that the endpoint gives them.
    #[must_use]
    pub fn names(self, names: HeaderNames) -> Self {
        Self { verifier: self.verifier.names(names.clone()), names }
    }

    /// Says what an authentic and fresh request tells of its event, or why it is not believed.
    ///
    /// `header` finds a header's value by name, without regard to case; `body` is the bytes as they
    /// arrived; `now` is in seconds since 1970.
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h [u8]>,
        body: &[u8],
        now: i64,
    ) -> Result<Received, Rejection> {
        self.verifier.verify(&header, body, now).map_err(|refusal| self.rejection(refusal))?;
        Ok(Received::parse(&self.names, &header)?)
    }

    fn rejection(&self, refusal: Refusal) -> Rejection {
        let signature = self.names.name(Header::WebhookSignature);
        match refusal {
            Refusal::MissingHeader(name) if name == signature => Rejection::Unsigned(name),
            other => Rejection::Refused(other),
        }
    }
}

/// Why a request is not believed, for the receiver's log. Its [`answer`](Rejection::answer) says less.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// It carries no signature that counts here; this is the header that is missing.
    Unsigned(String),
    /// Its headers, its timestamp or its signature are not right.
    Refused(Refusal),
    /// It is authentic, but its body is not what this receiver takes.
    Unreadable(String),
    /// Its body is longer than it may be.
    TooLarge {
        /// Most bytes that are read.
        limit: usize,
    },
    /// The connection ended within the body.
    Interrupted,
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<BadCloudEvent> for Rejection {
    fn from(bad: BadCloudEvent) -> Self {
        Self::Unreadable(format!("no CloudEvent: {bad}"))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(name) => {
                write!(f, "no `{name}` header: the request is unsigned, or a proxy took it away")
            }
            Self::Refused(Refusal::NoMatch) => f.write_str(
                "no signature matches a trusted secret or key: check that the secret is this \
                 endpoint's, and that the body reaches the verifier byte for byte",
            ),
            Self::Refused(refusal @ (Refusal::Stale { .. } | Refusal::Future { .. })) => {
                write!(f, "{refusal}: an old request sent again, or one of the clocks is wrong")
            }
            Self::Refused(refusal) => fmt::Display::fmt(refusal, f),
            Self::Unreadable(problem) => f.write_str(problem),
            Self::TooLarge { limit } => write!(f, "the body is longer than {limit} bytes"),
            Self::Interrupted => f.write_str("the connection ended within the body"),
        }
    }
}

impl std::error::Error for Rejection {}
