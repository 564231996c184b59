//! A database with an outbox, on the test server.

use railpost_relay::{SourceConfig, SourceSection};
use tokio_postgres::{Client, NoTls};

use super::kills::Mode;

/// A source that a server relays from.
pub(crate) struct Source {
    server: String,
    name: String,
    mode: Mode,
    pub(crate) url: String,
}

/// The test server's URL. A test without a server fails: a skipped one would look like a passed one.
fn server() -> String {
    std::env::var("RAILPOST_TEST_POSTGRES").expect(
        "RAILPOST_TEST_POSTGRES is not set: run `cargo xtask test`, which starts a PostgreSQL",
    )
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Source {
    /// A new database, set up as `railpost outbox init` does. `purpose` is part of its name.
    pub(crate) async fn create(mode: Mode, purpose: &str) -> Self {
        let server = server();
        let name = format!("outbox_{purpose}_{}_{}", mode.name(), std::process::id());
        let (base, _) = server.rsplit_once('/').unwrap();
        let url = format!("{base}/{name}");
        let admin = connect(&server).await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        let source = Self { server, name, mode, url };
        let config: SourceConfig =
            toml::from_str::<SourceSection>(&source.fields()).unwrap().check().unwrap();
        let client = source.connect().await;
        client.batch_execute(&railpost_relay::init_sql(&config)).await.unwrap();
        source
    }

    /// The URL of a store in the same database, in a schema of its own.
    pub(crate) async fn store(&self) -> String {
        self.connect().await.batch_execute("CREATE SCHEMA store").await.unwrap();
        format!("{}?options=-csearch_path%3Dstore", self.url)
    }

    /// Ends all sessions of servers, as PostgreSQL does with those of a machine that has vanished.
    pub(crate) async fn end_sessions(&self) {
        let end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name LIKE 'railpost%'";
        self.connect().await.execute(end, &[]).await.unwrap();
    }

    /// The source's section of the configuration. Small batches make many moments to be killed at.
    pub(crate) fn section(&self) -> String {
        format!("[[outbox]]\n{}", self.fields())
    }

    fn fields(&self) -> String {
        let Self { url, name, mode, .. } = self;
        // Slots belong to the whole server, so each source names its own.
        let slot = match mode {
            Mode::Poll => String::new(),
            Mode::Tail => format!("slot = \"{name}\"\n"),
        };
        let mode = mode.name();
        format!(
            "name = \"shop\"\nurl = \"{url}\"\ntenant = \"default\"\nmode = \"{mode}\"\nbatch = 20\n{slot}"
        )
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// The ids of the rows that are still there.
    pub(crate) async fn rows(&self) -> Vec<String> {
        let rows = self.connect().await.query("SELECT id FROM railpost_outbox", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Drops the database and, once the killed server's session has ended, its slot.
    pub(crate) async fn drop(self) {
        let admin = connect(&self.server).await;
        let end = "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots \
                   WHERE slot_name = $1 AND active_pid IS NOT NULL";
        admin.execute(end, &[&self.name]).await.unwrap();
        let slot = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
        admin.execute(slot, &[&self.name]).await.unwrap();
        admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.unwrap();
    }
}
