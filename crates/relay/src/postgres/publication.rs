//! The publication of a source: the log tells of no row that it does not publish.

use std::time::Duration;

use tokio_postgres::Client;

use crate::config::{Mode, SourceConfig, quote};
use crate::init::publication_sql;
use crate::trouble::Trouble;

/// How often the publication and the table are looked at: how long a publication that is wrong goes
/// unnoticed. It takes the source less than a millisecond.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Which publication and table were looked at. Every change of the publication makes it another one, also
/// a change that undoes an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication(String);

impl Publication {
    /// Refuses a publication that does not publish the table's inserts.
    ///
    /// It has to be there before the slot: a slot fails on every change that is older than its
    /// publication.
    pub(crate) async fn look(client: &Client, config: &SourceConfig) -> Result<Self, Trouble> {
        let sql = "SELECT p.pubinsert, \
                     EXISTS (SELECT FROM pg_publication_tables AS t \
                       JOIN pg_namespace AS n ON n.nspname = t.schemaname AND n.oid = c.relnamespace \
                       WHERE t.pubname = p.pubname AND t.tablename = c.relname), \
                     coalesce(c.relkind = 'p' AND NOT p.pubviaroot, false), \
                     concat_ws('.', p.oid, p.xmin, c.oid, r.oid, r.xmin) \
                   FROM pg_publication AS p LEFT JOIN pg_class AS c ON c.oid = to_regclass($2) \
                     LEFT JOIN pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = c.oid \
                   WHERE p.pubname = $1";
        let found = client.query_opt(sql, &[&config.slot, &config.table.sql()]).await?;
        let slot = &config.slot;
        let Some(row) = found else {
            let problem = format!("there is no publication \"{slot}\"");
            return Err(Trouble::wrong(problem, publication_sql(config)));
        };
        if config.mode == Mode::Messages {
            return Ok(Self(String::new()));
        }
        let (name, table) = (quote(slot), config.table.sql());
        let wrong = |problem: &str, change: &str| {
            let problem = format!(
                "publication \"{slot}\" {problem}: the log does not tell of new rows, which stay in the table"
            );
            Err(Trouble::wrong(problem, format!("ALTER PUBLICATION {name} {change};")))
        };
        let flag = |index: usize| row.try_get::<_, bool>(index);
        let (inserts, has_table, splits_partitions) = (flag(0)?, flag(1)?, flag(2)?);
        if splits_partitions {
            return wrong(
                "publishes partitions under their own names",
                "SET (publish_via_partition_root = true)",
            );
        }
        if !has_table {
            return wrong("does not have the table", &format!("ADD TABLE {table}"));
        }
        if !inserts {
            return wrong("publishes no inserts", "SET (publish = 'insert')");
        }
        Ok(Self(row.try_get(3)?))
    }

    /// What a position in the log of this system belongs to.
    pub(crate) fn system(&self, system_id: &str) -> String {
        if self.0.is_empty() { system_id.to_owned() } else { format!("{system_id} {}", self.0) }
    }
}

/// Refuses a column that the log will never have: another slot would not bring it either.
pub(crate) async fn publishes(
    client: &Client,
    config: &SourceConfig,
    column: &str,
) -> Result<(), Trouble> {
    // A publication has a list of columns from PostgreSQL 15 on.
    let sql = "SELECT a.attgenerated::text <> '', \
                 coalesce(NOT jsonb_exists(to_jsonb(t) -> 'attnames', a.attname::text), false) \
               FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid \
                 JOIN pg_namespace AS n ON n.oid = c.relnamespace \
                 LEFT JOIN pg_publication_tables AS t \
                   ON t.pubname = $1 AND t.schemaname = n.nspname AND t.tablename = c.relname \
               WHERE a.attrelid = to_regclass($2) AND a.attname = $3";
    let found = client.query_opt(sql, &[&config.slot, &config.table.sql(), &column]).await?;
    let Some(row) = found else { return Ok(()) };
    let (is_generated, is_left_out): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (slot, table) = (&config.slot, config.table.sql());
    if is_generated {
        let problem = format!("column \"{column}\" is generated, and the log does not have it");
        return Err(Trouble::wrong(
            problem,
            "name another column in `columns`, or mode = \"poll\"",
        ));
    }
    if is_left_out {
        let problem = format!("publication \"{slot}\" leaves out column \"{column}\"");
        let remedy = format!("ALTER PUBLICATION {} SET TABLE {table};", quote(slot));
        return Err(Trouble::wrong(problem, remedy));
    }
    Ok(())
}
