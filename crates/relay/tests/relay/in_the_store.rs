//! Events that are emitted in a transaction of the database that the store is in.

use std::sync::Arc;

use railpost_postgres::{PostgresAddress, PostgresStore};
use railpost_relay::StoreAddress;
use railpost_store::{Sources, StoreError};

use super::database::{Database, connect};
use super::support::{World, setup, source};

/// Everything that a table demands of its rows: columns, constraints, indexes and options, one line each.
async fn demands(database: &Database) -> Vec<String> {
    let sql = "
        SELECT concat_ws(' ', 'column', attnum, attname, format_type(atttypid, atttypmod), attnotnull,
            attidentity, pg_get_expr(adbin, adrelid)) AS line
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = 'railpost_outbox'::regclass AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT concat_ws(' ', conname, pg_get_constraintdef(oid))
        FROM pg_constraint WHERE conrelid = 'railpost_outbox'::regclass
        UNION ALL SELECT indexdef FROM pg_indexes WHERE tablename = 'railpost_outbox'
        UNION ALL SELECT 'options ' || reloptions::text FROM pg_class WHERE oid = 'railpost_outbox'::regclass
        ORDER BY line";
    let rows = database.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stores_outbox_demands_what_an_applications_does() {
    let (store, application) = (Database::empty().await, Database::with_outbox().await);
    let address = PostgresAddress::from(store.url.as_str());
    drop(PostgresStore::connect(&address, setup()).await.unwrap());
    let (stores, applications) = (demands(&store).await, demands(&application).await);
    assert!(applications.iter().any(|line| line.starts_with("key_of_1_to_256_bytes CHECK")));
    assert_eq!(stores, applications);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_granted_role_emits_events_of_its_tenant_in_its_own_transaction() {
    let database = Database::empty().await;
    let store = PostgresStore::connect(&PostgresAddress::from(database.url.as_str()), setup())
        .await
        .unwrap();
    let store = Arc::new(store);
    let world = World::around(store.clone()).await;
    let role = format!("app_{}", std::process::id());
    database
        .run(&format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; CREATE TABLE orders (n int); \
                           GRANT ALL ON orders TO {role}"
        ))
        .await;
    let app = connect(&database.url.replace("railpost@", &format!("{role}@"))).await;
    let emit =
        |id: &str| format!("SELECT railpost_emit('order.paid', '{{}}', key => '1', id => '{id}')");

    let refused = app.batch_execute(&emit("e0")).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("permission denied"), "{refused}");
    let acme = "acme".parse().unwrap();
    assert_eq!(store.grant_emit(&role, &acme, None).await, Ok(()));
    let nobody = store.grant_emit("nobody at all", &acme, None).await;
    assert!(matches!(nobody, Err(StoreError::Invalid { .. })), "{nobody:?}");
    assert_eq!(store.emit_grants().await, Ok(vec![(role.clone(), acme)]));
    let other =
        app.batch_execute("SELECT railpost_emit('a', '{}', tenant => 'globex')").await.unwrap_err();
    assert!(other.as_db_error().unwrap().message().contains("not of \"globex\""), "{other}");
    assert!(app.batch_execute("SELECT * FROM railpost_outbox").await.is_err());

    let address = StoreAddress { url: database.url.clone(), root_certificates_pem: None };
    let relay = world.relay_with("a", vec![source("store", "store", "")], Some(address));
    app.batch_execute(&format!(
        "BEGIN; INSERT INTO orders VALUES (1); {}; ROLLBACK",
        emit("never")
    ))
    .await
    .unwrap();
    app.batch_execute(&format!("BEGIN; INSERT INTO orders VALUES (1); {}; COMMIT", emit("e1")))
        .await
        .unwrap();
    let (tenant, event) = world.until_accepted(1).await.remove(0);
    assert_eq!((tenant.as_str(), event.id.to_string().as_str()), ("acme", "e1"));
    database.until_empty("railpost_outbox").await;

    assert_eq!(store.revoke_emit(&role, None).await, Ok(()));
    assert!(app.batch_execute(&emit("e2")).await.is_err());
    relay.stop().await;
    drop(app);
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
