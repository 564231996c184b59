//! TLS settings: versions, roots and client certificates, checked when they are entered.

use std::fmt;
use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, SupportedProtocolVersion};

use crate::limits::{
    IDENTITY_CERTIFICATES_MAX, PRIVATE_TLS_SESSIONS_MAX, ROOT_CERTIFICATES_MAX,
    SHARED_TLS_SESSIONS_MAX,
};

/// What one endpoint asks of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The oldest version to speak.
    pub min_version: TlsVersion,
    /// Who to say we are.
    pub identity: Option<ClientIdentity>,
    /// Authorities to trust beside the sender's.
    pub extra_roots: Option<Certificates>,
}

impl TlsSettings {
    /// Whether they hold something of the endpoint's own, so that no other endpoint may use the
    /// connections made with them.
    pub(super) fn are_private(&self) -> bool {
        self.identity.is_some() || self.extra_roots.is_some()
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    fn and_newer(self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            TlsVersion::Tls12 => &NEWEST_FIRST,
            TlsVersion::Tls13 => &NEWEST_FIRST[..1],
        }
    }
}

/// Which authorities a sender trusts.
#[derive(Clone, Debug)]
pub struct Roots {
    /// The public ones, as they were known when this program was built.
    pub bundled: bool,
    /// These too.
    pub extra: Option<Certificates>,
}

impl Default for Roots {
    fn default() -> Self {
        Self { bundled: true, extra: None }
    }
}

impl Roots {
    fn store(&self) -> Result<RootCertStore, BadTls> {
        let mut store = RootCertStore::empty();
        if self.bundled {
            store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        add_roots(&mut store, self.extra.as_ref())?;
        if store.is_empty() {
            return Err(BadTls("there is no authority to trust".into()));
        }
        Ok(store)
    }
}

fn add_roots(store: &mut RootCertStore, extra: Option<&Certificates>) -> Result<(), BadTls> {
    for certificate in extra.iter().flat_map(|extra| extra.0.iter()) {
        store.add(certificate.clone()).map_err(BadTls::unusable)?;
    }
    Ok(())
}

/// One or more certificates. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<[CertificateDer<'static>]>);

impl Certificates {
    /// Reads authorities to trust, in PEM, and checks that each can be one.
    pub fn roots_from_pem(pem: &[u8]) -> Result<Self, BadTls> {
        let certificates = Self::from_pem(pem, ROOT_CERTIFICATES_MAX)?;
        add_roots(&mut RootCertStore::empty(), Some(&certificates))?;
        Ok(certificates)
    }

    fn from_pem(pem: &[u8], count_max: usize) -> Result<Self, BadTls> {
        let found: Result<Arc<[_]>, _> =
            CertificateDer::pem_slice_iter(pem).take(count_max + 1).collect();
        match found {
            Err(problem) => Err(BadTls(format!("expected certificates in PEM: {problem}"))),
            Ok(found) if found.is_empty() => Err(BadTls("the PEM holds no certificate".into())),
            Ok(found) if found.len() > count_max => {
                Err(BadTls(format!("the PEM holds more than {count_max} certificates")))
            }
            Ok(found) => Ok(Self(found)),
        }
    }
}

/// A client certificate and its key: who we say we are. Cheap to clone; never shows its key.
#[derive(Clone)]
pub struct ClientIdentity(Arc<CertifiedKey>);

impl ClientIdentity {
    /// Reads a certificate chain, the client's own first, and its private key, in PEM, and checks
    /// that they belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, BadTls> {
        let chain = Certificates::from_pem(chain, IDENTITY_CERTIFICATES_MAX)?;
        // What the parser says of a broken key is not shown: it could quote it.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| BadTls("expected a private key in PEM".into()))?;
        let identity = CertifiedKey::from_der(chain.0.to_vec(), key, &provider());
        identity.map(|identity| Self(Arc::new(identity))).map_err(BadTls::unusable)
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity")
    }
}

/// Settings that TLS cannot work with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTls(String);

impl BadTls {
    #[expect(clippy::needless_pass_by_value, reason = "its place is in map_err")]
    fn unusable(error: rustls::Error) -> Self {
        Self(format!("the certificate or key cannot be used: {error}"))
    }
}

impl fmt::Display for BadTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTls {}

/// What handshakes are made with. Endpoints with nothing of their own share it, since each copy of
/// the public authorities takes some 10 KiB.
pub(super) struct Handshakes {
    roots: Arc<RootCertStore>,
    /// One for each oldest version.
    shared: [Arc<ClientConfig>; 2],
}

impl Handshakes {
    pub(super) fn new(roots: &Roots) -> Result<Self, BadTls> {
        let roots = Arc::new(roots.store()?);
        let shared = |version| shared_config(version, &roots);
        let shared = [shared(TlsVersion::Tls12)?, shared(TlsVersion::Tls13)?];
        Ok(Self { roots, shared })
    }

    /// What the handshakes of an endpoint with these settings are made with.
    pub(super) fn config(&self, settings: &TlsSettings) -> Result<Arc<ClientConfig>, BadTls> {
        if !settings.are_private() {
            return Ok(Arc::clone(&self.shared[settings.min_version as usize]));
        }
        let mut roots = Arc::clone(&self.roots);
        if settings.extra_roots.is_some() {
            add_roots(Arc::make_mut(&mut roots), settings.extra_roots.as_ref())?;
        }
        client_config(settings, roots, PRIVATE_TLS_SESSIONS_MAX)
    }
}

fn shared_config(
    min_version: TlsVersion,
    roots: &Arc<RootCertStore>,
) -> Result<Arc<ClientConfig>, BadTls> {
    let settings = TlsSettings { min_version, ..TlsSettings::default() };
    client_config(&settings, Arc::clone(roots), SHARED_TLS_SESSIONS_MAX)
}

fn client_config(
    settings: &TlsSettings,
    roots: Arc<RootCertStore>,
    sessions_max: usize,
) -> Result<Arc<ClientConfig>, BadTls> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(settings.min_version.and_newer())
        .map_err(BadTls::unusable)?
        .with_root_certificates(roots);
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some(ClientIdentity(identity)) => builder
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity)))),
    };
    config.alpn_protocols = vec![ALPN_H2.into(), b"http/1.1".into()];
    config.resumption = Resumption::in_memory_sessions(sessions_max);
    Ok(Arc::new(config))
}

/// How HTTP/2 is called in the handshake.
pub(super) const ALPN_H2: &[u8] = b"h2";

/// Chosen here and not by a process-wide default, which another library could have set.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
