//! Slots and publications of a real server: made, dropped, and wrong in every way that has a name.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

use std::time::Duration;

use railpost_replication::{ErrorKind, Lsn, NewSlot, Start, WalStatus};
use support::server::Server;
use support::source::{Source, client, next, transaction, until};

#[tokio::test]
async fn the_server_says_who_it_is() {
    let source = Source::without_slot().await;
    let mut connection = source.connect().await;
    let identity = connection.identify_system().await.unwrap();
    let system_id = source.ask("SELECT system_identifier::text FROM pg_control_system()").await;
    assert_eq!(identity.system_id, system_id);
    assert_eq!(identity.timeline, 1);
    assert!(identity.flushed > Lsn::ZERO && identity.flushed <= source.log_end().await);
    let version = source.ask("SELECT current_setting('server_version_num')").await;
    assert_eq!(connection.server_version(), version.parse::<u32>().unwrap() / 10_000);
}

#[tokio::test]
async fn a_slot_is_made_seen_and_dropped() {
    let source = Source::without_slot().await;
    let mut connection = source.connect().await;
    assert_eq!(connection.slot(&source.name).await.unwrap(), None);
    let begins = source.create_slot().await;
    let slot = connection.slot(&source.name).await.unwrap().unwrap();
    assert_eq!((slot.plugin.as_deref(), slot.confirmed), (Some("pgoutput"), Some(begins)));
    assert_eq!((slot.database.as_deref(), slot.active_pid), (Some(&*source.name), None));
    assert_eq!(slot.wal_status, WalStatus::Kept);
    let slot = NewSlot { name: &source.name, failover: false, wait_max: Duration::from_secs(30) };
    let error = connection.create_slot(&slot).await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::SlotExists, Some("42710")));
    // The session goes on after an error.
    connection.drop_slot(&source.name).await.unwrap();
    let error = connection.drop_slot(&source.name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SlotMissing);
    assert_eq!(source.try_start(Lsn::ZERO).await.unwrap_err().kind(), ErrorKind::SlotMissing);
}

#[tokio::test]
async fn a_slot_that_another_session_reads_is_in_use() {
    let source = Source::new().await;
    let _stream = source.start().await;
    let error = source.try_start(Lsn::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::SlotInUse, Some("55006")));
    assert!(error.is_temporary());
    let error = source.connect().await.drop_slot(&source.name).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SlotInUse);
}

#[tokio::test]
async fn a_slot_that_is_ahead_of_the_caller_is_an_error() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.insert("one").await;
    let (_, stored) = transaction(&mut stream).await.unwrap();
    stream.confirm(stored);
    stream.stop().await;
    source.insert("lost").await;
    source.create_again().await;
    let error = source.try_start(stored).await.unwrap_err();
    let confirmed = source.confirmed().await;
    assert_eq!(error.kind(), ErrorKind::SlotAhead { from: stored, confirmed });
    assert!(error.to_string().contains(&confirmed.to_string()), "{error}");
    // Who knows of nothing that was missed begins where the slot does.
    source.try_start(Lsn::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_position_after_the_end_of_the_log_is_an_error() {
    let source = Source::new().await;
    let from = Lsn::from_u64(source.log_end().await.as_u64() + (1 << 40));
    let error = source.try_start(from).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LogBehind { .. }), "{error}");
}

impl Source {
    async fn create_again(&self) {
        self.connect().await.drop_slot(&self.name).await.unwrap();
        self.create_slot().await;
    }
}

#[tokio::test]
async fn a_slot_of_another_kind_or_database_is_foreign() {
    let source = Source::without_slot().await;
    let other = Source::new().await;
    source.execute(&format!("SELECT pg_create_physical_replication_slot('{}')", source.name)).await;
    let error = source.try_start(Lsn::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SlotMismatch, "{error}");
    let start =
        Start { slot: &other.name, from: Lsn::ZERO, publications: &["outbox"], messages: false };
    let error = source.connect().await.start(&start).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SlotMismatch, "{error}");
    assert!(error.to_string().contains(&other.name), "{error}");
}

#[tokio::test]
async fn a_slot_is_not_made_while_an_old_transaction_is_open_and_none_is_left_behind() {
    let source = Source::without_slot().await;
    let writer = client(&source.url).await;
    writer.batch_execute("BEGIN; INSERT INTO outbox (payload) VALUES ('open')").await.unwrap();
    let mut connection = source.connect().await;
    let slot = NewSlot { name: &source.name, failover: false, wait_max: Duration::from_millis(50) };
    let error = connection.create_slot(&slot).await.unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::SlotBlocked, Some("55P03")));
    assert_eq!(connection.slot(&source.name).await.unwrap(), None);
    writer.batch_execute("COMMIT").await.unwrap();
    source.create_slot().await;
}

#[tokio::test]
async fn a_publication_that_is_missing_is_an_error_at_the_start() {
    let source = Source::new().await;
    for (publications, kind) in [
        (&["outbox", "it's \"odd\""][..], ErrorKind::PublicationMissing),
        (&[], ErrorKind::Invalid),
    ] {
        let start = Start { slot: &source.name, from: Lsn::ZERO, publications, messages: false };
        let error = source.connect().await.start(&start).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    source.execute("CREATE PUBLICATION \"it's \"\"odd\"\"\" FOR TABLE outbox").await;
    source.create_again().await;
    source.insert("found").await;
    let publications = &["it's \"odd\""];
    let start = Start { slot: &source.name, from: Lsn::ZERO, publications, messages: false };
    let mut stream = source.connect().await.start(&start).await.unwrap();
    assert_eq!(transaction(&mut stream).await.unwrap().0, ["found"]);
}

#[tokio::test]
async fn a_publication_that_is_dropped_ends_the_stream() {
    let source = Source::new().await;
    let mut stream = source.start().await;
    source.execute("DROP PUBLICATION outbox").await;
    source.insert("unpublished").await;
    let error = loop {
        match next(&mut stream).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::PublicationMissing, Some("42704")));
}

/// A server that keeps hardly any log for slots.
async fn forgetful_server() -> Server {
    let server = Server::new();
    let settings =
        ["wal_level=logical", "max_slot_wal_keep_size=2MB", "min_wal_size=2MB", "max_wal_size=4MB"];
    server.start(&settings);
    let setup = "CREATE TABLE outbox (seq bigint, payload text); CREATE PUBLICATION outbox FOR TABLE outbox";
    server.client().await.batch_execute(setup).await.unwrap();
    server
}

#[tokio::test]
async fn a_slot_that_the_server_gave_up_is_lost_whether_it_was_read_or_not() {
    let server = forgetful_server().await;
    let url = format!("postgres://railpost@127.0.0.1:{}/postgres", server.port);
    let target = railpost_replication::Target::new(&url, None).unwrap();
    let connect = async || railpost_replication::Connection::connect(&target).await.unwrap();
    for name in ["read", "unread"] {
        let slot = NewSlot { name, failover: true, wait_max: Duration::from_secs(30) };
        connect().await.create_slot(&slot).await.unwrap();
    }
    let start = |slot| Start { slot, from: Lsn::ZERO, publications: &["outbox"], messages: false };
    let mut stream = connect().await.start(&start("read")).await.unwrap();
    let client = server.client().await;
    let lost = "SELECT count(*) FROM pg_replication_slots WHERE wal_status = 'lost'";
    until(async || {
        let fill = "INSERT INTO outbox SELECT n, repeat('x', 1000) FROM generate_series(1, 4000) n; \
                    SELECT pg_switch_wal(); CHECKPOINT";
        client.batch_execute(fill).await.unwrap();
        client.query_one(lost, &[]).await.unwrap().get::<_, i64>(0) == 2
    })
    .await;
    let error = loop {
        match stream.next().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    for name in ["read", "unread"] {
        let error = connect().await.start(&start(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SlotLost, "{error}");
        assert!(!error.is_temporary());
    }
}
