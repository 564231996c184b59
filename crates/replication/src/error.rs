//! What can go wrong, in words that say what to do.

use std::fmt;

use crate::Lsn;

/// Why something failed. Of a stream nothing was skipped: whatever was not confirmed comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    problem: String,
    server: Option<Box<ServerError>>,
}

/// What failed, for callers that act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL, the certificates or a name cannot be right.
    Invalid,
    /// Nobody answers at the address.
    Unreachable,
    /// TLS failed: no TLS there, or a certificate that is not trusted.
    Tls,
    /// The server does not accept this user or password, or asks for more than it is given.
    Authentication,
    /// The user lacks a right.
    Permission,
    /// `wal_level` is not `logical`.
    WalLevel,
    /// The server has no connection or slot left.
    LimitReached,
    /// The server is older than what was asked for.
    Version,
    /// There is no such slot.
    SlotMissing,
    /// There is a slot of that name.
    SlotExists,
    /// Another session reads from the slot.
    SlotInUse,
    /// The slot is of another kind: physical, of another plug-in, or of another database.
    SlotMismatch,
    /// The server gave up the slot, and the WAL after it is gone.
    SlotLost,
    /// The slot was confirmed further than the position asked for. The server would go on from there and
    /// say nothing of what lies between.
    SlotAhead {
        /// Where the caller wanted to begin.
        from: Lsn,
        /// How far the slot was confirmed.
        confirmed: Lsn,
    },
    /// The position asked for is after the end of the server's log. The server would pass over everything
    /// up to it.
    LogBehind {
        /// Where the caller wanted to begin.
        from: Lsn,
        /// How far the log is flushed.
        flushed: Lsn,
    },
    /// The slot could not be created while old transactions are open.
    SlotBlocked,
    /// There is no such publication.
    PublicationMissing,
    /// A message is longer than allowed.
    TooLarge,
    /// The connection broke or was closed.
    Disconnected,
    /// The server does not answer.
    TimedOut,
    /// The server does not follow the protocol as it is known here.
    Protocol,
    /// Any other error of the server.
    Server,
}

/// An error as the server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// Five characters that name the kind of error, in every language.
    pub sqlstate: String,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What the server advises.
    pub hint: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, problem: impl Into<String>) -> Self {
        Self { kind, problem: problem.into(), server: None }
    }

    /// An error of the server while it did something, of the kind that the error has there.
    pub(crate) fn of_server(operation: Operation, error: ServerError) -> Self {
        let kind = operation.kind(&error.sqlstate);
        Self { kind, problem: error.to_string(), server: Some(Box::new(error)) }
    }

    pub(crate) fn disconnected(error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Disconnected, format!("the connection broke: {error}"))
    }

    /// What failed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The server's own words, if it was the server that failed.
    pub fn server(&self) -> Option<&ServerError> {
        self.server.as_deref()
    }

    /// The server's five characters for it.
    pub fn sqlstate(&self) -> Option<&str> {
        self.server.as_ref().map(|error| error.sqlstate.as_str())
    }

    /// Whether the same call may succeed later without anyone changing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Unreachable
                | ErrorKind::LimitReached
                | ErrorKind::SlotInUse
                | ErrorKind::SlotBlocked
                | ErrorKind::Disconnected
                | ErrorKind::TimedOut
                | ErrorKind::Server
        )
    }

    /// What to do about it, if it is something that people can do.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self.kind {
            ErrorKind::Tls => {
                "check the host name and the root certificates, or whether the server has `ssl = on`"
            }
            ErrorKind::Authentication => "check user, password and the server's pg_hba.conf",
            ErrorKind::Permission => {
                "run `ALTER ROLE … REPLICATION` and grant the role SELECT on the published tables"
            }
            ErrorKind::WalLevel => "set `wal_level = logical` on the server and restart it",
            ErrorKind::LimitReached => {
                "raise `max_replication_slots` or `max_wal_senders` on the server, or drop unused slots"
            }
            ErrorKind::SlotMissing => "create the slot, then read again what it would have brought",
            ErrorKind::SlotExists => "use it, or choose another name",
            ErrorKind::SlotInUse => {
                "stop the other reader, or wait until the server notices its end"
            }
            ErrorKind::SlotMismatch => "choose another name",
            ErrorKind::SlotLost => {
                "drop the slot, create it again, and read again what it would have brought; a larger \
                 `max_slot_wal_keep_size` keeps more"
            }
            ErrorKind::SlotAhead { .. } => {
                "somebody else confirmed or recreated the slot: read again what lies between"
            }
            ErrorKind::SlotBlocked => {
                "end the long transactions of the server, in all of its databases"
            }
            ErrorKind::PublicationMissing => {
                "create the publication; it must be older than the slot, so create the slot again after it"
            }
            ErrorKind::TooLarge => "make the row smaller, or confirm a position after it by hand",
            _ => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        self.advice().map_or(Ok(()), |advice| write!(f, ": {advice}"))
    }
}

impl std::error::Error for Error {}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {}", self.message, self.sqlstate)?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, "; {more}")?;
        }
        f.write_str(")")
    }
}

/// What the server was asked to do. The same SQLSTATE means something else in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Login,
    Query,
    CreateSlot,
    DropSlot,
    Start,
    Stream,
}

impl Operation {
    fn kind(self, sqlstate: &str) -> ErrorKind {
        match (sqlstate, self) {
            ("28P01" | "28000" | "3D000", Operation::Login) => ErrorKind::Authentication,
            ("42501", _) => ErrorKind::Permission,
            ("53300" | "53400", _) => ErrorKind::LimitReached,
            ("55006", _) => ErrorKind::SlotInUse,
            ("42710", Operation::CreateSlot) => ErrorKind::SlotExists,
            ("55000", Operation::CreateSlot) => ErrorKind::WalLevel,
            ("55P03", Operation::CreateSlot) => ErrorKind::SlotBlocked,
            ("42704", Operation::DropSlot | Operation::Start) => ErrorKind::SlotMissing,
            // The slot was looked at before: what is left is that the WAL it needs went away just then.
            ("55000" | "58P01", Operation::Start) => ErrorKind::SlotLost,
            ("42704" | "55000", Operation::Stream) => ErrorKind::PublicationMissing,
            ("57P01" | "57P02" | "57P03" | "57P05", _) => ErrorKind::Disconnected,
            _ => ErrorKind::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlstate_means_what_was_being_done() {
        for (operation, sqlstate, kind) in [
            (Operation::Login, "28P01", ErrorKind::Authentication),
            (Operation::Login, "3D000", ErrorKind::Authentication),
            (Operation::Login, "53300", ErrorKind::LimitReached),
            (Operation::Query, "42501", ErrorKind::Permission),
            (Operation::Query, "42704", ErrorKind::Server),
            (Operation::CreateSlot, "42710", ErrorKind::SlotExists),
            (Operation::CreateSlot, "55000", ErrorKind::WalLevel),
            (Operation::CreateSlot, "53400", ErrorKind::LimitReached),
            (Operation::DropSlot, "42704", ErrorKind::SlotMissing),
            (Operation::Start, "42704", ErrorKind::SlotMissing),
            (Operation::Start, "55006", ErrorKind::SlotInUse),
            (Operation::Start, "55000", ErrorKind::SlotLost),
            (Operation::Stream, "42704", ErrorKind::PublicationMissing),
            (Operation::Stream, "55000", ErrorKind::PublicationMissing),
            (Operation::Stream, "57P01", ErrorKind::Disconnected),
            (Operation::Stream, "XX000", ErrorKind::Server),
        ] {
            assert_eq!(operation.kind(sqlstate), kind, "{operation:?} {sqlstate}");
        }
    }

    #[test]
    fn an_error_says_the_server_s_words_the_sqlstate_and_what_to_do() {
        let server = ServerError {
            sqlstate: "55006".to_owned(),
            message: "replication slot \"shop\" is active for PID 7".to_owned(),
            detail: None,
            hint: Some("a hint".to_owned()),
        };
        let error = Error::of_server(Operation::Start, server);
        assert_eq!(error.sqlstate(), Some("55006"));
        assert!(error.is_temporary());
        assert_eq!(
            error.to_string(),
            "replication slot \"shop\" is active for PID 7 (SQLSTATE 55006; a hint): stop the other \
             reader, or wait until the server notices its end"
        );
    }
}
