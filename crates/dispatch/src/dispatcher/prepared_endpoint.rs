//! What all attempts of an endpoint share: its route, its envelope and its signing secrets, prepared once.

use std::borrow::Cow;
use std::time::Duration;

use railpost_engine::{Failure, Guarantee, Timestamp};
use railpost_store::{Endpoint, EndpointPrivate, EndpointSecret, SecretValue, TlsVersion};
use railpost_wire::cloudevents::Source;
use railpost_wire::{Envelope, Signer};

use crate::{
    Certificates, ClientIdentity, CustomHeaders, Resend, Route, RouteConfig, Sender, Target,
    Timeouts, TlsSettings,
};

/// An endpoint, prepared for sending.
#[derive(Debug)]
pub(super) struct PreparedEndpoint {
    /// Why no attempt can leave, if none can: the endpoint's settings do not fit this server's.
    pub(super) route: Result<Route, (Failure, String)>,
    envelope: Envelope,
    /// How many bytes a payload may have before it is sent as a reference.
    thin_above: Option<u32>,
    pub(super) resend: Resend,
    /// Where its events come from, as CloudEvents has it.
    pub(super) source: Source,
    signers: Vec<Signer>,
    /// By signer: when it stops signing.
    expiries: Vec<Option<Timestamp>>,
    /// Whether nothing may leave without a signature.
    signed: bool,
    /// Why its headers, certificate or secrets cannot be read, if they cannot.
    unreadable: Option<String>,
}

impl PreparedEndpoint {
    /// For an endpoint with these secrets, or with some that cannot be read.
    pub(super) fn new(
        endpoint: &Endpoint,
        secrets: Result<Vec<EndpointSecret>, String>,
        sender: &Sender,
    ) -> Self {
        let policy = &endpoint.settings.policy;
        let sealed = endpoint.private.as_ref().err().map(ToString::to_string);
        let unreadable = sealed.or(secrets.as_ref().err().filter(|_| policy.signed).cloned());
        let secrets = secrets.into_iter().flatten().filter(|_| policy.signed);
        let (signers, expiries) =
            secrets.map(|secret| (signer(secret.value), secret.expires_at)).unzip();
        let source = format!("/tenants/{}", endpoint.tenant);
        Self {
            route: route(endpoint, sender),
            envelope: endpoint.settings.envelope,
            thin_above: endpoint.settings.thin_above,
            resend: match policy.guarantee {
                Guarantee::AtMostOnce => Resend::Never,
                Guarantee::AtLeastOnce | Guarantee::EffectivelyOnce => Resend::IfUntouched,
            },
            source: source.parse().expect("a tenant id is safe in a path"),
            signers,
            expiries,
            signed: policy.signed,
            unreadable,
        }
    }

    /// How a payload of so many bytes is wrapped.
    pub(super) fn envelope_of(&self, payload_len: usize) -> Envelope {
        let is_above = |bound: u32| payload_len as u64 > u64::from(bound);
        if self.thin_above.is_some_and(is_above) { Envelope::Thin } else { self.envelope }
    }

    /// Why nothing may leave at `now`, if that is so: it must be signed and cannot be, or it lacks headers.
    pub(super) fn blocked(&self, now: Timestamp) -> Option<String> {
        if let Some(problem) = &self.unreadable {
            return Some(format!("what is encrypted of it cannot be read: {problem}"));
        }
        let none = self.signed && self.signers(now).is_empty();
        none.then(|| "it must sign, and has no secret that is valid: add one".to_owned())
    }

    /// When the last secret stops signing, if none signs for ever.
    pub(super) fn signs_until(&self) -> Option<Timestamp> {
        let all: Option<Vec<_>> = self.expiries.iter().copied().collect();
        all?.into_iter().max()
    }

    /// The secrets that sign at `now`: most often all.
    pub(super) fn signers(&self, now: Timestamp) -> Cow<'_, [Signer]> {
        let active = |expires_at: &Option<Timestamp>| expires_at.is_none_or(|at| now < at);
        if self.expiries.iter().all(active) {
            return Cow::Borrowed(&self.signers);
        }
        let signers = self.signers.iter().zip(&self.expiries);
        let signers = signers.filter(|(_, expires_at)| active(expires_at));
        signers.map(|(signer, _)| signer.clone()).collect()
    }
}

fn signer(value: SecretValue) -> Signer {
    match value {
        SecretValue::Shared(secret) => Signer::Secret(secret),
        SecretValue::Signing(key) => Signer::Key(key),
    }
}

fn route(endpoint: &Endpoint, sender: &Sender) -> Result<Route, (Failure, String)> {
    let target = Target::parse(&endpoint.settings.url, sender.guard())
        .map_err(|problem| (Failure::BlockedAddress, problem.to_string()))?;
    route_to(target, endpoint, sender).map_err(|problem| (Failure::NotSent, problem))
}

fn route_to(target: Target, endpoint: &Endpoint, sender: &Sender) -> Result<Route, String> {
    let names = &endpoint.settings.header_names;
    let private = endpoint.private.as_ref().map_err(text)?;
    let config = RouteConfig {
        timeouts: timeouts(endpoint)?,
        tls: tls(endpoint, private)?,
        headers: CustomHeaders::new(&private.headers, names).map_err(text)?,
        names: names.clone(),
        tenant: Some(endpoint.tenant.clone()),
        ..RouteConfig::new(target)
    };
    sender.route(&config).map_err(text)
}

fn timeouts(endpoint: &Endpoint) -> Result<Timeouts, String> {
    let default = Timeouts::default();
    let Some(total) = endpoint.settings.timeout else { return Ok(default) };
    let total = Duration::from(total);
    Timeouts::new(default.connect().min(total), total).map_err(text)
}

fn tls(endpoint: &Endpoint, private: &EndpointPrivate) -> Result<TlsSettings, String> {
    let identity = private.client_identity.as_ref().map(|identity| {
        let (chain, key) = (&identity.certificate_pem, &identity.key_pem);
        ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes())
    });
    let authorities = endpoint.settings.authorities_pem.as_ref();
    let extra_roots = authorities.map(|pem| Certificates::roots_from_pem(pem.as_bytes()));
    Ok(TlsSettings {
        min_version: match endpoint.settings.tls_min {
            TlsVersion::V12 => crate::TlsVersion::Tls12,
            TlsVersion::V13 => crate::TlsVersion::Tls13,
        },
        identity: identity.transpose().map_err(text)?,
        extra_roots: extra_roots.transpose().map_err(text)?,
    })
}

fn text(problem: impl std::fmt::Display) -> String {
    problem.to_string()
}
