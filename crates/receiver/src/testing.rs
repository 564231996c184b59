//! For tests of a handler: a sender that does to it what networks and strangers do.
//!
//! ```
//! # async fn handler(_: railpost_receiver::testing::TestRequest) -> u16 { 200 }
//! # async fn test() {
//! use railpost_receiver::testing::TestSender;
//!
//! let mut sender = TestSender::new(b"a secret of at least 24 bytes");
//! let created = sender.event(Some("A"), br#"{"order": "A"}"#);
//! let updated = sender.event(Some("A"), br#"{"order": "A", "paid": true}"#);
//! let report = sender.ordeal(&[created, updated], 1_767_225_600, handler).await;
//! assert!(report.problems.is_empty(), "{:?}", report.problems);
//! // Look at the handler's database here: each order was created once, and is paid.
//! # }
//! ```

use railpost_wire::{Attempt, EventId, EventType, HeaderNames, Key, LineId, Secret, Seq, Signer};
use std::collections::HashMap;

/// Rounds of an ordeal before a handler that never acknowledges is given up on.
const ROUNDS_MAX: u32 = 100;

/// The time of an event that has none: 2026-01-01T00:00:00Z.
const EVENT_UNIX_MS: u64 = 1_767_225_600_000;

/// An event to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestEvent {
    /// Its id.
    pub id: EventId,
    /// Its type: `test.event`, unless it is set to another.
    pub event_type: EventType,
    /// When it happened, in milliseconds since 1970: the beginning of 2026, unless it is set to another.
    pub event_unix_ms: u64,
    /// The version of its type's schema, if it is set.
    pub schema_version: Option<u32>,
    /// Its key, if it has one.
    pub key: Option<Key>,
    /// The line that it stands in, if it has a key.
    pub line: Option<LineId>,
    /// Its number in its line.
    pub seq: Option<Seq>,
    /// The seq that must have been applied before, where that is not the one before: set it to play a
    /// sender that skipped what lies between.
    pub after: Option<u64>,
    /// Whether its bytes say where to fetch it instead of holding it.
    pub thin: bool,
    /// Its bytes.
    pub body: Vec<u8>,
}

/// A request for the handler under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRequest {
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl TestRequest {
    /// A header's value, by name without regard to case: what [`Receiver::verify`] asks for.
    ///
    /// [`Receiver::verify`]: crate::Receiver::verify
    pub fn header(&self, wanted: &str) -> Option<&[u8]> {
        let is_wanted = |(name, _): &&(String, String)| name.eq_ignore_ascii_case(wanted);
        self.headers.iter().find(is_wanted).map(|(_, value)| value.as_bytes())
    }

    fn set(&mut self, wanted: &str, value: &str) {
        self.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(wanted));
        self.headers.push((wanted.to_owned(), value.to_owned()));
    }
}

/// How a request is not what it says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// Signed with a secret that the receiver does not trust.
    OtherSecret,
    /// The body was changed after it was signed.
    ChangedBody,
    /// The id was changed after it was signed.
    ChangedId,
    /// A true request, captured and sent again a day later.
    Replayed,
    /// Not signed at all.
    Unsigned,
    /// Only the form of signature that does not cover the id.
    TimestampedOnly,
    /// A signature that is none.
    Garbage,
}

impl Forgery {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::OtherSecret,
        Self::ChangedBody,
        Self::ChangedId,
        Self::Replayed,
        Self::Unsigned,
        Self::TimestampedOnly,
        Self::Garbage,
    ];
}

/// What a handler did under an ordeal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestReport {
    /// Requests that were sent.
    pub sent: u32,
    /// Authentic ones that were held off, to be retried.
    pub held: u32,
    /// Forged ones that were refused.
    pub refused: u32,
    /// What it did wrong.
    pub problems: Vec<String>,
}

/// A sender that signs as the real one does, and counts the seqs of its lines: one for each key.
#[derive(Debug, Clone)]
pub struct TestSender {
    signers: Vec<Signer>,
    names: HeaderNames,
    lines: HashMap<Key, (LineId, Seq)>,
    lines_begun: u64,
    events: u32,
}

impl TestSender {
    /// Signs with this secret, of 24 to 64 bytes.
    ///
    /// # Panics
    ///
    /// If it is shorter or longer.
    pub fn new(secret: &[u8]) -> Self {
        let secret = Secret::from_bytes(secret).expect("a secret of 24 to 64 bytes");
        Self::signing(vec![Signer::Secret(secret)])
    }

    /// Signs with all of these, as during a rotation.
    pub fn signing(signers: Vec<Signer>) -> Self {
        let (names, lines) = (HeaderNames::default(), HashMap::new());
        Self { signers, names, lines, lines_begun: 0, events: 0 }
    }

    /// A new event: the next of its key, if it has one.
    ///
    /// # Panics
    ///
    /// If the key is invalid: it has 1 to 256 bytes.
    pub fn event(&mut self, key: Option<&str>, body: &[u8]) -> TestEvent {
        self.events += 1;
        let id = format!("test-{}", self.events).parse().expect("letters and digits are an id");
        let key: Option<Key> = key.map(|key| key.parse().expect("a key of 1 to 256 bytes"));
        let place = key.clone().map(|key| self.next_place(key));
        let (line, seq) = place.unzip();
        TestEvent {
            id,
            event_type: "test.event".parse().expect("letters and dots are a type"),
            event_unix_ms: EVENT_UNIX_MS,
            schema_version: None,
            key,
            line,
            seq,
            after: None,
            thin: false,
            body: body.to_vec(),
        }
    }

    fn next_place(&mut self, key: Key) -> (LineId, Seq) {
        let place = match self.lines.get(&key) {
            Some((line, seq)) => (line.clone(), seq.next()),
            None => {
                self.lines_begun += 1;
                (LineId::of(1, self.lines_begun), Seq::FIRST)
            }
        };
        self.lines.insert(key, place.clone());
        place
    }

    /// Begins new lines: the next event of each key has seq 1 again, as after the sender's store was
    /// restored.
    pub fn begin_new_lines(&mut self) {
        self.lines.clear();
    }

    /// An attempt of an event, signed. `timestamp` is in seconds since 1970.
    pub fn request(&self, event: &TestEvent, attempt: u32, timestamp: i64) -> TestRequest {
        let attempt = Attempt {
            event_id: &event.id,
            event_type: &event.event_type,
            event_unix_ms: event.event_unix_ms,
            schema_version: event.schema_version,
            key: event.key.as_ref(),
            line: event.line.as_ref(),
            seq: event.seq,
            after: event.after,
            number: attempt,
            replay: false,
            thin: event.thin,
            timestamp,
            body: &event.body,
            signers: &self.signers,
        };
        let headers = attempt.headers(&self.names).into_iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).collect();
        TestRequest { headers, body: event.body.clone() }
    }

    /// A request that must be refused.
    pub fn forge(&self, event: &TestEvent, forgery: Forgery, timestamp: i64) -> TestRequest {
        let mut request = self.request(event, 1, timestamp);
        let both = ["webhook-signature", "X-Webhook-Signature"];
        match forgery {
            Forgery::OtherSecret => return Self::new(&[0x5a; 32]).request(event, 1, timestamp),
            Forgery::ChangedBody => request.body.push(b' '),
            Forgery::ChangedId => {
                request.set("webhook-id", "another");
                request.set("Idempotency-Key", "another");
            }
            Forgery::Replayed => return self.request(event, 1, timestamp - 24 * 60 * 60),
            Forgery::Unsigned => {
                request.headers.retain(|(name, _)| !both.contains(&name.as_str()));
            }
            Forgery::TimestampedOnly => {
                request.headers.retain(|(name, _)| name != "webhook-signature");
            }
            Forgery::Garbage => request.set("webhook-signature", "v1,=,%%"),
        }
        request
    }

    /// Sends forged copies of every event, then the events themselves in reversed order, each one twice
    /// once it is acknowledged, and again and again until all are: what at-least-once can come to.
    ///
    /// An inbox that takes an unknown line from anywhere begins each line with its last event then. Send
    /// such a handler the first event of each key before.
    pub async fn ordeal(
        &self,
        events: &[TestEvent],
        timestamp: i64,
        mut handler: impl AsyncFnMut(TestRequest) -> u16,
    ) -> TestReport {
        let mut report = TestReport::default();
        for event in events {
            for forgery in Forgery::ALL {
                let status = handler(self.forge(event, forgery, timestamp)).await;
                report.note_forged(event, forgery, status);
            }
        }
        let mut waiting: Vec<&TestEvent> = events.iter().rev().collect();
        for attempt in 1..=ROUNDS_MAX {
            let mut held = Vec::new();
            for event in waiting {
                let request = self.request(event, attempt, timestamp);
                let status = handler(request.clone()).await;
                if report.note(event, status) {
                    let status = handler(request).await;
                    report.note_duplicate(event, status);
                } else {
                    held.push(event);
                }
            }
            waiting = held;
        }
        let left = waiting.iter().map(|event| format!("{} was never acknowledged", event.id));
        report.problems.extend(left);
        report
    }
}

impl TestReport {
    fn note_forged(&mut self, event: &TestEvent, forgery: Forgery, status: u16) {
        self.sent += 1;
        match status {
            400 | 401 => self.refused += 1,
            _ => self.problems.push(format!("{forgery:?} of {} was answered {status}", event.id)),
        }
    }

    /// Says whether it was acknowledged.
    fn note(&mut self, event: &TestEvent, status: u16) -> bool {
        self.sent += 1;
        match status {
            200..=299 => return true,
            409 | 425 | 429 | 500..=599 => self.held += 1,
            _ => self.problems.push(format!("{} was answered {status}", event.id)),
        }
        false
    }

    fn note_duplicate(&mut self, event: &TestEvent, status: u16) {
        self.sent += 1;
        if !(200..=299).contains(&status) {
            self.problems.push(format!("{} sent twice was answered {status}", event.id));
        }
    }
}
