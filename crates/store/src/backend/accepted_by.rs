//! Who brought an event, in a few bytes: every event has them.

use railpost_wire::ApiKeyId;

use crate::{AcceptedBy, Result, StoreError};

/// The first byte says what follows. Stable: another form gets another number.
const KEY: u8 = 1;
const SOURCE: u8 = 2;
const SERVER: u8 = 3;

/// An API key as its 16 bytes, a source as its name, the server as nothing, each behind one byte that says so.
pub fn encode(by: &AcceptedBy) -> Vec<u8> {
    match by {
        AcceptedBy::Key(id) => [&[KEY][..], &id.to_bytes()].concat(),
        AcceptedBy::Source(name) => [&[SOURCE][..], name.as_str().as_bytes()].concat(),
        AcceptedBy::Server => vec![SERVER],
    }
}

/// Reads back what [`encode`] wrote.
pub fn decode(bytes: &[u8]) -> Result<AcceptedBy> {
    let refuse = || StoreError::Corrupt("who brought an event does not read back".to_owned());
    let read = match bytes.split_first() {
        Some((&KEY, id)) => id.try_into().ok().map(|id| AcceptedBy::Key(ApiKeyId::from_bytes(id))),
        Some((&SOURCE, name)) => {
            let name = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            name.map(AcceptedBy::Source)
        }
        Some((&SERVER, [])) => Some(AcceptedBy::Server),
        _ => None,
    };
    read.ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_never_change() {
        let key = AcceptedBy::Key(ApiKeyId::from_u128(0x0102));
        let source = AcceptedBy::Source("orders".parse().unwrap());
        let key_bytes = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        for (by, bytes) in
            [(key, &key_bytes[..]), (source, b"\x02orders"), (AcceptedBy::Server, b"\x03")]
        {
            assert_eq!(encode(&by), bytes);
            assert_eq!(decode(bytes), Ok(by));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"\x01short", b"\x02", b"\x02Not A Name", b"\x03orders", b"\x04"] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
