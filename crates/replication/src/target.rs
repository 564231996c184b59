//! Which server to connect to, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, SslNegotiation};

use crate::limits::WAL_SENDER_TIMEOUT;
use crate::{Error, ErrorKind, tls};

/// A database and the user that reads from it.
#[derive(Clone)]
pub struct Target {
    pub(crate) config: Config,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) wal_sender_timeout: Duration,
}

impl Target {
    /// Reads `postgres://user:password@host:port/database?…`. `sslmode=require` means that the server's
    /// certificate is verified, and its host name: against the given root certificates, or else those that
    /// browsers trust. Without it the connection is plain, because nothing would be verified.
    pub fn new(url: &str, roots_pem: Option<&[u8]>) -> Result<Self, Error> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            invalid(format!("invalid URL: expected postgres://…: {error}"))
        })?;
        if config.get_user().unwrap_or_default().is_empty() {
            return Err(invalid("invalid URL: it names no user"));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("invalid URL: it names no host"));
        }
        if config.get_ssl_negotiation() == SslNegotiation::Direct {
            return Err(invalid("invalid URL: `sslnegotiation=direct` is not supported"));
        }
        let encrypted = config.get_ssl_mode() == SslMode::Require;
        let tls = if encrypted { Some(Arc::new(tls::client(roots_pem)?)) } else { None };
        Ok(Self { config, tls, wal_sender_timeout: WAL_SENDER_TIMEOUT })
    }

    /// The name that the server's `pg_stat_replication` shows.
    #[must_use]
    pub fn with_application_name(mut self, name: &str) -> Self {
        self.config.application_name(name);
        self
    }

    /// How long the server waits for a status of this client before it ends the session and frees the
    /// slot. The client sends one four times as often.
    #[must_use]
    pub fn with_wal_sender_timeout(mut self, timeout: Duration) -> Self {
        self.wal_sender_timeout = timeout.max(Duration::from_millis(100));
        self
    }
}

impl fmt::Debug for Target {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.config.get_dbname();
        let hosts = self.config.get_hosts();
        let mut shown = f.debug_struct("Target");
        shown.field("hosts", &hosts).field("database", &database).finish_non_exhaustive()
    }
}

fn invalid(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_used_is_rejected_without_its_password() {
        for (url, problem) in [
            ("http://a:sesame@b/c", "expected postgres://"),
            ("postgres://:sesame@host/shop", "no user"),
            ("postgres://app:sesame@/shop", "no host"),
            ("postgres://app:sesame@host/shop?sslmode=require&sslnegotiation=direct", "direct"),
            ("postgres://app:sesame@host/shop?sslmode=sometimes", "expected postgres://"),
        ] {
            let error = Target::new(url, None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(problem), "{url}: {error}");
            assert!(!error.to_string().contains("sesame"), "{error}");
        }
        let target = Target::new("postgres://app:sesame@host/shop", None).unwrap();
        assert!(!format!("{target:?}").contains("sesame"));
    }

    #[test]
    fn tls_is_used_if_it_is_required_and_never_without_verification() {
        for (mode, encrypted) in [
            ("", false),
            ("?sslmode=disable", false),
            ("?sslmode=prefer", false),
            ("?sslmode=require", true),
        ] {
            let target = Target::new(&format!("postgres://app@host/shop{mode}"), None).unwrap();
            assert_eq!(target.tls.is_some(), encrypted, "{mode}");
        }
        let url = "postgres://app@host/shop?sslmode=require";
        for roots in [&b""[..], b"no certificate"] {
            let error = Target::new(url, Some(roots)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}
