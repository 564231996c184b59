//! The way out to one endpoint: its route, its envelope and its signing secrets.
//!
//! A route takes kilobytes, and most of many endpoints have nothing to send. So it is prepared for the first
//! attempt, once.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Duration;

use railpost_engine::{Failure, Guarantee, Span, Timestamp};
use railpost_store::{Endpoint, EndpointPrivate, EndpointSecret, SecretValue, TlsVersion};
use railpost_wire::cloudevents::Source;
use railpost_wire::{Envelope, EnvelopeSettings, HeaderNames, Signer, Template, TenantId};

use crate::{
    Certificates, ClientIdentity, CustomHeaders, Resend, Route, RouteConfig, Sender, Target,
    Timeouts, TlsSettings,
};

/// An endpoint, prepared for sending.
#[derive(Debug)]
pub(super) struct PreparedEndpoint {
    route_settings: RouteSettings,
    /// See [`Self::route`].
    route: OnceLock<Result<Route, (Failure, String)>>,
    envelope: Envelope,
    /// How many bytes a payload may have before it is sent as a reference.
    thin_above: Option<u32>,
    /// Most endpoints have neither.
    notices: Option<Box<NoticeSettings>>,
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

/// What envelopes for people's tools need.
#[derive(Debug)]
struct NoticeSettings {
    routing_key: String,
    template: Option<Template>,
}

impl NoticeSettings {
    fn of(endpoint: &Endpoint) -> Option<Box<Self>> {
        if !endpoint.settings.envelope.shows_notices() {
            return None;
        }
        let private = endpoint.private.as_ref().ok();
        let routing_key = private.and_then(|private| private.routing_key.clone());
        let template = endpoint.settings.template.as_ref().and_then(|text| text.parse().ok());
        Some(Box::new(Self { routing_key: routing_key.unwrap_or_default(), template }))
    }
}

impl PreparedEndpoint {
    /// For an endpoint with these secrets, or with some that cannot be read.
    pub(super) fn new(endpoint: &Endpoint, secrets: Result<Vec<EndpointSecret>, String>) -> Self {
        let policy = &endpoint.settings.policy;
        let sealed = endpoint.private.as_ref().err().map(ToString::to_string);
        let unreadable = sealed.or(secrets.as_ref().err().filter(|_| policy.signed).cloned());
        let secrets = secrets.into_iter().flatten().filter(|_| policy.signed);
        let (signers, expiries) =
            secrets.map(|secret| (signer(secret.value), secret.expires_at)).unzip();
        let source = format!("/tenants/{}", endpoint.tenant);
        Self {
            route_settings: RouteSettings::new(endpoint),
            route: OnceLock::new(),
            envelope: endpoint.settings.envelope,
            thin_above: endpoint.settings.thin_above,
            notices: NoticeSettings::of(endpoint),
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

    /// Whose it is.
    pub(super) fn tenant(&self) -> &TenantId {
        &self.route_settings.tenant
    }

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        &self.route_settings.url
    }

    /// The route, or why no attempt can leave: the endpoint's settings do not fit this server's.
    pub(super) fn route(&self, sender: &Sender) -> &Result<Route, (Failure, String)> {
        self.route.get_or_init(|| self.route_settings.route(sender))
    }

    /// How a payload of so many bytes is wrapped.
    pub(super) fn envelope_of(&self, payload_len: usize) -> Envelope {
        let is_above = |bound: u32| payload_len as u64 > u64::from(bound);
        if self.thin_above.is_some_and(is_above) { Envelope::Thin } else { self.envelope }
    }

    /// What its envelope needs.
    pub(super) fn envelope_settings(&self) -> EnvelopeSettings<'_> {
        self.notices.as_deref().map_or_else(EnvelopeSettings::default, |notices| EnvelopeSettings {
            routing_key: &notices.routing_key,
            template: notices.template.as_ref(),
        })
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

/// All that a route is made of.
#[derive(Debug)]
struct RouteSettings {
    url: Box<str>,
    tenant: TenantId,
    timeout: Option<Span>,
    tls_min: TlsVersion,
    authorities_pem: Option<Box<str>>,
    /// Nothing if they are the usual ones.
    names: Option<Box<HeaderNames>>,
    /// An error if they cannot be read.
    private: Result<EndpointPrivate, String>,
}

impl RouteSettings {
    fn new(endpoint: &Endpoint) -> Self {
        let settings = &endpoint.settings;
        let names = &settings.header_names;
        Self {
            url: settings.url.as_str().into(),
            tenant: endpoint.tenant.clone(),
            timeout: settings.timeout,
            tls_min: settings.tls_min,
            authorities_pem: settings.authorities_pem.as_deref().map(Into::into),
            names: (*names != HeaderNames::default()).then(|| Box::new(names.clone())),
            private: endpoint.private.clone().map_err(text),
        }
    }

    fn route(&self, sender: &Sender) -> Result<Route, (Failure, String)> {
        let target = Target::parse(&self.url, sender.guard())
            .map_err(|problem| (Failure::BlockedAddress, problem.to_string()))?;
        self.route_to(target, sender).map_err(|problem| (Failure::NotSent, problem))
    }

    fn route_to(&self, target: Target, sender: &Sender) -> Result<Route, String> {
        let names = self.names.as_deref().cloned().unwrap_or_default();
        let private = self.private.as_ref().map_err(Clone::clone)?;
        let config = RouteConfig {
            timeouts: self.timeouts()?,
            tls: self.tls(private)?,
            headers: CustomHeaders::new(&private.headers, &names).map_err(text)?,
            names,
            tenant: Some(self.tenant.clone()),
            ..RouteConfig::new(target)
        };
        sender.route(&config).map_err(text)
    }

    fn timeouts(&self) -> Result<Timeouts, String> {
        let default = Timeouts::default();
        let Some(total) = self.timeout else { return Ok(default) };
        let total = Duration::from(total);
        Timeouts::new(default.connect().min(total), total).map_err(text)
    }

    fn tls(&self, private: &EndpointPrivate) -> Result<TlsSettings, String> {
        let identity = private.client_identity.as_ref().map(|identity| {
            let (chain, key) = (&identity.certificate_pem, &identity.key_pem);
            ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes())
        });
        let authorities = self.authorities_pem.as_ref();
        let extra_roots = authorities.map(|pem| Certificates::roots_from_pem(pem.as_bytes()));
        Ok(TlsSettings {
            min_version: match self.tls_min {
                TlsVersion::V12 => crate::TlsVersion::Tls12,
                TlsVersion::V13 => crate::TlsVersion::Tls13,
            },
            identity: identity.transpose().map_err(text)?,
            extra_roots: extra_roots.transpose().map_err(text)?,
        })
    }
}

fn text(problem: impl std::fmt::Display) -> String {
    problem.to_string()
}
