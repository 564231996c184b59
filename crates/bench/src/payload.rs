//! What an event carries: its number, who published it and when, and padding up to the size that is
//! measured. Written by the load generator, read back by the sink.

use std::io::Write;

/// An event, as its payload tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    /// Its number, different from every other event's of the run.
    pub(crate) number: u64,
    /// The connection that published it: what one connection publishes is in order.
    pub(crate) producer: u64,
    /// When it was sent, or should have been.
    pub(crate) sent_us: u64,
}

impl Payload {
    /// Appends it as a JSON object of exactly `size` bytes, or a little more if it does not fit.
    pub(crate) fn write(self, size: usize, to: &mut Vec<u8>) {
        let begin = to.len();
        let Self { number, producer, sent_us } = self;
        let head =
            format_args!(r#"{{"n":{number},"producer":{producer},"sent_us":{sent_us},"pad":""#);
        // Writing to a vector cannot fail.
        let _ = to.write_fmt(head);
        let end = (begin + size).saturating_sub(2).max(to.len());
        to.resize(end, b'x');
        to.extend_from_slice(b"\"}");
    }

    /// Reads what [`Payload::write`] wrote; nothing if it is something else.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = digits(bytes.strip_prefix(br#"{"n":"#)?)?;
        let (producer, rest) = digits(rest.strip_prefix(br#","producer":"#)?)?;
        let (sent_us, _) = digits(rest.strip_prefix(br#","sent_us":"#)?)?;
        Some(Self { number, producer, sent_us })
    }
}

/// The number at the start, and what follows it.
pub(crate) fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = bytes.split_at(count);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: Payload = Payload { number: 42, producer: 7, sent_us: 1_700_000_000_000_000 };

    #[test]
    fn a_payload_is_json_of_the_size_asked_for() {
        for size in [128, 512, 8192] {
            let mut bytes = b"before".to_vec();
            PAYLOAD.write(size, &mut bytes);
            assert_eq!(bytes.len(), 6 + size);
            let value: serde_json::Value = serde_json::from_slice(&bytes[6..]).unwrap();
            assert_eq!(value["n"], 42);
        }
    }

    #[test]
    fn a_payload_that_does_not_fit_is_larger_rather_than_broken() {
        let mut bytes = Vec::new();
        PAYLOAD.write(10, &mut bytes);
        assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
    }

    #[test]
    fn what_was_written_is_read_back_and_nothing_else_is() {
        let mut bytes = Vec::new();
        PAYLOAD.write(512, &mut bytes);
        assert_eq!(Payload::read(&bytes), Some(PAYLOAD));
        let others: [&[u8]; 5] =
            [b"", b"{}", br#"{"n":"#, br#"{"n":1}"#, br#"{"n":-1,"producer":0,"sent_us":1"#];
        for other in others {
            assert_eq!(Payload::read(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
