//! Connections that come back by themselves.
//!
//! A link connects when it is first used, and again when it is used after its connection was lost or
//! turned out to be of no use. While the server is gone, calls fail promptly; when it is back, the next
//! call finds it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::errors::{Translate, is_collision};
use super::lock::LockWatch;
use crate::limits::{
    CONNECT_TIMEOUT, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, RECONNECT_AFTER,
    STATEMENT_TIMEOUT,
};
use railpost_store::limits::CALL_TIMEOUT;
use railpost_store::{Result, StoreError};

/// What a statement's placeholders stand for.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Statements that wait for the disk, whatever the server's default is.
    Durable,
    /// Statements that do not, and reading.
    Visible,
    /// Work that takes its time: no statement is ended.
    LongWork,
}

/// Where the server is and how to speak to it.
#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Address {
    pub(super) fn new(url: &str, roots_pem: Option<&[u8]>) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            StoreError::invalid("url", format!("expected postgres://…: {error}"))
        })?;
        config.connect_timeout(Duration::from(CONNECT_TIMEOUT));
        config.application_name(application_name());
        config.keepalives_idle(Duration::from(KEEPALIVE_IDLE));
        config.keepalives_interval(Duration::from(KEEPALIVE_INTERVAL));
        config.keepalives_retries(KEEPALIVE_RETRIES);
        config.tcp_user_timeout(Duration::from(CALL_TIMEOUT));
        let encrypted = config.get_ssl_mode() == SslMode::Require;
        let tls = if encrypted { Some(super::tls::connector(roots_pem)?) } else { None };
        if tls.is_none() {
            // Without `sslmode=require` nothing would be verified: then no TLS is the honest answer.
            config.ssl_mode(SslMode::Disable);
        }
        Ok(Self { config, tls })
    }

    /// A connection of its own, and the task that ends when it is lost.
    pub(super) async fn connect(&self, purpose: Purpose) -> Result<(Client, JoinHandle<()>)> {
        let config = self.config_for(purpose);
        let connecting = async {
            Ok(match &self.tls {
                Some(tls) => {
                    let (client, connection) = config.connect(tls.clone()).await.translated()?;
                    (client, tokio::spawn(connection.map(drop)))
                }
                None => {
                    let (client, connection) = config.connect(NoTls).await.translated()?;
                    (client, tokio::spawn(connection.map(drop)))
                }
            })
        };
        timeout(Duration::from(CONNECT_TIMEOUT), connecting).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no connection within {CONNECT_TIMEOUT}")))
        })
    }

    /// The settings travel with the connection's first message, so that none is ever without them.
    fn config_for(&self, purpose: Purpose) -> Config {
        let mut config = self.config.clone();
        let mut options = config.get_options().unwrap_or_default().to_owned();
        let mut set = |name: &str, value: &str| {
            let _ = write!(options, " -c {name}={value}");
        };
        set("default_transaction_isolation", "read\\ committed");
        set("synchronous_commit", if purpose == Purpose::Visible { "off" } else { "on" });
        let patience = match purpose {
            Purpose::LongWork => "0".to_owned(),
            _ => STATEMENT_TIMEOUT.as_millis().to_string(),
        };
        for name in ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"] {
            set(name, &patience);
        }
        // The server notices as soon as a client that has vanished.
        set("tcp_keepalives_idle", &Duration::from(KEEPALIVE_IDLE).as_secs().to_string());
        set("tcp_keepalives_interval", &Duration::from(KEEPALIVE_INTERVAL).as_secs().to_string());
        set("tcp_keepalives_count", &KEEPALIVE_RETRIES.to_string());
        config.options(options);
        config
    }
}

impl std::fmt::Debug for Address {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

/// Who is connected, for people who look at the server's sessions: its host and process.
fn application_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let host: String = host.trim().chars().filter(char::is_ascii_graphic).take(40).collect();
    format!("railpost {host} {}", std::process::id())
}

/// Which server answers: the same data may be continued by another one after a failover or a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    /// Of the data; nothing if the server does not tell.
    pub(super) system: Option<i64>,
    /// Of this continuation of it. It counts up when a standby takes over or a backup is restored.
    pub(super) timeline: Option<i32>,
}

impl ServerIdentity {
    /// The server behind a new connection. A standby is refused: it cannot be written, and what it
    /// shows may be old. A server that is not one stays what it is for as long as the connection lasts.
    pub(super) async fn of(client: &Client) -> Result<Self> {
        let sql = "SELECT pg_is_in_recovery()";
        if client.query_one(sql, &[]).await.translated()?.get::<_, bool>(0) {
            let problem = "the server is a standby: name the primary in the URL, or all hosts and \
                           `target_session_attrs=read-write`";
            return Err(StoreError::Unavailable(format!("PostgreSQL: {problem}")));
        }
        // The last checkpoint may be of the time before a promotion; where the log is written is not.
        let sql =
            "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int";
        let timeline = client.query_one(sql, &[]);
        let system = client.query_one("SELECT system_identifier FROM pg_control_system()", &[]);
        let (timeline, system) = tokio::join!(timeline, system);
        Ok(Self {
            system: if_allowed(system)?.map(|row| row.get(0)),
            timeline: if_allowed(timeline)?.map(|row| row.get(0)),
        })
    }
}

/// What the server told; nothing if this role may not ask.
fn if_allowed(row: std::result::Result<Row, tokio_postgres::Error>) -> Result<Option<Row>> {
    match row {
        Ok(row) => Ok(Some(row)),
        Err(error) if error.as_db_error().is_some() => Ok(None),
        Err(error) => Err(error).translated(),
    }
}

type Connecting = Shared<BoxFuture<'static, Result<Arc<Session>>>>;

/// One connection at a time, with its prepared statements.
#[derive(Debug)]
pub(super) struct Link {
    address: Address,
    purpose: Purpose,
    lock: LockWatch,
    connection: Mutex<Connection>,
}

/// Where a link stands.
#[derive(Debug, Default)]
enum Connection {
    #[default]
    None,
    /// Callers that need it wait for the same attempt; none of them holds the link's lock meanwhile.
    Connecting(Connecting),
    Open(Arc<Session>),
    /// When connecting last failed, and how.
    Failed(Instant, StoreError),
}

impl Link {
    pub(super) fn new(address: Address, purpose: Purpose, lock: LockWatch) -> Self {
        Self { address, purpose, lock, connection: Mutex::default() }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one statement and waits for its rows, within bounds.
    pub(super) async fn query(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        let session = self.session().await?;
        self.query_on(&session, sql, values).await
    }

    /// The same on a connection that the caller has chosen.
    pub(super) async fn query_on(
        &self,
        session: &Arc<Session>,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>> {
        match self.try_query_on(session, sql, values).await? {
            Ok(rows) => Ok(rows),
            Err(collision) => Err(collision).translated(),
        }
    }

    /// The same, and tells apart what is worth another try at once.
    pub(super) async fn try_query_on(
        &self,
        session: &Arc<Session>,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<std::result::Result<Vec<Row>, tokio_postgres::Error>> {
        match timeout(Duration::from(CALL_TIMEOUT), session.query(sql, values)).await {
            Ok(Ok(rows)) => Ok(Ok(rows)),
            Ok(Err(error)) if is_collision(&error) => Ok(Err(error)),
            Ok(Err(error)) => {
                if is_read_only(&error) {
                    // The server was demoted: another one may be found where the URL leads.
                    self.give_up(session);
                }
                Err(error).translated()
            }
            Err(_) => {
                self.give_up(session);
                Err(unanswered())
            }
        }
    }

    /// Whether there is a connection that, as far as is known, is not lost.
    pub(super) fn is_open(&self) -> bool {
        matches!(&*self.connection(), Connection::Open(session) if !session.client.is_closed())
    }

    /// The connection, or a new one. A server that just refused is not asked again at once.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        self.lock.check()?;
        let session = self.connected().await?;
        if !self.lock.is_held_on(session.server) {
            self.give_up(&session);
            return Err(self.lock.moved());
        }
        Ok(session)
    }

    fn is_useful(&self, session: &Session) -> bool {
        !session.client.is_closed() && self.lock.is_held_on(session.server)
    }

    async fn connected(&self) -> Result<Arc<Session>> {
        let connecting = match &mut *self.connection() {
            Connection::Open(session) if self.is_useful(session) => return Ok(session.clone()),
            Connection::Failed(at, error) if at.elapsed() < Duration::from(RECONNECT_AFTER) => {
                return Err(error.clone());
            }
            Connection::Connecting(connecting) => connecting.clone(),
            connection => {
                let connecting = self.start_connecting();
                *connection = Connection::Connecting(connecting.clone());
                connecting
            }
        };
        let connected = connecting.clone().await;
        let mut connection = self.connection();
        if matches!(&*connection, Connection::Connecting(now) if now.ptr_eq(&connecting)) {
            *connection = match &connected {
                Ok(session) => Connection::Open(session.clone()),
                Err(error) => Connection::Failed(Instant::now(), error.clone()),
            };
        }
        connected
    }

    /// In a task of its own: a caller that goes away does not take it along.
    fn start_connecting(&self) -> Connecting {
        let (address, purpose) = (self.address.clone(), self.purpose);
        let connecting = tokio::spawn(async move { Session::open(&address, purpose).await });
        let connecting = async move {
            let opened = connecting.await.unwrap_or_else(|stopped| {
                Err(StoreError::Unavailable(format!("connecting was interrupted: {stopped}")))
            });
            opened.map(Arc::new)
        };
        connecting.boxed().shared()
    }

    /// Lets go of a connection that is of no use, so that the next call gets another.
    fn give_up(&self, session: &Arc<Session>) {
        let mut connection = self.connection();
        if matches!(&*connection, Connection::Open(now) if Arc::ptr_eq(now, session)) {
            *connection = Connection::None;
        }
    }
}

/// Whether the server may only be read.
pub(super) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

pub(super) fn unanswered() -> StoreError {
    StoreError::Unavailable(format!("PostgreSQL does not answer within {CALL_TIMEOUT}"))
}

/// A connection and its prepared statements.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) server: ServerIdentity,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
    /// Connects, and asks who is there, within bounds.
    pub(super) async fn open(address: &Address, purpose: Purpose) -> Result<Self> {
        let (client, _) = address.connect(purpose).await?;
        let asked = timeout(Duration::from(CONNECT_TIMEOUT), ServerIdentity::of(&client)).await;
        let server = asked.map_err(|_| {
            let problem = format!("no answer on a new connection within {CONNECT_TIMEOUT}");
            StoreError::Unavailable(problem)
        })??;
        Ok(Self { client, server, statements: Mutex::default() })
    }

    async fn query(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        let known =
            self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.client.prepare(sql).await?;
                let mut statements = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
                statements.entry(sql).or_insert(statement).clone()
            }
        };
        self.client.query(&statement, values).await
    }
}
