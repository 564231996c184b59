//! Rows of a log: what an insert or a message holds, by the names of its columns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use railpost_replication::pgoutput::{Insert, LogicalMessage, Relation, Value};
use railpost_store::SourceFields;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config::{Column, Columns, SourceConfig, TemplatePart};
use crate::row::SourceRow;
use crate::trouble::Trouble;

/// The prefix of messages that are events.
pub(crate) const MESSAGE_PREFIX: &str = "railpost";

/// Numbers of PostgreSQL's types. Stable.
const BYTEA: u32 = 17;
const NUMBERS: [u32; 3] = [20, 21, 23];
const TIMESTAMP: u32 = 1114;

/// Where each part of an event stands in a table's inserts. It is made again whenever the table changed.
#[derive(Debug)]
pub(crate) struct LogMapping {
    relation: Relation,
    columns: Columns,
    /// The column that names a row at its source.
    key: Column,
    source: String,
}

/// A column that the mapping names and the log does not have.
#[derive(Debug)]
pub(crate) struct MissingColumn(pub(crate) String);

impl MissingColumn {
    pub(crate) fn trouble(&self, config: &SourceConfig) -> Trouble {
        let problem = format!("table {} has no column \"{}\" in the log", config.table, self.0);
        Trouble::wrong(
            problem,
            "name the columns that the table has in `columns`, or add the column again",
        )
    }
}

/// A row of a log, and what names it in its table.
pub(crate) struct LogRow {
    pub(crate) row: SourceRow,
    pub(crate) key: Option<String>,
}

impl LogMapping {
    /// Refuses a table that lacked a column which the mapping names when the log was written.
    pub(crate) fn of(
        relation: Relation,
        config: &SourceConfig,
        key: &Column,
    ) -> Result<Self, MissingColumn> {
        let (columns, key) = (config.columns.clone(), key.clone());
        let mapping = Self { relation, columns, key, source: config.name.to_string() };
        let columns = &mapping.columns;
        let needed = [
            Some(&columns.id),
            Some(&columns.event_type),
            Some(&columns.payload),
            Some(&mapping.key),
        ];
        let optional = [
            &columns.tenant,
            &columns.key,
            &columns.payload_bytes,
            &columns.time,
            &columns.content_type,
            &columns.schema_version,
            &columns.traceparent,
        ];
        for column in needed.into_iter().chain(optional.into_iter().map(Option::as_ref)).flatten() {
            for name in names(column) {
                if mapping.index(name).is_none() {
                    return Err(MissingColumn(name.to_owned()));
                }
            }
        }
        Ok(mapping)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.relation.columns.iter().position(|column| column.name == name)
    }

    /// Reads an insert.
    pub(crate) fn read(&self, insert: &Insert) -> LogRow {
        let columns = &self.columns;
        let maybe =
            |column: &Option<Column>| column.as_ref().and_then(|column| self.text(insert, column));
        let id = self.text(insert, &columns.id).map(|id| match self.kind(&columns.id) {
            Some(kind) if NUMBERS.contains(&kind) => format!("{}:{id}", self.source),
            _ => id,
        });
        let payload_bytes =
            columns.payload_bytes.as_ref().and_then(|column| self.bytes(insert, column));
        let fields = SourceFields {
            id,
            tenant: maybe(&columns.tenant),
            event_type: self.text(insert, &columns.event_type),
            key: maybe(&columns.key),
            content_type: maybe(&columns.content_type),
            schema_version: maybe(&columns.schema_version)
                .map(|version| version.parse().unwrap_or(-1)),
            time: columns.time.as_ref().and_then(|column| self.time(insert, column)),
            traceparent: maybe(&columns.traceparent),
        };
        let payload = self.bytes(insert, &columns.payload).or(payload_bytes);
        let row = SourceRow { fields, payload, ..SourceRow::default() };
        LogRow { row, key: self.text(insert, &self.key) }
    }

    /// The type of a plain column.
    fn kind(&self, column: &Column) -> Option<u32> {
        let Column::Name(name) = column else { return None };
        Some(self.relation.columns[self.index(name)?].type_oid)
    }

    fn value<'i>(&self, insert: &'i Insert, name: &str) -> Option<&'i Bytes> {
        match insert.values.get(self.index(name)?)? {
            Value::Text(bytes) => Some(bytes),
            Value::Null | Value::Unchanged | Value::Binary(_) => None,
        }
    }

    fn text(&self, insert: &Insert, column: &Column) -> Option<String> {
        let text =
            |name: &str| Some(String::from_utf8_lossy(self.value(insert, name)?).into_owned());
        match column {
            Column::Name(name) => text(name),
            Column::Template(parts) => parts
                .iter()
                .map(|part| match part {
                    TemplatePart::Text(text) => Some(text.clone()),
                    TemplatePart::Column(name) => text(name),
                })
                .collect(),
            Column::Expression(_) => unreachable!("a tailed source has no expressions"),
        }
    }

    fn bytes(&self, insert: &Insert, column: &Column) -> Option<Bytes> {
        if self.kind(column) != Some(BYTEA) {
            let Column::Name(name) = column else {
                return self.text(insert, column).map(Bytes::from);
            };
            return self.value(insert, name).cloned();
        }
        let Column::Name(name) = column else { return None };
        self.value(insert, name).and_then(|text| hex(text))
    }

    /// Milliseconds since 1970. What is no time is -1, which is refused.
    fn time(&self, insert: &Insert, column: &Column) -> Option<i64> {
        let text = self.text(insert, column)?;
        let kind = self.kind(column);
        let millis = match kind {
            Some(kind) if NUMBERS.contains(&kind) => text.parse().ok(),
            _ => timestamp(&text, kind == Some(TIMESTAMP)),
        };
        Some(millis.unwrap_or(-1))
    }
}

/// The columns that a part of an event is made of.
fn names(column: &Column) -> Vec<&str> {
    match column {
        Column::Name(name) => vec![name],
        Column::Expression(_) => Vec::new(),
        Column::Template(parts) => {
            let names = parts.iter().filter_map(|part| match part {
                TemplatePart::Column(name) => Some(name.as_str()),
                TemplatePart::Text(_) => None,
            });
            names.collect()
        }
    }
}

/// Bytes as PostgreSQL writes them: `\x00ff`.
fn hex(text: &[u8]) -> Option<Bytes> {
    let digits = text.strip_prefix(b"\\x")?;
    let digit = |c: u8| (c as char).to_digit(16).map(|digit| digit as u8);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}

/// A timestamp as PostgreSQL writes it, such as `2026-01-31 12:00:00.5+01`, in milliseconds since 1970.
/// One without a zone is in UTC.
fn timestamp(text: &str, without_zone: bool) -> Option<i64> {
    let mut text = text.replacen(' ', "T", 1);
    if without_zone {
        text.push('Z');
    } else if text.len() > 3 && matches!(text.as_bytes()[text.len() - 3], b'+' | b'-') {
        text.push_str(":00");
    }
    let time = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// What a message holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default, rename = "type")]
    event_type: Option<String>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
    #[serde(default)]
    payload_base64: Option<String>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(default)]
    schema_version: Option<i64>,
    #[serde(default)]
    time: Option<String>,
    #[serde(default)]
    traceparent: Option<String>,
}

/// Reads a message. One that names no id has its place in the log; one that is not as it has to be is a
/// row without a type, which is refused, and its payload is all that it held.
pub(crate) fn read_message(message: &LogicalMessage, source: &str) -> SourceRow {
    let place = format!("{source}:{}", message.lsn.to_string().replace('/', "-"));
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(&message.content) else {
        let fields = SourceFields { id: Some(place), ..SourceFields::default() };
        let payload = Some(message.content.clone());
        return SourceRow { fields, payload, ..SourceRow::default() };
    };
    let payload = match (envelope.payload, &envelope.payload_base64) {
        (Some(json), None) => Some(Bytes::copy_from_slice(json.get().as_bytes())),
        (None, Some(text)) => STANDARD.decode(text).ok().map(Bytes::from),
        _ => None,
    };
    let fields = SourceFields {
        id: envelope.id.or(Some(place)),
        tenant: envelope.tenant,
        event_type: envelope.event_type,
        key: envelope.key,
        content_type: envelope.content_type,
        schema_version: envelope.schema_version,
        time: envelope.time.map(|time| timestamp(&time, false).unwrap_or(-1)),
        traceparent: envelope.traceparent,
    };
    SourceRow { fields, payload, ..SourceRow::default() }
}

#[cfg(test)]
mod tests {
    use railpost_replication::Lsn;

    use super::*;

    #[test]
    fn a_timestamp_is_read_as_postgresql_writes_it() {
        for (text, without_zone, millis) in [
            ("1970-01-01 00:00:01+00", false, Some(1_000)),
            ("1970-01-01 01:00:00.0015+01", false, Some(1)),
            ("1970-01-01 05:30:00+05:30", false, Some(0)),
            ("1969-12-31 21:00:00-03", false, Some(0)),
            ("1970-01-01 00:00:00.25", true, Some(250)),
            ("1970-01-01T00:00:00Z", false, Some(0)),
            ("infinity", false, None),
            ("01/02/1970", false, None),
        ] {
            assert_eq!(timestamp(text, without_zone), millis, "{text}");
        }
    }

    #[test]
    fn bytes_are_read_as_postgresql_writes_them() {
        assert_eq!(hex(b"\\x00fF").as_deref(), Some(&[0, 255][..]));
        assert_eq!(hex(b"\\x").as_deref(), Some(&[][..]));
        for text in [&b"00"[..], b"\\x0", b"\\x0g"] {
            assert_eq!(hex(text), None);
        }
    }

    fn message(content: &str) -> LogicalMessage {
        let (prefix, content) = (MESSAGE_PREFIX.to_owned(), Bytes::from(content.to_owned()));
        LogicalMessage { transactional: true, lsn: Lsn::from_u64(1 << 32 | 10), prefix, content }
    }

    #[test]
    fn a_message_is_a_row_and_names_itself_by_its_place_if_it_names_no_id() {
        let row = read_message(
            &message(r#"{"type":"a","payload":{"b": 1},"time":"1970-01-01T00:00:01Z"}"#),
            "shop",
        );
        assert_eq!(row.fields.id.as_deref(), Some("shop:1-A"));
        assert_eq!(
            (row.fields.time, row.payload.as_deref()),
            (Some(1_000), Some(&b"{\"b\": 1}"[..]))
        );
        let row =
            read_message(&message(r#"{"id":"e","payload_base64":"AP8=","type":"a"}"#), "shop");
        assert_eq!(
            (row.fields.id.as_deref(), row.payload.as_deref()),
            (Some("e"), Some(&b"\x00\xff"[..]))
        );
        let row = read_message(&message("no JSON"), "shop");
        assert_eq!((row.fields.event_type, row.payload.as_deref()), (None, Some(&b"no JSON"[..])));
    }
}
