//! Why a TLS handshake failed, in words that say whose turn it is.

use rustls::{AlertDescription as Alert, CertificateError as Bad, Error, PeerIncompatible};

use crate::limits::CERTIFICATE_NAMES_SHOWN;

/// The reason behind `error`.
pub(super) fn tls_reason(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(bad) => certificate_reason(bad),
        Error::AlertReceived(alert) => alert_reason(*alert),
        Error::NoCertificatesPresented => "the receiver has no certificate".into(),
        Error::InvalidMessage(_) => "the receiver does not speak TLS on this port".into(),
        Error::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
            "the receiver speaks only an older version of TLS than the endpoint allows".into()
        }
        other => format!("the handshake failed: {other}"),
    }
}

fn certificate_reason(bad: &Bad) -> String {
    match bad {
        Bad::Expired | Bad::ExpiredContext { .. } => "the certificate has expired".into(),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "the certificate is not valid yet".into()
        }
        Bad::UnknownIssuer => "the certificate's issuer is unknown: if it is a private authority, \
                               add its certificate to the endpoint"
            .into(),
        Bad::NotValidForName => "the certificate is for another name".into(),
        Bad::NotValidForNameContext { expected, presented } => {
            let name = expected.to_str();
            format!("the certificate is for {}, not for {name}", names(presented))
        }
        Bad::Revoked => "the certificate is revoked".into(),
        Bad::BadSignature => "the certificate's signature is wrong".into(),
        other => format!("the certificate is not acceptable: {other}"),
    }
}

/// The first few names of a certificate.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = CERTIFICATE_NAMES_SHOWN;
    match presented {
        [] => "no name".into(),
        few if few.len() <= SHOWN => few.join(", "),
        many => format!("{} and {} more", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

fn alert_reason(alert: Alert) -> String {
    match alert {
        Alert::CertificateRequired => "the receiver demands a client certificate".into(),
        Alert::BadCertificate
        | Alert::CertificateUnknown
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::UnsupportedCertificate
        | Alert::UnknownCA
        | Alert::AccessDenied => {
            format!("the receiver refuses the client certificate: {alert:?}")
        }
        Alert::ProtocolVersion => {
            "the receiver does not speak the versions of TLS that the endpoint allows".into()
        }
        Alert::HandshakeFailure => {
            "the receiver found no common cipher, or wants a client certificate".into()
        }
        Alert::UnrecognisedName => "the receiver knows no host of this name".into(),
        other => format!("the receiver broke off the handshake: {other:?}"),
    }
}
