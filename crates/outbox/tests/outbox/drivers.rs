//! With each driver an event commits with its transaction, and vanishes with it or with its savepoint.

use crate::support::{PostgresOutbox, postgres_url, sqlite};
use diesel::{Connection as _, PgConnection, connection::SimpleConnection};
use railpost_outbox::Event;
use sqlx::{Connection as _, PgConnection as SqlxConnection};
use std::time::{Duration, UNIX_EPOCH};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What every driver's test leaves committed, in this order.
const COMMITTED: [&str; 3] = ["committed", "before-savepoint", "after-savepoint"];

fn event(id: &str) -> Event {
    Event::new("order.paid", r#"{"total":  12}"#)
        .key("order-42")
        .id(id)
        .tenant("acme")
        .content_type("application/vnd.order+json")
        .schema_version(u32::MAX)
        .time(UNIX_EPOCH + Duration::from_millis(1_767_225_600_123))
        .traceparent(TRACE)
        .build()
        .unwrap()
}

/// An event that leaves to the database whatever it can, with a payload that is no text.
fn bytes() -> Event {
    Event::new("order.photographed", [0xff, 0x00]).content_type("image/jpeg").build().unwrap()
}

/// A row as text: type, payload, bytes in hex, key, tenant, content type, schema version, milliseconds,
/// trace.
const ROW: &str = "SELECT concat_ws('|', type, coalesce(payload, '-'), \
     coalesce(encode(payload_bytes, 'hex'), '-'), key, tenant, content_type, schema_version, \
     (extract(epoch FROM time) * 1000)::bigint, traceparent) FROM railpost_outbox WHERE id = $1";

const ROW_EXPECTED: &str = "order.paid|{\"total\":  12}|-|order-42|acme|application/vnd.order+json|\
     4294967295|1767225600123|00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn check(outbox: &PostgresOutbox, bytes_id: &str) {
    let mut expected = COMMITTED.to_vec();
    expected.push(bytes_id);
    assert_eq!(outbox.ids().await, expected);
    let row = outbox.client.query_one(ROW, &[&"committed"]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), ROW_EXPECTED);
    let row = outbox.client.query_one(ROW, &[&bytes_id]).await.unwrap();
    let text: String = row.get(0);
    assert!(text.starts_with("order.photographed|-|ff00|image/jpeg|"), "{text}");
}

#[tokio::test]
async fn tokio_postgres_emits_into_transactions() {
    use railpost_outbox::tokio_postgres::emit;
    let outbox = PostgresOutbox::create().await;
    let mut client = outbox.connect().await;

    let mut transaction = client.transaction().await.unwrap();
    assert_eq!(emit(&mut transaction, &event("committed")).await.unwrap(), "committed");
    transaction.commit().await.unwrap();

    let mut transaction = client.transaction().await.unwrap();
    emit(&mut transaction, &event("rolled-back")).await.unwrap();
    transaction.rollback().await.unwrap();

    let mut transaction = client.transaction().await.unwrap();
    emit(&mut transaction, &event("before-savepoint")).await.unwrap();
    let mut savepoint = transaction.savepoint("nested").await.unwrap();
    emit(&mut savepoint, &event("in-savepoint")).await.unwrap();
    savepoint.rollback().await.unwrap();
    emit(&mut transaction, &event("after-savepoint")).await.unwrap();
    let bytes_id = emit(&mut transaction, &bytes()).await.unwrap();
    transaction.commit().await.unwrap();

    check(&outbox, &bytes_id).await;
}

#[tokio::test]
async fn sqlx_emits_into_transactions() {
    use railpost_outbox::sqlx::emit;
    let outbox = PostgresOutbox::create().await;
    let mut connection = SqlxConnection::connect(&postgres_url()).await.unwrap();
    let set = sqlx::AssertSqlSafe(outbox.set_search_path());
    sqlx::raw_sql(set).execute(&mut connection).await.unwrap();

    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(emit(&mut transaction, &event("committed")).await.unwrap(), "committed");
    transaction.commit().await.unwrap();

    let mut transaction = connection.begin().await.unwrap();
    emit(&mut transaction, &event("rolled-back")).await.unwrap();
    transaction.rollback().await.unwrap();

    let mut transaction = connection.begin().await.unwrap();
    emit(&mut transaction, &event("before-savepoint")).await.unwrap();
    let mut savepoint = transaction.begin().await.unwrap();
    emit(&mut savepoint, &event("in-savepoint")).await.unwrap();
    savepoint.rollback().await.unwrap();
    emit(&mut transaction, &event("after-savepoint")).await.unwrap();
    let bytes_id = emit(&mut transaction, &bytes()).await.unwrap();
    transaction.commit().await.unwrap();

    check(&outbox, &bytes_id).await;
}

#[tokio::test]
async fn diesel_emits_into_transactions_and_refuses_without_one() {
    use diesel::result::Error;
    use railpost_outbox::diesel::emit;
    let outbox = PostgresOutbox::create().await;
    let mut connection = PgConnection::establish(&postgres_url()).unwrap();
    connection.batch_execute(&outbox.set_search_path()).unwrap();

    let refused = emit(&mut connection, &event("no-transaction"));
    assert!(matches!(refused, Err(Error::NotInTransaction)), "{refused:?}");

    let id = connection.transaction(|connection| emit(connection, &event("committed")));
    assert_eq!(id.unwrap(), "committed");

    let rolled_back: Result<(), Error> = connection.transaction(|connection| {
        emit(connection, &event("rolled-back"))?;
        Err(Error::RollbackTransaction)
    });
    assert!(matches!(rolled_back, Err(Error::RollbackTransaction)), "{rolled_back:?}");

    let bytes_id = connection.transaction(|connection| {
        emit(connection, &event("before-savepoint"))?;
        let inner: Result<(), Error> = connection.transaction(|connection| {
            emit(connection, &event("in-savepoint"))?;
            Err(Error::RollbackTransaction)
        });
        assert!(matches!(inner, Err(Error::RollbackTransaction)), "{inner:?}");
        emit(connection, &event("after-savepoint"))?;
        emit(connection, &bytes())
    });

    check(&outbox, &bytes_id.unwrap()).await;
}

#[test]
fn rusqlite_emits_into_transactions() {
    use railpost_outbox::rusqlite::emit;
    let mut connection = sqlite();

    let mut transaction = connection.transaction().unwrap();
    assert_eq!(emit(&mut transaction, &event("committed")).unwrap(), "committed");
    transaction.commit().unwrap();

    let mut transaction = connection.transaction().unwrap();
    emit(&mut transaction, &event("rolled-back")).unwrap();
    transaction.rollback().unwrap();

    let mut transaction = connection.transaction().unwrap();
    emit(&mut transaction, &event("before-savepoint")).unwrap();
    let mut savepoint = transaction.savepoint().unwrap();
    emit(&mut savepoint, &event("in-savepoint")).unwrap();
    savepoint.rollback().unwrap();
    savepoint.finish().unwrap();
    emit(&mut transaction, &event("after-savepoint")).unwrap();
    let bytes_id = emit(&mut transaction, &bytes()).unwrap();
    transaction.commit().unwrap();

    let mut expected = COMMITTED.map(str::to_owned).to_vec();
    expected.push(bytes_id.clone());
    let mut ids = connection.prepare("SELECT id FROM railpost_outbox ORDER BY seq").unwrap();
    let ids: Vec<String> =
        ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(ids, expected);

    let row = "SELECT concat(type, '|', iif(typeof(payload) = 'text', payload, hex(payload)), '|', key, \
         '|', tenant, '|', content_type, '|', schema_version, '|', time, '|', traceparent) \
         FROM railpost_outbox WHERE id = ?1";
    let row = |id: &str| connection.query_row(row, [id], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(row("committed"), ROW_EXPECTED.replace("|-|", "|"));
    let text = row(&bytes_id);
    assert!(text.starts_with("order.photographed|FF00|||image/jpeg||"), "{text}");
}
