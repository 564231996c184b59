//! Connections that come back by themselves.
//!
//! A link connects when it is first used, and again when it is used after its connection was lost.
//! While the server is gone, calls fail promptly; when it is back, the next call finds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::errors::is_collision;
use crate::limits::{CONNECT_PATIENCE, PATIENCE, RECONNECT_AFTER};
use crate::{Result, StoreError};

/// What a statement's placeholders stand for.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

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
        config.connect_timeout(duration(CONNECT_PATIENCE));
        let encrypted = config.get_ssl_mode() == SslMode::Require;
        let tls = if encrypted { Some(super::tls::connector(roots_pem)?) } else { None };
        if tls.is_none() {
            // Without `sslmode=require` nothing would be verified: then no TLS is the honest answer.
            config.ssl_mode(SslMode::Disable);
        }
        Ok(Self { config, tls })
    }

    /// A connection of its own, for work that takes its time.
    pub(super) async fn connect(&self) -> Result<Client> {
        let connecting = async {
            match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    tokio::spawn(connection);
                    Ok(client)
                }
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    tokio::spawn(connection);
                    Ok(client)
                }
            }
        };
        timeout(duration(CONNECT_PATIENCE), connecting).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!("no connection within {CONNECT_PATIENCE}")))
        })
    }
}

impl std::fmt::Debug for Address {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

/// One connection at a time, with its prepared statements.
#[derive(Debug)]
pub(super) struct Link {
    address: Address,
    /// What to say first on a new connection.
    greeting: &'static str,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// When connecting last failed, and how.
    failed: Mutex<Option<(Instant, StoreError)>>,
}

impl Link {
    pub(super) fn new(address: Address, greeting: &'static str) -> Self {
        Self { address, greeting, session: tokio::sync::Mutex::default(), failed: Mutex::default() }
    }

    /// Runs one statement and waits for its rows, within bounds.
    pub(super) async fn query(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>> {
        match self.try_query(sql, values).await? {
            Ok(rows) => Ok(rows),
            Err(collision) => Err(collision.into()),
        }
    }

    /// The same, and tells apart what is worth another try at once.
    pub(super) async fn try_query(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<std::result::Result<Vec<Row>, tokio_postgres::Error>> {
        let session = self.session().await?;
        match timeout(duration(PATIENCE), session.query(sql, values)).await {
            Ok(Ok(rows)) => Ok(Ok(rows)),
            Ok(Err(error)) if is_collision(&error) => Ok(Err(error)),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                self.give_up(&session).await;
                let problem = format!("PostgreSQL does not answer within {PATIENCE}");
                Err(StoreError::Unavailable(problem))
            }
        }
    }

    /// The connection, or a new one. A server that just refused is not asked again at once.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        let mut current = self.session.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        if let Some(error) = self.failed_just_now() {
            return Err(error);
        }
        match self.connect().await {
            Ok(session) => {
                let session = Arc::new(session);
                *current = Some(session.clone());
                Ok(session)
            }
            Err(error) => {
                let failed = Some((Instant::now(), error.clone()));
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
                Err(error)
            }
        }
    }

    fn failed_just_now(&self) -> Option<StoreError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, error) = failed.as_ref()?;
        (at.elapsed() < duration(RECONNECT_AFTER)).then(|| error.clone())
    }

    async fn connect(&self) -> Result<Session> {
        let client = self.address.connect().await?;
        client.batch_execute(self.greeting).await?;
        Ok(Session { client, statements: Mutex::default() })
    }

    /// Lets go of a connection that does not answer, so that the next call gets another.
    async fn give_up(&self, session: &Arc<Session>) {
        let mut current = self.session.lock().await;
        if current.as_ref().is_some_and(|now| Arc::ptr_eq(now, session)) {
            *current = None;
        }
    }
}

/// A connection and its prepared statements.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
}

impl Session {
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

pub(super) fn duration(span: railpost_engine::Span) -> Duration {
    Duration::from_millis(span.as_millis())
}
