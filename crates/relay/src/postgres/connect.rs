//! Sessions with a PostgreSQL source.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use railpost_replication::Target;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{Location, SourceConfig};
use crate::context::StoreAddress;
use crate::limits::{CONNECT_TIMEOUT, LOCK_TIMEOUT, READER_IDLE_MAX, STATEMENT_TIMEOUT};
use crate::trouble::Trouble;

/// A setting of each session, and its value: behind a pooler it is not there.
const DIRECT_MARK: &str = "railpost.connection";
const DIRECT: &str = "direct";

/// Where PostgreSQL listens unless it is told otherwise.
const DEFAULT_PORT: u16 = 5432;

/// Where a source is and how to speak to it.
pub(crate) struct Address {
    url: String,
    roots_pem: Option<Vec<u8>>,
    config: Config,
    tls: Option<Arc<ClientConfig>>,
}

/// A session. It ends when this is dropped.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// Notified by each notification that the session hears, and when it ends.
    pub(crate) notified: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Address {
    pub(crate) fn of(config: &SourceConfig, store: Option<&StoreAddress>) -> Result<Self, Trouble> {
        match &config.location {
            Location::Postgres { url, root_certificates } => {
                let pem = root_certificates.as_ref().map(|path| {
                    std::fs::read(path).map_err(|error| {
                        let problem = format!("cannot read {}: {error}", path.display());
                        Trouble::wrong(
                            problem,
                            "name a file with certificates in `root_certificates`",
                        )
                    })
                });
                Self::new(url, pem.transpose()?.as_deref())
            }
            Location::Store => {
                let store = store.ok_or_else(|| {
                    let problem = "the store is not in PostgreSQL";
                    Trouble::wrong(
                        problem,
                        "set store.url to a PostgreSQL database, or name the source's own URL",
                    )
                })?;
                Self::new(&store.url, store.root_certificates_pem.as_deref())
            }
            Location::Sqlite(_) => unreachable!("a SQLite source is not opened as PostgreSQL"),
        }
    }

    fn new(url: &str, roots_pem: Option<&[u8]>) -> Result<Self, Trouble> {
        let mut config: Config = url.parse()?;
        config.connect_timeout(CONNECT_TIMEOUT);
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(Arc::new(tls(roots_pem)?)),
            _ => {
                // Without `sslmode=require` nothing would be verified: then no TLS is the honest answer.
                config.ssl_mode(SslMode::Disable);
                None
            }
        };
        Ok(Self { url: url.to_owned(), roots_pem: roots_pem.map(<[u8]>::to_vec), config, tls })
    }

    /// The same for a session that follows the log.
    pub(crate) fn replication_target(&self) -> Result<Target, Trouble> {
        Target::new(&self.url, self.roots_pem.as_deref()).map_err(|error| {
            Trouble::wrong(error.to_string(), "correct `url` or `root_certificates`")
        })
    }

    /// A session of its own. The settings travel with its first message, so that it is never without
    /// them.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<Session, Trouble> {
        let mut config = self.config.clone();
        config.application_name(format!("railpost outbox {purpose}"));
        let mut options = config.get_options().unwrap_or_default().to_owned();
        for (name, value) in [
            ("default_transaction_isolation", "read\\ committed".to_owned()),
            ("plan_cache_mode", "force_custom_plan".to_owned()),
            // The server's figures of a table that is filled and emptied all the time are wrong most of
            // the time. By them a walk through all dead rows looks cheaper than the index.
            ("enable_seqscan", "off".to_owned()),
            // What an index is missing for looks dear without walks: not dear enough to compile for.
            ("jit", "off".to_owned()),
            ("statement_timeout", STATEMENT_TIMEOUT.as_millis().to_string()),
            ("lock_timeout", LOCK_TIMEOUT.as_millis().to_string()),
            // A process that stands still frees the rows that it was about to remove.
            ("idle_in_transaction_session_timeout", READER_IDLE_MAX.as_millis().to_string()),
            // What was taken is durable in the store. A crash that undoes its removal costs a duplicate.
            ("synchronous_commit", "off".to_owned()),
            // A reader whose machine vanished frees its lock within 15 seconds.
            ("tcp_keepalives_idle", "5".to_owned()),
            ("tcp_keepalives_interval", "2".to_owned()),
            ("tcp_keepalives_count", "5".to_owned()),
            ("tcp_user_timeout", "15000".to_owned()),
            (DIRECT_MARK, DIRECT.to_owned()),
        ] {
            let _ = write!(options, " -c {name}={value}");
        }
        config.options(options);
        let connecting = async {
            let session = match &self.tls {
                Some(tls) => {
                    let tls = MakeRustlsConnect::new(ClientConfig::clone(tls));
                    let connecting = config.connect(tls).await;
                    let (client, connection) = connecting.map_err(|error| self.failed(error))?;
                    Session::start(client, connection)
                }
                None => {
                    let connecting = config.connect(NoTls).await;
                    let (client, connection) = connecting.map_err(|error| self.failed(error))?;
                    Session::start(client, connection)
                }
            };
            session.check_settings().await?;
            Ok(session)
        };
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            Err(Trouble::Unavailable(format!(
                "PostgreSQL at {}: no connection within {CONNECT_TIMEOUT:?}: correct the host and port in `url`, or \
                 what is between",
                self.hosts()
            )))
        })
    }

    /// Why there is no connection.
    fn failed(&self, error: tokio_postgres::Error) -> Trouble {
        if error.as_db_error().is_some() {
            return error.into();
        }
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let problem = format!("PostgreSQL at {}: {cause}", self.hosts());
        if cause.contains("failed to lookup address") {
            return Trouble::wrong(problem, "correct the host in `url`");
        }
        if cause.contains("does not support TLS") {
            let remedy =
                "switch TLS on at the server (ssl = on), or take sslmode=require out of `url`";
            return Trouble::wrong(problem, remedy);
        }
        if cause.contains("refused") {
            let advice = "start the server, or correct the host and port in `url`";
            return Trouble::Unavailable(format!("{problem}: {advice}"));
        }
        Trouble::Unavailable(problem)
    }

    /// Where the server should be, for messages: never a password.
    fn hosts(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate();
        let hosts = hosts.map(|(index, host)| match host {
            Host::Tcp(host) => {
                let port = ports.get(index).or(ports.first()).copied().unwrap_or(DEFAULT_PORT);
                format!("{host}:{port}")
            }
            Host::Unix(path) => path.display().to_string(),
        });
        hosts.collect::<Vec<_>>().join(", ")
    }
}

impl Session {
    /// A pooler that is told to ignore the settings of a session answers without them. The statement is not
    /// prepared: behind a pooler its name could be taken.
    async fn check_settings(&self) -> Result<(), Trouble> {
        let sql = format!("SELECT current_setting('{DIRECT_MARK}', true)");
        let found = self.client.simple_query(&sql).await?;
        let is_direct = found.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some(DIRECT),
            _ => false,
        });
        if is_direct {
            return Ok(());
        }
        Err(Trouble::pooler("the settings of the session were dropped"))
    }

    /// Lets the server end the session after so long without a statement, so that a process that is stopped
    /// frees its locks. PostgreSQL 13 has no such setting.
    pub(crate) async fn end_when_idle_for(&self, idle_max: Duration) -> Result<(), Trouble> {
        let sql = "SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'idle_session_timeout'";
        self.client.execute(sql, &[&idle_max.as_millis().to_string()]).await?;
        Ok(())
    }

    fn start<S, T>(client: Client, mut connection: Connection<S, T>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let notified = Arc::new(Notify::new());
        let tell = notified.clone();
        let mut messages =
            futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        let driving = async move {
            while let Some(Ok(message)) = messages.next().await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    tell.notify_one();
                }
            }
            tell.notify_one();
        };
        Self { client, notified, task: tokio::spawn(driving).abort_handle() }
    }
}

/// Trusts the given certificates, or else those that browsers trust.
fn tls(roots_pem: Option<&[u8]>) -> Result<ClientConfig, Trouble> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions");
    Ok(builder.with_root_certificates(roots(roots_pem)?).with_no_client_auth())
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, Trouble> {
    let Some(pem) = pem else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let refuse = |problem: String| {
        Trouble::wrong(problem, "put certificates in PEM into `root_certificates`")
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| refuse(format!("expected PEM: {error}")))?;
        store.add(certificate).map_err(|error| refuse(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(refuse("expected at least one certificate in PEM".to_owned()));
    }
    Ok(store)
}
