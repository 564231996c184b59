//! The columns of what a statement finds.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use railpost_store::backend::rows::Columns;
use railpost_store::{Result, StoreError};

/// A row of PostgreSQL.
pub(super) struct RowReader<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> RowReader<'r> {
    pub(super) fn new(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    fn get<T: FromSql<'r>>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.try_get(self.next - 1).map_err(|error| StoreError::Corrupt(error.to_string()))
    }
}

impl Columns for RowReader<'_> {
    fn int(&mut self) -> Result<Option<i64>> {
        if self.row.columns().get(self.next).is_some_and(|column| *column.type_() == Type::INT4) {
            return Ok(self.get::<Option<i32>>()?.map(i64::from));
        }
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

/// All rows, read.
pub(super) fn all<T>(
    rows: &[Row],
    mut read: impl FnMut(&mut RowReader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    rows.iter().map(|row| read(&mut RowReader::new(row))).collect()
}

/// The first row, read.
pub(super) fn one<T>(
    rows: &[Row],
    read: impl FnOnce(&mut RowReader<'_>) -> Result<T>,
) -> Result<Option<T>> {
    rows.first().map(|row| read(&mut RowReader::new(row))).transpose()
}

/// The open deliveries of the endpoints in `whose`, as a table. In two parts, because each has an index
/// of its own; what is closed is in neither.
macro_rules! open_deliveries {
    () => {
        "(SELECT standing, id FROM deliveries WHERE endpoint = ANY (ARRAY(SELECT num FROM whose)) \
            AND standing <= 3 AND lane IS NOT NULL \
          UNION ALL \
          SELECT standing, id FROM deliveries WHERE endpoint = ANY (ARRAY(SELECT num FROM whose)) \
            AND standing <= 3 AND lane IS NULL)"
    };
}
pub(super) use open_deliveries;
