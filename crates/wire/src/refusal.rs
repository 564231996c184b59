//! Why a receiver refuses a request, and how it looks at the request's headers.

use crate::headers::{Header, HeaderNames};
use crate::text::Unexpected;
use std::fmt;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It lacks the header of this name.
    MissingHeader(String),
    /// A header cannot be read.
    Malformed {
        /// The header's name.
        header: String,
        /// What it should hold, and what it holds.
        problem: Unexpected,
    },
    /// Its timestamp is too old, by this many seconds beyond the tolerance.
    Stale {
        /// Seconds beyond the tolerance.
        by: u64,
    },
    /// Its timestamp lies too far ahead, by this many seconds beyond the tolerance.
    Future {
        /// Seconds beyond the tolerance.
        by: u64,
    },
    /// None of its signatures was made with a secret or key that is trusted here.
    NoMatch,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingHeader(name) => write!(f, "expected a header `{name}`; got none"),
            Self::Malformed { header, problem } => write!(f, "header `{header}`: {problem}"),
            Self::Stale { by } => write!(f, "the timestamp is too old by {by} s"),
            Self::Future { by } => write!(f, "the timestamp is too far ahead by {by} s"),
            Self::NoMatch => f.write_str("no signature matches a trusted secret or key"),
        }
    }
}

impl std::error::Error for Refusal {}

/// A request's headers, seen under the names that this endpoint gives them.
pub(crate) struct RequestHeaders<'a, 'h> {
    pub(crate) names: &'a HeaderNames,
    pub(crate) lookup: &'a dyn Fn(&str) -> Option<&'h [u8]>,
}

impl<'h> RequestHeaders<'_, 'h> {
    pub(crate) fn get(&self, header: Header) -> Option<&'h [u8]> {
        (self.lookup)(self.names.name(header))
    }

    pub(crate) fn missing(&self, header: Header) -> Refusal {
        Refusal::MissingHeader(self.names.name(header).to_owned())
    }

    /// What `header` holds, read by `parse`; nothing if it is absent.
    pub(crate) fn read<T>(
        &self,
        header: Header,
        parse: impl FnOnce(&'h [u8]) -> Result<T, Unexpected>,
    ) -> Result<Option<T>, Refusal> {
        let read = self.get(header).map(parse).transpose();
        read.map_err(|problem| self.malformed(header, problem))
    }

    /// What `header` holds, read by `parse`; it must be there.
    pub(crate) fn require<T>(
        &self,
        header: Header,
        parse: impl FnOnce(&'h [u8]) -> Result<T, Unexpected>,
    ) -> Result<T, Refusal> {
        self.read(header, parse)?.ok_or_else(|| self.missing(header))
    }

    pub(crate) fn malformed(&self, header: Header, problem: Unexpected) -> Refusal {
        Refusal::Malformed { header: self.names.name(header).to_owned(), problem }
    }
}
