//! Statements that read, and the columns of what they find.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row, Statement};

use super::errors::Translate;
use railpost_store::backend::listing::{ListKind, Position, scan};
use railpost_store::backend::rows::Columns;
use railpost_store::{Listing, Result};

/// A row of SQLite.
pub(super) struct RowReader<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> RowReader<'r, 's> {
    pub(super) fn new(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    fn get<T: FromSql>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1).translated()
    }
}

impl Columns for RowReader<'_, '_> {
    fn int(&mut self) -> Result<Option<i64>> {
        self.get()
    }

    fn text(&mut self) -> Result<Option<String>> {
        self.get()
    }

    fn blob(&mut self) -> Result<Option<Vec<u8>>> {
        self.get()
    }

    fn flag(&mut self) -> Result<bool> {
        self.get()
    }
}

/// The open deliveries of the endpoints in `whose`, as a table.
macro_rules! open_deliveries {
    () => {
        "(SELECT standing, id FROM deliveries INDEXED BY deliveries_open \
          WHERE endpoint IN (SELECT num FROM whose) AND standing <= 3)"
    };
}
pub(super) use open_deliveries;

/// The first row that a query finds.
pub(super) fn one<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnOnce(&mut RowReader<'_, '_>) -> Result<T>,
) -> Result<Option<T>> {
    first(&mut *db.prepare_cached(sql).translated()?, values, read)
}

/// The first row that a prepared query finds.
pub(super) fn first<T>(
    statement: &mut Statement<'_>,
    values: impl Params,
    read: impl FnOnce(&mut RowReader<'_, '_>) -> Result<T>,
) -> Result<Option<T>> {
    let mut found = statement.query(values).translated()?;
    found.next().translated()?.map(|row| read(&mut RowReader::new(row))).transpose()
}

/// All rows that a query finds.
pub(super) fn all<T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    mut read: impl FnMut(&mut RowReader<'_, '_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql).translated()?;
    let mut found = statement.query(values).translated()?;
    let mut all = Vec::new();
    while let Some(row) = found.next().translated()? {
        all.push(read(&mut RowReader::new(row))?);
    }
    Ok(all)
}

/// The wanted ones of the rows that a query finds, as a page of a list.
pub(super) fn listing<P: Position, T>(
    db: &Connection,
    sql: &str,
    values: impl Params,
    page: &Scan<'_, T>,
    mut read: impl FnMut(&mut RowReader<'_, '_>) -> Result<(P, T)>,
) -> Result<Listing<T>> {
    let mut statement = db.prepare_cached(sql).translated()?;
    let mut found = statement.query(values).translated()?;
    let next = || match found.next() {
        Ok(row) => row.map(|row| read(&mut RowReader::new(row))),
        Err(error) => Some(Err(error).translated()),
    };
    scan(std::iter::from_fn(next), (page.limit, page.most), page.kind, page.wants)
}

/// What of a list makes a page.
pub(super) struct Scan<'a, T> {
    pub(super) kind: ListKind,
    pub(super) limit: usize,
    /// Most rows to look at.
    pub(super) most: usize,
    pub(super) wants: &'a dyn Fn(&T) -> bool,
}
