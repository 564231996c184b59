//! Where each part of an event stands in a row: a column, a template of columns, or an SQL expression.

use serde::{Deserialize, Serialize};

use super::{After, ConfigError, Mode, Shape, quote};
use crate::limits::{EXPRESSION_LEN_MAX, IDENTIFIER_LEN_MAX};

/// `columns` of a section, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColumnsSection {
    /// The event's id.
    pub id: Option<String>,
    /// Whose event it is.
    pub tenant: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    pub event_type: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The event's payload.
    pub payload: Option<String>,
    /// The number that the database gave the row.
    pub order: Option<String>,
    /// The transaction that inserted the row, as `xid8`: it tells where a scan may begin.
    pub xid: Option<String>,
    /// When it happened.
    pub time: Option<String>,
    /// What kind of bytes the payload has.
    pub content_type: Option<String>,
    /// The version of the type's schema.
    pub schema_version: Option<String>,
    /// The trace it belongs to.
    pub traceparent: Option<String>,
    /// What is set when the row was taken.
    pub done: Option<String>,
}

impl ColumnsSection {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where each part of an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The event's id.
    pub id: Column,
    /// Whose event it is.
    pub tenant: Option<Column>,
    /// The event's type.
    pub event_type: Column,
    /// Its key.
    pub key: Option<Column>,
    /// The event's payload.
    pub payload: Column,
    /// The payload, where it is not text.
    pub payload_bytes: Option<Column>,
    /// The number that the database gave the row. A source that is polled has it.
    pub order: Option<Column>,
    /// The transaction that inserted the row.
    pub xid: Option<Column>,
    /// When it happened.
    pub time: Option<Column>,
    /// What kind of bytes the payload has.
    pub content_type: Option<Column>,
    /// The version of the type's schema.
    pub schema_version: Option<Column>,
    /// The trace it belongs to.
    pub traceparent: Option<Column>,
    /// What is set when the row was taken.
    pub done: Option<Column>,
}

/// Where a part of an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// In a column.
    Name(String),
    /// In several columns, with text between them: `{aggregatetype}:{aggregateid}`. Nothing if one of
    /// them is null.
    Template(Vec<TemplatePart>),
    /// In what an SQL expression makes of the row.
    Expression(String),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it is.
    Text(String),
    /// What a column holds.
    Column(String),
}

impl Column {
    fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }

    /// Reads a column, a template, or else an expression.
    fn parse(field: &str, text: &str) -> Result<Self, ConfigError> {
        let refuse = |problem: String| Err(ConfigError::new(format!("columns.{field}"), problem));
        if is_identifier(text) {
            return Ok(Self::name(text));
        }
        if let Some(parts) = parse_template(text) {
            return Ok(Self::Template(parts));
        }
        if text.trim().is_empty() || text.len() > EXPRESSION_LEN_MAX || text.contains('\0') {
            return refuse(format!(
                "expected a column, a template such as `{{kind}}:{{id}}`, or an SQL expression of at most \
                 {EXPRESSION_LEN_MAX} bytes; got {} bytes",
                text.len()
            ));
        }
        Ok(Self::Expression(text.to_owned()))
    }

    /// The part as SQL has it.
    pub fn sql(&self) -> String {
        match self {
            Self::Name(name) => quote(name),
            Self::Expression(text) => format!("({text})"),
            Self::Template(parts) => {
                let parts = parts.iter().map(|part| match part {
                    TemplatePart::Text(text) => format!("'{text}'"),
                    TemplatePart::Column(name) => format!("CAST({} AS text)", quote(name)),
                });
                format!("({})", parts.collect::<Vec<_>>().join(" || "))
            }
        }
    }
}

/// A name that SQL would take without quotes, if its letters were lowercase.
pub(crate) fn is_identifier(text: &str) -> bool {
    let first = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    text.bytes().next().is_some_and(first)
        && text.bytes().all(|c| first(c) || c.is_ascii_digit() || c == b'$')
        && text.len() <= IDENTIFIER_LEN_MAX
}

/// Reads a template: columns in braces, and between them letters, digits and `_ - : . /`. SQL that has
/// braces has quotes or brackets too.
fn parse_template(text: &str) -> Option<Vec<TemplatePart>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.' | '/');
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        if !before.chars().all(plain) || !is_identifier(name) {
            return None;
        }
        if !before.is_empty() {
            parts.push(TemplatePart::Text(before.to_owned()));
        }
        parts.push(TemplatePart::Column(name.to_owned()));
        rest = behind;
    }
    if parts.is_empty() || !rest.chars().all(plain) {
        return None;
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Text(rest.to_owned()));
    }
    Some(parts)
}

/// What decides which columns are needed.
pub(super) struct Needs {
    pub(super) shape: Shape,
    pub(super) mode: Mode,
    pub(super) after: After,
    /// Whether the configuration names the tenant.
    pub(super) has_tenant: bool,
    pub(super) sqlite: bool,
}

impl ColumnsSection {
    pub(super) fn check(&self, needs: &Needs) -> Result<Columns, ConfigError> {
        if needs.shape == Shape::Railpost {
            return self.check_own(needs);
        }
        let read = |field: &str, written: &Option<String>, default: Option<&str>| {
            let text = written.as_deref().or(default);
            text.map(|text| Column::parse(field, text)).transpose()
        };
        let debezium = |text: &'static str| (needs.shape == Shape::Debezium).then_some(text);
        let need = |field: &str, column: Option<Column>, why: &str| {
            column.ok_or_else(|| {
                ConfigError::new(format!("columns.{field}"), format!("expected a column: {why}"))
            })
        };
        let shape = "shape `custom` has no default for it";
        let columns = Columns {
            id: need("id", read("id", &self.id, debezium("id"))?, shape)?,
            tenant: read("tenant", &self.tenant, None)?,
            event_type: need("type", read("type", &self.event_type, debezium("type"))?, shape)?,
            key: read("key", &self.key, debezium("{aggregatetype}:{aggregateid}"))?,
            payload: need("payload", read("payload", &self.payload, debezium("payload"))?, shape)?,
            payload_bytes: None,
            order: read("order", &self.order, debezium("seq"))?,
            xid: read("xid", &self.xid, None)?,
            time: read("time", &self.time, None)?,
            content_type: read("content_type", &self.content_type, None)?,
            schema_version: read("schema_version", &self.schema_version, None)?,
            traceparent: read("traceparent", &self.traceparent, None)?,
            done: read("done", &self.done, None)?,
        };
        if needs.mode == Mode::Poll {
            need(
                "order",
                columns.order.clone(),
                "polling takes rows by a number that the database gave",
            )?;
        }
        check_done(&columns, needs)?;
        check_tenant(&columns, needs)?;
        check_tail(&columns, needs)?;
        Ok(columns)
    }

    /// The columns of our own table are what they are.
    fn check_own(&self, needs: &Needs) -> Result<Columns, ConfigError> {
        let written = [
            ("id", &self.id),
            ("tenant", &self.tenant),
            ("type", &self.event_type),
            ("key", &self.key),
            ("payload", &self.payload),
            ("order", &self.order),
            ("xid", &self.xid),
            ("time", &self.time),
            ("content_type", &self.content_type),
            ("schema_version", &self.schema_version),
            ("traceparent", &self.traceparent),
            ("done", &self.done),
        ];
        if let Some((field, _)) = written.iter().find(|(_, column)| column.is_some()) {
            let problem =
                "expected nothing: shape `railpost` has columns of its own; use shape = \"custom\"";
            return Err(ConfigError::new(format!("columns.{field}"), problem));
        }
        if needs.after == After::Mark && !needs.sqlite {
            let problem =
                "expected \"delete\": the table of shape `railpost` has no column to mark rows in";
            return Err(ConfigError::new("after", problem));
        }
        let column = |name| Some(Column::name(name));
        Ok(Columns {
            id: Column::name("id"),
            tenant: column("tenant"),
            event_type: Column::name("type"),
            key: column("key"),
            payload: Column::name("payload"),
            payload_bytes: column("payload_bytes").filter(|_| !needs.sqlite),
            order: column("seq"),
            xid: column("xid").filter(|_| !needs.sqlite),
            time: column("time"),
            content_type: column("content_type"),
            schema_version: column("schema_version"),
            traceparent: column("traceparent"),
            done: None,
        })
    }
}

fn check_done(columns: &Columns, needs: &Needs) -> Result<(), ConfigError> {
    match (&columns.done, needs.after) {
        (None, After::Mark) => {
            let problem =
                "expected a column of type boolean or timestamp: after = \"mark\" sets it";
            Err(ConfigError::new("columns.done", problem))
        }
        (Some(Column::Name(_)), After::Mark) | (None, After::Delete) => Ok(()),
        (Some(_), After::Mark) => {
            Err(ConfigError::new("columns.done", "expected the name of a column: it is written"))
        }
        (Some(_), After::Delete) => {
            Err(ConfigError::new("columns.done", "expected nothing, or after = \"mark\""))
        }
    }
}

fn check_tenant(columns: &Columns, needs: &Needs) -> Result<(), ConfigError> {
    match (&columns.tenant, needs.has_tenant) {
        (None, false) => {
            let problem = "expected the id of the tenant whose events these are, or columns.tenant";
            Err(ConfigError::new("tenant", problem))
        }
        (Some(_), true) => {
            let problem = "expected nothing: `tenant` says already whose events these are";
            Err(ConfigError::new("columns.tenant", problem))
        }
        _ => Ok(()),
    }
}

/// What comes from the log is not evaluated by the database.
fn check_tail(columns: &Columns, needs: &Needs) -> Result<(), ConfigError> {
    if needs.mode == Mode::Poll {
        return Ok(());
    }
    let optional = [
        ("tenant", &columns.tenant),
        ("key", &columns.key),
        ("time", &columns.time),
        ("content_type", &columns.content_type),
        ("schema_version", &columns.schema_version),
        ("traceparent", &columns.traceparent),
    ];
    let needed =
        [("id", &columns.id), ("type", &columns.event_type), ("payload", &columns.payload)];
    let optional =
        optional.into_iter().filter_map(|(field, column)| Some((field, column.as_ref()?)));
    match needed
        .into_iter()
        .chain(optional)
        .find(|(_, column)| matches!(column, Column::Expression(_)))
    {
        None => Ok(()),
        Some((field, _)) => {
            let problem = "expected a column or a template: a log has no SQL expressions; use mode = \"poll\"";
            Err(ConfigError::new(format!("columns.{field}"), problem))
        }
    }
}
