//! Who may call `railpost_emit` in a transaction of their own, and for which tenant.

use railpost_wire::TenantId;

use super::errors::Translate;
use super::node::{HeldTransaction, Node};
use super::registry::write_audit;
use super::rows::all;
use railpost_store::backend::rows::Columns;
use railpost_store::{AuditEntry, Result, StoreError};

/// What a role needs to call the function: the schema, and the function itself.
const GRANTS: &str = "
    SELECT format('%1$s USAGE ON SCHEMA %3$I %2$s %4$I; %1$s EXECUTE ON FUNCTION %5$s %2$s %4$I',
        $2::text, $3::text, current_schema(), $1::text, p.oid::regprocedure)
    FROM pg_proc AS p
    WHERE p.proname = 'railpost_emit' AND p.pronamespace = current_schema()::regnamespace";

pub(super) async fn grant(
    node: &Node,
    role: &str,
    tenant: &TenantId,
    audit: Option<&AuditEntry>,
) -> Result<()> {
    let granting = async |held: &HeldTransaction<'_>| {
        role_exists(held, role).await?;
        let sql = "SELECT FROM tenants WHERE id = $1 AND NOT erasing FOR SHARE";
        if held.query(sql, &[&tenant.as_str()]).await.translated()?.is_empty() {
            return Err(StoreError::NotFound(format!("tenant `{tenant}`")));
        }
        let sql = "INSERT INTO emit_roles (role, tenant) VALUES ($1, $2) \
                   ON CONFLICT (role) DO UPDATE SET tenant = excluded.tenant";
        held.execute(sql, &[&role, &tenant.as_str()]).await.translated()?;
        run(held, role, "GRANT", "TO").await?;
        note(held, audit).await
    };
    node.changes.run(granting).await
}

pub(super) async fn revoke(node: &Node, role: &str, audit: Option<&AuditEntry>) -> Result<()> {
    let revoking = async |held: &HeldTransaction<'_>| {
        let sql = "DELETE FROM emit_roles WHERE role = $1";
        let had = held.execute(sql, &[&role]).await.translated()?;
        if had == 0 {
            return Ok(());
        }
        if role_exists(held, role).await.is_ok() {
            run(held, role, "REVOKE", "FROM").await?;
        }
        note(held, audit).await
    };
    node.changes.run(revoking).await
}

async fn note(held: &HeldTransaction<'_>, audit: Option<&AuditEntry>) -> Result<()> {
    if let Some(entry) = audit {
        write_audit(held, entry).await?;
    }
    Ok(())
}

async fn role_exists(held: &HeldTransaction<'_>, role: &str) -> Result<()> {
    let sql = "SELECT FROM pg_roles WHERE rolname = $1";
    if held.query(sql, &[&role]).await.translated()?.is_empty() {
        let problem = format!("the database has no role {role:?}: create it first");
        return Err(StoreError::invalid("role", problem));
    }
    Ok(())
}

async fn run(held: &HeldTransaction<'_>, role: &str, verb: &str, word: &str) -> Result<()> {
    let statements: String =
        held.query_one(GRANTS, &[&role, &verb, &word]).await.translated()?.get(0);
    held.batch_execute(&statements).await.translated()
}

pub(super) async fn grants(node: &Node) -> Result<Vec<(String, TenantId)>> {
    let sql = "SELECT role, tenant FROM emit_roles ORDER BY role";
    let rows = node.reader().query(sql, &[]).await?;
    all(&rows, |columns| Ok((columns.word()?, columns.parsed("a tenant's id")?)))
}
