//! The table of a source: its columns, its numbers, and what this role may do with it.

use tokio_postgres::Client;

use super::{Finding, role, setting};
use crate::config::{After, Column, Location, Mode, Order, Shape, SourceConfig, Wake, quote};
use crate::init;
use crate::postgres::mapping::Mapping;
use crate::postgres::table;
use crate::trouble::Trouble;

/// Answers whether the table can be read.
pub(super) async fn check(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<bool, Trouble> {
    let sql = "SELECT to_regclass($1) IS NOT NULL";
    let exists: bool = client.query_one(sql, &[&config.table.sql()]).await?.try_get(0)?;
    if !exists {
        let fix = match config.shape {
            Shape::Railpost => init::init_sql(config),
            Shape::Debezium | Shape::Custom => "name a table that exists in `table`".to_owned(),
        };
        findings.push(Finding::bad("table", format!("there is no table {}", config.table), fix));
        return Ok(false);
    }
    findings.push(Finding::good("table", format!("{} exists", config.table)));
    if !check_rights(client, config, findings).await? {
        return Ok(false);
    }
    if !check_columns(client, config, findings).await {
        return Ok(false);
    }
    if config.mode == Mode::Poll {
        check_numbers(client, config, findings).await?;
        check_floor(client, config, findings).await?;
        check_choices(client, config, findings).await?;
    }
    Ok(true)
}

async fn check_rights(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<bool, Trouble> {
    let change = if config.after == After::Mark { "UPDATE" } else { "DELETE" };
    let sql = "SELECT has_table_privilege($1, 'SELECT'), has_table_privilege($1, $2)";
    let table = config.table.sql();
    let row = client.query_one(sql, &[&table, &change]).await?;
    let (select, remove): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    let fix = format!("GRANT SELECT, {change} ON {table} TO {};", role(client).await?);
    let found = match (select, remove) {
        (true, true) => format!("SELECT and {change} are granted"),
        (true, false) => format!("{change} is not granted"),
        (false, _) => "SELECT is not granted".to_owned(),
    };
    findings.push(Finding::of("rights", select && remove, found, fix));
    Ok(select)
}

async fn check_columns(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> bool {
    let probed = match config.mode {
        Mode::Poll => Mapping::of(client, config).await.map(|_| ()),
        Mode::Tail | Mode::Messages => match table::probe(client, config).await {
            Ok((_, key)) => {
                findings.extend(check_reread(config, &key));
                Ok(())
            }
            Err(trouble) => Err(trouble),
        },
    };
    findings.push(match &probed {
        Ok(()) => Finding::good("columns", "all columns are there and have types that fit"),
        Err(trouble) => Finding::of_trouble("columns", trouble),
    });
    probed.is_ok()
}

/// A table without a number has no order but that of the log.
fn check_reread(config: &SourceConfig, key: &Column) -> Option<Finding> {
    if config.columns.order.as_ref() == Some(key) {
        return None;
    }
    let found = "no number orders the table: if the slot is lost, rows are read as they lie";
    let fix = format!(
        "ALTER TABLE {} ADD seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE;",
        config.table.sql()
    );
    Some(Finding::warning("order", found, fix))
}

/// The number is drawn by the database, one at a time, and names one row.
async fn check_numbers(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let table = config.table.sql();
    let Some(Column::Name(name)) = &config.columns.order else {
        let found = "the order is an SQL expression: whether the database draws its numbers cannot be checked";
        findings.push(Finding::warning(
            "order",
            found,
            "order by a column GENERATED ALWAYS AS IDENTITY",
        ));
        return Ok(());
    };
    let column = quote(name);
    let sql = "SELECT a.attidentity::text, pg_get_expr(d.adbin, d.adrelid), s.seqcache, s.seqrelid::regclass::text, \
                 EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid \
                   AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum) \
               FROM pg_attribute AS a \
               LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
               LEFT JOIN pg_sequence AS s ON s.seqrelid = pg_get_serial_sequence($1, $2)::regclass \
               WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND a.attnum > 0";
    let Some(row) = client.query_opt(sql, &[&table, name]).await? else { return Ok(()) };
    let (identity, default): (String, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    let (cache, sequence): (Option<i64>, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
    let drawn = !identity.is_empty() || default.is_some_and(|default| default.contains("nextval"));
    let found =
        if drawn { "the database draws the number" } else { "the application gives the number" };
    let fix = format!(
        "ALTER TABLE {table} ADD seq bigint GENERATED ALWAYS AS IDENTITY UNIQUE; -- and columns.order = \"seq\""
    );
    findings.push(Finding::of("order", drawn, found, fix));
    if let (Some(cache), Some(sequence)) = (cache.filter(|_| drawn), sequence) {
        let found = format!("the sequence hands out {cache} at a time");
        let fix = format!("ALTER SEQUENCE {sequence} CACHE 1;");
        findings.push(Finding::of("sequence", cache == 1, found, fix));
    }
    let unique: bool = row.try_get(4)?;
    let found = if unique {
        "each number names one row"
    } else {
        "no unique index: rows are removed by this number"
    };
    let fix = format!("CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({column});");
    findings.push(Finding::of("unique", unique, found, fix));
    Ok(())
}

/// Where scans begin.
async fn check_floor(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let table = config.table.sql();
    let Some(Column::Name(xid)) = &config.columns.xid else {
        let found =
            "without columns.xid each poll goes through all dead rows that vacuum has to leave";
        let fix = format!(
            "ALTER TABLE {table} ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id(); CREATE INDEX ON {table} (xid); -- and \
             columns.xid = \"xid\""
        );
        findings.push(Finding::warning("floor", found, fix));
        return Ok(());
    };
    let sql = "SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid \
               AND a.attnum = i.indkey[0] WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND a.attname = $2)";
    let indexed: bool = client.query_one(sql, &[&table, xid]).await?.try_get(0)?;
    if indexed {
        findings.push(Finding::good("floor", "an index tells where a scan may begin"));
    } else {
        let fix = format!("CREATE INDEX CONCURRENTLY ON {table} ({});", quote(xid));
        findings.push(Finding::warning(
            "floor",
            "columns.xid has no index: each poll goes through the table",
            fix,
        ));
    }
    Ok(())
}

/// What the configuration chose needs.
async fn check_choices(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let table = config.table.sql();
    if config.order == Order::Commit {
        let on = setting(client, "track_commit_timestamp").await? == "on";
        let found = format!("track_commit_timestamp is {}", if on { "on" } else { "off" });
        let fix = "ALTER SYSTEM SET track_commit_timestamp = on; -- then restart the server";
        findings.push(Finding::of("commit order", on, found, fix));
    }
    if config.wake == Wake::Notify && config.location != Location::Store {
        let sql = "SELECT EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid \
                   WHERE t.tgrelid = to_regclass($1) AND t.tgenabled <> 'D' AND p.prosrc LIKE '%pg_notify%')";
        let notifies: bool = client.query_one(sql, &[&table]).await?.try_get(0)?;
        let found = if notifies { "a trigger notifies" } else { "no trigger notifies" };
        findings.push(Finding::of("notify", notifies, found, init::notify_sql(config)));
    }
    if let (After::Mark, Some(Column::Name(done)), Some(order)) =
        (config.after, &config.columns.done, &config.columns.order)
    {
        let sql = "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass($1) AND indisvalid \
                   AND pg_get_expr(indpred, indrelid) LIKE '%' || $2 || '%')";
        let indexed: bool = client.query_one(sql, &[&table, done]).await?.try_get(0)?;
        let fix = format!(
            "CREATE INDEX CONCURRENTLY ON {table} ({}) WHERE {} IS NULL;",
            order.sql(),
            quote(done)
        );
        findings.push(match indexed {
            true => Finding::good("mark", "an index holds what is not marked"),
            false => Finding::warning(
                "mark",
                "no partial index: each poll goes through marked rows too",
                fix,
            ),
        });
    }
    if config.shape == Shape::Debezium {
        check_deleted_at_once(client, config, findings).await?;
    }
    Ok(())
}

/// Some libraries delete a row in the transaction that inserts it: then polling never sees one.
async fn check_deleted_at_once(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let table = config.table.sql();
    let sql = format!(
        "SELECT coalesce((SELECT n_tup_ins FROM pg_stat_user_tables WHERE relid = to_regclass($1)), 0), \
         NOT EXISTS (SELECT FROM {table})"
    );
    let row = client.query_one(&sql, &[&table]).await?;
    let (inserted, empty): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
    if empty && inserted > 0 {
        let found = format!(
            "the table is empty, and {inserted} rows were inserted: if the application deletes each row in the \
             transaction that inserts it, polling sees none"
        );
        findings.push(Finding::warning("visible rows", found, "mode = \"tail\""));
    }
    Ok(())
}
