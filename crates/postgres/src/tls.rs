//! TLS to the server: `sslmode=require` means that its certificate is verified.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use railpost_store::{Result, StoreError};

/// Trusts the given certificates, or else those that browsers trust.
pub(super) fn connector(roots_pem: Option<&[u8]>) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots(roots_pem)?)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore> {
    let Some(pem) = pem else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let refuse = |problem: String| StoreError::invalid("root certificates", problem);
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
