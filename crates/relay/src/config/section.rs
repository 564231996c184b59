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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Column, TemplatePart};

    const URL: &str = "postgres://a:sesame@b/c";

    fn check(url: &str, fields: &str) -> Result<SourceConfig, ConfigError> {
        let text = format!("name = \"shop\"\nurl = {url:?}\n{fields}");
        toml::from_str::<SourceSection>(&text)
            .unwrap_or_else(|error| panic!("{fields}: {error}"))
            .check()
    }

    #[test]
    fn a_short_section_has_defaults() {
        let config = check(URL, "tenant = \"acme\"").unwrap();
        assert_eq!((config.mode, config.after, config.batch), (Mode::Poll, After::Delete, 500));
        assert_eq!(config.poll_interval, (Span::from_millis(5), Span::from_millis(100)));
        assert_eq!(
            (config.slot.as_str(), config.table.sql().as_str()),
            ("railpost_shop", "\"railpost_outbox\"")
        );
        assert!(!format!("{config:?}").contains("sesame"));
        let config =
            check(URL, "tenant = \"acme\"\nshape = \"debezium\"\npoll_interval = \"1s\"").unwrap();
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        let column = |name: &str| TemplatePart::Column(name.to_owned());
        let key = vec![column("aggregatetype"), text(":"), column("aggregateid")];
        assert_eq!(config.columns.key, Some(Column::Template(key)));
        assert_eq!(config.poll_interval, (Span::from_secs(1), Span::from_secs(1)));
        assert_eq!(config.table.to_string(), "outboxevent");
    }

    #[test]
    fn a_column_is_a_name_a_template_or_an_expression() {
        let fields = |key: &str| {
            format!(
                "tenant = \"acme\"\nshape = \"custom\"\ntable = \"Shop.events\"\n\
                 columns = {{ id = \"id\", type = \"kind\", payload = \"body\", order = \"n\", key = \"{key}\" }}"
            )
        };
        for (written, sql) in [
            ("Order", "\"Order\""),
            ("{a}", "(CAST(\"a\" AS text))"),
            ("x-{a}/{b}", "('x-' || CAST(\"a\" AS text) || '/' || CAST(\"b\" AS text))"),
            ("body #>> '{a,b}'", "(body #>> '{a,b}')"),
            ("a || b", "(a || b)"),
        ] {
            let config = check(URL, &fields(written)).unwrap();
            assert_eq!(config.columns.key.unwrap().sql(), sql);
        }
        assert_eq!(check(URL, &fields("a")).unwrap().table.sql(), "\"Shop\".\"events\"");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        let (tenant, sqlite) = ("tenant = \"acme\"", "sqlite:/a.db");
        let custom = "shape = \"custom\"\ntable = \"t\"\n\
                      columns = { id = \"a\", type = \"b\", payload = \"c\", order = \"d\" ";
        for (url, fields, field) in [
            ("mysql://a", tenant.to_owned(), "url"),
            ("postgres://a@b:port/c", tenant.to_owned(), "url"),
            ("sqlite:", tenant.to_owned(), "url"),
            (URL, "tenant = \"Acme!\"".to_owned(), "tenant"),
            (URL, format!("{custom} }}"), "tenant"),
            (URL, format!("{tenant}\n{custom}, tenant = \"e\" }}"), "columns.tenant"),
            (URL, format!("{tenant}\nbatch = 0"), "batch"),
            (URL, format!("{tenant}\nbatch = 1001"), "batch"),
            (URL, format!("{tenant}\npoll_interval = \"100ms..5ms\""), "poll_interval"),
            (URL, format!("{tenant}\npoll_interval = \"0ms..5ms\""), "poll_interval"),
            (URL, format!("{tenant}\npoll_interval = \"soon\""), "poll_interval"),
            (URL, format!("{tenant}\ntable = \"a b\""), "table"),
            (URL, format!("{tenant}\ntable = \"a.b.c\""), "table"),
            (URL, format!("{tenant}\nshape = \"custom\""), "columns.id"),
            (URL, format!("{tenant}\ncolumns = {{ id = \"a\" }}"), "columns.id"),
            (URL, format!("{tenant}\nafter = \"mark\""), "after"),
            (URL, format!("{tenant}\nafter = \"mark\"\n{custom} }}"), "columns.done"),
            (URL, format!("{tenant}\n{custom}, done = \"e\" }}"), "columns.done"),
            (URL, format!("{tenant}\n{custom}, key = \" \" }}"), "columns.key"),
            (
                URL,
                format!("{tenant}\nmode = \"tail\"\n{custom}, key = \"a || b\" }}"),
                "columns.key",
            ),
            (URL, format!("{tenant}\nmode = \"tail\"\nwake = \"notify\""), "wake"),
            (URL, format!("{tenant}\nmode = \"tail\"\norder = \"commit\""), "order"),
            (URL, format!("{tenant}\nmode = \"tail\"\nslot = \"My-slot\""), "slot"),
            (URL, format!("{tenant}\nslot = \"a\""), "slot"),
            (URL, format!("{tenant}\nmode = \"messages\"\ntable = \"a\""), "table"),
            (URL, format!("{tenant}\nmode = \"messages\"\nshape = \"debezium\""), "shape"),
            (sqlite, format!("{tenant}\nmode = \"tail\""), "mode"),
            (sqlite, format!("{tenant}\nafter = \"delete\""), "after"),
            (sqlite, format!("{tenant}\nwake = \"notify\""), "wake"),
            (sqlite, format!("{tenant}\norder = \"commit\""), "order"),
            (sqlite, format!("{tenant}\nroot_certificates = \"a.pem\""), "root_certificates"),
            ("store", "mode = \"tail\"".to_owned(), "mode"),
            ("store", "table = \"a\"".to_owned(), "table"),
        ] {
            let error = check(url, &fields).expect_err(&fields);
            assert_eq!(error.field, field, "{url} {fields}: {error}");
            assert!(error.problem.starts_with("expected"), "{error}");
            assert!(!error.to_string().contains("sesame"), "{error}");
        }
    }

    #[test]
    fn sources_have_names_and_slots_of_their_own() {
        let section = |name: &str, fields: &str| {
            let text = format!("name = {name:?}\nurl = {URL:?}\ntenant = \"acme\"\n{fields}");
            toml::from_str::<SourceSection>(&text).unwrap()
        };
        let failed = |sections: &[SourceSection]| check_all(sections).unwrap_err().field;
        assert_eq!(check_all(&[section("a", ""), section("b", "")]).unwrap().len(), 2);
        assert_eq!(failed(&[section("a", ""), section("a", "")]), "outbox[1].name");
        assert_eq!(failed(&[section("a", ""), section("A", "")]), "outbox[1].name");
        let tail = "mode = \"tail\"\nslot = \"one\"";
        assert_eq!(failed(&[section("a", tail), section("b", tail)]), "outbox[1].slot");
        assert_eq!(failed(&vec![section("a", ""); SOURCES_MAX + 1]), "outbox");
    }

    #[test]
    fn an_unknown_field_or_choice_is_refused() {
        for fields in ["colour = \"red\"", "mode = \"push\"", "columns = { colour = \"red\" }"] {
            let text = format!("name = \"a\"\nurl = {URL:?}\n{fields}");
            assert!(toml::from_str::<SourceSection>(&text).is_err(), "{fields}");
        }
    }
}
