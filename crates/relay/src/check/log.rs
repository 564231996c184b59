//! The log of a source: its level, the role, the publication and the slot.

use tokio_postgres::Client;

use super::{Finding, role, setting};
use crate::config::{Mode, SourceConfig, quote};
use crate::init::publication_sql;
use crate::trouble::Trouble;

pub(super) async fn check(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let level = setting(client, "wal_level").await?;
    let fix = "ALTER SYSTEM SET wal_level = logical; -- then restart the server";
    findings.push(Finding::of(
        "wal_level",
        level == "logical",
        format!("wal_level is {level}"),
        fix,
    ));
    check_role(client, findings).await?;
    check_publication(client, config, findings).await?;
    check_slot(client, config, findings).await?;
    let keep = setting(client, "max_slot_wal_keep_size").await?;
    findings.push(match keep.as_str() {
        "-1" => Finding::warning(
            "log size",
            "max_slot_wal_keep_size has no bound: while Railpost is stopped, the log fills the disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); -- a bound that the disk has",
        ),
        bound => Finding::good("log size", format!("at most {bound} of the log are kept for a slot")),
    });
    Ok(())
}

async fn check_role(client: &Client, findings: &mut Vec<Finding>) -> Result<(), Trouble> {
    let sql = "SELECT rolreplication OR rolsuper OR EXISTS (SELECT FROM pg_roles AS r \
                 WHERE r.rolname IN ('rds_replication', 'azure_pg_admin') AND pg_has_role(current_user, r.oid, 'USAGE')) \
               FROM pg_roles WHERE rolname = current_user";
    let may: bool = client.query_one(sql, &[]).await?.try_get(0)?;
    let role = role(client).await?;
    let found =
        if may { format!("{role} may replicate") } else { format!("{role} may not replicate") };
    findings.push(Finding::of(
        "replication",
        may,
        found,
        format!("ALTER ROLE {role} REPLICATION;"),
    ));
    Ok(())
}

/// Inserts alone, of the right table, and those of partitions as the whole table's.
async fn check_publication(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let sql = "SELECT p.pubinsert, p.pubupdate OR p.pubdelete OR p.pubtruncate, p.pubviaroot, \
                 p.puballtables OR EXISTS (SELECT FROM pg_publication_rel AS r \
                   WHERE r.prpubid = p.oid AND r.prrelid = to_regclass($2)), \
                 coalesce((SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($2)), false) \
               FROM pg_publication AS p WHERE p.pubname = $1";
    let found = client.query_opt(sql, &[&config.slot, &config.table.sql()]).await?;
    let Some(row) = found else {
        let found = format!("there is no publication {}", config.slot);
        findings.push(Finding::bad("publication", found, publication_sql(config)));
        return Ok(());
    };
    if config.mode == Mode::Messages {
        findings.push(Finding::good("publication", format!("publication {} exists", config.slot)));
        return Ok(());
    }
    let (name, table) = (quote(&config.slot), config.table.sql());
    let flag = |index: usize| row.try_get::<_, bool>(index);
    let (inserts, others, via_root, has_table, partitioned) =
        (flag(0)?, flag(1)?, flag(2)?, flag(3)?, flag(4)?);
    let finding = if !has_table {
        let fix = format!("ALTER PUBLICATION {name} ADD TABLE {table};");
        Finding::bad(
            "publication",
            format!("publication {} does not have the table", config.slot),
            fix,
        )
    } else if !inserts {
        let fix = format!("ALTER PUBLICATION {name} SET (publish = 'insert');");
        Finding::bad("publication", "it publishes no inserts", fix)
    } else if partitioned && !via_root {
        let fix = format!("ALTER PUBLICATION {name} SET (publish_via_partition_root = true);");
        Finding::bad("publication", "it publishes partitions under their own names", fix)
    } else if others {
        let fix = format!("ALTER PUBLICATION {name} SET (publish = 'insert');");
        Finding::warning(
            "publication",
            "it publishes more than inserts, which is sent for nothing",
            fix,
        )
    } else {
        Finding::good("publication", format!("publication {} publishes inserts", config.slot))
    };
    findings.push(finding);
    Ok(())
}

async fn check_slot(
    client: &Client,
    config: &SourceConfig,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let sql = "SELECT coalesce(plugin, '') = 'pgoutput' AND database = current_database(), \
                 coalesce(wal_status, '') = 'lost', coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint \
               FROM pg_replication_slots WHERE slot_name = $1";
    let slot = &config.slot;
    let Some(row) = client.query_opt(sql, &[slot]).await? else {
        let free = "SELECT current_setting('max_replication_slots')::bigint \
                    - (SELECT count(*) FROM pg_replication_slots)";
        let free: i64 = client.query_one(free, &[]).await?.try_get(0)?;
        let fix = "ALTER SYSTEM SET max_replication_slots = 20; -- then restart the server";
        let found =
            format!("slot {slot} is made when the source is first read; {free} more can be made");
        findings.push(Finding::of("slot", free > 0, found, fix));
        return Ok(());
    };
    let (ours, lost, retained): (Option<bool>, bool, i64) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    findings.push(if ours != Some(true) {
        Finding::bad(
            "slot",
            format!("slot {slot} is of another kind or database"),
            "name another one in `slot`",
        )
    } else if lost {
        Finding::warning(
            "slot",
            format!("slot {slot} is lost: it is made again"),
            "raise max_slot_wal_keep_size",
        )
    } else {
        Finding::good(
            "slot",
            format!("the server keeps {retained} bytes of its log for slot {slot}"),
        )
    });
    Ok(())
}
