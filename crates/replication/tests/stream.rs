//! Streams of a real server: what arrives, in which order, and how far it is confirmed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::collections::HashMap;
use std::time::Duration;

use railpost_replication::pgoutput::{Message, Value};
use railpost_replication::{Connection, ErrorKind, Frame, Lsn, Start, Target};
use support::proxy::Proxy;
use support::source::{Source, client, next, payloads, transaction, until};
use tokio::time::timeout;

#[tokio::test]
async fn inserts_arrive_in_the_order_of_their_commits() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    let first = client(&source.url).await;
    first
        .batch_execute("BEGIN; INSERT INTO outbox (payload) VALUES ('drawn first')")
        .await
        .unwrap();
    source.insert("committed first").await;
    first.batch_execute("COMMIT").await.unwrap();
    let expected = vec![vec!["committed first".to_owned()], vec!["drawn first".to_owned()]];
    assert_eq!(payloads(&mut stream, 2).await, expected);
}

/// Each writer counts up a key's number under its row lock, and writes the event before or after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_lose_nothing_and_keep_every_key_s_order() {
    const WRITERS: usize = 8;
    const EACH: usize = 40;
    let source = Source::new().await;
    source
        .execute(
            "CREATE TABLE keys (key int PRIMARY KEY, n int); \
             INSERT INTO keys SELECT k, 0 FROM generate_series(0, 4) k",
        )
        .await;
    let mut stream = source.start().await;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let url = source.url.clone();
        writers.push(tokio::spawn(async move {
            let client = client(&url).await;
            for turn in 0..EACH {
                let (key, end) =
                    ((writer + turn) % 5, if turn % 7 == 3 { "ROLLBACK" } else { "COMMIT" });
                let sql = format!(
                    "BEGIN; WITH new AS (UPDATE keys SET n = n + 1 WHERE key = {key} RETURNING n) \
                     INSERT INTO outbox (payload) SELECT '{key} ' || n FROM new; {end}"
                );
                client.batch_execute(&sql).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let committed: i64 =
        source.client.query_one("SELECT sum(n) FROM keys", &[]).await.unwrap().get(0);
    let mut counts = HashMap::new();
    for rows in payloads(&mut stream, usize::try_from(committed).unwrap()).await {
        let [row] = &rows[..] else { panic!("{rows:?}") };
        let (key, n) = row.split_once(' ').unwrap();
        let count = counts.entry(key.to_owned()).or_insert(0);
        *count += 1;
        assert_eq!(n.parse(), Ok(*count), "key {key}");
    }
    let sent = counts.values().sum::<i64>();
    assert_eq!(sent, committed);
    assert_eq!(source.ask("SELECT count(*)::text FROM outbox").await, sent.to_string());
}

#[tokio::test]
async fn what_is_rolled_back_never_arrives() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.execute("BEGIN; INSERT INTO outbox (payload) VALUES ('rolled back'); ROLLBACK").await;
    source
        .execute(
            "BEGIN; INSERT INTO outbox (payload) VALUES ('one'); SAVEPOINT a; \
             INSERT INTO outbox (payload) VALUES ('undone'); ROLLBACK TO a; \
             SAVEPOINT b; INSERT INTO outbox (payload) VALUES ('two'), (NULL); RELEASE b; COMMIT",
        )
        .await;
    let rows = payloads(&mut stream, 1).await;
    assert_eq!(rows, [["one", "two", "NULL"]]);
}

#[tokio::test]
async fn logical_messages_arrive_with_their_transaction_or_at_once() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source
        .execute(
            "BEGIN; SELECT pg_logical_emit_message(true, 'p', 'kept'); \
             INSERT INTO outbox (payload) VALUES ('row'); \
             SELECT pg_logical_emit_message(true, 'p', 'kept too'); COMMIT",
        )
        .await;
    source
        .execute(
            "BEGIN; SELECT pg_logical_emit_message(true, 'p', 'lost'); \
             SELECT pg_logical_emit_message(false, 'q', 'survives'); ROLLBACK",
        )
        .await;
    source.insert("last").await;
    let rows = payloads(&mut stream, 3).await;
    assert_eq!(rows[0], ["in p: kept", "row", "in p: kept too"]);
    assert_eq!(rows[1], ["out q: survives"]);
    assert_eq!(rows[2], ["last"]);
    stream.stop().await;
    // The message outside of a transaction was confirmed like one.
    let mut stream = source.start().await;
    source.insert("new").await;
    assert_eq!(payloads(&mut stream, 1).await, [["new"]]);
}

#[tokio::test]
async fn large_transactions_and_large_values_arrive_whole() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source
        .execute("INSERT INTO outbox (payload) SELECT 'row ' || n FROM generate_series(1, 30000) n")
        .await;
    // Too random to be compressed, so that it is stored beside the row, in pieces.
    source
        .execute(
            "INSERT INTO outbox (payload) \
             SELECT string_agg(md5(n::text), '') FROM generate_series(1, 100000) n",
        )
        .await;
    let rows = payloads(&mut stream, 2).await;
    assert_eq!(rows[0].len(), 30_000);
    for (n, row) in rows[0].iter().enumerate() {
        assert_eq!(*row, format!("row {}", n + 1));
    }
    assert_eq!(rows[1][0].len(), 3_200_000);
    let stored = source.ask("SELECT payload FROM outbox ORDER BY seq DESC LIMIT 1").await;
    assert!(rows[1][0] == stored, "the value is not what was stored");
}

#[tokio::test]
async fn the_server_hears_of_a_caller_that_takes_nothing() {
    let source = Source::new().await;
    let target = source.target().with_wal_sender_timeout(Duration::from_secs(1));
    let start =
        Start { slot: &source.name, from: Lsn::ZERO, publications: &["outbox"], messages: false };
    let mut stream = Connection::connect(&target).await.unwrap().start(&start).await.unwrap();
    // More than the client keeps and the sockets hold: the server is in the middle of sending.
    source
        .execute(
            "INSERT INTO outbox (payload) SELECT repeat('x', 1000000) FROM generate_series(1, 40)",
        )
        .await;
    let sender = format!(
        "SELECT pid::text FROM pg_stat_replication WHERE application_name = '{}'",
        source.name
    );
    let pid = source.ask(&sender).await;
    let later = format!(
        "SELECT (reply_time > backend_start + interval '4 s')::text FROM pg_sleep(0.1), pg_stat_replication \
         WHERE pid = {pid}"
    );
    until(async || source.ask(&later).await == "true").await;
    let rows = payloads(&mut stream, 1).await;
    assert_eq!(rows[0].len(), 40);
    assert!(rows[0].iter().all(|row| row.len() == 1_000_000));
    assert_eq!(source.ask(&sender).await, pid, "the session is another one");
}

#[tokio::test]
async fn what_is_confirmed_does_not_come_again_and_what_is_not_does() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.insert("one").await;
    source.insert("two").await;
    let (rows, first_end) = transaction(&mut stream).await.unwrap();
    assert_eq!(rows, ["one"]);
    assert_eq!(transaction(&mut stream).await.unwrap().0, ["two"]);
    assert!(source.confirmed().await < first_end, "received is not confirmed");
    stream.confirm(first_end);
    until(async || source.confirmed().await == first_end).await;
    drop(stream);
    let mut stream = started_again(&source).await;
    let (rows, second_end) = transaction(&mut stream).await.unwrap();
    assert_eq!(rows, ["two"]);
    stream.confirm(second_end);
    stream.stop().await;
    assert_eq!(source.confirmed().await, second_end, "a stop sends the last confirmation");
    // And the slot is free at once.
    let mut stream = source.try_start(second_end).await.unwrap();
    source.insert("three").await;
    assert_eq!(payloads(&mut stream, 1).await, [["three"]]);
}

/// The server needs a moment to notice that a session ended.
async fn started_again(source: &Source) -> railpost_replication::Stream {
    let mut started = None;
    until(async || match source.try_start(Lsn::ZERO).await {
        Ok(stream) => {
            started = Some(stream);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::SlotInUse, "{error}");
            false
        }
    })
    .await;
    started.unwrap()
}

#[tokio::test]
async fn an_idle_stream_follows_the_log_of_other_databases() {
    let source = Source::new().await;
    let other = Source::without_slot().await;
    let mut stream = source.start().await;
    let before = source.confirmed().await;
    other
        .execute(
            "INSERT INTO outbox (payload) SELECT repeat('x', 500) FROM generate_series(1, 5000)",
        )
        .await;
    let written = source.log_end().await;
    assert!(written.as_u64() > before.as_u64() + 1_000_000);
    while stream.confirmed() < written {
        let frame = timeout(Duration::from_secs(30), stream.next()).await.unwrap().unwrap();
        if let Frame::Idle(lsn) = frame {
            stream.confirm(lsn);
        }
    }
    until(async || source.confirmed().await >= written).await;
    assert!(stream.server_end() >= written);
}

#[tokio::test]
async fn a_table_that_is_altered_is_described_again_before_its_next_row() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.insert("one").await;
    source.execute("ALTER TABLE outbox ADD COLUMN key text DEFAULT 'k'").await;
    source.insert("two").await;
    let mut columns = Vec::new();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match next(&mut stream).await.unwrap() {
            Message::Relation(relation) => {
                assert_eq!(
                    (relation.schema.as_str(), relation.name.as_str()),
                    ("public", "outbox")
                );
                columns = relation.columns.into_iter().map(|column| column.name).collect();
            }
            Message::Insert(insert) => {
                assert_eq!(insert.values.len(), columns.len());
                seen.push(columns.join(" "));
                if seen.len() == 2 {
                    assert_eq!(insert.values[2], Value::Text("k".into()));
                }
            }
            _ => {}
        }
    }
    assert_eq!(seen, ["seq payload", "seq payload key"]);
}

#[tokio::test]
async fn a_connection_that_is_cut_anywhere_loses_and_repeats_nothing() {
    const ROWS: usize = 400;
    let source = Source::new().await;
    let url: tokio_postgres::Config = source.url.parse().unwrap();
    let port = url.get_ports()[0];
    let proxy = Proxy::to(([127, 0, 0, 1], port).into()).await;
    let here = format!("127.0.0.1:{port}");
    assert!(source.url.contains(&here), "the test server's URL names its port");
    let target = Target::new(&source.url.replace(&here, &proxy.address.to_string()), None).unwrap();
    for row in 0..ROWS {
        source.insert(&format!("row {row} {}", "x".repeat(row))).await;
    }
    let (mut received, mut stored, mut cuts) = (Vec::new(), Lsn::ZERO, 0);
    while received.len() < ROWS {
        // Odd numbers of bytes: within heads, within lengths, within rows.
        proxy.cut_after(2_000 + 977 * cuts);
        let start =
            Start { slot: &source.name, from: stored, publications: &["outbox"], messages: false };
        let connection = Connection::connect(&target).await;
        let error = match connection.map(|connection| connection.start(&start)) {
            Err(error) => error,
            Ok(starting) => match starting.await {
                Err(error) => error,
                Ok(mut stream) => loop {
                    match transaction(&mut stream).await {
                        Ok((rows, end)) => {
                            received.extend(rows);
                            stored = end;
                            if received.len() % 3 == 0 {
                                stream.confirm(end);
                            }
                        }
                        Err(error) => break error,
                    }
                    if received.len() == ROWS {
                        return check(&received, cuts);
                    }
                },
            },
        };
        assert!(error.is_temporary(), "{error}");
        cuts += usize::from(error.kind() == ErrorKind::Disconnected);
    }
}

fn check(received: &[String], cuts: usize) {
    assert!(cuts > 5, "{cuts} cuts are too few");
    for (row, text) in received.iter().enumerate() {
        assert_eq!(*text, format!("row {row} {}", "x".repeat(row)));
    }
}

#[tokio::test]
async fn a_session_that_the_server_ends_is_an_error_and_nothing_is_lost() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.insert("one").await;
    assert_eq!(transaction(&mut stream).await.unwrap().0, ["one"]);
    let end = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name = '{}'",
        source.name
    );
    source.execute(&end).await;
    let error = transaction(&mut stream).await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Disconnected, Some("57P01")));
    let mut stream = started_again(&source).await;
    assert_eq!(transaction(&mut stream).await.unwrap().0, ["one"]);
}
