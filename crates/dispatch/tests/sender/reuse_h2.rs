//! HTTP/2: one connection for all, and a second try only for what was provably left alone.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{Request as Incoming, Response as Answer, Version};
use railpost_dispatch::*;
use railpost_engine::Failure;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::support::*;
use crate::tls::{Authority, Tls, trusting};

/// What a server does with one request.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answer,
    AnswerWith(usize),
    AnswerUnderHeader(usize),
    Refuse(Reason),
    SayFarewell,
    FallSilent,
    /// Answers this request and all that wait.
    AnswerAll,
}

/// A receiver that speaks HTTP/2 and does as `plan` says for a connection and a request on it, both
/// counted from 1.
async fn h2_receiver(authority: &Authority, plan: fn(usize, usize) -> Act) -> Receiver {
    let leaf = authority.issue(|_| {});
    let acceptor = Tls { alpn: &["h2", "http/1.1"], ..Tls::new(&leaf) }.acceptor();
    Receiver::scripted(move |stream, seen| serve(acceptor.clone(), stream, seen, plan)).await
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    seen: Seen,
    plan: fn(usize, usize) -> Act,
) {
    let stream = acceptor.accept(stream).await.unwrap();
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut open = Vec::new();
    let mut count = 0;
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        count += 1;
        seen.note(describe(&request));
        match plan(seen.connection, count) {
            Act::Answer => answer(&mut respond, 0),
            Act::AnswerWith(len) => answer(&mut respond, len),
            Act::AnswerUnderHeader(len) => {
                let head = Answer::builder().header("x-long", "a".repeat(len)).body(()).unwrap();
                respond.send_response(head, true).unwrap();
            }
            Act::Refuse(reason) => respond.send_reset(reason),
            // The farewell names the last request that was taken: the one before this.
            Act::SayFarewell => connection.abrupt_shutdown(Reason::NO_ERROR),
            Act::FallSilent => {}
            Act::AnswerAll => {
                answer(&mut respond, 0);
                open.iter_mut().for_each(|(_, respond)| answer(respond, 0));
            }
        }
        open.push((request, respond));
    }
}

fn describe(request: &Incoming<h2::RecvStream>) -> String {
    let mut names: Vec<&str> = request.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    format!("{} {} {}", request.method(), request.uri(), names.join(" "))
}

fn answer(respond: &mut SendResponse<Bytes>, len: usize) {
    let status = if len == 0 { 200 } else { 500 };
    let head = Answer::builder().status(status).body(()).unwrap();
    let mut body = respond.send_response(head, len == 0).unwrap();
    if len > 0 {
        body.send_data(vec![b'x'; len].into(), true).unwrap();
    }
}

#[tokio::test]
async fn http2_is_negotiated_and_one_connection_carries_many_requests_at_once() {
    let authority = Authority::new();
    let mut receiver = h2_receiver(&authority, |_, _| Act::Answer).await;
    let sender = sender();
    let route = sender.route(&trusting(&receiver, &authority)).unwrap();
    // None of them finds a connection, and still only one is made.
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (sender, route) = (sender.clone(), route.clone());
        tasks.spawn(async move { send(&sender, &route, Resend::IfUntouched).await });
    }
    let exchanges = in_time(tasks.join_all()).await;
    for exchange in &exchanges {
        assert_eq!(status(exchange), Some(200), "{:?}", exchange.detail);
        assert_eq!(exchange.detail.response.as_ref().unwrap().version, Version::HTTP_2);
        assert_eq!(exchange.detail.remote, Some(receiver.address));
    }
    assert_eq!(exchanges.iter().filter(|exchange| !exchange.detail.reused).count(), 1);
    assert_eq!(receiver.connections(), 1);
    let expected = format!("POST {} content-length user-agent webhook-id", receiver.url("https"));
    assert_eq!(receiver.request().await, expected);
}

/// A sender that trusts this authority for everybody, so that endpoints may share connections.
fn sender_trusting(authority: &Authority, pool: PoolBounds) -> Sender {
    let roots = Roots { bundled: false, extra: Some(authority.certificates()) };
    Sender::new(SenderConfig { roots, pool, ..config() }).unwrap()
}

#[tokio::test]
async fn tenants_share_no_connection_in_http2_either() {
    let authority = Authority::new();
    let receiver = h2_receiver(&authority, |_, _| Act::Answer).await;
    let sender = sender_trusting(&authority, PoolBounds::default());
    for (tenant, connections) in [("acme", 1), ("bob", 2), ("acme", 2), ("bob", 2)] {
        let exchange = post(&sender, &of_tenant(tenant, &receiver.url("https"))).await;
        assert_eq!(status(&exchange), Some(200), "{:?}", exchange.detail);
        assert_eq!(receiver.connections(), connections, "{tenant}");
    }
}

#[tokio::test]
async fn connections_of_http2_count_for_the_bounds_of_what_is_idle() {
    let authority = Authority::new();
    for (idle_per_tenant, idle, kept) in [(1, 1, true), (0, 9, false), (9, 0, false)] {
        let receiver = h2_receiver(&authority, |_, _| Act::Answer).await;
        let pool =
            PoolBounds { idle_per_tenant, idle, idle_timeout: PATIENCE, ..PoolBounds::default() };
        let sender = sender_trusting(&authority, pool);
        let route = sender.route(&of_tenant("acme", &receiver.url("https"))).unwrap();
        let first = send(&sender, &route, Resend::IfUntouched).await;
        let second = send(&sender, &route, Resend::IfUntouched).await;
        assert_eq!([status(&first), status(&second)], [Some(200); 2]);
        assert_eq!(second.detail.reused, kept, "{idle_per_tenant} of {idle}");
    }
}

#[tokio::test]
async fn attempts_at_once_share_a_connection_of_http2_that_there_is_no_room_to_keep() {
    let authority = Authority::new();
    let receiver = h2_receiver(&authority, |_, count| match count {
        20 => Act::AnswerAll,
        _ => Act::FallSilent,
    })
    .await;
    let pool = PoolBounds { idle: 0, ..PoolBounds::default() };
    let sender = sender_trusting(&authority, pool);
    let route = sender.route(&of_tenant("acme", &receiver.url("https"))).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (sender, route) = (sender.clone(), route.clone());
        tasks.spawn(async move { send(&sender, &route, Resend::IfUntouched).await });
    }
    let exchanges = in_time(tasks.join_all()).await;
    assert!(exchanges.iter().all(|exchange| status(exchange) == Some(200)));
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_body_in_http2_is_kept_to_the_bound_and_the_connection_serves_on() {
    let authority = Authority::new();
    let receiver = h2_receiver(&authority, |_, _| Act::AnswerWith(60_000)).await;
    let sender = sender();
    let route = sender.route(&trusting(&receiver, &authority)).unwrap();
    for _ in 0..5 {
        let exchange = send(&sender, &route, Resend::IfUntouched).await;
        assert_eq!(status(&exchange), Some(500));
        let body = exchange.detail.response.unwrap().body;
        assert_eq!((body.kept.len(), body.end), (limits::BODY_KEPT_MAX, BodyEnd::TooLarge));
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_a_bad_response_in_http2_too() {
    let authority = Authority::new();
    let too_large = |_, _| Act::AnswerUnderHeader(limits::RESPONSE_HEAD_LEN_MAX + 1);
    let receiver = h2_receiver(&authority, too_large).await;
    let exchange = post(&sender(), &trusting(&receiver, &authority)).await;
    assert_failed(&exchange, Failure::BadResponse, "the answer breaks HTTP/2");
}

/// On a connection's second request each receiver does what it says it has not acted on, or not.
#[tokio::test]
async fn only_a_request_that_was_provably_left_alone_is_sent_again() {
    use Resend::*;
    type Plan = fn(usize, usize) -> Act;
    let refuse: Plan =
        |_, n| if n == 2 { Act::Refuse(Reason::REFUSED_STREAM) } else { Act::Answer };
    let fail: Plan = |_, n| if n == 2 { Act::Refuse(Reason::INTERNAL_ERROR) } else { Act::Answer };
    for (plan, resend, sent_again) in [
        (refuse, IfUntouched, true),
        (refuse, Never, false),
        (fail, IfUntouched, false),
        (fail, Never, false),
    ] {
        let authority = Authority::new();
        let receiver = h2_receiver(&authority, plan).await;
        let sender = sender();
        let route = sender.route(&trusting(&receiver, &authority)).unwrap();
        assert_eq!(status(&send(&sender, &route, resend).await), Some(200));
        let exchange = send(&sender, &route, resend).await;
        assert_eq!(exchange.detail.resent, sent_again);
        if sent_again {
            assert_eq!(status(&exchange), Some(200));
            assert_eq!((receiver.requests_left(), receiver.connections()), (3, 2));
        } else {
            assert_failed(&exchange, Failure::Reset, "the receiver ended the stream");
            assert_eq!((receiver.requests_left(), receiver.connections()), (2, 1));
        }
    }
}

#[tokio::test]
async fn a_connection_that_said_farewell_is_replaced() {
    let authority = Authority::new();
    let plan = |connection, n| match (connection, n) {
        (1, 2) => Act::SayFarewell,
        _ => Act::Answer,
    };
    let receiver = h2_receiver(&authority, plan).await;
    let sender = sender();
    let route = sender.route(&trusting(&receiver, &authority)).unwrap();
    send(&sender, &route, Resend::IfUntouched).await;
    send(&sender, &route, Resend::IfUntouched).await;
    let exchange = send(&sender, &route, Resend::IfUntouched).await;
    assert_eq!(status(&exchange), Some(200), "{:?}", exchange.detail);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_silent_shared_connection_is_not_given_to_the_next_attempt() {
    let authority = Authority::new();
    let plan = |connection, _| if connection == 1 { Act::FallSilent } else { Act::Answer };
    let receiver = h2_receiver(&authority, plan).await;
    let sender = sender();
    let timeouts = Timeouts::new(PATIENCE, Duration::from_secs(1)).unwrap();
    let config = RouteConfig { timeouts, ..trusting(&receiver, &authority) };
    let route = sender.route(&config).unwrap();
    assert_failed(&send(&sender, &route, Resend::IfUntouched).await, Failure::Timeout, "");
    let exchange = send(&sender, &route, Resend::IfUntouched).await;
    assert_eq!(status(&exchange), Some(200), "{:?}", exchange.detail);
    assert_eq!(receiver.connections(), 2);
}
