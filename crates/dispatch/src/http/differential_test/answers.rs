//! Answers, good and slightly broken.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::script::{End, Piece};
use crate::limits::{BODY_KEPT_MAX, DRAIN_LEN_MAX};

/// What a receiver says, and how it comes.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) answer: Vec<u8>,
    /// Lengths of the pieces, again and again.
    pub(super) lengths: Vec<usize>,
    /// After every so many pieces there is a pause.
    pub(super) pause_every: usize,
    pub(super) end: End,
}

impl Case {
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let (mut rest, mut pieces) = (&self.answer[..], Vec::new());
        for (number, length) in self.lengths.iter().cycle().enumerate() {
            if rest.is_empty() {
                break;
            }
            let (piece, left) = rest.split_at((*length).min(rest.len()));
            pieces.push(Piece::Bytes(piece.to_vec()));
            if number % self.pause_every == 0 {
                pieces.push(Piece::Pause);
            }
            rest = left;
        }
        pieces
    }
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let lengths = prop_oneof![vec(1..30usize, 1..8), Just(vec![1]), Just(vec![usize::MAX])];
    let end = prop_oneof![1 => Just(End::Close), 3 => Just(End::StayOpen)];
    (answers(), lengths, 1..6usize, end).prop_map(|(answer, lengths, pause_every, end)| Case {
        answer,
        lengths,
        pause_every,
        end,
    })
}

fn answers() -> impl Strategy<Value = Vec<u8>> {
    let whole = (before(), vec(interim(), 0..3), final_answer(), after());
    let whole = whole.prop_map(|(before, interim, answer, after)| {
        [before.into_bytes(), interim.concat().into_bytes(), answer, after.into_bytes()].concat()
    });
    (whole, prop_oneof![5 => Just(0), 1 => Just(1), 1 => Just(2)], vec(mutations(), 2)).prop_map(
        |(mut answer, count, mutations)| {
            mutations.iter().take(count).for_each(|mutation| mutation.apply(&mut answer));
            answer
        },
    )
}

/// One byte that is not as it was.
#[derive(Clone, Debug)]
struct Mutation {
    at: Index,
    byte: u8,
    kind: u8,
}

fn mutations() -> impl Strategy<Value = Mutation> {
    let bytes = prop_oneof![
        3 => proptest::sample::select(b"\r\n\t :,;0a/\x00\x7f\x80\"".to_vec()),
        1 => any::<u8>(),
    ];
    (any::<Index>(), bytes, 0..3u8).prop_map(|(at, byte, kind)| Mutation { at, byte, kind })
}

impl Mutation {
    fn apply(&self, answer: &mut Vec<u8>) {
        let at = self.at.index(answer.len());
        match self.kind {
            0 => answer[at] = self.byte,
            1 => answer.insert(at, self.byte),
            _ => drop(answer.remove(at)),
        }
    }
}

fn text(pattern: &'static str) -> BoxedStrategy<String> {
    proptest::string::string_regex(pattern).unwrap().boxed()
}

fn before() -> impl Strategy<Value = String> {
    prop_oneof![12 => Just(String::new()), 1 => text("(\r\n|\n|\r| ){1,3}")]
}

fn after() -> impl Strategy<Value = String> {
    prop_oneof![8 => Just(String::new()), 1 => text("(\r\n|x|HTTP/1\\.1 200 OK\r\n\r\n)")]
}

fn interim() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        1 => text("HTTP/1\\.1 10[0234] [A-Z]{0,3}\r\n(link: x\r\n|content-length: [05]\r\n){0,2}\r\n"),
    ]
}

/// How a body is framed, and the body.
fn shape() -> impl Strategy<Value = (String, Vec<u8>)> {
    let sized = (vec(any::<u8>(), 0..40), -4..5i64).prop_map(|(body, off)| {
        let length = (body.len() as i64 + if off.abs() == 2 { off } else { 0 }).max(0);
        (format!("content-length: {length}\r\n"), body)
    });
    let odd_length = (
        text("content-length: ?(-1|\\+3|3, ?3|3, ?4|0x3|| 3|3 |3;|003|99999999999999999999)\r\n"),
        Just(b"abc".to_vec()),
    );
    let chunked = (
        text(
            "[Tt]ransfer-[Ee]ncoding: ?(chunked|Chunked|gzip, chunked|chunked, gzip|chunked,|,chunked|identity|chunked, chunked)\r\n",
        ),
        chunks(),
    );
    let both = (
        text("(content-length: [03]\r\n)?transfer-encoding: chunked\r\n(content-length: 3\r\n)?"),
        chunks(),
    );
    let twice = (text("(content-length: [34]\r\n){2}"), Just(b"abc".to_vec()));
    let long = (proptest::sample::select(vec![BODY_KEPT_MAX, DRAIN_LEN_MAX]), 0..2usize)
        .prop_map(|(length, more)| vec![b'x'; length + more])
        .prop_map(|body| (format!("content-length: {}\r\n", body.len()), body));
    let until_close = (Just(String::new()), vec(any::<u8>(), 0..40));
    prop_oneof![
        50 => sized,
        8 => odd_length,
        50 => chunked,
        10 => both,
        10 => twice,
        20 => until_close,
        1 => long,
    ]
}

fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![
        6 => Just("3".to_owned()),
        1 => text("(0{0,20}3|3 |3\t| 3|3;a=b|3;a=\"b;c\"|3 ;a|3;a\nb|3;|0x3|3g||-3|fffffffffffffffff|4|2)"),
    ];
    let line = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
    let chunk = (size, line.clone(), line.clone())
        .prop_map(|(size, end, after)| format!("{size}{end}abc{after}"));
    let last = prop_oneof![
        6 => Just("0\r\n\r\n".to_owned()),
        1 => text("(0|00|0;a=b)(\r\n|\n)((x-sum: 1|x|: |x : y| x: y)(\r\n|\n)){0,2}(\r\n|\n)"),
        1 => Just(String::new()),
    ];
    (vec(chunk, 0..3), last).prop_map(|(chunks, last)| (chunks.concat() + &last).into_bytes())
}

fn header() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => text("(x-a|X-B|server|date): ?[a-z0-9,;=\" ]{0,12}\r\n"),
        3 => text("[Cc]onnection: (close|keep-alive|Keep-Alive, x|x, close|upgrade|)\r\n"),
        1 => text("retry-after: [0-9]{1,3}\r\n"),
        1 => text("(x-a : b|x a: b|: b|x-a| x-a: b|x-a:|x-a:  b  |x-a: b\n c|x-a: \u{e9}|x-\u{e9}: b|x-a: b\n|x-a: b\r)(\r\n)?"),
    ]
}

fn status_line() -> impl Strategy<Value = String> {
    let good = (
        prop_oneof![7 => Just("HTTP/1.1"), 1 => Just("HTTP/1.0")],
        proptest::sample::select(vec![
            200, 201, 204, 205, 206, 304, 301, 400, 404, 429, 500, 503, 599, 999, 101,
        ]),
        text("( [A-Za-z ]{0,9})?"),
    );
    let good = good.prop_map(|(version, status, reason)| format!("{version} {status}{reason}\r\n"));
    let odd = text(
        "(HTTP/1\\.2|HTTP/2\\.0|http/1\\.1|HTTP/1\\.1|HTTP/1\\.|HTTP/1\\.1 ) ?( ?[0-9]{2,4})( O\u{e9}K|\tOK|)?(\r\n|\n|\r)",
    );
    prop_oneof![12 => good, 1 => odd]
}

fn final_answer() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![10 => Just("\r\n"), 1 => Just("\n")];
    (status_line(), vec(header(), 0..3), shape(), vec(header(), 0..2), line).prop_map(
        |(status, first, (framing, body), last, end)| {
            let head = [&status, &first.concat(), &framing, &last.concat(), end].concat();
            [head.into_bytes(), body].concat()
        },
    )
}
