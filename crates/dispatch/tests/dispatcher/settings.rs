//! Each of an endpoint's settings about how it is sent to does something.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use railpost_engine::{AttemptResult, Failure, Timestamp};
use railpost_store::{ClientIdentity, EndpointPrivate, EndpointSettings, TlsVersion, Write};
use railpost_wire::{EndpointId, Refusal, Secret, Verifier};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Harness, quick, secret};
use crate::receiver::Receiver;
use crate::requests::{lookup, now};

async fn update(
    harness: &Harness,
    id: EndpointId,
    settings: EndpointSettings,
    private: EndpointPrivate,
) {
    harness.write(id, Write::UpdateEndpoint { id, settings, private, revision: None }).await;
}

#[tokio::test]
async fn static_headers_go_with_every_request() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let id = harness.endpoint(&receiver, quick()).await;
    let headers = [("X-Token".to_owned(), "s3same".to_owned())].into();
    let private = EndpointPrivate { headers, ..EndpointPrivate::default() };
    update(&harness, id, EndpointSettings::all_events(&receiver.url()), private).await;
    harness.publish("one", None).await;
    assert_eq!(receiver.request().await.header("x-token"), Some("s3same"));
}

#[tokio::test]
async fn a_secret_that_has_expired_signs_nothing() {
    let (mut harness, mut receiver) = (Harness::open().await, Receiver::start().await);
    let id = harness.endpoint(&receiver, quick()).await;
    let old = harness.store.secrets(id).await.unwrap()[0].id;
    let new = Secret::generate(&[5; 32]);
    harness.add_secret(id, new.clone()).await;
    harness
        .write(id, Write::ExpireSecret { endpoint: id, id: old, at: Timestamp::from_millis(1) })
        .await;
    harness.publish("one", None).await;
    let seen = receiver.request().await;
    let verify = |secret| {
        let verifier = Verifier::new(vec![secret], vec![]);
        verifier.verify(lookup(&seen), &seen.body, now()).map(|_| ())
    };
    assert_eq!((verify(new), verify(secret())), (Ok(()), Err(Refusal::NoMatch)));
}

/// An authority, and what it certified: 127.0.0.1, as a server and as a client.
struct Papers {
    authority: CertifiedIssuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl Papers {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap().pem();
        Self { authority, certificate, key: key.serialize_pem() }
    }

    /// A server that lets in only clients with a certificate of this authority.
    fn acceptor(&self, versions: &[&'static SupportedProtocolVersion]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(clients.unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap(),
            );
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }

    fn identity(&self) -> EndpointPrivate {
        let (certificate_pem, key_pem) = (self.certificate.clone(), self.key.clone());
        let client_identity = Some(ClientIdentity { certificate_pem, key_pem });
        EndpointPrivate { client_identity, ..EndpointPrivate::default() }
    }
}

async fn serve(acceptor: TlsAcceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
                    let _ = request.into_body().collect().await;
                    Ok::<_, Infallible>(hyper::Response::new(Full::<Bytes>::default()))
                });
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn authorities_client_certificate_and_tls_version_are_the_endpoints_own() {
    let papers = Papers::new();
    let both = serve(papers.acceptor(rustls::ALL_VERSIONS)).await;
    let old = serve(papers.acceptor(&[&rustls::version::TLS12])).await;
    let delivered = AttemptResult::Response { status: 200, retry_after: None };
    let refused = AttemptResult::Failed(Failure::Tls);
    for (server, trusts, shows, tls_min, result) in [
        (both, true, true, TlsVersion::V13, delivered),
        (old, true, true, TlsVersion::V12, delivered),
        (old, true, true, TlsVersion::V13, refused),
        (both, false, true, TlsVersion::V12, refused),
        (old, true, false, TlsVersion::V12, refused),
    ] {
        let (mut harness, receiver) = (Harness::open().await, Receiver::start().await);
        let id = harness.endpoint(&receiver, json!({})).await;
        let mut settings = EndpointSettings::all_events(&format!("https://{server}/"));
        settings.authorities_pem = trusts.then(|| papers.authority.pem());
        settings.tls_min = tls_min;
        let private = if shows { papers.identity() } else { EndpointPrivate::default() };
        update(&harness, id, settings, private).await;
        harness.publish("one", None).await;
        let (_, detail) = harness.ended().await;
        let case = (trusts, shows, tls_min);
        assert_eq!(detail.result, result, "{case:?}: {:?}", detail.message);
    }
}
