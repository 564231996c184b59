//! An application with a database of its own, which dies where a scene wants it to.
//!
//! What a dead process leaves is what it committed: SQLite rolls the rest back. A connection that is dropped
//! leaves the same, so the application dies by returning early.

use std::path::PathBuf;

use railpost_outbox::{Event, rusqlite::emit, sql};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

use super::DemoError;

const ORDERS_TABLE: &str =
    "CREATE TABLE orders (id TEXT PRIMARY KEY, paid INTEGER NOT NULL) STRICT";

/// The database of the demo's application: a SQLite file with orders and an outbox. Dropping it removes the file.
#[derive(Debug)]
pub struct AppDatabase {
    folder: TempDir,
}

/// The application.
#[derive(Clone, Debug)]
pub(super) struct Application {
    path: PathBuf,
}

/// Where the application dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    BeforeCommit,
    AfterCommit,
}

impl AppDatabase {
    /// Creates the file with its tables.
    pub fn create() -> Result<Self, DemoError> {
        let folder = TempDir::with_prefix("railpost-demo-");
        let database = Self { folder: folder.map_err(failed)? };
        let connection = Connection::open(database.path()).map_err(failed)?;
        connection.execute_batch(sql::SQLITE_TABLE).map_err(failed)?;
        connection.execute_batch(ORDERS_TABLE).map_err(failed)?;
        Ok(database)
    }

    /// Its URL as a source of the server.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("application.db")
    }
}

impl Application {
    pub(super) fn of(database: &AppDatabase) -> Self {
        Self { path: database.path() }
    }

    /// Writes to the database first and publishes then; it dies between the two.
    pub(super) async fn pay_and_die_before_publishing(
        &self,
        order: &'static str,
    ) -> Result<(), DemoError> {
        self.run(move |connection| {
            let transaction = connection.transaction()?;
            pay(&transaction, order)?;
            transaction.commit()
        })
        .await
    }

    /// Writes the change and the event in one transaction, and dies before or after its commit.
    pub(super) async fn pay_with_event(
        &self,
        order: &'static str,
        death: Death,
    ) -> Result<(), DemoError> {
        let event = Event::new("order.paid", format!(r#"{{"order": "{order}"}}"#)).key(order);
        let event = event.build().map_err(failed)?;
        self.run(move |connection| {
            let mut transaction = connection.transaction()?;
            pay(&transaction, order)?;
            emit(&mut transaction, &event)?;
            match death {
                Death::BeforeCommit => Ok(()),
                Death::AfterCommit => transaction.commit(),
            }
        })
        .await
    }

    /// Whether the database has the order as paid.
    pub(super) async fn is_paid(&self, order: &'static str) -> Result<bool, DemoError> {
        let paid = "SELECT EXISTS (SELECT 1 FROM orders WHERE id = ?1 AND paid = 1)";
        self.run(move |connection| connection.query_row(paid, [order], |row| row.get(0))).await
    }

    /// Works on a connection of its own, off the runtime's threads.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, DemoError> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || work(&mut Connection::open(path)?)).await;
        done.map_err(failed)?.map_err(failed)
    }
}

fn pay(transaction: &Transaction<'_>, order: &str) -> rusqlite::Result<()> {
    transaction.execute("INSERT INTO orders (id, paid) VALUES (?1, 1)", [order]).map(drop)
}

fn failed(error: impl std::fmt::Display) -> DemoError {
    DemoError::new("the application's database", error)
}
