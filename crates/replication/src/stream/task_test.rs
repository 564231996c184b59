//! The stream's task, with a server that the test plays and a clock that waits for nobody.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, timeout};

use super::{Frame, Stream, Timing};
use crate::limits::MESSAGE_LEN_MAX;
use crate::pgoutput::{Insert, Message, Value};
use crate::{ErrorKind, Lsn};

const TIMING: Timing = Timing {
    status: Duration::from_secs(1),
    silence_max: Duration::from_secs(8),
    read_pause: Duration::from_millis(3),
};
const FROM: Lsn = Lsn::from_u64(100);

/// The server's end of a connection with room for a few messages.
struct Server(DuplexStream);

fn start() -> (Stream, Server) {
    let (client, server) = duplex(64 * 1024);
    (Stream::spawn(Box::new(client), BytesMut::new(), FROM, TIMING), Server(server))
}

impl Server {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    async fn keepalive(&mut self, end: u64, reply: bool) {
        let mut data = BytesMut::new();
        data.put_u8(b'k');
        data.put_u64(end);
        data.put_i64(0);
        data.put_u8(u8::from(reply));
        self.send(&message(b'd', &data)).await;
    }

    /// How far the client says that it is, and whether it wants an answer.
    async fn status(&mut self) -> (u64, bool) {
        let mut status = [0; 39];
        self.0.read_exact(&mut status).await.unwrap();
        assert_eq!(status[..6], *b"d\0\0\0\x26r");
        let number = |at: usize| u64::from_be_bytes(status[at..at + 8].try_into().unwrap());
        assert_eq!((number(6), number(6)), (number(14), number(22)), "one position for all");
        (number(6), status[38] == 1)
    }
}

fn message(tag: u8, body: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(tag);
    bytes.put_u32(u32::try_from(body.len()).unwrap() + 4);
    bytes.put_slice(body);
    bytes.freeze()
}

/// A message of the plug-in, as it is on the wire.
fn plugin(body: &[u8]) -> Bytes {
    let mut data = BytesMut::new();
    data.put_u8(b'w');
    data.put_bytes(0, 24);
    data.put_slice(body);
    message(b'd', &data)
}

fn begin() -> Bytes {
    let mut body = vec![b'B'];
    body.extend([0; 20]);
    plugin(&body)
}

fn commit(end: u64) -> Bytes {
    let mut body = vec![b'C', 0];
    body.extend([0; 8]);
    body.extend(end.to_be_bytes());
    body.extend([0; 8]);
    plugin(&body)
}

fn insert(text: &[u8]) -> Bytes {
    let mut body = BytesMut::from(&b"I\0\0\0\x07N\0\x01t"[..]);
    body.put_u32(u32::try_from(text.len()).unwrap());
    body.put_slice(text);
    plugin(&body)
}

fn text(frame: Frame) -> Bytes {
    let Frame::Message(Message::Insert(Insert { relation: 7, values })) = frame else {
        panic!("{frame:?} is no insert")
    };
    let [Value::Text(text)] = &values[..] else { panic!("{values:?} is no text") };
    text.clone()
}

fn end(frame: &Frame) -> u64 {
    frame.end_lsn().map_or(0, Lsn::as_u64)
}

#[tokio::test(start_paused = true)]
async fn statuses_are_sent_while_the_caller_takes_nothing() {
    let (mut stream, server) = start();
    let (reader, mut writer) = tokio::io::split(server.0);
    let rows: Vec<Bytes> = (0..24).map(|row| Bytes::from(vec![row; 1024 * 1024])).collect();
    let sent = rows.clone();
    let sending = tokio::spawn(async move {
        for row in sent {
            writer.write_all(&insert(&row)).await.unwrap();
        }
        writer
    });
    let mut statuses = reader.take(20 * 39);
    let mut read = Vec::new();
    let reading = statuses.read_to_end(&mut read);
    timeout(Duration::from_secs(21), reading).await.expect("a status comes every second").unwrap();
    assert_eq!(read.len(), 20 * 39);
    assert!(!sending.is_finished(), "the client read everything although nobody took it");
    for row in rows {
        assert_eq!(text(stream.next().await.unwrap()), row);
    }
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_keepalive_that_asks_for_an_answer_has_it_at_once() {
    let (_stream, mut server) = start();
    assert_eq!(server.status().await, (100, false));
    let asked = Instant::now();
    server.keepalive(100, true).await;
    assert_eq!(server.status().await, (100, false));
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_message_in_pieces_survives_calls_that_are_dropped() {
    let (mut stream, mut server) = start();
    for byte in insert(b"whole") {
        let dropped = timeout(Duration::from_millis(300), stream.next()).await;
        assert!(dropped.is_err(), "{dropped:?} before the end");
        server.send(&[byte]).await;
    }
    assert_eq!(text(stream.next().await.unwrap()), "whole");
}

#[tokio::test(start_paused = true)]
async fn a_position_without_changes_is_offered_once_all_before_it_is_confirmed() {
    let (mut stream, mut server) = start();
    server.send(&begin()).await;
    server.keepalive(150, false).await;
    server.send(&insert(b"row")).await;
    server.send(&commit(200)).await;
    server.keepalive(210, false).await;
    server.keepalive(220, false).await;
    for expected in [0, 0, 200] {
        assert_eq!(end(&stream.next().await.unwrap()), expected);
    }
    assert!(timeout(Duration::from_secs(3), stream.next()).await.is_err(), "200 is unconfirmed");
    stream.confirm(Lsn::from_u64(200));
    assert_eq!(stream.next().await.unwrap(), Frame::Idle(Lsn::from_u64(220)));
    server.keepalive(230, false).await;
    assert!(timeout(Duration::from_secs(3), stream.next()).await.is_err(), "220 is unconfirmed");
    stream.confirm(Lsn::from_u64(220));
    assert_eq!(stream.next().await.unwrap(), Frame::Idle(Lsn::from_u64(230)));
    assert_eq!(stream.server_end(), Lsn::from_u64(230));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_an_answer_waits_until_all_that_it_has_is_confirmed() {
    let (mut stream, mut server) = start();
    server.keepalive(110, false).await;
    assert_eq!(stream.next().await.unwrap(), Frame::Idle(Lsn::from_u64(110)));
    assert!(!stream.is_awaited(), "it did not ask");
    stream.confirm(Lsn::from_u64(110));
    server.keepalive(120, true).await;
    assert_eq!(stream.next().await.unwrap(), Frame::Idle(Lsn::from_u64(120)));
    assert!(stream.is_awaited());
    stream.confirm(Lsn::from_u64(120));
    assert!(!stream.is_awaited());
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_is_sent_at_once_and_never_goes_back() {
    let (mut stream, mut server) = start();
    assert_eq!(server.status().await.0, 100);
    for bytes in [begin(), commit(200), begin(), commit(300)] {
        server.send(&bytes).await;
    }
    for _ in 0..4 {
        stream.next().await.unwrap();
    }
    let confirmed = Instant::now();
    stream.confirm(Lsn::from_u64(300));
    assert_eq!(server.status().await.0, 300);
    assert_eq!(confirmed.elapsed(), Duration::ZERO);
    stream.confirm(Lsn::from_u64(200));
    assert_eq!(server.status().await.0, 300);
    assert_eq!(stream.confirmed(), Lsn::from_u64(300));
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "was not handed over")]
async fn what_was_not_handed_over_cannot_be_confirmed() {
    let (mut stream, mut server) = start();
    server.send(&[begin(), commit(200)].concat()).await;
    stream.next().await.unwrap();
    stream.confirm(Lsn::from_u64(200));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_ends_the_stream() {
    let (mut stream, mut server) = start();
    let mut long = vec![b'd'];
    long.extend(u32::try_from(MESSAGE_LEN_MAX).unwrap().to_be_bytes());
    server.send(&[&insert(b"before")[..], &long].concat()).await;
    assert_eq!(text(stream.next().await.unwrap()), "before");
    for _ in 0..2 {
        assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::TooLarge);
    }
    while server.0.read_u8().await.is_ok() {}
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_inside_of_a_message_ends_the_stream() {
    let (mut stream, mut server) = start();
    server.send(&insert(b"before")).await;
    server.send(&insert(b"cut")[..20]).await;
    drop(server);
    assert_eq!(text(stream.next().await.unwrap()), "before");
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Disconnected);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_said_before_it_closed_is_heard_although_nothing_can_be_written() {
    let (mut stream, mut server) = start();
    server.send(&[begin(), insert(b"row"), commit(200)].concat()).await;
    server.send(&message(b'E', b"SFATAL\0C57P01\0Mgoodbye\0\0")).await;
    // The first status finds nobody.
    drop(server);
    for _ in 0..3 {
        stream.next().await.unwrap();
    }
    assert_eq!(stream.next().await.unwrap_err().sqlstate(), Some("57P01"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_and_then_given_up() {
    let (mut stream, mut server) = start();
    let begun = Instant::now();
    for second in 0..8 {
        assert_eq!(server.status().await, (100, second >= 4), "{second}");
    }
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(begun.elapsed(), TIMING.silence_max);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_server_ends_the_stream_and_has_its_name() {
    let (mut stream, mut server) = start();
    let error = b"SERROR\0C42704\0Mpublication \"late\" does not exist\0\0";
    server.send(&message(b'E', error)).await;
    let error = stream.next().await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::PublicationMissing, Some("42704")));
}

#[tokio::test(start_paused = true)]
async fn a_warning_that_changes_are_passed_over_ends_the_stream_and_no_other_does() {
    let (mut stream, mut server) = start();
    server.send(&message(b'N', b"SWARNING\0C01000\0Mcareful\0\0")).await;
    server.send(&insert(b"row")).await;
    assert_eq!(text(stream.next().await.unwrap()), "row");
    let warning = b"SWARNING\0C55000\0Mskipped loading publication \"late\"\0\0";
    server.send(&[&message(b'N', warning)[..], &insert(b"after")].concat()).await;
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::PublicationMissing);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_of_the_plug_in_ends_the_stream() {
    for bytes in
        [plugin(b"C\0"), plugin(b""), message(b'd', b"?"), message(b'd', b""), message(b'!', b"")]
    {
        let (mut stream, mut server) = start();
        server.send(&bytes).await;
        assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Protocol, "{bytes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_sends_the_last_confirmation_and_waits_for_the_server() {
    let (mut stream, mut server) = start();
    assert_eq!(server.status().await.0, 100);
    server.send(&[begin(), commit(200)].concat()).await;
    for _ in 0..2 {
        stream.next().await.unwrap();
    }
    stream.confirm(Lsn::from_u64(200));
    let stopping = tokio::spawn(stream.stop());
    let mut received = Vec::new();
    while !received.ends_with(b"c\0\0\0\x04X\0\0\0\x04") {
        received.push(server.0.read_u8().await.unwrap());
    }
    let last_status = &received[received.len() - 10 - 39..];
    assert_eq!(last_status[6..14], 200_u64.to_be_bytes());
    assert!(!stopping.is_finished());
    drop(server);
    stopping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn commits_that_follow_a_read_within_a_moment_are_handed_over_together() {
    let (mut stream, mut server) = start();
    let begun = Instant::now();
    server.keepalive(100, false).await;
    // The task reads it here.
    tokio::task::yield_now().await;
    server.send(&commit(101)).await;
    assert_eq!(end(&stream.next().await.unwrap()), 101);
    assert_eq!(begun.elapsed(), Duration::ZERO, "a commit after a keepalive waits for nothing");
    for lsn in 102..=103 {
        server.send(&commit(lsn)).await;
        // The task could read it here.
        tokio::task::yield_now().await;
        assert_eq!(stream.try_next(), None);
    }
    assert_eq!(end(&stream.next().await.unwrap()), 102);
    assert!(begun.elapsed() >= TIMING.read_pause);
    assert_eq!(stream.try_next().as_ref().map(end), Some(103));
    assert_eq!(stream.try_next(), None);
}
