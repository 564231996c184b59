//! Our HTTP/1 client beside hyper's: the same answers, cut into the same pieces, are read alike.
//!
//! Ours may be stricter, for the reasons in [`Stricter`], and never laxer. What the two ever disagreed on
//! stands in `corpus.json`, with the verdict of each.
//!
//! `RAILPOST_FUZZ_CASES` sets how many answers are made, and `RAILPOST_FUZZ_SEED` which ones.

mod answers;
mod script;

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::dial::Peer;
use super::exchange::{BodyEnd, Detail};
use super::h1::H1;
use super::stream::Stream;
use crate::limits::{BODY_KEPT_MAX, DRAIN_LEN_MAX, INTERIM_ANSWERS_MAX};
use crate::{Guard, Request, Route, RouteConfig, Sender, SenderConfig, Target};
use answers::{Case, cases};
use script::End;
pub(super) use script::Script;

/// Answers that are made in an ordinary run.
const CASES: u32 = 3_000;

/// Longer than anything takes here but waiting for what never comes. Nobody waits for it: the clock stands
/// still and jumps.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client makes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    /// Nothing if it is refused, or never comes.
    answer: Option<Answer>,
    /// Whether the connection may serve the next request.
    reusable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Header fields and body, of all but acknowledgements, of which ours keeps neither.
    rest: Option<Rest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rest {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    end: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Complete,
    /// It broke off, is none, or has more to come that does not. Which of these, the one may know sooner
    /// than the other.
    Incomplete,
    /// It is longer than ours keeps.
    Cut,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(answer) = &self.answer else { return f.write_str("no answer") };
        write!(f, "{}", answer.status)?;
        if let Some(Rest { headers, body, end }) = &answer.rest {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            write!(f, " [{}] \"{}\" {end:?}", headers.join(" | "), body.escape_ascii())?;
        }
        f.write_str(if self.reusable { ", reusable" } else { ", closed" })
    }
}

fn sorted(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |value: &::http::HeaderValue| value.as_bytes().escape_ascii().to_string();
    let mut all: Vec<_> = headers.iter().map(|(name, it)| (name.to_string(), value(it))).collect();
    all.sort();
    all
}

async fn ours(case: &Case, route: &Route) -> Verdict {
    let script = Script::new(case.pieces(), case.end);
    let peer = Peer { remote: ([127, 0, 0, 1], 1).into(), exception: None };
    let mut connection = H1::new(Stream::Script(script), peer);
    let none: [(&str, String); 0] = [];
    let request = Request::new(route, none, "{}".into()).unwrap();
    let (started, mut detail) = (Instant::now(), Detail::default());
    let exchange = timeout(PATIENCE, connection.exchange(&request, started, &mut detail)).await;
    // A pause may stand between the answer and what follows it.
    let reusable = matches!(exchange, Ok(Ok(()))) && (0..3).all(|_| connection.is_ready());
    let answer = detail.response.map(|response| Answer {
        status: response.status,
        rest: (!response.is_success()).then(|| Rest {
            headers: sorted(&response.headers),
            end: match response.body.end {
                BodyEnd::Complete => Ending::Complete,
                BodyEnd::TooLarge => Ending::Cut,
                BodyEnd::NotRead | BodyEnd::TimedOut | BodyEnd::Broken => Ending::Incomplete,
            },
            body: response.body.kept,
        }),
    });
    Verdict { answer, reusable }
}

async fn hypers(case: &Case) -> Verdict {
    let script = TokioIo::new(Script::new(case.pieces(), case.end));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(script).await.unwrap();
    let running = tokio::spawn(connection);
    let request = ::http::Request::post("/").header("host", "x").body(Full::new(Bytes::from("{}")));
    let answered = timeout(PATIENCE, sender.send_request(request.unwrap())).await;
    let answer = match answered {
        Ok(Ok(response)) => Some(taken(response).await),
        Ok(Err(_)) | Err(_) => None,
    };
    // Until the connection has seen all that follows the answer.
    sleep(PATIENCE).await;
    let reusable = answer.is_some() && sender.is_ready();
    running.abort();
    Verdict { answer, reusable }
}

async fn taken(response: ::http::Response<hyper::body::Incoming>) -> Answer {
    let (head, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let end = loop {
        match timeout(PATIENCE, incoming.frame()).await {
            Ok(None) => break Ending::Complete,
            Ok(Some(Err(_))) | Err(_) => break Ending::Incomplete,
            Ok(Some(Ok(frame))) => body.extend(frame.into_data().unwrap_or_default()),
        }
    };
    let end = if body.len() > BODY_KEPT_MAX { Ending::Cut } else { end };
    body.truncate(BODY_KEPT_MAX);
    let rest = Rest { headers: sorted(&head.headers), body, end };
    Answer { status: head.status.as_u16(), rest: (!head.status.is_success()).then_some(rest) }
}

/// Why ours may refuse an answer that hyper takes, or close a connection that hyper keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stricter {
    /// Refused: an empty line before a status line.
    EmptyLine,
    /// Refused: too many interim answers.
    Interim,
    /// Closed: a body that is framed by chunks and by its length.
    FramedTwice,
    /// Closed: a 204 or 304 that announces a body.
    NoBodyAnnounced,
    /// Closed: a `connection` that says `close` among bytes that are not ASCII.
    OddConnection,
    /// Refused: a head that is longer than ours reads. Closed: a body that is.
    TooLong,
    /// Broken: a bare line feed, or a carriage return, among trailers.
    BareLineEnd,
}

/// The reasons that an answer of this status gives.
fn reasons(answer: &[u8], status: Option<u16>) -> Vec<Stricter> {
    let text = answer.to_ascii_lowercase();
    let head = final_head(&text);
    let (coded, sized) = (count(head, "transfer-encoding") > 0, count(head, "content-length") > 0);
    let has_no_body = matches!(status, Some(101 | 204 | 304));
    let all = [
        (Stricter::EmptyLine, has_empty_line(&text)),
        (Stricter::Interim, count(&text, "http/1.1 10") > INTERIM_ANSWERS_MAX),
        (Stricter::FramedTwice, coded && sized),
        (Stricter::NoBodyAnnounced, has_no_body && (coded || sized)),
        (Stricter::OddConnection, count(head, "close") > 0 && !head.is_ascii()),
        (Stricter::TooLong, answer.len() > DRAIN_LEN_MAX.min(BODY_KEPT_MAX)),
        (Stricter::BareLineEnd, coded && has_bare_line_end(&text)),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(reason, _)| reason).collect()
}

fn count(text: &[u8], part: &str) -> usize {
    text.windows(part.len()).filter(|it| *it == part.as_bytes()).count()
}

/// The head that is not an interim one, with more than that where its lines do not end as they must.
fn final_head(mut text: &[u8]) -> &[u8] {
    let end = |text: &[u8]| text.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    while text.starts_with(b"http/1.1 10") && !text.starts_with(b"http/1.1 101") {
        let Some(end) = end(text) else { break };
        text = &text[end..];
    }
    &text[..end(text).unwrap_or(text.len())]
}

/// Whether an empty line stands before a status line, beside the one that ends an interim answer.
fn has_empty_line(text: &[u8]) -> bool {
    let is_line = |at: &usize| text[*at..].starts_with(b"http/1.");
    (0..text.len()).filter(is_line).any(|at| {
        let is_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let before: Vec<u8> = text[..at].iter().rev().take_while(is_end).copied().collect();
        let lines = before.iter().filter(|byte| **byte == b'\n').count();
        let allowed = if before.len() == at { 0 } else { 2 };
        lines > allowed || before.first() == Some(&b'\r')
    })
}

fn has_bare_line_end(text: &[u8]) -> bool {
    let crlf = text.windows(2).filter(|two| *two == b"\r\n").count();
    text.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count() > 2 * crlf
}

/// Says what is wrong with our verdict beside hyper's, if anything is.
fn disagreement(answer: &[u8], ours: &Verdict, hypers: &Verdict) -> Option<&'static str> {
    let status = hypers.answer.as_ref().map(|answer| answer.status);
    let reasons = reasons(answer, status);
    let is_any = |wanted: &[Stricter]| wanted.iter().any(|reason| reasons.contains(reason));
    let breaks = is_any(&[Stricter::BareLineEnd]);
    let refuses = [Stricter::EmptyLine, Stricter::Interim, Stricter::TooLong];
    match (&ours.answer, &hypers.answer) {
        (None, Some(_)) if is_any(&refuses) => return None,
        (Some(ours), Some(hypers)) if breaks && ours.breaks_off(hypers) => {}
        (ours, hypers) if ours != hypers => return Some("the answers differ"),
        _ => {}
    }
    let closes = [
        Stricter::FramedTwice,
        Stricter::NoBodyAnnounced,
        Stricter::OddConnection,
        Stricter::TooLong,
    ];
    match (ours.reusable, hypers.reusable) {
        (true, false) => Some("ours would use the connection again"),
        (false, true) if !breaks && !is_any(&closes) => Some("ours closes without a reason"),
        _ => None,
    }
}

impl Answer {
    /// Whether it is the same as the other as far as it goes.
    fn breaks_off(&self, other: &Self) -> bool {
        self.status == other.status
            && match (&self.rest, &other.rest) {
                (Some(ours), Some(theirs)) => {
                    ours.headers == theirs.headers && theirs.body.starts_with(&ours.body)
                }
                (ours, theirs) => ours == theirs,
            }
    }
}

/// Runs with a clock that jumps, so that nobody waits for what never comes.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn route() -> Route {
    let target = Target::parse("https://example.com/", &Guard::default()).unwrap();
    let sender = Sender::new(SenderConfig::default()).unwrap();
    sender.route(&RouteConfig::new(target)).unwrap()
}

fn both(runtime: &tokio::runtime::Runtime, route: &Route, case: &Case) -> (Verdict, Verdict) {
    runtime.block_on(async { (ours(case, route).await, hypers(case).await) })
}

fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// What the two ever disagreed on, and what they are meant to.
#[test]
fn answers_that_were_found_keep_their_verdicts() {
    let corpus: Vec<Value> =
        serde_json::from_str(include_str!("differential_test/corpus.json")).unwrap();
    let (runtime, route) = (runtime(), route());
    for found in corpus {
        let text = |field: &str| found[field].as_str().unwrap_or_default();
        let answer: Vec<u8> = text("answer").chars().map(|c| u8::try_from(c).unwrap()).collect();
        let repeat = found["repeat"].as_u64().unwrap_or(1) as usize;
        let answer = [text("before").repeat(repeat).into_bytes(), answer].concat();
        let end = if text("then") == "close" { End::Close } else { End::StayOpen };
        for length in [1, 3, usize::MAX] {
            let case = Case { answer: answer.clone(), lengths: vec![length], pause_every: 2, end };
            let (ours, hypers) = both(&runtime, &route, &case);
            let hypers_expected = found["hyper"].as_str().unwrap_or(text("ours"));
            let told = [ours.to_string(), hypers.to_string()];
            assert_eq!(told, [text("ours"), hypers_expected], "{} by {length}", text("name"));
            assert_eq!(disagreement(&answer, &ours, &hypers), None, "{}", text("name"));
        }
    }
}

#[test]
fn our_client_reads_answers_as_hypers_does_or_is_stricter() {
    let cases_max = setting("RAILPOST_FUZZ_CASES", CASES);
    let config = Config { cases: cases_max, failure_persistence: None, ..Config::default() };
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&setting("RAILPOST_FUZZ_SEED", 7).to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let (runtime, route) = (runtime(), route());
    let (answered, reused) = (Cell::new(0), Cell::new(0));
    let run = TestRunner::new_with_rng(config, rng).run(&cases(), |case| {
        let (ours, hypers) = both(&runtime, &route, &case);
        answered.set(answered.get() + u32::from(ours.answer.is_some()));
        reused.set(reused.get() + u32::from(ours.reusable));
        let problem = disagreement(&case.answer, &ours, &hypers);
        problem.map_or(Ok(()), |problem| {
            let (answer, end) = (case.answer.escape_ascii(), case.end);
            let told = format!(
                "{problem}\nours:  {ours}\nhyper: {hypers}\nanswer, then {end:?}: {answer}"
            );
            Err(TestCaseError::fail(told))
        })
    });
    if let Err(TestError::Fail(reason, _)) = run {
        panic!("{reason}");
    }
    run.unwrap();
    let (answered, reused) = (answered.get(), reused.get());
    assert!(
        answered > cases_max / 2 && reused > cases_max / 10,
        "{answered} answers, {reused} reused"
    );
}
