use railpost_outbox::sql;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::{Client, NoTls};

pub(crate) fn postgres_url() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask with-services test -p railpost-outbox`",
    )
}

/// An outbox in a schema of its own, and a connection that sees it.
pub(crate) struct PostgresOutbox {
    pub(crate) schema: String,
    pub(crate) client: Client,
}

impl PostgresOutbox {
    pub(crate) async fn create() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("outbox_{}_{number}", std::process::id());
        let client = connect().await;
        let search_path = format!("CREATE SCHEMA {schema}; SET search_path = {schema}");
        for text in [
            search_path.as_str(),
            sql::POSTGRES_TABLE,
            sql::POSTGRES_FUNCTION,
            sql::POSTGRES_NOTIFY_TRIGGER,
        ] {
            client.batch_execute(text).await.unwrap();
        }
        Self { schema, client }
    }

    /// Another connection to it.
    pub(crate) async fn connect(&self) -> Client {
        let client = connect().await;
        client.batch_execute(&self.set_search_path()).await.unwrap();
        client
    }

    pub(crate) fn set_search_path(&self) -> String {
        format!("SET search_path = {}", self.schema)
    }

    /// The ids of all events, in their order.
    pub(crate) async fn ids(&self) -> Vec<String> {
        let rows = self.client.query("SELECT id FROM railpost_outbox ORDER BY seq", &[]).await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    }
}

async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn sqlite() -> rusqlite::Connection {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch(sql::SQLITE_TABLE).unwrap();
    connection
}
