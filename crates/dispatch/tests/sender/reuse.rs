//! HTTP/1 connections serve again, and no request is sent twice by them.

use std::time::Duration;

use railpost_dispatch::*;
use railpost_engine::Failure;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::support::*;
use crate::tls::{Authority, Tls, trusting};

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    for answer in [
        OK,
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
    ] {
        let receiver = Receiver::answering(answer).await;
        let sender = sender();
        let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
        for n in 0..5 {
            let exchange = send(&sender, &route, Resend::IfUntouched).await;
            assert_eq!(exchange.detail.reused, n > 0, "{answer}");
            assert_eq!(exchange.detail.remote, Some(receiver.address));
            assert_eq!(exchange.detail.exception.as_deref(), Some("test-loopback"));
        }
        assert_eq!(receiver.connections(), 1, "{answer}");
    }
}

#[tokio::test]
async fn endpoints_of_one_host_share_connections_unless_they_have_an_identity_of_their_own() {
    let plain = Receiver::answering(OK).await;
    let sender = sender();
    for path in ["a", "b", "c"] {
        post(&sender, &route_config(&plain.url("http").replace("hooks", path))).await;
    }
    assert_eq!(plain.connections(), 1);

    let authority = Authority::new();
    let leaf = authority.issue(|_| {});
    let acceptor = Tls::new(&leaf).acceptor();
    let secure = Receiver::scripted(move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            answer_all(stream, seen, OK.as_bytes().into()).await;
        }
    })
    .await;
    for connections in [1, 2] {
        let route = sender.route(&trusting(&secure, &authority)).unwrap();
        for _ in 0..2 {
            assert_eq!(status(&send(&sender, &route, Resend::IfUntouched).await), Some(200));
        }
        assert_eq!(secure.connections(), connections);
    }
}

#[tokio::test]
async fn a_connection_with_an_unread_rest_does_not_serve_again() {
    let rest = "x".repeat(limits::BODY_KEPT_MAX + 1);
    for answer in [
        format!("HTTP/1.1 500 Oops\r\ncontent-length: {}\r\n\r\n{rest}", rest.len()),
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{rest}", rest.len()),
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n".to_owned(),
        "HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok".to_owned(),
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n".to_owned(),
    ] {
        let receiver = Receiver::answering(answer).await;
        let sender = sender();
        for _ in 0..3 {
            let exchange = post(&sender, &route_config(&receiver.url("http"))).await;
            assert!(status(&exchange).is_some() && !exchange.detail.reused);
        }
        assert_eq!(receiver.connections(), 3);
    }
}

/// An unsolicited answer must not become the answer to the next request.
#[tokio::test]
async fn a_connection_that_says_more_than_it_was_asked_does_not_serve_again() {
    let receiver = Receiver::answering(OK.repeat(2)).await;
    let sender = sender();
    for _ in 0..3 {
        let exchange = post(&sender, &route_config(&receiver.url("http"))).await;
        assert!(!exchange.detail.reused);
    }
    assert_eq!(receiver.connections(), 3);
}

/// Lets the runtime notice what happened on all sockets before: one round trip through it.
async fn let_news_arrive(sender: &Sender) {
    let other = Receiver::answering(OK).await;
    post(sender, &route_config(&other.url("http"))).await;
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_noticed_before_it_is_used() {
    for resend in [Resend::IfUntouched, Resend::Never] {
        let (closed, mut was_closed) = mpsc::unbounded_channel();
        let mut receiver = Receiver::scripted(move |mut stream, seen| {
            let closed = closed.clone();
            async move {
                seen.note(read_request(&mut stream).await.unwrap());
                stream.write_all(OK.as_bytes()).await.unwrap();
                drop(stream);
                closed.send(()).unwrap();
            }
        })
        .await;
        let sender = sender();
        let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
        for n in 1..=3 {
            let exchange = send(&sender, &route, resend).await;
            assert_eq!(status(&exchange), Some(200), "{:?}", exchange.detail);
            receiver.request().await;
            in_time(was_closed.recv()).await.unwrap();
            let_news_arrive(&sender).await;
            assert_eq!(receiver.connections(), n);
        }
        assert_eq!(receiver.requests_left(), 0);
    }
}

/// Once it has been written, the sender cannot know that it was not acted on.
#[tokio::test]
async fn a_request_that_was_read_and_not_answered_is_not_sent_again() {
    for resend in [Resend::IfUntouched, Resend::Never] {
        let mut receiver = Receiver::scripted(|mut stream, seen| async move {
            seen.note(read_request(&mut stream).await.unwrap());
            stream.write_all(OK.as_bytes()).await.unwrap();
            seen.note(read_request(&mut stream).await.unwrap());
        })
        .await;
        let sender = sender();
        let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
        assert_eq!(status(&send(&sender, &route, resend).await), Some(200));
        let exchange = send(&sender, &route, resend).await;
        assert_failed(&exchange, Failure::Reset, "the connection broke before an answer came");
        assert!(exchange.detail.reused && !exchange.detail.resent);
        receiver.request().await;
        receiver.request().await;
        assert_eq!((receiver.requests_left(), receiver.connections()), (0, 1));
    }
}

#[tokio::test]
async fn tenants_share_no_connection_to_one_origin() {
    let receiver = Receiver::answering(OK).await;
    let sender = sender();
    let url = receiver.url("http");
    for (config, connections) in [
        (of_tenant("acme", &url), 1),
        (of_tenant("bob", &url), 2),
        (of_tenant("acme", &url.replace("hooks", "other")), 2),
        (of_tenant("bob", &url), 2),
        (route_config(&url), 3),
    ] {
        let exchange = post(&sender, &config).await;
        assert_eq!(status(&exchange), Some(200));
        assert_eq!(receiver.connections(), connections, "{:?}", config.tenant);
    }
}

#[tokio::test]
async fn the_idle_connections_of_a_tenant_are_bounded_over_all_its_targets() {
    let pool =
        PoolBounds { idle_per_tenant: 2, idle: 3, idle_timeout: PATIENCE, ..PoolBounds::default() };
    let sender = Sender::new(SenderConfig { pool, ..config() }).unwrap();
    let receivers = [(); 3].map(|()| Receiver::answering(OK));
    let [a, b, c] = receivers;
    let receivers = [a.await, b.await, c.await];
    // Two of three targets' connections are kept for the first tenant, and one in all is left for another.
    for (tenant, kept) in [("acme", [true, true, false]), ("bob", [true, false, false])] {
        for receiver in &receivers {
            post(&sender, &of_tenant(tenant, &receiver.url("http"))).await;
        }
        for (receiver, kept) in receivers.iter().zip(kept) {
            let exchange = post(&sender, &of_tenant(tenant, &receiver.url("http"))).await;
            assert_eq!(exchange.detail.reused, kept, "{tenant} {}", receiver.address);
        }
    }
}

#[tokio::test]
async fn idle_connections_are_few_for_one_target_and_in_all() {
    for (idle_per_target, idle, kept) in [(2, 10, 2), (10, 3, 3), (0, 10, 0), (10, 0, 0)] {
        let bounds =
            PoolBounds { idle_per_target, idle, idle_timeout: PATIENCE, ..PoolBounds::default() };
        let sender = Sender::new(SenderConfig { pool: bounds, ..config() }).unwrap();
        let receiver = gathering(5).await;
        let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
        let five = || async { send_five(&sender, &route).await };
        assert_eq!(five().await.into_iter().filter(|reused| *reused).count(), 0);
        assert_eq!(five().await.into_iter().filter(|reused| *reused).count(), kept);
    }
}

/// A receiver that answers only when so many requests wait for it.
async fn gathering(count: usize) -> Receiver {
    let gate = std::sync::Arc::new(tokio::sync::Barrier::new(count));
    Receiver::scripted(move |mut stream, _| {
        let gate = std::sync::Arc::clone(&gate);
        async move {
            while read_request(&mut stream).await.is_some() {
                gate.wait().await;
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        }
    })
    .await
}

/// Whether each of five attempts at once found a connection.
async fn send_five(sender: &Sender, route: &Route) -> Vec<bool> {
    let one = || async {
        let exchange = send(sender, route, Resend::IfUntouched).await;
        assert_eq!(status(&exchange), Some(200));
        exchange.detail.reused
    };
    let (a, b, c, d, e) = tokio::join!(one(), one(), one(), one(), one());
    vec![a, b, c, d, e]
}

#[tokio::test]
async fn a_connection_that_is_idle_for_too_long_is_closed() {
    let (hung_up, mut was_hung_up) = mpsc::unbounded_channel();
    let receiver = Receiver::scripted(move |stream, seen| {
        let hung_up = hung_up.clone();
        async move {
            answer_all(stream, seen, OK.as_bytes().into()).await;
            let _ = hung_up.send(());
        }
    })
    .await;
    let pool = PoolBounds { idle_timeout: Duration::from_millis(50), ..PoolBounds::default() };
    let sender = Sender::new(SenderConfig { pool, ..config() }).unwrap();
    let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
    send(&sender, &route, Resend::IfUntouched).await;
    in_time(was_hung_up.recv()).await.unwrap();
    let exchange = send(&sender, &route, Resend::IfUntouched).await;
    assert!(status(&exchange) == Some(200) && !exchange.detail.reused);
}

#[tokio::test]
async fn an_attempt_that_is_given_up_takes_its_connection_along() {
    let (hung_up, mut was_hung_up) = mpsc::unbounded_channel();
    let receiver = Receiver::scripted(move |mut stream, _| {
        let hung_up = hung_up.clone();
        async move {
            read_request(&mut stream).await;
            assert_eq!(read_request(&mut stream).await, None);
            let _ = hung_up.send(());
        }
    })
    .await;
    let exchange = post(&sender(), &hasty(&receiver.url("http"))).await;
    assert_failed(&exchange, Failure::Timeout, "");
    in_time(was_hung_up.recv()).await.unwrap();
}

#[tokio::test]
async fn a_connection_to_loopback_serves_no_more_once_that_is_closed() {
    let receiver = Receiver::answering(OK).await;
    let loopback = Loopback::new("the.setting", true);
    let guard = Guard::new(GuardConfig::default()).with_loopback(loopback.clone());
    let sender = Sender::new(SenderConfig { guard, ..config() }).unwrap();
    let route = sender.route(&route_config(&receiver.url("http"))).unwrap();
    let first = send(&sender, &route, Resend::IfUntouched).await;
    assert_eq!(first.detail.exception.as_deref(), Some("loopback"));
    loopback.close();
    let second = send(&sender, &route, Resend::IfUntouched).await;
    assert_failed(&second, Failure::BlockedAddress, "the.setting");
    assert_eq!(receiver.requests_left(), 1);
}
