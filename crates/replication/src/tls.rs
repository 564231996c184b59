//! TLS to the server, always with a verified certificate, and what SCRAM binds to.

use std::sync::Arc;

use ring::digest::{self, Algorithm};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::{Error, ErrorKind};

/// Trusts the given certificates, or else those that browsers trust.
pub(crate) fn client(roots_pem: Option<&[u8]>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots(roots_pem)?)
        .with_no_client_auth())
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, Error> {
    let Some(pem) = pem else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let refuse = |problem: String| {
        Error::new(ErrorKind::Invalid, format!("invalid root certificates: {problem}"))
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

/// The channel binding `tls-server-end-point` (RFC 5929): the certificate's hash, by the hash function of
/// its signature. A signature without one, such as Ed25519's, has no channel binding.
pub(crate) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(signature_algorithm(certificate)?)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// By the algorithm's object identifier. MD5 and SHA-1 are replaced by SHA-256, as the RFC says.
fn signature_hash(oid: &[u8]) -> Option<&'static Algorithm> {
    const RSA: [u8; 8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x01];
    const ECDSA: [u8; 6] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04];
    let rsa = oid.strip_prefix(&RSA[..]);
    let ecdsa = oid.strip_prefix(&ECDSA[..]);
    match (rsa, ecdsa) {
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Some(&digest::SHA256),
        (Some([12]), _) | (_, Some([3, 3])) => Some(&digest::SHA384),
        (Some([13]), _) | (_, Some([3, 4])) => Some(&digest::SHA512),
        _ => None,
    }
}

/// `Certificate ::= SEQUENCE { content SEQUENCE, algorithm SEQUENCE { OID, … }, signature }`. The
/// certificate was verified before, so it is well-formed; a surprise only means no channel binding.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (certificate, _) = der_value(SEQUENCE, certificate)?;
    let (_content, after) = der_value(SEQUENCE, certificate)?;
    let (algorithm, _) = der_value(SEQUENCE, after)?;
    der_value(OBJECT_IDENTIFIER, algorithm).map(|(oid, _)| oid)
}

/// The content of the value that comes first, and what comes after it.
fn der_value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
        let len = digits.iter().try_fold(0_usize, |len, digit| {
            len.checked_mul(256).and_then(|len| len.checked_add(usize::from(*digit)))
        });
        (len?, rest)
    };
    if found == tag { rest.split_at_checked(len) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, hash) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(&digest::SHA256)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(&digest::SHA384)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let certificate = certificate(algorithm);
            let expected = hash.map(|hash| digest::digest(hash, &certificate).as_ref().to_vec());
            assert_eq!(server_end_point(&certificate), expected, "{algorithm:?}");
        }
    }

    #[test]
    fn a_cut_certificate_has_no_channel_binding() {
        let certificate = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        for len in 0..certificate.len() {
            assert_eq!(server_end_point(&certificate[..len]), None, "{len}");
        }
    }
}
