//! From a table's columns to rows: the statements that read and remove, made for the types that the
//! columns have.

use std::ops::Range;

use bytes::Bytes;
use railpost_store::SourceFields;
use railpost_store::limits::PARKED_ROW_LEN_MAX;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::config::{After, Column, Columns, Order, SourceConfig};
use crate::limits::{NEAR_ROWS_MAX, PASS_ROWS_MAX};
use crate::row::SourceRow;
use crate::trouble::Trouble;

/// The statements of a source, and how its rows are read.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `$1`: the floor, as text. One row: the snapshot's xmin, the numbers of what is new, and their
    /// sizes. More numbers than are asked for mean that there are more.
    pub(crate) near: String,
    /// Declares a cursor over the numbers and sizes of all rows, in order.
    pub(crate) all: String,
    /// `$1`: numbers. Their rows.
    pub(crate) rows: String,
    /// `$1`: numbers. Removes or marks their rows.
    pub(crate) remove: String,
    /// The id and the key of a row whose payload is too large, if there is one. A source that is polled knows the
    /// size of each row before it reads it.
    pub(crate) large: Option<String>,
    /// Whether the ids are numbers, which are unique only within the source.
    id_is_number: bool,
    payload_is_bytes: bool,
    has_payload_bytes: bool,
    source: String,
}

/// Where the payload stands among what is selected of a row behind its number, as text and as bytes.
const PAYLOADS: Range<usize> = 4..6;

/// What stands for a column that there is not.
const NULL: &str = "NULL";

impl Mapping {
    /// Looks at the types of the columns. This fails if a column is missing or may not be read.
    pub(crate) async fn of(client: &Client, config: &SourceConfig) -> Result<Self, Trouble> {
        let columns = &config.columns;
        let order = columns.order.as_ref().expect("a source that is polled has an order");
        let table = config.table.sql();
        let probed = Probed::of(client, config, Some(order)).await?;
        let pending = probed.pending(columns)?;
        let order = order.sql();
        let size = probed.size(columns);
        let committed = match config.order {
            Order::Insert => "NULL::timestamptz".to_owned(),
            Order::Commit => "pg_xact_commit_timestamp(xmin)".to_owned(),
        };
        let floor = columns.xid.as_ref().map(|xid| format!("{} >= $1::text::xid8", xid.sql()));
        // Without a floor the first rows are as good as any: their order is that of the whole.
        let (near, first) = match (floor, config.order) {
            (Some(floor), _) => (format!("{pending} AND {floor}"), String::new()),
            (None, Order::Insert) => {
                (format!("{pending} AND $1::text IS NOT NULL"), format!("ORDER BY {order}"))
            }
            (None, Order::Commit) => (format!("{pending} AND $1::text IS NOT NULL"), String::new()),
        };
        let remove = match (config.after, &columns.done) {
            (After::Mark, Some(done)) => {
                format!(
                    "UPDATE {table} SET {} = {} WHERE {order} = ANY ($1)",
                    done.sql(),
                    probed.done_value()?
                )
            }
            _ => format!("DELETE FROM {table} WHERE {order} = ANY ($1)"),
        };
        Ok(Self {
            near: format!(
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, \
                   coalesce(array_agg(number ORDER BY committed NULLS FIRST, number), '{{}}'), \
                   coalesce(array_agg(size ORDER BY committed NULLS FIRST, number), '{{}}') \
                 FROM (SELECT {order}::bigint, ({size})::bigint, {committed} FROM {table} \
                   WHERE {near} {first} LIMIT {}) AS near (number, size, committed)",
                NEAR_ROWS_MAX + 1
            ),
            all: format!(
                "DECLARE railpost_keys NO SCROLL CURSOR FOR \
                 SELECT {order}::bigint AS railpost_number, ({size})::bigint AS railpost_size \
                 FROM {table} WHERE {pending} ORDER BY {}{order} LIMIT {PASS_ROWS_MAX}",
                if config.order == Order::Commit {
                    format!("{committed} NULLS FIRST, ")
                } else {
                    String::new()
                },
            ),
            rows: format!(
                "SELECT {order}::bigint, {} FROM {table} WHERE {order} = ANY ($1)",
                probed.select(columns)?.join(", ")
            ),
            remove,
            large: None,
            id_is_number: is_number(&probed.id),
            payload_is_bytes: probed.payload == Type::BYTEA,
            has_payload_bytes: columns.payload_bytes.is_some(),
            source: config.name.to_string(),
        })
    }

    /// Where [`of_table`](Self::of_table) has the key of a row, and the size of its payload.
    pub(crate) const KEY: usize = 11;
    pub(crate) const SIZE: usize = 12;

    /// For a table that is tailed: `all` declares a cursor over whole rows, with the key and the size of each
    /// behind them, `near` has the end of the log and the keys of the first rows, `rows` and `remove` take keys
    /// as text, and `remove` answers which of them it found. A payload that is too large is not read.
    pub(crate) async fn of_table(
        client: &Client,
        config: &SourceConfig,
        key: &Column,
        kind: &Type,
    ) -> Result<Self, Trouble> {
        let (columns, table) = (&config.columns, config.table.sql());
        let probed = Probed::of(client, config, None).await?;
        let (pending, key) = (probed.pending(columns)?, key.sql());
        let keys = format!("{key} = ANY ($1::text[]::{}[])", kind.name());
        let remove = match (config.after, &columns.done) {
            (After::Mark, Some(done)) => {
                let (done, value) = (done.sql(), probed.done_value()?);
                format!("UPDATE {table} SET {done} = {value} WHERE {keys} RETURNING {key}::text")
            }
            _ => format!("DELETE FROM {table} WHERE {keys} RETURNING {key}::text"),
        };
        // Without a number the order in which rows lie is the best that is known.
        let order = if is_number(kind) { key.as_str() } else { "ctid" };
        let first =
            if is_number(kind) { format!("ORDER BY railpost_row.{key}") } else { String::new() };
        let size = probed.size(columns);
        let mut select = probed.select(columns)?;
        for payload in &mut select[PAYLOADS] {
            *payload = format!("CASE WHEN {size} < {PARKED_ROW_LEN_MAX} THEN {payload} END");
        }
        let select = format!("{}, {key}::text, ({size})::bigint", select.join(", "));
        Ok(Self {
            // The end of the log is asked for behind the snapshot: what that shows was committed before it.
            near: format!(
                "SELECT (SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint), {key}::text \
                 FROM {table} AS railpost_row WHERE {pending} AND {key} IS NOT NULL {first} LIMIT {NEAR_ROWS_MAX}"
            ),
            all: format!(
                "DECLARE railpost_rows NO SCROLL CURSOR FOR SELECT 0::bigint, {select} \
                 FROM {table} AS railpost_row WHERE {pending} ORDER BY railpost_row.{order}"
            ),
            rows: format!(
                "SELECT 0::bigint, {select} FROM {table} AS railpost_row \
                 WHERE {pending} AND {keys} ORDER BY railpost_row.{order}"
            ),
            remove,
            large: Some(format!(
                "SELECT {}::text, {key}::text FROM {table} AS railpost_row \
                 WHERE {pending} AND {size} >= {PARKED_ROW_LEN_MAX} LIMIT 1",
                columns.id.sql()
            )),
            id_is_number: is_number(&probed.id),
            payload_is_bytes: probed.payload == Type::BYTEA,
            has_payload_bytes: columns.payload_bytes.is_some(),
            source: config.name.to_string(),
        })
    }

    /// Reads a row of [`rows`](Self::rows).
    pub(crate) fn read(&self, row: &Row) -> Result<SourceRow, Trouble> {
        let text = |index: usize| row.try_get::<_, Option<String>>(index);
        let id =
            text(1)?.map(|id| if self.id_is_number { format!("{}:{id}", self.source) } else { id });
        let payload = match self.payload_is_bytes {
            true => row.try_get::<_, Option<Vec<u8>>>(5)?.map(Bytes::from),
            false => text(5)?.map(Bytes::from),
        };
        let payload_bytes = match self.has_payload_bytes {
            true => row.try_get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
            false => None,
        };
        let fields = SourceFields {
            id,
            tenant: text(2)?,
            event_type: text(3)?,
            key: text(4)?,
            content_type: text(7)?,
            schema_version: text(8)?.map(|version| version.parse().unwrap_or(-1)),
            time: row.try_get(9)?,
            traceparent: text(10)?,
        };
        let (number, payload) = (row.try_get(0)?, payload.or(payload_bytes));
        Ok(SourceRow { number, fields, payload, left_out: None })
    }
}

/// The types of the columns whose types matter.
struct Probed {
    id: Type,
    payload: Type,
    time: Option<Type>,
    done: Option<Type>,
}

impl Probed {
    async fn of(
        client: &Client,
        config: &SourceConfig,
        order: Option<&Column>,
    ) -> Result<Self, Trouble> {
        let columns = &config.columns;
        let sql = |column: &Option<Column>| column.as_ref().map_or(NULL.to_owned(), Column::sql);
        let probe = [
            columns.id.sql(),
            columns.payload.sql(),
            order.map_or(NULL.to_owned(), Column::sql),
            sql(&columns.time),
            sql(&columns.done),
            order.and(columns.xid.as_ref()).map_or(NULL.to_owned(), Column::sql),
            columns.event_type.sql(),
            sql(&columns.payload_bytes),
            sql(&columns.tenant),
            sql(&columns.key),
            sql(&columns.content_type),
            sql(&columns.schema_version),
            sql(&columns.traceparent),
        ];
        let statement = format!("SELECT {} FROM {} LIMIT 0", probe.join(", "), config.table.sql());
        let statement = client.prepare(&statement).await?;
        // Whether it may be read shows when it is run.
        client.query(&statement, &[]).await?;
        let kinds = statement.columns();
        let kind = |index: usize| kinds[index].type_().clone();
        if order.is_some() && !is_number(&kind(2)) {
            let problem = format!("columns.order has type {}, not bigint", kind(2));
            let remedy = "order by a number that the database gives: ALTER TABLE … ADD seq bigint GENERATED ALWAYS AS \
                          IDENTITY";
            return Err(Trouble::wrong(problem, remedy));
        }
        if order.is_some() && columns.xid.is_some() && kind(5) != Type::XID8 {
            let problem = format!("columns.xid has type {}, not xid8", kind(5));
            return Err(Trouble::wrong(
                problem,
                "leave columns.xid out, or make it xid8 DEFAULT pg_current_xact_id()",
            ));
        }
        Ok(Self {
            id: kind(0),
            payload: kind(1),
            time: columns.time.as_ref().map(|_| kind(3)),
            done: columns.done.as_ref().map(|_| kind(4)),
        })
    }

    /// The condition for rows that were not taken yet.
    fn pending(&self, columns: &Columns) -> Result<String, Trouble> {
        let Some(done) = &columns.done else { return Ok("true".to_owned()) };
        let done = done.sql();
        Ok(if self.done_value()? == "true" {
            format!("{done} IS NOT TRUE")
        } else {
            format!("{done} IS NULL")
        })
    }

    /// What marks a row as taken.
    fn done_value(&self) -> Result<&'static str, Trouble> {
        match self.done.as_ref() {
            Some(kind) if *kind == Type::BOOL => Ok("true"),
            Some(kind) if [Type::TIMESTAMPTZ, Type::TIMESTAMP].contains(kind) => Ok("now()"),
            kind => {
                let kind = kind.map_or("none", Type::name);
                let problem = format!("columns.done has type {kind}, not boolean or timestamp");
                Err(Trouble::wrong(problem, "mark rows in a column of type boolean or timestamptz"))
            }
        }
    }

    /// How many bytes a payload has, without reading it where that is possible.
    fn size(&self, columns: &Columns) -> String {
        let payload = columns.payload.sql();
        let plain = [Type::TEXT, Type::VARCHAR, Type::BYTEA].contains(&self.payload);
        let size = if plain {
            format!("octet_length({payload})")
        } else {
            format!("octet_length({payload}::text)")
        };
        match &columns.payload_bytes {
            Some(bytes) => format!("coalesce({size}, octet_length({}), 0)", bytes.sql()),
            None => format!("coalesce({size}, 0)"),
        }
    }

    /// What is selected of a row behind its number.
    fn select(&self, columns: &Columns) -> Result<Vec<String>, Trouble> {
        let text = |column: &Column| format!("{}::text", column.sql());
        let maybe = |column: &Option<Column>| column.as_ref().map_or("NULL::text".to_owned(), text);
        let payload = match self.payload == Type::BYTEA {
            true => columns.payload.sql(),
            false => text(&columns.payload),
        };
        Ok(vec![
            text(&columns.id),
            maybe(&columns.tenant),
            text(&columns.event_type),
            maybe(&columns.key),
            payload,
            columns.payload_bytes.as_ref().map_or("NULL::bytea".to_owned(), Column::sql),
            maybe(&columns.content_type),
            maybe(&columns.schema_version),
            self.select_time(columns)?,
            maybe(&columns.traceparent),
        ])
    }

    fn select_time(&self, columns: &Columns) -> Result<String, Trouble> {
        let (Some(time), Some(kind)) = (&columns.time, &self.time) else {
            return Ok("NULL::bigint".to_owned());
        };
        let time = time.sql();
        if is_number(kind) {
            return Ok(format!("{time}::bigint"));
        }
        if [Type::TIMESTAMPTZ, Type::TIMESTAMP, Type::DATE].contains(kind) {
            return Ok(format!("floor(extract(epoch FROM {time}) * 1000)::bigint"));
        }
        let problem =
            format!("columns.time has type {kind}, not a timestamp or a number of milliseconds");
        Err(Trouble::wrong(
            problem,
            "leave columns.time out, or make it a timestamp by an SQL expression",
        ))
    }
}

fn is_number(kind: &Type) -> bool {
    [Type::INT2, Type::INT4, Type::INT8].contains(kind)
}
