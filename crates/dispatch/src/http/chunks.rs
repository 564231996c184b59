//! Bodies that come in chunks: what frames each of them, and what follows the last.

use bytes::{Buf, BytesMut};
use httparse::Status;

use super::framing::{Step, take};
use crate::limits::{CHUNK_HEAD_LEN_MAX, TRAILERS_MAX};

/// What comes next in a body that comes in chunks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Size,
    /// So many bytes of a chunk.
    Data(u64),
    /// The end of a chunk's line.
    End,
    Trailers,
    Nothing,
}

impl Chunk {
    /// Looks at what has come, and drops what frames it.
    pub(super) fn step(&mut self, input: &mut BytesMut) -> Step {
        loop {
            let (next, used) = match self {
                Self::Nothing => return Step::Done,
                Self::Data(0) => (Self::End, 0),
                Self::Data(left) => return take(left, input),
                Self::End => match &input[..] {
                    [b'\r', b'\n', ..] => (Self::Size, 2),
                    [] | [b'\r'] => return Step::Read,
                    _ => return Step::Bad,
                },
                Self::Size => match chunk_size(input) {
                    Ok(Status::Complete((used, 0))) => (Self::Trailers, used),
                    Ok(Status::Complete((used, size))) => (Self::Data(size), used),
                    Ok(Status::Partial) => return read_within_bound(input),
                    Err(BadChunk) => return Step::Bad,
                },
                Self::Trailers => match trailers_len(input) {
                    Ok(Status::Complete(used)) => (Self::Nothing, used),
                    Ok(Status::Partial) => return read_within_bound(input),
                    Err(BadChunk) => return Step::Bad,
                },
            };
            input.advance(used);
            *self = next;
        }
    }
}

/// Something does not frame a chunk.
struct BadChunk;

/// The length of the line that begins a chunk, and the chunk's size. Extensions are passed over. The line
/// ends with CRLF: some take a bare line feed for its end and some for a part of it, so it is refused.
fn chunk_size(input: &[u8]) -> Result<Status<(usize, u64)>, BadChunk> {
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 {
        return if input.is_empty() { Ok(Status::Partial) } else { Err(BadChunk) };
    }
    let text = std::str::from_utf8(&input[..digits]).map_err(|_| BadChunk)?;
    let size = u64::from_str_radix(text, 16).map_err(|_| BadChunk)?;
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t');
    let after = digits + input[digits..].iter().take_while(is_space).count();
    let extensions = match input.get(after) {
        Some(b';') => input[after..].iter().take_while(|byte| !is_line_end(**byte)).count(),
        _ => 0,
    };
    Ok(match &input[after + extensions..] {
        [] | [b'\r'] => Status::Partial,
        [b'\r', b'\n', ..] => Status::Complete((after + extensions + 2, size)),
        _ => return Err(BadChunk),
    })
}

/// The length of what follows the last chunk: lines that are read and thrown away, and an empty one. All end
/// with CRLF.
fn trailers_len(input: &[u8]) -> Result<Status<usize>, BadChunk> {
    let end = match input {
        [b'\r', b'\n', ..] => Some(2),
        _ => input.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4),
    };
    let lines = &input[..end.unwrap_or(input.len())];
    let lone_feed = |at: usize| lines[at] == b'\n' && !lines[..at].ends_with(b"\r");
    let lone_return =
        |at: usize| lines[at] == b'\r' && lines.get(at + 1).is_some_and(|next| *next != b'\n');
    if (0..lines.len()).any(|at| lone_feed(at) || lone_return(at)) {
        return Err(BadChunk);
    }
    let Some(end) = end else { return Ok(Status::Partial) };
    let mut room = [httparse::EMPTY_HEADER; TRAILERS_MAX];
    let parsed = httparse::parse_headers(lines, &mut room).map_err(|_| BadChunk)?;
    if parsed.is_complete() { Ok(Status::Complete(end)) } else { Err(BadChunk) }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn read_within_bound(input: &[u8]) -> Step {
    if input.len() > CHUNK_HEAD_LEN_MAX { Step::Bad } else { Step::Read }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::framing::Framing;
    use crate::http::framing::tests::body;

    #[test]
    fn chunks_are_joined_and_their_frames_dropped() {
        for (text, expected, end, left) in [
            ("0\r\n\r\nnext", "", Step::Done, "next"),
            ("3\r\nabc\r\n0\r\n\r\n", "abc", Step::Done, ""),
            (
                "3;name=value\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nX",
                "abc0123456789",
                Step::Done,
                "X",
            ),
            ("1\r\na\r\n0\r\nx-sum: 1\r\nx-b: c\r\n\r\nX", "a", Step::Done, "X"),
            ("003 \t; a=\"b\"\r\nabc\r\n00\r\n\r\n", "abc", Step::Done, ""),
            ("3\nabc\r\n", "", Step::Bad, "3\nabc\r\n"),
            ("3;a\nb\r\nabc\r\n", "", Step::Bad, "3;a\nb\r\nabc\r\n"),
            ("3\rx\r\nabc\r\n", "", Step::Bad, "3\rx\r\nabc\r\n"),
            ("0\r\n\n", "", Step::Bad, "\n"),
            ("0\r\nx: y\n\r\n", "", Step::Bad, "x: y\n\r\n"),
            ("0\r\nx y: z\r\n\r\n", "", Step::Bad, "x y: z\r\n\r\n"),
            ("3\r\nab", "ab", Step::Read, ""),
            ("3\r\nabc\r\n", "abc", Step::Read, ""),
            ("3\r\nabcd\r\n", "abc", Step::Bad, "d\r\n"),
            ("x\r\nabc\r\n", "", Step::Bad, "x\r\nabc\r\n"),
            ("ffffffffffffffffff\r\n", "", Step::Bad, "ffffffffffffffffff\r\n"),
        ] {
            for piece in [1, 2, text.len()] {
                let found = body(&mut Framing::Chunked(Chunk::Size), text, piece);
                assert_eq!(found.0, expected.as_bytes(), "{text:?} by {piece}");
                assert_eq!((found.1, &*found.2), (end, left.as_bytes()), "{text:?}");
            }
        }
    }

    #[test]
    fn what_frames_a_chunk_is_bounded() {
        let long = "a".repeat(2 * CHUNK_HEAD_LEN_MAX);
        for text in [format!("1;{long}"), format!("0\r\nx-a: {long}")] {
            let (_, end, _) = body(&mut Framing::Chunked(Chunk::Size), &text, 100);
            assert_eq!(end, Step::Bad);
        }
    }
}
