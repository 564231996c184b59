//! Why no answer came, or only part of one.

use std::net::SocketAddr;
use std::time::Duration;

use railpost_dispatch::*;
use railpost_engine::Failure;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_dns_failure() {
    let exchange = post(&sender(), &route_config("http://unknown.test/")).await;
    assert_failed(&exchange, Failure::Dns, "look up unknown.test: no such name");
}

#[tokio::test]
async fn a_resolver_without_an_answer_or_in_no_hurry_is_a_dns_failure() {
    struct Silent;
    impl Resolve for Silent {
        fn resolve<'a>(&'a self, host: &'a str) -> Lookup<'a> {
            match host {
                "empty.test" => Box::pin(std::future::ready(Ok(Vec::new()))),
                _ => Box::pin(std::future::pending()),
            }
        }
    }
    let resolver = std::sync::Arc::new(Silent);
    let sender = Sender::new(SenderConfig { resolver, ..config() }).unwrap();
    let patient = Timeouts::new(SHORT, PATIENCE).unwrap();
    for (url, words) in [("http://empty.test/", "no address"), ("http://a.test/", "within 200ms")] {
        let config = RouteConfig { timeouts: patient, ..route_config(url) };
        assert_failed(&post(&sender, &config).await, Failure::Dns, words);
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{NAME}:{}/", address.port());
    let exchange = post(&sender(), &route_config(&url)).await;
    assert_failed(&exchange, Failure::Refused, &format!("connect to {address}"));
    assert_eq!(exchange.detail.remote, Some(address));
}

#[tokio::test]
async fn no_name_is_looked_up_when_requests_may_go_nowhere() {
    let names = std::sync::Arc::new(Names::default());
    names.set(NAME, &["127.0.0.1"]);
    let guard = Guard::default().without_public();
    let sender = Sender::new(SenderConfig { guard, resolver: names.clone(), ..config() }).unwrap();
    let exchange = post(&sender, &route_config(&format!("http://{NAME}/"))).await;
    assert_failed(&exchange, Failure::BlockedAddress, "no network may be sent to");
    assert_eq!(names.lookups.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// The second address of a name is tried when the first refuses.
#[tokio::test]
async fn a_name_is_reached_by_any_of_its_addresses() {
    let receiver = Receiver::answering(OK).await;
    let names = Names::default();
    names.set(NAME, &["127.0.0.2", "127.0.0.1"]);
    let networks = vec![NamedNetwork::new("loopback", "127.0.0.0/8").unwrap()];
    let guard = Guard::new(GuardConfig { networks, https_only: false });
    let resolver = std::sync::Arc::new(names);
    let sender = Sender::new(SenderConfig { guard, resolver, ..config() }).unwrap();
    let exchange = post(&sender, &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(200));
    assert_eq!(exchange.detail.remote, Some(receiver.address));
}

/// A listener whose queue is full lets no further connection in, and says nothing.
#[tokio::test]
async fn a_host_that_does_not_take_the_connection_is_a_connect_timeout() {
    let (_listener, address) = full_listener().await;
    let url = format!("http://{NAME}:{}/", address.port());
    let timeouts = Timeouts::new(SHORT, PATIENCE).unwrap();
    let exchange = post(&sender(), &RouteConfig { timeouts, ..route_config(&url) }).await;
    assert_failed(&exchange, Failure::ConnectTimeout, "no connection within 200ms");
}

async fn full_listener() -> ((Socket, Vec<TcpStream>), SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        queued.push(stream);
    }
    ((listener, queued), address)
}

#[tokio::test]
async fn a_receiver_that_answers_too_late_is_a_timeout() {
    for sent in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"] {
        let receiver = Receiver::scripted(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(sent.as_bytes()).await;
            fall_silent(stream).await;
        })
        .await;
        let exchange = post(&sender(), &hasty(&receiver.url("http"))).await;
        assert_failed(&exchange, Failure::Timeout, "no answer within 200ms");
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_read_is_a_timeout() {
    let receiver = Receiver::scripted(|stream, _| fall_silent(stream)).await;
    let sender = sender();
    let route = sender.route(&hasty(&receiver.url("http"))).unwrap();
    let body = vec![b'x'; 64 << 20];
    let request = Request::new(&route, [("webhook-id", "evt_1".to_owned())], body.into()).unwrap();
    assert_failed(&in_time(sender.send(request)).await, Failure::Timeout, "within 200ms");
}

/// The head is the answer; the body is for people, and it has the same deadline.
#[tokio::test]
async fn a_body_that_stops_or_never_stops_keeps_nobody_waiting() {
    for (head, end) in [
        ("content-length: 100\r\n", BodyEnd::TimedOut),
        ("transfer-encoding: chunked\r\n", BodyEnd::TimedOut),
    ] {
        let receiver = Receiver::scripted(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let answer = format!("HTTP/1.1 500 Oops\r\n{head}\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
            let first = if head.contains("chunked") { "1\r\nx\r\n" } else { "x" };
            let _ = stream.write_all(first.as_bytes()).await;
            fall_silent(stream).await;
        })
        .await;
        let exchange = post(&sender(), &hasty(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(500));
        let body = exchange.detail.response.unwrap().body;
        assert_eq!((body.kept.as_slice(), body.end), (&b"x"[..], end), "{head}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_and_not_read_on() {
    let (written, mut total) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::scripted(move |mut stream, _| {
        let written = written.clone();
        async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(b"HTTP/1.1 500 Oops\r\n\r\n").await;
            let mut len = 0_usize;
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {
                len += 4096;
            }
            let _ = written.send(len);
        }
    })
    .await;
    let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(500));
    let body = exchange.detail.response.unwrap().body;
    assert_eq!((body.kept.len(), body.end), (limits::BODY_KEPT_MAX, BodyEnd::TooLarge));
    let total = in_time(total.recv()).await.unwrap();
    assert!(total < 200 << 20, "the connection was closed after {total} bytes");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_reset() {
    for (sent, reset) in [("", false), ("", true), ("HTTP/1.1 20", false), ("HTTP/1.1 20", true)] {
        let receiver = Receiver::scripted(move |mut stream, _| async move {
            read_request(&mut stream).await;
            let _ = stream.write_all(sent.as_bytes()).await;
            if reset {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        })
        .await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_failed(&exchange, Failure::Reset, "the connection broke before an answer came");
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_the_status_standing() {
    let receiver = Receiver::scripted(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 410 Gone\r\ncontent-length: 9\r\n\r\nfare").await;
    })
    .await;
    let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
    assert_eq!(status(&exchange), Some(410));
    let body = exchange.detail.response.unwrap().body;
    assert_eq!((body.kept.as_slice(), body.end), (&b"fare"[..], BodyEnd::Broken));
}

#[tokio::test]
async fn what_is_no_http_or_too_much_of_it_is_a_bad_response() {
    let huge = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "a".repeat(100 * 1024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: b\r\n".repeat(1_000));
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "220 mail.example ESMTP\r\n",
        "\u{15}\u{3}\u{1}\0\u{2}\u{2}\n",
        "HTTP/3.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: minus one\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        &huge,
        &many,
    ] {
        let receiver = Receiver::answering(answer).await;
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_failed(&exchange, Failure::BadResponse, "the answer's head cannot be read");
    }
}

/// An answer to nothing acknowledges nothing.
#[tokio::test]
async fn a_receiver_that_speaks_first_is_asked_all_the_same() {
    let mut receiver = Receiver::scripted(|mut stream, seen| async move {
        stream.write_all(OK.as_bytes()).await.unwrap();
        seen.note(read_request(&mut stream).await.unwrap());
        fall_silent(stream).await;
    })
    .await;
    for _ in 0..20 {
        let exchange = post(&sender(), &route_config(&receiver.url("http"))).await;
        assert_eq!(status(&exchange), Some(200));
        assert!(receiver.request().await.starts_with("POST /hooks"), "it was asked");
    }
}

/// A receiver may refuse by the head alone, and hang up.
#[tokio::test]
async fn an_answer_that_comes_before_the_request_is_sent_counts() {
    let receiver = Receiver::scripted(|mut stream, _| async move {
        let answer = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let _ = stream.write_all(answer).await;
        let _ = stream.shutdown().await;
        fall_silent(stream).await;
    })
    .await;
    let sender = sender();
    let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
    let headers = [("webhook-id", "evt_1".to_owned())];
    let request = Request::new(&route, headers, vec![b'x'; 16 << 20].into()).unwrap();
    let exchange = in_time(sender.send(request)).await;
    assert_eq!(status(&exchange), Some(413), "{:?}", exchange.detail);
}
