//! What is sent, and what is made of an answer.

use std::time::Duration;

use railpost_dispatch::*;
use railpost_engine::{AttemptResult, Span};
use railpost_wire::HeaderNames;
use tokio::io::AsyncWriteExt;

use crate::support::*;

#[tokio::test]
async fn a_request_carries_all_its_headers_and_exactly_its_bytes() {
    let mut receiver = Receiver::answering(OK).await;
    let sender = sender();
    let custom = [("Authorization", "Bearer abc"), ("X-Team", "blue"), ("X-Team", "green")];
    let config = RouteConfig {
        headers: CustomHeaders::new(custom, &HeaderNames::default()).unwrap(),
        ..route_config(&receiver.url("http"))
    };
    let route = sender.route(&config).unwrap();
    let headers = [("webhook-id", "evt_1"), ("X-Attempt", "3"), ("ce-id", "evt_1")];
    let headers = headers.map(|(name, value)| (name, value.to_owned()));
    let trace = TraceParent::new(0xabc, 0xdef, true).unwrap();
    let body = "  {\"a\": 1}\n";
    let request = Request::new(&route, headers, body.into()).unwrap().with_traceparent(trace);
    assert_eq!(status(&in_time(sender.send(request)).await), Some(200));

    let port = receiver.address.port();
    let (head, sent) = receiver.request().await.split_once("\r\n\r\n").map(owned).unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    lines[1..].sort_unstable();
    assert_eq!(
        lines,
        [
            "POST /hooks?a=1 HTTP/1.1",
            "authorization: Bearer abc",
            "ce-id: evt_1",
            "content-length: 11",
            &format!("host: {NAME}:{port}"),
            "traceparent: 00-00000000000000000000000000000abc-0000000000000def-01",
            &format!("user-agent: Railpost/{}", env!("CARGO_PKG_VERSION")),
            "webhook-id: evt_1",
            "x-attempt: 3",
            "x-team: blue",
            "x-team: green",
        ]
    );
    assert_eq!(sent, body);
}

fn owned((a, b): (&str, &str)) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[tokio::test]
async fn an_endpoints_own_user_agent_replaces_the_senders() {
    let mut receiver = Receiver::answering(OK).await;
    let headers = CustomHeaders::new([("User-Agent", "mine/2")], &HeaderNames::default()).unwrap();
    let config = RouteConfig { headers, ..route_config(&receiver.url("http")) };
    post(&sender(), &config).await;
    let request = receiver.request().await;
    assert!(
        request.contains("user-agent: mine/2\r\n") && !request.contains("Railpost"),
        "{request}"
    );
}

#[tokio::test]
async fn no_header_can_smuggle_another_one_in() {
    let receiver = Receiver::answering(OK).await;
    let route = sender().route(&route_config(&receiver.url("http"))).unwrap();
    for (name, value) in [
        ("x-key", "a\r\nx-forged: b"),
        ("x-key", "a\nb"),
        ("x-key", "a\rb"),
        ("x-key", "a\0b"),
        ("x-key\r\nx-forged", "b"),
        ("x key", "b"),
        ("x-key:", "b"),
        ("", "b"),
    ] {
        let refused = Request::new(&route, [(name, value.to_owned())], "".into()).unwrap_err();
        assert_eq!(refused.name, name, "{refused}");
    }
}

#[tokio::test]
async fn neither_payload_nor_credentials_show_in_debug_output() {
    let headers =
        CustomHeaders::new([("Authorization", "s3cret")], &HeaderNames::default()).unwrap();
    let config = RouteConfig { headers, ..route_config("https://example.com/") };
    let route = sender().route(&config).unwrap();
    let own = [("webhook-signature", "s3cret".to_owned())];
    let request = Request::new(&route, own, "s3cret".into()).unwrap();
    for shown in [format!("{request:?}"), format!("{route:?}"), format!("{config:?}")] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn a_user_agent_that_is_no_header_value_makes_no_sender() {
    let refused = Sender::new(SenderConfig { user_agent: "a\r\nb".to_owned(), ..config() });
    assert!(matches!(refused, Err(BadSender::UserAgent(_))));
}

#[tokio::test]
async fn every_status_passes_through_as_it_is() {
    for code in
        [200, 201, 202, 204, 299, 300, 304, 400, 401, 404, 408, 410, 418, 429, 500, 501, 599]
    {
        let answer = format!("HTTP/1.1 {code} Whatever\r\ncontent-length: 0\r\n\r\n");
        let receiver = Receiver::answering(answer).await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        let expected = AttemptResult::Response { status: code, retry_after: None };
        assert_eq!(exchange.result, expected);
        assert_eq!(exchange.detail.message, None, "{code}");
    }
}

#[tokio::test]
async fn an_offer_to_speak_something_else_is_an_answer_like_any_other() {
    let answer = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n";
    let receiver = Receiver::answering(answer).await;
    let sender = sender();
    for _ in 0..2 {
        let exchange = post(&sender, &route_config(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(101));
        assert!(!exchange.detail.reused);
    }
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = Receiver::answering(OK).await;
    for code in [301, 302, 303, 307, 308] {
        let answer = format!(
            "HTTP/1.1 {code} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
            elsewhere.url("http")
        );
        let receiver = Receiver::answering(answer).await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(code));
        let (headers, _) = exchange.detail.response.as_ref().unwrap().kept_headers();
        assert!(headers.iter().any(|(name, _)| *name == "location"), "people can see where to");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn retry_after_is_read_in_seconds_and_as_a_date() {
    for (value, wait) in [
        ("120", Some(Span::from_secs(120))),
        (" 7 ", Some(Span::from_secs(7))),
        ("Thu, 01 Jan 1970 00:00:10 GMT", Some(Span::ZERO)),
        ("soon", None),
        ("-1", None),
    ] {
        let answer =
            format!("HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let receiver = Receiver::answering(answer).await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        let expected = AttemptResult::Response { status: 503, retry_after: wait };
        assert_eq!(exchange.result, expected, "{value:?}");
    }
}

#[tokio::test]
async fn an_interim_answer_is_not_the_answer() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n\
                  HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::answering(answer).await;
    let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(404));
}

#[tokio::test]
async fn of_a_refusal_the_first_bytes_are_kept_and_of_an_acknowledgement_none() {
    let kept_max = limits::BODY_KEPT_MAX;
    for (code, len, kept, end) in [
        (500, 0, 0, BodyEnd::Complete),
        (500, 5, 5, BodyEnd::Complete),
        (500, kept_max, kept_max, BodyEnd::Complete),
        (500, kept_max + 1, kept_max, BodyEnd::TooLarge),
        (400, 10 * kept_max, kept_max, BodyEnd::TooLarge),
        (200, 5, 0, BodyEnd::NotRead),
        (200, 10 * kept_max, 0, BodyEnd::NotRead),
    ] {
        let body = "x".repeat(len);
        let answer = format!("HTTP/1.1 {code} Whatever\r\ncontent-length: {len}\r\n\r\n{body}");
        let receiver = Receiver::answering(answer).await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(code));
        let body = &exchange.detail.response.as_ref().unwrap().body;
        assert_eq!((body.kept.len(), body.end), (kept, end), "{code} with {len} bytes");
        assert_eq!(body.truncated(), end != BodyEnd::Complete);
    }
}

/// A receiver that acknowledges and goes on talking, or falls silent, has acknowledged.
#[tokio::test]
async fn an_acknowledgement_does_not_wait_for_its_body() {
    for (body, endless) in [("", false), ("x", false), ("x", true)] {
        let receiver = Receiver::scripted(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 209715200\r\n\r\n";
            let _ = stream.write_all(head).await;
            let _ = stream.write_all(body.as_bytes()).await;
            while endless && stream.write_all(&[b'x'; 4096]).await.is_ok() {}
            fall_silent(stream).await;
        })
        .await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(200));
        assert!(exchange.detail.timing.total < Duration::from_secs(5), "{:?}", exchange.detail);
    }
}

#[tokio::test]
async fn an_acknowledgement_whose_short_body_never_ends_waits_a_moment_at_most() {
    let receiver = Receiver::scripted(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx").await;
        fall_silent(stream).await;
    })
    .await;
    let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(200));
    assert!(exchange.detail.timing.total < Duration::from_secs(5), "{:?}", exchange.detail);
}

#[tokio::test]
async fn an_exchange_tells_where_its_time_went_and_whom_it_talked_to() {
    let receiver = Receiver::answering(OK).await;
    let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
    let Detail { timing, remote, exception, reused, resent, .. } = exchange.detail;
    assert_eq!(remote, Some(receiver.address));
    assert_eq!(exception.as_deref(), Some("test-loopback"));
    assert!(!reused && !resent);
    assert!(timing.dns.is_some() && timing.connect.is_some() && timing.tls.is_none());
    let first_byte = timing.first_byte.unwrap();
    assert!(timing.dns.unwrap() + timing.connect.unwrap() <= first_byte);
    assert!(first_byte <= timing.total);
}

#[tokio::test]
async fn of_a_refusals_many_or_long_headers_the_first_are_kept_and_of_an_acknowledgement_none() {
    let short = |count: usize| (0..count).map(|n| format!("x-{n}: a\r\n")).collect::<String>();
    let long = format!("x-long: {}\r\n", "a".repeat(limits::HEADERS_KEPT_LEN_MAX));
    for (headers, kept, cut) in
        [(short(3), 4, false), (short(90), limits::HEADERS_KEPT_MAX, true), (long, 0, true)]
    {
        for (line, kept, cut) in [("HTTP/1.1 500 Oops", kept, cut), ("HTTP/1.1 200 OK", 0, false)] {
            let answer = format!("{line}\r\n{headers}content-length: 0\r\n\r\n");
            let receiver = Receiver::answering(answer).await;
            let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
            let response = exchange.detail.response.unwrap();
            let (found, was_cut) = response.kept_headers();
            assert_eq!((found.len(), was_cut), (kept, cut), "{line}");
        }
    }
}
