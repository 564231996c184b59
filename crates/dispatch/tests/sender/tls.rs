//! TLS against real servers with certificates made for the occasion.

use std::sync::Arc;
use std::time::Duration;

use railpost_dispatch::*;
use railpost_engine::Failure;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

/// An authority that signs whatever it is told to.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("test authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn certificates(&self) -> Certificates {
        Certificates::roots_from_pem(self.0.pem().as_bytes()).unwrap()
    }

    /// A certificate for [`NAME`], changed by `change`.
    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Leaf { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn issue_client(&self) -> Leaf {
        self.issue(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }
}

impl Leaf {
    fn identity(&self) -> ClientIdentity {
        ClientIdentity::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }
}

/// How a server does TLS.
pub(crate) struct Tls<'a> {
    pub(crate) leaf: &'a Leaf,
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    pub(crate) alpn: &'a [&'a str],
    /// Whose clients to let in, if not all.
    pub(crate) clients_of: Option<&'a Authority>,
}

impl<'a> Tls<'a> {
    pub(crate) fn new(leaf: &'a Leaf) -> Self {
        Self { leaf, versions: rustls::ALL_VERSIONS, alpn: &[], clients_of: None }
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions)
            .unwrap();
        let builder = match self.clients_of {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.0.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(self.leaf.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.leaf.key.as_bytes()).unwrap();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    async fn receiver(&self) -> Receiver {
        let acceptor = self.acceptor();
        Receiver::scripted(move |stream, seen| serve(acceptor.clone(), stream, seen)).await
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, seen: Seen) {
    if let Ok(stream) = acceptor.accept(stream).await {
        answer_all(stream, seen, OK.as_bytes().into()).await;
    }
}

/// The way to `receiver` for an endpoint that trusts `authority` too.
pub(crate) fn trusting(receiver: &Receiver, authority: &Authority) -> RouteConfig {
    let tls = TlsSettings { extra_roots: Some(authority.certificates()), ..TlsSettings::default() };
    RouteConfig { tls, ..route_config(&receiver.url("https")) }
}

#[tokio::test]
async fn an_endpoints_own_authority_is_trusted_and_its_certificate_accepted() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| {});
    let receiver = Tls::new(&leaf).receiver().await;
    let exchange = post(&sender(), &trusting(&receiver, &authority)).await;
    assert_eq!(status(&exchange), Some(200), "{:?}", exchange.detail);
    assert!(exchange.detail.timing.tls.is_some());
}

#[tokio::test]
async fn an_authority_of_the_whole_sender_is_trusted_with_the_public_ones_or_without() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| {});
    let receiver = Tls::new(&leaf).receiver().await;
    for bundled in [true, false] {
        let roots = Roots { bundled, extra: Some(authority.certificates()) };
        let sender = Sender::new(SenderConfig { roots, ..config() }).unwrap();
        let exchange = post(&sender, &route_config(&receiver.url("https"))).await;
        assert_eq!(status(&exchange), Some(200));
    }
    let roots = Roots { bundled: false, extra: None };
    assert!(matches!(Sender::new(SenderConfig { roots, ..config() }), Err(BadSender::Tls(_))));
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_refused_with_the_reason() {
    let authority = Authority::new();
    let other_name = vec![rcgen::SanType::DnsName("other.test".try_into().unwrap())];
    for (leaf, words) in [
        (authority.issue(|params| params.subject_alt_names = other_name), "not for receiver.test"),
        (
            authority.issue(|params| params.not_after = date_time_ymd(2001, 1, 1)),
            "the certificate has expired",
        ),
        (
            authority.issue(|params| params.not_before = date_time_ymd(4000, 1, 1)),
            "the certificate is not valid yet",
        ),
        (Authority::named("stranger").issue(|_| {}), "the certificate's issuer is unknown"),
        (Authority::new().issue(|_| {}), "the certificate's signature is wrong"),
        (self_signed(), "the certificate's issuer is unknown"),
        (authority.issue_client(), "the certificate is not acceptable"),
    ] {
        let receiver = Tls::new(&leaf).receiver().await;
        let exchange = post(&sender(), &trusting(&receiver, &authority)).await;
        assert_failed(&exchange, Failure::Tls, words);
        assert_eq!(receiver.requests_left(), 0, "nothing was sent: {words}");
    }
}

fn self_signed() -> Leaf {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
    Leaf { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

#[tokio::test]
async fn each_version_of_tls_is_spoken_unless_the_endpoint_wants_a_newer_one() {
    use TlsVersion::*;
    use rustls::version::{TLS12, TLS13};
    let authority = Authority::new();
    let leaf = authority.issue(|_| {});
    for (server, min_version, spoken) in [
        (&TLS12, Tls12, true),
        (&TLS13, Tls12, true),
        (&TLS13, Tls13, true),
        (&TLS12, Tls13, false),
    ] {
        let receiver = Tls { versions: &[server], ..Tls::new(&leaf) }.receiver().await;
        let mut config = trusting(&receiver, &authority);
        config.tls.min_version = min_version;
        let exchange = post(&sender(), &config).await;
        if spoken {
            assert_eq!(status(&exchange), Some(200), "{server:?}");
        } else {
            assert_failed(&exchange, Failure::Tls, "versions of TLS");
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_presented_and_without_one_the_reason_is_clear() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| {});
    let (client, stranger) = (authority.issue_client(), Authority::new().issue_client());
    for versions in [&[&rustls::version::TLS12][..], &[&rustls::version::TLS13]] {
        let demanding = Tls { versions, clients_of: Some(&authority), ..Tls::new(&leaf) };
        let receiver = demanding.receiver().await;
        let mut config = trusting(&receiver, &authority);
        assert_failed(&post(&sender(), &config).await, Failure::Tls, "client certificate");
        config.tls.identity = Some(stranger.identity());
        assert_failed(&post(&sender(), &config).await, Failure::Tls, "");
        config.tls.identity = Some(client.identity());
        assert_eq!(status(&post(&sender(), &config).await), Some(200));
    }
}

#[tokio::test]
async fn a_certificate_for_an_address_is_enough_for_that_address() {
    let authority = Authority::new();
    let address = vec![rcgen::SanType::IpAddress([127, 0, 0, 1].into())];
    let leaf = authority.issue(|params| params.subject_alt_names = address);
    let receiver = Tls::new(&leaf).receiver().await;
    let by_address = receiver.url("https").replace(NAME, "127.0.0.1");
    let tls = trusting(&receiver, &authority).tls;
    let exchange = post(&sender(), &RouteConfig { tls, ..route_config(&by_address) }).await;
    assert_eq!(status(&exchange), Some(200));
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_a_tls_failure() {
    for (answer, words) in [
        ("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "does not speak TLS"),
        ("", "broke off the handshake"),
    ] {
        let receiver = Receiver::scripted(move |mut stream, _| async move {
            let _ = stream.readable().await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        })
        .await;
        let exchange = post(&sender(), &route_config(&receiver.url("https"))).await;
        assert_failed(&exchange, Failure::Tls, words);
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_a_connect_timeout() {
    let receiver = Receiver::scripted(|stream, _| fall_silent(stream)).await;
    let timeouts = Timeouts::new(SHORT, PATIENCE).unwrap();
    let config = RouteConfig { timeouts, ..route_config(&receiver.url("https")) };
    let exchange = post(&sender(), &config).await;
    assert_failed(&exchange, Failure::ConnectTimeout, "the TLS handshake did not end");
    assert!(exchange.detail.timing.total < Duration::from_secs(10));
}

#[test]
fn what_cannot_be_an_identity_or_an_authority_is_refused_when_it_is_entered() {
    let authority = Authority::new();
    let (one, other) = (authority.issue_client(), authority.issue_client());
    for (chain, key) in [
        (&*one.certificate, &*other.key),
        (&one.certificate, "no key"),
        (&one.certificate, &one.certificate),
        ("no certificate", &one.key),
        ("", &one.key),
    ] {
        let problem = ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(!problem.to_string().contains(key.trim()), "no key in {problem}");
    }
    assert!(Certificates::roots_from_pem(b"").is_err());
    assert!(Certificates::roots_from_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n").is_err());
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(Certificates::roots_from_pem(broken.as_bytes()).is_err());
    assert_eq!(format!("{:?}", one.identity()), "ClientIdentity");
}
