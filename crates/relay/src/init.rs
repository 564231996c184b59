//! The SQL that makes a source what it has to be, for `init`, and what takes it away again.

use railpost_outbox::sql::{
    POSTGRES_FUNCTION, POSTGRES_NOTIFY_TRIGGER, POSTGRES_TABLE, SQLITE_TABLE,
};

use crate::config::{Location, Mode, Shape, SourceConfig, Wake, quote};

/// The SQL that sets a source up, in the order in which it has to run. The replication slot is made by
/// the relay itself, after the publication.
pub fn init_sql(config: &SourceConfig) -> String {
    join(&init_parts(config))
}

/// A part of what sets a source up.
pub(crate) struct InitPart {
    pub(crate) object: InitObject,
    sql: String,
}

/// What a part makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitObject {
    Table,
    Function,
    Column,
    Trigger,
    Publication,
}

pub(crate) fn init_parts(config: &SourceConfig) -> Vec<InitPart> {
    let mut parts = Vec::new();
    let mut part = |object, sql| parts.push(InitPart { object, sql });
    match (&config.location, config.shape) {
        // The store's schema has them.
        (Location::Store, _) => {}
        (Location::Sqlite(_), Shape::Railpost) => {
            part(InitObject::Table, of_table(SQLITE_TABLE, config));
        }
        (Location::Postgres { .. }, Shape::Railpost) if config.mode != Mode::Messages => {
            part(InitObject::Table, of_table(POSTGRES_TABLE, config));
            part(InitObject::Function, of_table(POSTGRES_FUNCTION, config));
        }
        (Location::Postgres { .. }, Shape::Debezium) if config.mode == Mode::Poll => {
            let table = config.table.sql();
            let sql = format!(
                "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE;\n"
            );
            part(InitObject::Column, sql);
        }
        _ => {}
    }
    if config.wake == Wake::Notify && config.location != Location::Store {
        part(InitObject::Trigger, notify_sql(config));
    }
    if config.mode != Mode::Poll {
        part(InitObject::Publication, publication_sql(config));
    }
    parts
}

/// The SQL of parts, to be run at once.
pub(crate) fn join(parts: &[InitPart]) -> String {
    parts.iter().map(|part| part.sql.as_str()).collect::<Vec<_>>().join("\n")
}

/// The SQL that makes the publication: inserts alone, and those of partitions as the whole table's.
pub(crate) fn publication_sql(config: &SourceConfig) -> String {
    let name = quote(&config.slot);
    if config.mode == Mode::Messages {
        return format!("CREATE PUBLICATION {name};\n");
    }
    format!(
        "CREATE PUBLICATION {name} FOR TABLE {} WITH (publish = 'insert', publish_via_partition_root = true);\n",
        config.table.sql()
    )
}

/// The SQL that makes the trigger which wakes the relay.
pub(crate) fn notify_sql(config: &SourceConfig) -> String {
    of_table(POSTGRES_NOTIFY_TRIGGER, config)
}

/// Our own SQL with the configured table in the place of the usual one.
fn of_table(sql: &str, config: &SourceConfig) -> String {
    if config.table.name == "railpost_outbox" && config.table.schema.is_none() {
        return sql.to_owned();
    }
    let table = config.table.sql();
    let index = quote(&format!("{}_xid", config.table.name));
    sql.replace("CREATE TABLE railpost_outbox (", &format!("CREATE TABLE {table} ("))
        .replace(
            "CREATE INDEX railpost_outbox_xid ON railpost_outbox",
            &format!("CREATE INDEX {index} ON {table}"),
        )
        .replace("INSERT INTO railpost_outbox", &format!("INSERT INTO {table}"))
        .replace("AFTER INSERT ON railpost_outbox", &format!("AFTER INSERT ON {table}"))
}
