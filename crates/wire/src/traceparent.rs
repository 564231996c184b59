//! The `traceparent` header of W3C Trace Context: which trace an attempt belongs to.

use crate::limits::TRACEPARENT_LEN_MAX;
use std::{fmt, str::FromStr};

/// A trace, and the span in it that caused the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

impl TraceParent {
    /// A trace and a span in it. Neither may be zero.
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Result<Self, BadTraceParent> {
        if trace_id == 0 || span_id == 0 {
            return Err(BadTraceParent);
        }
        Ok(Self { trace_id, span_id, sampled })
    }

    /// The same trace, with another span as the cause.
    pub fn with_span(self, span_id: u64) -> Result<Self, BadTraceParent> {
        Self::new(self.trace_id, span_id, self.sampled)
    }

    /// The trace it belongs to.
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// The span that is the cause.
    pub fn span_id(self) -> u64 {
        self.span_id
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*sampled))
    }
}

impl FromStr for TraceParent {
    type Err = BadTraceParent;

    /// Reads version 00, and of later versions what they share with it. What a later version appends must be
    /// visible ASCII, and the whole short enough to be stored.
    fn from_str(text: &str) -> Result<Self, BadTraceParent> {
        let printable = text.bytes().all(|c| c.is_ascii_graphic() || c == b' ');
        if !printable || text.len() > TRACEPARENT_LEN_MAX {
            return Err(BadTraceParent);
        }
        let mut fields = text.split('-');
        let mut field = |len| fields.next().and_then(|text| hex(text, len)).ok_or(BadTraceParent);
        let version = field(2)?;
        let (trace_id, span_id, flags) = (field(32)?, field(16)?, field(2)?);
        let more = fields.next().is_some();
        if version == 0xff || (version == 0 && more) {
            return Err(BadTraceParent);
        }
        Self::new(trace_id, span_id as u64, flags & 1 == 1)
    }
}

fn hex(text: &str, len: usize) -> Option<u128> {
    let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    let well_formed = text.len() == len && text.bytes().all(is_hex);
    well_formed.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadTraceParent;

impl fmt::Display for BadTraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a traceparent such as `00-<32 hex>-<16 hex>-01`, ids not all zero")
    }
}

impl std::error::Error for BadTraceParent {}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_back_as_itself() {
        let parsed: TraceParent = EXAMPLE.parse().unwrap();
        assert_eq!(parsed.to_string(), EXAMPLE);
        assert_eq!(parsed.trace_id(), 0x0af7651916cd43dd8448eb211c80319c);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = EXAMPLE.replacen("00-", "cc-", 1) + "-what-the-future-brings";
        assert_eq!(later.parse::<TraceParent>(), EXAMPLE.parse());
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-\n",
            &("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-".to_owned()
                + &"x".repeat(73)),
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(BadTraceParent), "{text:?}");
        }
    }
}
