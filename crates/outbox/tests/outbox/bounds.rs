//! The tables' CHECKs take what `wire` takes and nothing else: each bound is tried at, below and above.

use crate::support::{PostgresOutbox, sqlite};
use railpost_outbox::{Event, EventBuilder, Parameters, sql};
use railpost_wire::limits::{
    CONTENT_TYPE_LEN_MAX, EVENT_TYPE_LEN_MAX, ID_LEN_MAX, KEY_LEN_MAX, PAYLOAD_LEN_MAX,
    TRACEPARENT_LEN_MAX,
};
use rusqlite::types::Value;
use std::time::{Duration, UNIX_EPOCH};
use tokio_postgres::{error::SqlState, types::ToSql};

const VALID: Parameters<'static> = Parameters {
    event_type: "a",
    payload: Some("{}"),
    key: None,
    id: None,
    tenant: None,
    content_type: "application/json",
    schema_version: None,
    unix_ms: None,
    traceparent: None,
    payload_bytes: None,
    strict: false,
};

/// A field of text: its rule in `Event`, its place in a row, the texts that it takes and those that it
/// refuses.
struct TextField {
    name: &'static str,
    event: fn(&str) -> EventBuilder,
    row: for<'a> fn(&'a str) -> Parameters<'a>,
    taken: Vec<String>,
    refused: Vec<String>,
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A text of that many `x`.
fn x(len: usize) -> String {
    "x".repeat(len)
}

fn event() -> EventBuilder {
    Event::new("a", "{}")
}

fn text_fields() -> Vec<TextField> {
    vec![
        TextField {
            name: "id",
            event: |id| event().id(id),
            row: |id| Parameters { id: Some(id), ..VALID },
            taken: [texts(&["a", "Aa0_-:", "evt_1"]), vec![x(ID_LEN_MAX - 1), x(ID_LEN_MAX)]]
                .concat(),
            refused: [
                texts(&["", "a.b", "a b", "é", "a\n", "\na", "[", "ａ"]),
                vec![x(ID_LEN_MAX + 1)],
            ]
            .concat(),
        },
        TextField {
            name: "tenant",
            event: |tenant| event().tenant(tenant),
            row: |tenant| Parameters { tenant: Some(tenant), ..VALID },
            taken: [texts(&["a", "0", "a_-0"]), vec![x(ID_LEN_MAX - 1), x(ID_LEN_MAX)]].concat(),
            refused: [texts(&["", "A", "_a", "-a", "a.b", "é", "a\n"]), vec![x(ID_LEN_MAX + 1)]]
                .concat(),
        },
        TextField {
            name: "type",
            event: |event_type| Event::new(event_type, "{}"),
            row: |event_type| Parameters { event_type, ..VALID },
            taken: [
                texts(&["a", "order.paid", "A-_0.b.C"]),
                vec![x(EVENT_TYPE_LEN_MAX - 1), x(EVENT_TYPE_LEN_MAX)],
            ]
            .concat(),
            refused: [
                texts(&["", ".", ".a", "a.", "a..b", "a b", "a/b", "é", "a\n", "a:b", "a.\n"]),
                vec![x(EVENT_TYPE_LEN_MAX + 1)],
            ]
            .concat(),
        },
        TextField {
            name: "key",
            event: |key| event().key(key),
            row: |key| Parameters { key: Some(key), ..VALID },
            taken: vec![
                x(1),
                "\n é".into(),
                x(KEY_LEN_MAX - 1),
                x(KEY_LEN_MAX),
                "é".repeat(KEY_LEN_MAX / 2),
            ],
            refused: vec![x(0), x(KEY_LEN_MAX + 1), "é".repeat(KEY_LEN_MAX / 2) + "x"],
        },
        TextField {
            name: "content_type",
            event: |content_type| event().content_type(content_type),
            row: |content_type| Parameters { content_type, ..VALID },
            taken: [
                texts(&[
                    "a/b",
                    "text/plain;",
                    "text/plain ; charset=utf-8",
                    "text/plain; a=\"/;~\"",
                    "!#$%&'*+.^_`|~0aA-/!#$%&'*+.^_`|~0aA-",
                    "text/plain  ",
                ]),
                vec![x(CONTENT_TYPE_LEN_MAX - 3) + "/b", x(CONTENT_TYPE_LEN_MAX - 2) + "/b"],
            ]
            .concat(),
            refused: [
                texts(&[
                    "", "json", "/b", "a/", "a/b/c", " a/b", "a /b", "a/ b", "a/b\n", "a/b;\n",
                    "a/b;é", "a/é", "(/b", "a/b c", "a/b]", "a/[b", ";a/b",
                ]),
                vec![x(CONTENT_TYPE_LEN_MAX - 1) + "/b"],
            ]
            .concat(),
        },
        TextField {
            name: "traceparent",
            event: |traceparent| event().traceparent(traceparent),
            row: |traceparent| Parameters { traceparent: Some(traceparent), ..VALID },
            taken: traceparents_taken(),
            refused: traceparents_refused(),
        },
    ]
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A traceparent of a version to come.
fn later(appended: &str) -> String {
    TRACE.replacen("00", "cc", 1) + appended
}

fn traceparents_taken() -> Vec<String> {
    let room = TRACEPARENT_LEN_MAX - TRACE.len() - 1;
    let longest = format!("-{}", x(room));
    let shorter = format!("-{}", x(room - 1));
    vec![TRACE.into(), later(""), later("-"), later("- ~"), later(&shorter), later(&longest)]
}

fn traceparents_refused() -> Vec<String> {
    let too_long = format!("-{}", x(TRACEPARENT_LEN_MAX - TRACE.len()));
    let mut refused = vec![later(&too_long), later("x"), later("-\n"), later("-é")];
    refused.extend(["", "-", "-more", "0", "\n"].map(|end| match end {
        "" => String::new(),
        end => TRACE.to_owned() + end,
    }));
    refused.extend([TRACE[..54].to_owned(), TRACE.to_uppercase(), TRACE.replacen("00", "ff", 1)]);
    refused.extend([TRACE.replacen("00", "0g", 1), TRACE.replace('-', "_")]);
    refused.push(TRACE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)));
    refused.push(TRACE.replace("b7ad6b7169203331", &"0".repeat(16)));
    refused
}

/// The databases, each asked whether it takes a row.
struct Databases {
    postgres: PostgresOutbox,
    sqlite: rusqlite::Connection,
}

impl Databases {
    async fn create() -> Self {
        Self { postgres: PostgresOutbox::create().await, sqlite: sqlite() }
    }

    /// That both take the row, or that both refuse it by a CHECK.
    async fn check(&self, row: &Parameters<'_>, taken: bool, case: &str) {
        assert_eq!(self.postgres_takes(row).await, taken, "PostgreSQL: {case}");
        assert_eq!(self.sqlite_takes(row), taken, "SQLite: {case}");
    }

    async fn postgres_takes(&self, row: &Parameters<'_>) -> bool {
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &row.event_type,
            &row.payload,
            &row.key,
            &row.id,
            &row.tenant,
            &row.content_type,
            &row.schema_version,
            &row.unix_ms,
            &row.traceparent,
            &row.payload_bytes,
        ];
        match self.postgres.client.query_one(sql::POSTGRES_INSERT, &parameters).await {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{error:?}");
                false
            }
        }
    }

    fn sqlite_takes(&self, row: &Parameters<'_>) -> bool {
        let bytes = row.payload_bytes.map_or(Value::Null, |bytes| Value::Blob(bytes.to_vec()));
        let payload = row.payload.map_or(bytes, |text| Value::Text(text.to_owned()));
        let parameters = rusqlite::params![
            row.event_type,
            payload,
            row.key,
            row.id,
            row.tenant,
            row.content_type,
            row.schema_version,
            row.unix_ms,
            row.traceparent,
        ];
        match self.sqlite.query_row(sql::SQLITE_INSERT, parameters, |_| Ok(())) {
            Ok(()) => true,
            Err(error) => {
                let code = error.sqlite_error_code();
                assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{error}");
                false
            }
        }
    }
}

#[tokio::test]
async fn a_text_is_taken_by_the_tables_if_and_only_if_it_is_valid_on_the_wire() {
    let databases = Databases::create().await;
    for field in text_fields() {
        let taken = field.taken.iter().map(|text| (text, true));
        let refused = field.refused.iter().map(|text| (text, false));
        for (text, taken) in taken.chain(refused) {
            let case = format!("{} {text:?}", field.name);
            let built = (field.event)(text).build();
            assert_eq!(built.is_ok(), taken, "Event: {case}");
            if let Err(invalid) = built {
                assert_eq!(invalid.field(), field.name);
            }
            databases.check(&(field.row)(text), taken, &case).await;
        }
    }
}

#[tokio::test]
async fn a_payload_has_one_form_and_a_bounded_size() {
    let databases = Databases::create().await;
    for (len, taken) in [
        (0, true),
        (PAYLOAD_LEN_MAX - 1, true),
        (PAYLOAD_LEN_MAX, true),
        (PAYLOAD_LEN_MAX + 1, false),
    ] {
        let (text, bytes) = (x(len), vec![0xff; len]);
        assert_eq!(Event::new("a", text.clone()).build().is_ok(), taken);
        assert_eq!(Event::new("a", bytes.clone()).build().is_ok(), taken);
        let as_text = Parameters { payload: Some(&text), ..VALID };
        let as_bytes = Parameters { payload: None, payload_bytes: Some(&bytes), ..VALID };
        databases.check(&as_text, taken, &format!("text of {len} bytes")).await;
        databases.check(&as_bytes, taken, &format!("{len} bytes")).await;
    }
    // Bytes count, not characters.
    let text = "é".repeat(PAYLOAD_LEN_MAX / 2) + "x";
    databases.check(&Parameters { payload: Some(&text), ..VALID }, false, "é").await;

    let neither = Parameters { payload: None, ..VALID };
    let both = Parameters { payload_bytes: Some(b""), ..VALID };
    assert!(!databases.postgres_takes(&neither).await);
    assert!(!databases.postgres_takes(&both).await);
    assert!(!databases.sqlite_takes(&neither));
}

#[tokio::test]
async fn a_schema_version_is_an_unsigned_number_of_32_bits() {
    let databases = Databases::create().await;
    let max = i64::from(u32::MAX);
    for version in [i64::MIN, -1, 0, 1, max - 1, max, max + 1, i64::MAX] {
        let row = Parameters { schema_version: Some(version), ..VALID };
        databases.check(&row, u32::try_from(version).is_ok(), &version.to_string()).await;
    }
}

#[tokio::test]
async fn a_time_lies_between_1970_and_9999() {
    let databases = Databases::create().await;
    let max = 253_402_300_799_999;
    for (unix_ms, taken) in
        [(-1, false), (0, true), (1, true), (max - 1, true), (max, true), (max + 1, false)]
    {
        let row = Parameters { unix_ms: Some(unix_ms), ..VALID };
        databases.check(&row, taken, &unix_ms.to_string()).await;
        if let Ok(since) = u64::try_from(unix_ms) {
            let built = event().time(UNIX_EPOCH + Duration::from_millis(since)).build();
            assert_eq!(built.is_ok(), taken, "Event: {unix_ms}");
        }
    }
    let infinity =
        "INSERT INTO railpost_outbox (type, payload, time) VALUES ('a', '{}', 'infinity')";
    let refused = databases.postgres.client.execute(infinity, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Some(&SqlState::CHECK_VIOLATION));
}

#[test]
fn sqlite_refuses_texts_that_go_on_behind_a_nul() {
    let connection = sqlite();
    for row in [
        Parameters { event_type: "a\0 ", ..VALID },
        Parameters { id: Some("a\0 "), ..VALID },
        Parameters { tenant: Some("a\0 "), ..VALID },
        Parameters { content_type: "a/b\0 ", ..VALID },
    ] {
        let columns = "INSERT INTO railpost_outbox (type, payload, id, tenant, content_type) \
                       VALUES (?1, '{}', coalesce(?2, 'a'), ?3, ?4)";
        let parameters = (row.event_type, row.id, row.tenant, row.content_type);
        let refused = connection.execute(columns, parameters).unwrap_err();
        let code = refused.sqlite_error_code();
        assert_eq!(code, Some(rusqlite::ErrorCode::ConstraintViolation), "{row:?}");
    }
}
