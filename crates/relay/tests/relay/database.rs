//! A database of its own on the test server, for every test that asks.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, Config, NoTls};

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
pub(crate) fn server() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL server for the tests, or \
         set it to the URL of one that may be written to",
    )
}

/// A database with an outbox.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) client: Client,
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Database {
    /// An empty one on the shared test server.
    pub(crate) async fn empty() -> Self {
        Self::empty_on(&server()).await
    }

    /// An empty one on this server.
    pub(crate) async fn empty_on(server: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("relay_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let admin = connect(server).await;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.unwrap();
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let url = database_url(server, &name);
        Self { client: connect(&url).await, url }
    }

    /// One with our own table and function.
    pub(crate) async fn with_outbox() -> Self {
        Self::with_outbox_on(&server()).await
    }

    /// The same on this server.
    pub(crate) async fn with_outbox_on(server: &str) -> Self {
        let database = Self::empty_on(server).await;
        let sql = [railpost_outbox::sql::POSTGRES_TABLE, railpost_outbox::sql::POSTGRES_FUNCTION];
        database.run(&sql.join("\n")).await;
        database
    }

    /// The same with the publication of a source.
    pub(crate) async fn with_publication(
        source: &railpost_relay::SourceConfig,
        database: Self,
    ) -> Self {
        let sql = railpost_relay::init_sql(source);
        let publication = &sql[sql.find("CREATE PUBLICATION").unwrap()..];
        database.run(publication).await;
        database
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// Writes one event.
    pub(crate) async fn emit(&self, id: &str, kind: &str, key: Option<&str>) {
        let sql = "SELECT railpost_emit($1, '{}', $2, $3)";
        self.client.execute(sql, &[&kind, &key, &id]).await.unwrap();
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        self.client.query_one(&sql, &[]).await.unwrap().get(0)
    }

    /// Waits until a table is empty.
    pub(crate) async fn until_empty(&self, table: &str) {
        let waiting = async { while self.count(table).await > 0 {} };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "{} rows are left", self.count(table).await);
    }
}

/// The URL of a database of a server.
fn database_url(server: &str, name: &str) -> String {
    let config: Config = server.parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else {
        panic!("the test server is reached by TCP")
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("postgres://{}@{host}:{port}/{name}", config.get_user().unwrap())
}
