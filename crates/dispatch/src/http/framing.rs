//! How an HTTP/1 answer is framed: what its head says, and where its body ends.

use std::fmt;
use std::mem::MaybeUninit;

use ::http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use ::http::{HeaderMap, HeaderName, HeaderValue, Version};
use bytes::{Buf, BytesMut};
use httparse::{Header, ParserConfig, Status};

use super::chunks::Chunk;
use super::exchange::{Body, Response};
use crate::limits::{INTERIM_ANSWERS_MAX, RESPONSE_HEAD_LEN_MAX, RESPONSE_HEADERS_MAX};

/// What an answer begins with.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response,
    pub(super) framing: Framing,
    /// Whether the connection can serve again once the body was read.
    pub(super) keeps_alive: bool,
}

/// Why something is no head of an answer.
#[derive(Debug)]
pub(super) struct BadHead(&'static str);

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Looks for the head of an answer in what comes bit by bit.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// How much was there at the last look.
    seen: usize,
    /// How much has to be there for the next look, unless a head ends before.
    wanted: usize,
    /// Interim answers that were passed over, and their bytes.
    interim: usize,
    interim_len: usize,
}

impl HeadReader {
    /// Takes a head off the front of `input` as soon as it is complete. Interim answers are passed over.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Head>, BadHead> {
        while self.is_worth_a_look(input) {
            match parse(input)? {
                Some((_, len)) if len > RESPONSE_HEAD_LEN_MAX => return Err(TOO_LONG),
                Some((head, len)) => {
                    input.advance(len);
                    (self.seen, self.wanted) = (0, 0);
                    if !is_interim(head.response.status) {
                        return Ok(Some(head));
                    }
                    self.pass_over(len)?;
                }
                None if input.len() > RESPONSE_HEAD_LEN_MAX => return Err(TOO_LONG),
                None => self.wanted = 2 * input.len(),
            }
        }
        Ok(None)
    }

    /// Counts an interim answer: a receiver that sends nothing else must not be read until the deadline.
    fn pass_over(&mut self, len: usize) -> Result<(), BadHead> {
        self.interim += 1;
        self.interim_len += len;
        if self.interim > INTERIM_ANSWERS_MAX || self.interim_len > RESPONSE_HEAD_LEN_MAX {
            return Err(BadHead("too many interim answers come before it"));
        }
        Ok(())
    }

    /// A head is parsed from its start at every look. So that one which comes byte by byte costs no more
    /// than others, there is a look when a line is empty, and when as much again has come.
    fn is_worth_a_look(&mut self, input: &[u8]) -> bool {
        let fresh = &input[self.seen.saturating_sub(2).min(input.len())..];
        let grown = input.len() > self.seen;
        self.seen = input.len();
        let ends = || {
            fresh.windows(2).any(|two| two == b"\n\n") || fresh.windows(3).any(|c| c == b"\n\r\n")
        };
        grown && (input.len() >= self.wanted || ends())
    }
}

const TOO_LONG: BadHead = BadHead("it is too long");

fn is_interim(status: u16) -> bool {
    // To switch protocols is an answer: nothing else follows in this one.
    (100..200).contains(&status) && status != 101
}

/// The head at the front of `input`, and its length, if it is complete.
fn parse(input: &[u8]) -> Result<Option<(Head, usize)>, BadHead> {
    // The parser would pass over empty lines. They are left over from an earlier answer, or a mistake.
    if matches!(input.first(), Some(b'\r' | b'\n')) {
        return Err(BadHead("it begins with an empty line"));
    }
    let mut room = [const { MaybeUninit::uninit() }; RESPONSE_HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let status = ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, input, &mut room)
        .map_err(describe)?;
    let Status::Complete(len) = status else { return Ok(None) };
    let (Some(status), Some(minor)) = (parsed.code, parsed.version) else { return Ok(None) };
    if !(100..1000).contains(&status) {
        return Err(BadHead("its status is none"));
    }
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let framing = framing(status, version, parsed.headers)?;
    let keeps_alive = keeps_alive(status, version, parsed.headers) && framing.ends_by_itself();
    // Of an acknowledgement only the status is kept.
    let is_success = (200..300).contains(&status);
    let headers = if is_success { HeaderMap::new() } else { map(parsed.headers) };
    let response = Response { status, version, headers, body: Body::default() };
    Ok(Some((Head { response, framing, keeps_alive }, len)))
}

fn describe(error: httparse::Error) -> BadHead {
    BadHead(match error {
        httparse::Error::HeaderName => "a header's name is none",
        httparse::Error::HeaderValue => "a header's value is none",
        httparse::Error::NewLine => "a line does not end as it must",
        httparse::Error::Status => "its status is none",
        httparse::Error::Token => "it has a character that may not be there",
        httparse::Error::TooManyHeaders => "it has too many headers",
        httparse::Error::Version => "it is not HTTP/1",
    })
}

/// The values of a header. A name may come more than once, and hold several values each time.
fn values<'h>(headers: &'h [Header<'_>], name: &'h HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name.as_str()));
    named.flat_map(|header| header.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn framing(status: u16, version: Version, headers: &[Header<'_>]) -> Result<Framing, BadHead> {
    if has_no_body(status) {
        return Ok(Framing::Sized(0));
    }
    if let Some(coding) = values(headers, &TRANSFER_ENCODING).last() {
        if version == Version::HTTP_10 {
            return Err(BadHead("it has a transfer-encoding, which HTTP/1.0 has not"));
        }
        let readable = values(headers, &TRANSFER_ENCODING).all(<[u8]>::is_ascii);
        let chunked = readable && coding.eq_ignore_ascii_case(b"chunked");
        return Ok(if chunked { Framing::Chunked(Chunk::Size) } else { Framing::UntilClose });
    }
    let mut lengths = values(headers, &CONTENT_LENGTH).map(length);
    let Some(first) = lengths.next() else { return Ok(Framing::UntilClose) };
    let agreed = first.filter(|first| lengths.all(|other| other == Some(*first)));
    agreed.map(Framing::Sized).ok_or(BadHead("its content-length is no length"))
}

fn has_no_body(status: u16) -> bool {
    matches!(status, 100..200 | 204 | 304)
}

fn length(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value).ok()?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

fn keeps_alive(status: u16, version: Version, headers: &[Header<'_>]) -> bool {
    let says =
        |wish: &[u8]| values(headers, &CONNECTION).any(|said| said.eq_ignore_ascii_case(wish));
    // What cannot be read may say that it closes, and so it counts for that alone.
    let readable = values(headers, &CONNECTION).all(<[u8]>::is_ascii);
    let usual = version == Version::HTTP_11 || (readable && says(b"keep-alive"));
    usual && !says(b"close") && !is_ambiguous(status, headers) && status != 101
}

/// Whether other software could see the end of the body elsewhere: it is framed twice, or is announced where
/// there is none.
fn is_ambiguous(status: u16, headers: &[Header<'_>]) -> bool {
    let is_coded = values(headers, &TRANSFER_ENCODING).next().is_some();
    let mut lengths = values(headers, &CONTENT_LENGTH).map(length);
    if has_no_body(status) {
        return is_coded || lengths.any(|length| length != Some(0));
    }
    is_coded && lengths.next().is_some()
}

fn map(headers: &[Header<'_>]) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(headers.len());
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(header.value)) {
            map.append(name, value);
        }
    }
    map
}

/// What is left of a body, by its framing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Sized(u64),
    Chunked(Chunk),
    UntilClose,
}

/// What is to be done about a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next bytes, so many, are of the body.
    Take(usize),
    /// More has to be read first.
    Read,
    /// That was all.
    Done,
    /// It is no body.
    Bad,
}

impl Framing {
    /// Looks at what has come, and drops what frames it. Bytes that are taken must be gone at the next step.
    pub(super) fn step(&mut self, input: &mut BytesMut) -> Step {
        match self {
            Self::Sized(0) => Step::Done,
            Self::Sized(left) => take(left, input),
            Self::UntilClose if input.is_empty() => Step::Read,
            Self::UntilClose => Step::Take(input.len()),
            Self::Chunked(chunk) => chunk.step(input),
        }
    }

    /// How many bytes there are to come at the least.
    pub(super) fn least_len(&self) -> u64 {
        match self {
            Self::Sized(left) | Self::Chunked(Chunk::Data(left)) => *left,
            Self::Chunked(_) | Self::UntilClose => 0,
        }
    }

    pub(super) fn ends_by_itself(&self) -> bool {
        *self != Self::UntilClose
    }
}

pub(super) fn take(left: &mut u64, input: &[u8]) -> Step {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= len as u64;
    if len == 0 { Step::Read } else { Step::Take(len) }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn head(fields: &str) -> Result<Option<Head>, BadHead> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        HeadReader::default().take(&mut BytesMut::from(&text[..]))
    }

    #[test]
    fn a_body_is_framed_as_the_standard_says() {
        use Framing::{Chunked, Sized, UntilClose};
        for (fields, expected, keeps_alive) in [
            ("content-length: 5\r\n", Sized(5), true),
            ("Content-Length: 5, 5\r\ncontent-length: 5\r\n", Sized(5), true),
            ("transfer-encoding: chunked\r\n", Chunked(Chunk::Size), true),
            ("transfer-encoding: gzip, Chunked\r\n", Chunked(Chunk::Size), true),
            ("transfer-encoding: gzip\r\n", UntilClose, false),
            ("transfer-encoding: chunked, gzip\r\n", UntilClose, false),
            ("transfer-encoding: \u{e9}, chunked\r\n", UntilClose, false),
            ("transfer-encoding: chunked\r\ncontent-length: 5\r\n", Chunked(Chunk::Size), false),
            ("content-length: 5\r\nconnection: x, Close\r\n", Sized(5), false),
            ("", UntilClose, false),
        ] {
            let head = head(fields).unwrap().unwrap();
            assert_eq!((head.framing, head.keeps_alive), (expected, keeps_alive), "{fields:?}");
        }
        for length in ["", "-1", "+1", "1 2", "5, 6", "0x5", "18446744073709551616"] {
            let refused = head(&format!("content-length: {length}\r\n"));
            assert!(refused.is_err(), "{length:?}");
        }
    }

    #[test]
    fn some_answers_have_no_body_whatever_they_say() {
        for (line, field, keeps_alive) in [
            ("HTTP/1.1 204 No Content", "x: y", true),
            ("HTTP/1.1 304 Not Modified", "x: y", true),
            ("HTTP/1.1 204 No Content", "content-length: 0", true),
            ("HTTP/1.1 304 Not Modified", "content-length: 0, 0", true),
            // It may be followed by a body all the same, and that must not answer the next request.
            ("HTTP/1.1 204 No Content", "content-length: 5", false),
            ("HTTP/1.1 304 Not Modified", "content-length: 5", false),
            ("HTTP/1.1 204 No Content", "transfer-encoding: chunked", false),
            ("HTTP/1.1 304 Not Modified", "transfer-encoding: chunked", false),
            ("HTTP/1.1 101 Switching", "x: y", false),
            ("HTTP/1.0 204 No Content", "x: y", false),
        ] {
            let text = format!("{line}\r\n{field}\r\n\r\n");
            let mut input = BytesMut::from(&text[..]);
            let head = HeadReader::default().take(&mut input).unwrap().unwrap();
            assert_eq!(
                (head.framing, head.keeps_alive),
                (Framing::Sized(0), keeps_alive),
                "{line}, {field}"
            );
        }
    }

    #[test]
    fn an_answer_begins_with_its_status_line() {
        for before in ["\r\n", "\n", "\r\n\r\n", " ", "\r"] {
            for interim in ["", "HTTP/1.1 100 Continue\r\n\r\n"] {
                let text = format!("{interim}{before}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                for piece in [1, 2, text.len()] {
                    let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
                    let found = text.as_bytes().chunks(piece).try_for_each(|bytes| {
                        input.extend_from_slice(bytes);
                        reader.take(&mut input).map(drop)
                    });
                    assert!(found.is_err(), "{text:?} by {piece}");
                }
            }
        }
    }

    #[test]
    fn interim_answers_are_bounded_in_count_and_bytes() {
        let read = |interim: &str, count: usize, piece: usize| {
            let text = format!("{}HTTP/1.1 200 OK\r\n\r\n", interim.repeat(count));
            let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
            for bytes in text.as_bytes().chunks(piece) {
                input.extend_from_slice(bytes);
                if let Some(head) = reader.take(&mut input)? {
                    return Ok::<_, BadHead>(head.response.status);
                }
            }
            panic!("it ends with an answer");
        };
        let short = "HTTP/1.1 103 Early Hints\r\n\r\n";
        let long = format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "a".repeat(20_000));
        for piece in [1, 1000, usize::MAX] {
            assert_eq!(read(short, INTERIM_ANSWERS_MAX, piece).unwrap(), 200);
            assert!(read(short, INTERIM_ANSWERS_MAX + 1, piece).is_err());
            assert_eq!(read(&long, 3, piece).unwrap(), 200);
            assert!(read(&long, 4, piece).is_err(), "more than a head may have");
        }
    }

    #[test]
    fn an_old_receiver_keeps_its_connection_if_it_says_so_and_has_no_chunks() {
        for (fields, framing, keeps_alive) in [
            ("content-length: 1\r\nconnection: Keep-Alive\r\n", Framing::Sized(1), true),
            ("connection: keep-alive\r\n", Framing::UntilClose, false),
            ("content-length: 1\r\nconnection: keep-alive, \u{e9}\r\n", Framing::Sized(1), false),
        ] {
            let text = format!("HTTP/1.0 200 OK\r\n{fields}\r\n");
            let mut input = BytesMut::from(&text[..]);
            let head = HeadReader::default().take(&mut input).unwrap().unwrap();
            assert_eq!((head.framing, head.keeps_alive), (framing, keeps_alive), "{fields:?}");
        }
        let text = "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(HeadReader::default().take(&mut BytesMut::from(text)).is_err());
    }

    /// Byte by byte, and all at once: the same head, and the same rest.
    #[test]
    fn a_head_is_found_however_it_comes() {
        for end in ["\r\n", "\n"] {
            let interim = format!("HTTP/1.1 100 Continue{end}{end}");
            let fields = format!("x-a: b{end}").repeat(50);
            let text = format!("{interim}{interim}HTTP/1.1 500 Oops{end}{fields}{end}rest");
            for piece in [1, 2, 3, 7, text.len()] {
                let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
                let mut found = Vec::new();
                for bytes in text.as_bytes().chunks(piece) {
                    input.extend_from_slice(bytes);
                    if found.is_empty() {
                        found.extend(reader.take(&mut input).unwrap());
                    }
                }
                let statuses: Vec<_> = found.iter().map(|head| head.response.status).collect();
                assert_eq!((&statuses[..], &input[..]), (&[500][..], &b"rest"[..]), "{piece}");
                assert_eq!(found[0].response.headers.len(), 50);
            }
        }
    }

    /// Status, body, and what is left, of an answer that comes in pieces; nothing if it is none, or not all of one.
    fn answer(text: &[u8], piece: usize) -> Option<(u16, Vec<u8>, Vec<u8>)> {
        let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
        let mut pieces = text.chunks(piece);
        let mut head = loop {
            input.extend_from_slice(pieces.next()?);
            if let Some(head) = reader.take(&mut input).ok()? {
                break head;
            }
        };
        let mut body = Vec::new();
        loop {
            match head.framing.step(&mut input) {
                Step::Take(len) => body.extend(input.split_to(len)),
                Step::Read => input.extend_from_slice(pieces.next()?),
                Step::Bad => return None,
                Step::Done => break,
            }
        }
        pieces.for_each(|piece| input.extend_from_slice(piece));
        Some((head.response.status, body, input.to_vec()))
    }

    /// Whatever comes, nothing panics, and how it was cut into pieces makes no difference.
    #[test]
    fn any_bytes_are_read_alike_however_they_come() {
        let answers: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1",
            b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\nrest",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\ncontent-length: 0\n\n",
            b"HTTP/1.1 204 No Content\r\nx-a: b\r\n\r\n",
        ];
        let mut chance = fastrand::Rng::with_seed(7);
        let mut read = 0;
        for round in 0..40_000 {
            let mut text = answers[round % answers.len()].to_vec();
            for _ in 0..chance.usize(..4) {
                let at = chance.usize(..text.len());
                match chance.u8(..3) {
                    0 => text[at] = chance.u8(..),
                    1 => drop(text.remove(at)),
                    _ => text.insert(at, *chance.choice(b"\r\n: 0a,;").unwrap_or(&b' ')),
                }
            }
            let whole = answer(&text, text.len());
            read += usize::from(whole.is_some());
            // What breaks off in the end may be refused or be wished for more of, by when it was looked at.
            if whole.is_some() {
                let piece = chance.usize(1..=9);
                assert_eq!(
                    answer(&text, piece),
                    whole,
                    "{:?} by {piece}",
                    text.escape_ascii().to_string()
                );
            }
        }
        assert!(read > 10_000, "only {read} were answers");
    }

    /// A head of `len` bytes that comes byte by byte is looked at some dozen times, not `len` times.
    #[test]
    fn a_head_that_comes_slowly_is_not_parsed_at_every_byte() {
        let (mut reader, mut input) = (HeadReader::default(), BytesMut::new());
        let mut looks = 0;
        for byte in "HTTP/1.1 200 OK\r\nx: ".bytes().chain(std::iter::repeat_n(b'a', 60_000)) {
            input.extend_from_slice(&[byte]);
            if reader.is_worth_a_look(&input) {
                looks += 1;
                reader.wanted = 2 * input.len();
            }
        }
        assert!(looks < 20, "{looks}");
    }

    /// What a body's bytes are, and what is left of the input behind it.
    pub(in crate::http) fn body(
        framing: &mut Framing,
        text: &str,
        piece: usize,
    ) -> (Vec<u8>, Step, Vec<u8>) {
        let (mut input, mut rest) = (BytesMut::new(), text.as_bytes().chunks(piece));
        let mut body = Vec::new();
        loop {
            match framing.step(&mut input) {
                Step::Take(len) => body.extend(input.split_to(len)),
                Step::Read => match rest.next() {
                    Some(bytes) => input.extend_from_slice(bytes),
                    None => return (body, Step::Read, input.to_vec()),
                },
                end => {
                    rest.for_each(|bytes| input.extend_from_slice(bytes));
                    return (body, end, input.to_vec());
                }
            }
        }
    }

    #[test]
    fn a_sized_body_ends_where_it_says() {
        let (found, end, left) = body(&mut Framing::Sized(3), "abcdef", 2);
        assert_eq!((&*found, end, &*left), (&b"abc"[..], Step::Done, &b"def"[..]));
        let (found, end, _) = body(&mut Framing::UntilClose, "abc", 2);
        assert_eq!((&*found, end), (&b"abc"[..], Step::Read));
    }
}
