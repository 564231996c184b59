//! Reading PostgreSQL's binary messages field by field, without trusting their lengths.

use bytes::{Buf, Bytes};

/// A message ends before a field does, or a field is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The unread part of a message. Fields come out as slices of the same memory.
pub(crate) struct Cursor(Bytes);

impl Cursor {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn rest(self) -> Bytes {
        self.0
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.0.try_get_u8().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.0.try_get_u16().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.0.try_get_u32().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.0.try_get_i32().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.0.try_get_u64().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Malformed> {
        self.0.try_get_i64().map_err(|_| TOO_SHORT)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.0.len() { Err(TOO_SHORT) } else { Ok(self.0.split_to(len)) }
    }

    /// Text up to the next zero byte.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let text = self.until_zero()?;
        String::from_utf8(text.into()).map_err(|_| Malformed("a text that is not UTF-8"))
    }

    /// The same for people: an error before the session has its encoding may be in any.
    pub(crate) fn lossy_text(&mut self) -> Result<String, Malformed> {
        self.until_zero().map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    fn until_zero(&mut self) -> Result<Bytes, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.0.split_to(end.ok_or(Malformed("a text without an end"))?);
        self.0.advance(1);
        Ok(text)
    }
}

const TOO_SHORT: Malformed = Malformed("it ends too early");
