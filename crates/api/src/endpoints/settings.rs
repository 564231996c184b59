//! The settings of an endpoint, validated: settings that could never work are rejected when they are entered.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use railpost_dispatch::{Certificates, CustomHeaders, Target, Timeouts};
use railpost_engine::{Policy, Span};
use railpost_store::limits::{
    FILTERS_MAX, HEADER_VALUE_LEN_MAX, HEADERS_MAX, PAYLOAD_LEN_MAX, PEM_LEN_MAX, ROTATE_EVERY_MAX,
    ROTATE_EVERY_MIN, ROTATE_OVERLAP_MAX,
};
use railpost_store::{ClientIdentity, EndpointPrivate, EndpointSettings};
use railpost_wire::limits::ROUTING_KEY_LEN_MAX;
use railpost_wire::{BadTemplate, Envelope, HeaderNames, Template};

use super::shape::{EndpointFields, EndpointInput};
use crate::app::App;
use crate::problem::Problem;

/// The settings that were chosen, or which field cannot be so.
pub(super) fn checked(
    app: &App,
    input: EndpointInput,
) -> Result<(EndpointSettings, EndpointPrivate), Problem> {
    let EndpointInput { fields, private } = input;
    let EndpointFields {
        url,
        description,
        types,
        policy,
        envelope,
        thin_above,
        template,
        renamed_headers,
        tls_min,
        authorities_pem,
        timeout,
        rotate_every,
        rotate_overlap,
    } = fields;
    let settings = EndpointSettings {
        url,
        description,
        filters: types,
        policy: Policy::new(policy).map_err(policy_problem)?,
        envelope,
        thin_above,
        template,
        header_names: renamed_headers,
        tls_min,
        authorities_pem,
        timeout,
        rotate_every,
        rotate_overlap,
        managed_by: None,
    };
    check(app, &settings, &private)?;
    Ok((settings, private))
}

fn policy_problem(error: railpost_engine::PolicyError) -> Problem {
    Problem::from(error).within("policy")
}

/// Checks the settings of an endpoint, of a request or of a configuration file.
pub fn check(
    app: &App,
    settings: &EndpointSettings,
    private: &EndpointPrivate,
) -> Result<(), Problem> {
    Target::parse(&settings.url, &app.guard).map_err(at("url"))?;
    check_types(settings.filters.len())?;
    check_headers(&private.headers, &settings.header_names)?;
    settings.timeout.map_or(Ok(()), check_timeout)?;
    settings.thin_above.map_or(Ok(()), check_thin_above)?;
    check_rotation(settings)?;
    check_envelope(settings, private)?;
    if let Some(pem) = &settings.authorities_pem {
        if pem.len() > PEM_LEN_MAX {
            let detail = format!("expected at most {PEM_LEN_MAX} bytes; got {}", pem.len());
            return Err(Problem::field("authorities_pem", detail));
        }
        Certificates::roots_from_pem(pem.as_bytes()).map_err(at("authorities_pem"))?;
    }
    if let Some(ClientIdentity { certificate_pem, key_pem }) = &private.client_identity {
        let (chain, key) = (certificate_pem.as_bytes(), key_pem.as_bytes());
        let identity = railpost_dispatch::ClientIdentity::from_pem(chain, key);
        identity.map_err(at("client_identity"))?;
    }
    Ok(())
}

fn at<E: Display>(field: &'static str) -> impl Fn(E) -> Problem {
    move |error| Problem::field(field, error.to_string())
}

fn check_thin_above(bound: u32) -> Result<(), Problem> {
    if bound as usize <= PAYLOAD_LEN_MAX {
        return Ok(());
    }
    let detail = format!("expected 0 to {PAYLOAD_LEN_MAX} bytes; got {bound}");
    Err(Problem::field("thin_above", detail))
}

fn check_rotation(settings: &EndpointSettings) -> Result<(), Problem> {
    let between = |field: &str, span: Span, min: Span, max: Span| {
        let detail = format!("expected {min} to {max}; got {span}");
        if (min..=max).contains(&span) { Ok(()) } else { Err(Problem::field(field, detail)) }
    };
    if let Some(every) = settings.rotate_every {
        between("rotate_every", every, ROTATE_EVERY_MIN, ROTATE_EVERY_MAX)?;
    }
    let Some(overlap) = settings.rotate_overlap else { return Ok(()) };
    between("rotate_overlap", overlap, Span::ZERO, ROTATE_OVERLAP_MAX)?;
    match settings.rotate_every {
        Some(every) if overlap < every => Ok(()),
        Some(every) => {
            let detail = format!("expected less than `rotate_every`, {every}; got {overlap}");
            Err(Problem::field("rotate_overlap", detail))
        }
        None => Err(Problem::field("rotate_overlap", "it needs `rotate_every`: set both")),
    }
}

/// That the endpoint has what its envelope needs.
pub(crate) fn check_envelope(
    settings: &EndpointSettings,
    private: &EndpointPrivate,
) -> Result<(), Problem> {
    let envelope = settings.envelope;
    if let Some(template) = &settings.template {
        let bad = |error: BadTemplate| Problem::field("template", error.to_string());
        template.parse::<Template>().map(drop).map_err(bad)?;
    }
    if let Some(routing_key) = &private.routing_key {
        check_routing_key(routing_key)?;
    }
    if envelope == Envelope::Template && settings.template.is_none() {
        return Err(Problem::field("template", "the envelope `template` needs one"));
    }
    if envelope == Envelope::Pagerduty && private.routing_key.is_none() {
        return Err(Problem::field("routing_key", "the envelope `pagerduty` needs one"));
    }
    if envelope.shows_notices() && settings.thin_above.is_some() {
        let detail = "expected none: the receiver of such an envelope cannot read a reference";
        return Err(Problem::field("thin_above", detail));
    }
    Ok(())
}

/// The value is a secret: it is not shown.
fn check_routing_key(routing_key: &str) -> Result<(), Problem> {
    let is_printable = routing_key.bytes().all(|c| c.is_ascii_graphic());
    if is_printable && (1..=ROUTING_KEY_LEN_MAX).contains(&routing_key.len()) {
        return Ok(());
    }
    let detail = format!("expected 1 to {ROUTING_KEY_LEN_MAX} visible ASCII characters");
    Err(Problem::field("routing_key", detail))
}

fn check_types(count: usize) -> Result<(), Problem> {
    if (1..=FILTERS_MAX).contains(&count) {
        return Ok(());
    }
    let expected = format!("expected 1 to {FILTERS_MAX} of them, such as `order.*`; got {count}");
    Err(Problem::field("types", expected))
}

fn check_headers(headers: &BTreeMap<String, String>, names: &HeaderNames) -> Result<(), Problem> {
    if headers.len() > HEADERS_MAX {
        let detail = format!("expected at most {HEADERS_MAX} headers; got {}", headers.len());
        return Err(Problem::field("headers", detail));
    }
    let field = |name: &str| format!("headers.{name}");
    if let Some((name, value)) = headers.iter().find(|(_, v)| v.len() > HEADER_VALUE_LEN_MAX) {
        let got = value.len();
        let detail = format!("expected at most {HEADER_VALUE_LEN_MAX} bytes; got {got}");
        return Err(Problem::field(field(name), detail));
    }
    let checked = CustomHeaders::new(headers, names);
    checked.map(drop).map_err(|error| Problem::field(field(&error.name), error.to_string()))
}

fn check_timeout(total: Span) -> Result<(), Problem> {
    let total = Duration::from(total);
    Timeouts::new(Timeouts::default().connect().min(total), total).map(drop).map_err(at("timeout"))
}
