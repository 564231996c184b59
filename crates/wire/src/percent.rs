//! Any UTF-8 as a header value, by the percent-encoding of the CloudEvents HTTP binding.
//!
//! Visible ASCII stands for itself, except `%` and `"`. Everything else (spaces, controls, characters
//! beyond ASCII, and these two) becomes `%XX` for each byte of its UTF-8, in upper-case hex. So a
//! value never holds a space, a quote or a line break, and no intermediary trims or folds it.

use crate::text::Unexpected;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// The header value for `text`.
pub(crate) fn encode(text: &str) -> String {
    parts(text).collect()
}

/// The header value for `text`, piece by piece.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    utf8_percent_encode(text, ENCODED)
}

/// Undoes [`encode`], and takes needless escapes and lower-case hex too.
pub(crate) fn decode(value: &[u8]) -> Result<String, Unexpected> {
    let expected = "percent-encoded UTF-8 in visible ASCII";
    let refused = || Unexpected::bytes(expected, value);
    if !value.iter().all(|&c| c.is_ascii_graphic() || c == b' ') || !has_valid_escapes(value) {
        return Err(refused());
    }
    let text = percent_decode(value).decode_utf8().map_err(|_| refused())?;
    Ok(text.into_owned())
}

/// Whether every `%` has its two hex digits: the decoder lets a stray one stand for itself.
pub(crate) fn has_valid_escapes(value: &[u8]) -> bool {
    let after_percent = value.split(|&c| c == b'%').skip(1);
    after_percent
        .into_iter()
        .all(|rest| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit))
}
