//! A section `[[outbox]]`, and how it is checked.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use railpost_engine::Span;
use railpost_store::SourceName;
use railpost_wire::TenantId;
use serde::{Deserialize, Serialize};

use super::columns::{Needs, is_identifier};
use super::{
    After, ColumnsSection, ConfigError, Location, Mode, OnRefused, Order, Shape, SourceConfig,
    TableName, Wake,
};
use crate::limits::{
    BATCH_DEFAULT, BATCH_MAX, IDENTIFIER_LEN_MAX, POLL_INTERVAL_DEFAULT, POLL_INTERVAL_MAX,
    POLL_INTERVAL_MIN, SOURCES_MAX,
};

/// A section `[[outbox]]`, as it is written.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSection {
    /// The source's name: part of event ids that are numbers, a metric's label, the lock's name.
    pub name: String,
    /// `postgres://…`, `store` or `sqlite:/path`.
    pub url: String,
    /// A file with the certificates that the server's is verified by, in PEM.
    #[serde(default)]
    pub root_certificates: Option<PathBuf>,
    /// How it is read.
    #[serde(default)]
    pub mode: Mode,
    /// Whose events they are.
    #[serde(default)]
    pub tenant: Option<String>,
    /// What rows look like.
    #[serde(default)]
    pub shape: Shape,
    /// The table, with or without its schema.
    #[serde(default)]
    pub table: Option<String>,
    /// Where each part of an event stands in a row.
    #[serde(default, skip_serializing_if = "ColumnsSection::is_empty")]
    pub columns: ColumnsSection,
    /// What becomes of a row that was taken.
    #[serde(default)]
    pub after: Option<After>,
    /// What makes the relay look.
    #[serde(default)]
    pub wake: Wake,
    /// `5ms..100ms`: the shortest and the longest time between two looks.
    #[serde(default)]
    pub poll_interval: Option<String>,
    /// Most rows that are handed over together.
    #[serde(default)]
    pub batch: Option<i64>,
    /// In which order rows are taken.
    #[serde(default)]
    pub order: Order,
    /// What becomes of a row that is refused.
    #[serde(default)]
    pub on_refused: OnRefused,
    /// The replication slot and the publication.
    #[serde(default)]
    pub slot: Option<String>,
    /// Whether the slot survives a failover of the source.
    #[serde(default)]
    pub failover: Option<bool>,
}

impl fmt::Debug for SourceSection {
    /// Without the URL, which may have a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSection").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Checks all sections. An error names the section by its place.
pub fn check_all(sections: &[SourceSection]) -> Result<Vec<SourceConfig>, ConfigError> {
    if sections.len() > SOURCES_MAX {
        let problem = format!("expected at most {SOURCES_MAX} sources; got {}", sections.len());
        return Err(ConfigError::new("outbox", problem));
    }
    let (mut names, mut slots, mut checked) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for (index, section) in sections.iter().enumerate() {
        let of_section = |error: ConfigError| {
            ConfigError::new(format!("outbox[{index}].{}", error.field), error.problem)
        };
        let source = section.check().map_err(of_section)?;
        if !names.insert(source.name.clone()) {
            let problem = format!("expected a name of its own; `{}` stands twice", source.name);
            return Err(of_section(ConfigError::new("name", problem)));
        }
        if source.mode != Mode::Poll && !slots.insert(source.slot.clone()) {
            let problem = format!("expected a slot of its own; `{}` stands twice", source.slot);
            return Err(of_section(ConfigError::new("slot", problem)));
        }
        checked.push(source);
    }
    Ok(checked)
}

impl SourceSection {
    /// Checks the section.
    pub fn check(&self) -> Result<SourceConfig, ConfigError> {
        let name: SourceName = self.name.parse().map_err(|_| {
            let expected = "expected 1 to 32 characters: a lowercase letter or digit, then lowercase letters, digits, \
                            `_` and `-`";
            ConfigError::new("name", format!("{expected}; got {:?}", self.name))
        })?;
        let location = self.location()?;
        self.check_combination(&location)?;
        let tenant = self.tenant.as_deref().map(str::parse::<TenantId>).transpose();
        let tenant = tenant.map_err(|error| ConfigError::new("tenant", error.to_string()))?;
        let after = self.after.unwrap_or_default();
        let sqlite = matches!(location, Location::Sqlite(_));
        let needs = Needs {
            shape: self.shape,
            mode: self.mode,
            after,
            has_tenant: tenant.is_some(),
            sqlite,
        };
        Ok(SourceConfig {
            columns: self.columns.check(&needs)?,
            location,
            mode: self.mode,
            tenant,
            shape: self.shape,
            table: self.table()?,
            after,
            wake: self.wake,
            poll_interval: self.poll_interval()?,
            batch: self.batch()?,
            order: self.order,
            on_refused: self.on_refused,
            slot: self.slot(&name)?,
            failover: self.failover.unwrap_or(true),
            name,
        })
    }

    fn location(&self) -> Result<Location, ConfigError> {
        if self.url == "store" {
            return Ok(Location::Store);
        }
        if let Some(path) = self.url.strip_prefix("sqlite:") {
            if path.is_empty() {
                return Err(ConfigError::new("url", "expected a path behind `sqlite:`"));
            }
            return Ok(Location::Sqlite(path.into()));
        }
        if self.url.starts_with("postgres://") || self.url.starts_with("postgresql://") {
            // The driver's words name no password.
            self.url.parse::<tokio_postgres::Config>().map_err(|error| {
                ConfigError::new(
                    "url",
                    format!("expected postgres://user:password@host:port/database: {error}"),
                )
            })?;
            let root_certificates = self.root_certificates.clone();
            return Ok(Location::Postgres { url: self.url.clone(), root_certificates });
        }
        Err(ConfigError::new("url", "expected `postgres://…`, `store` or `sqlite:/path`"))
    }

    /// What does not go together.
    fn check_combination(&self, location: &Location) -> Result<(), ConfigError> {
        let refuse = |wrong: bool, field: &str, problem: &str| {
            if wrong { Err(ConfigError::new(field, problem)) } else { Ok(()) }
        };
        let (sqlite, store) =
            (matches!(location, Location::Sqlite(_)), *location == Location::Store);
        let polled = self.mode == Mode::Poll;
        let only_postgres = self.root_certificates.is_some() && (sqlite || store);
        refuse(
            only_postgres,
            "root_certificates",
            "expected nothing: only a `postgres://` URL has them",
        )?;
        refuse(!polled && sqlite, "mode", "expected \"poll\": SQLite has no log to follow")?;
        refuse(!polled && store, "mode", "expected \"poll\" for url = \"store\"")?;
        let own = self.shape == Shape::Railpost && self.table.is_none();
        refuse(
            store && !own,
            "table",
            "expected nothing: the store has a table of its own, of shape `railpost`",
        )?;
        refuse(
            sqlite && self.after.is_some(),
            "after",
            "expected nothing: a SQLite file is only read",
        )?;
        refuse(
            sqlite && self.shape == Shape::Debezium,
            "shape",
            "expected \"railpost\" or \"custom\" for SQLite",
        )?;
        let notify = self.wake == Wake::Notify;
        refuse(notify && sqlite, "wake", "expected \"poll\": SQLite has no notifications")?;
        refuse(notify && !polled, "wake", "expected \"poll\": a log needs no notifications")?;
        let commit = self.order == Order::Commit;
        refuse(
            commit && sqlite,
            "order",
            "expected \"insert\": in SQLite it is the order of commits",
        )?;
        refuse(
            commit && !polled,
            "order",
            "expected \"insert\": a log is in the order of commits anyway",
        )?;
        refuse(
            polled && self.slot.is_some(),
            "slot",
            "expected nothing, or mode = \"tail\" or \"messages\"",
        )?;
        let messages = self.mode == Mode::Messages;
        refuse(
            messages && self.table.is_some(),
            "table",
            "expected nothing: messages have no table",
        )?;
        let own_shape = self.shape == Shape::Railpost;
        refuse(
            messages && !own_shape,
            "shape",
            "expected \"railpost\": a message is JSON of that shape",
        )
    }

    fn table(&self) -> Result<TableName, ConfigError> {
        let default = match self.shape {
            Shape::Debezium => "outboxevent",
            Shape::Railpost | Shape::Custom => "railpost_outbox",
        };
        let text = match (&self.table, self.shape) {
            (Some(text), _) => text.as_str(),
            (None, Shape::Custom) => {
                return Err(ConfigError::new(
                    "table",
                    "expected a table: shape `custom` has no default for it",
                ));
            }
            (None, _) => default,
        };
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        if !is_identifier(name) || !schema.is_none_or(is_identifier) {
            let problem = format!(
                "expected a table such as `railpost_outbox` or `shop.outbox`: letters, digits, `_` and `$`, at most \
                 {IDENTIFIER_LEN_MAX} bytes each; got {text:?}"
            );
            return Err(ConfigError::new("table", problem));
        }
        Ok(TableName { schema: schema.map(str::to_owned), name: name.to_owned() })
    }

    fn poll_interval(&self) -> Result<(Span, Span), ConfigError> {
        let Some(text) = &self.poll_interval else { return Ok(POLL_INTERVAL_DEFAULT) };
        let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
        let read = |part: &str| part.trim().parse::<Span>().ok();
        let in_bounds = |span: &Span| (POLL_INTERVAL_MIN..=POLL_INTERVAL_MAX).contains(span);
        match (read(shortest).filter(in_bounds), read(longest).filter(in_bounds)) {
            (Some(shortest), Some(longest)) if shortest <= longest => Ok((shortest, longest)),
            _ => {
                let problem = format!(
                    "expected the shortest and the longest time such as `5ms..100ms`, from {POLL_INTERVAL_MIN} to \
                     {POLL_INTERVAL_MAX}; got {text:?}"
                );
                Err(ConfigError::new("poll_interval", problem))
            }
        }
    }

    fn batch(&self) -> Result<usize, ConfigError> {
        let Some(batch) = self.batch else { return Ok(BATCH_DEFAULT) };
        let batch_fits =
            usize::try_from(batch).ok().filter(|batch| (1..=BATCH_MAX).contains(batch));
        batch_fits.ok_or_else(|| {
            ConfigError::new("batch", format!("expected 1 to {BATCH_MAX} rows; got {batch}"))
        })
    }

    /// A slot's name has lowercase letters, digits and `_`.
    fn slot(&self, name: &SourceName) -> Result<String, ConfigError> {
        let Some(slot) = &self.slot else {
            return Ok(format!("railpost_{}", name.as_str().replace('-', "_")));
        };
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        if !slot.is_empty() && slot.len() <= IDENTIFIER_LEN_MAX && slot.bytes().all(allowed) {
            return Ok(slot.clone());
        }
        let problem = format!(
            "expected 1 to {IDENTIFIER_LEN_MAX} lowercase letters, digits and `_`; got {slot:?}"
        );
        Err(ConfigError::new("slot", problem))
    }
}
