//! An application's SQLite file with an outbox, as a source of a server.

use railpost::config::Config;
use railpost_outbox::sql::SQLITE_TABLE;
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

/// The file. It is gone when this is dropped.
pub(crate) struct OutboxFile {
    folder: TempDir,
    db: Connection,
}

impl OutboxFile {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let db = Connection::open(folder.path().join("shop.db")).unwrap();
        db.execute_batch(SQLITE_TABLE).unwrap();
        Self { folder, db }
    }

    /// A configuration with two sources: `shop` is this file, and the file of `billing` does not exist.
    pub(crate) fn config(&self) -> Config {
        let section = |name: &str| {
            let url = format!("sqlite:{}", self.folder.path().join(format!("{name}.db")).display());
            serde_json::from_value(json!({ "name": name, "url": url })).unwrap()
        };
        Config { outbox: vec![section("shop"), section("billing")], ..Config::default() }
    }

    /// Commits an event of this tenant.
    pub(crate) fn emit(&self, id: &str, tenant: &str, key: &str) {
        let sql = "INSERT INTO railpost_outbox (id, tenant, type, key, payload)
            VALUES (?1, ?2, 'order.paid', ?3, json_object('order', ?3, 'total', 12.5))";
        self.db.execute(sql, (id, tenant, key)).unwrap();
    }
}
