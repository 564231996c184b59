//! Listening with TLS.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::{StartError, failed};
use crate::config::Config;

/// What takes TLS connections, if that is configured.
pub(super) fn acceptor(config: &Config) -> Result<Option<TlsAcceptor>, StartError> {
    let (certificate, key) = (&config.server.tls_certificate, &config.server.tls_key);
    if certificate.is_empty() {
        return Ok(None);
    }
    let bad_certificate =
        |error| failed(&format!("server.tls_certificate = {certificate:?}"), error);
    let bad_key = |error| failed(&format!("server.tls_key = {key:?}"), error);
    let chain = CertificateDer::pem_file_iter(certificate).map_err(bad_certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(bad_certificate)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(bad_key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map_err(|error| failed("TLS", error))?.with_no_client_auth();
    let tls = tls.with_single_cert(chain, key);
    let mut tls = tls.map_err(|error| failed("server.tls_certificate", error))?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(tls))))
}
