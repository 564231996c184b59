//! Why no answer came: errors of every layer, told in the engine's taxonomy and in words.

use std::error::Error;
use std::io;
use std::time::Duration;

use railpost_engine::Failure;

use super::tls_reason::tls_reason;

/// An attempt without an answer.
#[derive(Debug)]
pub(super) struct AttemptError {
    pub(super) failure: Failure,
    pub(super) message: String,
}

impl AttemptError {
    pub(super) fn new(failure: Failure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into() }
    }

    pub(super) fn total_timeout(limit: Duration) -> Self {
        Self::new(Failure::Timeout, format!("no answer within {limit:?}"))
    }

    pub(super) fn without_answer() -> Self {
        Self::new(Failure::Reset, "the connection broke before an answer came")
    }

    /// A TCP connect that failed at once.
    pub(super) fn connect(error: &io::Error) -> Self {
        let failure = match error.kind() {
            io::ErrorKind::TimedOut => Failure::ConnectTimeout,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Failure::Reset,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                Failure::Unreachable
            }
            _ if is_ours(error) => Failure::NotSent,
            _ => Failure::Refused,
        };
        Self::new(failure, error.to_string())
    }

    /// A handshake that failed. A connection that breaks in it is a matter of TLS too: many
    /// servers hang up on a version, name or certificate they do not like.
    pub(super) fn handshake(error: &io::Error) -> Self {
        let reason = match find::<rustls::Error>(error) {
            Some(error) => tls_reason(error),
            None => format!("the receiver broke off the handshake: {error}"),
        };
        Self::new(Failure::Tls, reason)
    }
}

impl AttemptError {
    /// A connection that broke before there was an answer, for this reason if there is one.
    pub(super) fn broken(error: Option<&io::Error>) -> Self {
        match error.and_then(|error| find::<rustls::Error>(error)) {
            Some(tls) => Self::new(Failure::Tls, tls_reason(tls)),
            None => of_io(error),
        }
    }

    pub(super) fn bad_head(problem: &dyn std::fmt::Display) -> Self {
        let message = format!("the answer's head cannot be read: {problem}");
        Self::new(Failure::BadResponse, message)
    }
}

impl From<&hyper::Error> for AttemptError {
    fn from(error: &hyper::Error) -> Self {
        if let Some(tls) = find::<rustls::Error>(error) {
            return Self::new(Failure::Tls, tls_reason(tls));
        }
        if error.is_parse() {
            return Self::bad_head(error);
        }
        match find::<h2::Error>(error) {
            Some(error) => of_h2(error),
            None => of_io(find::<io::Error>(error)),
        }
    }
}

/// Whether this machine, not the network, said no: out of ports, memory or files.
fn is_ours(error: &io::Error) -> bool {
    const TOO_MANY_FILES: [i32; 2] = [23, 24];
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory)
        || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

/// A stream that ended without an answer. What the receiver did is a reset; what our side could not
/// accept is a bad answer.
fn of_h2(error: &h2::Error) -> AttemptError {
    if error.is_io() {
        return of_io(error.get_io());
    }
    if error.is_remote() {
        return AttemptError::new(
            Failure::Reset,
            format!("the receiver ended the stream: {error}"),
        );
    }
    AttemptError::new(Failure::BadResponse, format!("the answer breaks HTTP/2: {error}"))
}

fn of_io(error: Option<&io::Error>) -> AttemptError {
    let mut without_answer = AttemptError::without_answer();
    if let Some(error) = error {
        without_answer.message = format!("{}: {error}", without_answer.message);
    }
    without_answer
}

/// Whether the receiver says by the protocol's own means that it has not looked at the request.
pub(super) fn is_refused_untouched(error: &hyper::Error) -> bool {
    let Some(error) = find::<h2::Error>(error).filter(|error| error.is_remote()) else {
        return false;
    };
    let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    // A stream fails with a receiver's farewell only if the farewell names an earlier one as the
    // last that it took.
    let after_farewell = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    refused || after_farewell
}

/// The first `T` among an error and its causes, inside an `io::Error` too.
fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
