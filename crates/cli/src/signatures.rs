//! `railpost sign` and `railpost verify`: signatures without a server.

use std::time::Duration;

use railpost_engine::Span;
use railpost_wire::{
    EventId, Header, Refusal, Secret, SignatureForm, Signer, SigningKey, Verified, Verifier,
    VerifyingKey, standard_signature, timestamped_signature,
};
use serde_json::{Map, json};

use super::failure::{Failure, Outcome};
use super::input;
use super::out::Out;
use super::system;

/// The arguments of `sign`.
#[derive(Debug, clap::Args)]
pub struct SignArguments {
    /// The body; `-` is stdin
    #[arg(default_value = "-")]
    file: String,
    /// A secret, `whsec_…`, or a signing key, `whsk_…`; may be given more than once
    #[arg(long = "secret", required = true, env = "RAILPOST_SECRET", hide_env_values = true)]
    secrets: Vec<String>,
    /// The event's id; without it one is made
    #[arg(long)]
    id: Option<String>,
    /// Seconds since 1970; without it, now
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<i64>,
}

/// The arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArguments {
    /// The body, byte for byte as it came; `-` is stdin
    #[arg(default_value = "-")]
    file: String,
    /// A secret that is trusted, `whsec_…`, or a verifying key, `whpk_…`; may be given more than once
    #[arg(long = "secret", required = true, env = "RAILPOST_SECRET", hide_env_values = true)]
    secrets: Vec<String>,
    /// A header of the request; may be given more than once
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// How far the timestamp may be off
    #[arg(long, default_value = "5m", value_name = "TIME")]
    tolerance: Span,
    /// Seconds since 1970 that count as now
    #[arg(long, value_name = "SECONDS")]
    now: Option<i64>,
}

fn now_seconds() -> i64 {
    i64::try_from(system::now().as_millis() / 1000).unwrap_or(i64::MAX)
}

pub(super) fn sign(arguments: &SignArguments, out: Out) -> Outcome {
    let bad = |error: &dyn std::fmt::Display| Failure::usage(format!("--secret: {error}"));
    let signers: Vec<Signer> = arguments
        .secrets
        .iter()
        .map(|text| text.parse().map_err(|error| bad(&error)))
        .collect::<Outcome<_>>()?;
    let event_id = event_id(arguments.id.as_deref())?;
    let timestamp = arguments.timestamp.unwrap_or_else(now_seconds);
    let body = input::read_file("FILE", &arguments.file)?;
    let mut headers = signed_headers(&signers, &event_id, timestamp, &body);
    if out.json {
        let headers: Map<_, _> =
            headers.map(|(name, value)| (name.to_owned(), json!(value))).collect();
        return out.value(&headers.into());
    }
    headers.try_for_each(|(name, value)| out.line(&format!("{name}: {value}")))
}

/// The headers that a signature needs, in the order in which they are sent.
fn signed_headers(
    signers: &[Signer],
    id: &EventId,
    timestamp: i64,
    body: &[u8],
) -> impl Iterator<Item = (&'static str, String)> {
    let headers = [
        (Header::WebhookId, Some(id.to_string())),
        (Header::WebhookTimestamp, Some(timestamp.to_string())),
        (Header::WebhookSignature, Some(standard_signature(signers, id, timestamp, body))),
        (Header::XWebhookSignature, timestamped_signature(signers, timestamp, body)),
    ];
    headers.into_iter().filter_map(|(header, value)| Some((header.default_name(), value?)))
}

fn event_id(given: Option<&str>) -> Outcome<EventId> {
    if let Some(text) = given {
        return text.parse().map_err(|error| Failure::usage(format!("--id: {error}")));
    }
    Ok(new_event_id())
}

pub(super) fn new_event_id() -> EventId {
    EventId::generate(system::now().as_millis(), system::random())
}

/// A verifier that trusts these secrets and keys. A signing key stands for its verifying half.
pub(super) fn verifier(texts: &[String]) -> Outcome<Verifier> {
    let (mut secrets, mut keys) = (Vec::new(), Vec::new());
    for text in texts {
        let bad = |error: railpost_wire::BadSecret| Failure::usage(format!("--secret: {error}"));
        if text.starts_with(VerifyingKey::PREFIX) {
            keys.push(text.parse().map_err(bad)?);
        } else if text.starts_with(SigningKey::PREFIX) {
            keys.push(text.parse::<SigningKey>().map_err(bad)?.verifying_key());
        } else {
            secrets.push(text.parse::<Secret>().map_err(bad)?);
        }
    }
    Ok(Verifier::new(secrets, keys))
}

pub(super) fn verify(arguments: &VerifyArguments, out: Out) -> Outcome {
    let tolerance = Duration::from_millis(arguments.tolerance.as_millis());
    let verifier = verifier(&arguments.secrets)?.tolerance(tolerance);
    let headers = parse_headers(&arguments.headers)?;
    let body = input::read_file("FILE", &arguments.file)?;
    let header = |name: &str| {
        let found = headers.iter().find(|(candidate, _)| candidate.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    };
    match verifier.verify(header, &body, arguments.now.unwrap_or_else(now_seconds)) {
        Ok(Verified { form, timestamp }) => {
            let header = match form {
                SignatureForm::Standard => "webhook-signature",
                SignatureForm::Timestamped => "X-Webhook-Signature",
            };
            out.done(
                &json!({ "verified": true, "header": header, "timestamp": timestamp }),
                &format!("verified: {header} was made with a trusted secret, at {timestamp}"),
            )
        }
        Err(refusal) => {
            Err(Failure::new(format!("not verified: {refusal}")).next(advice(&refusal)))
        }
    }
}

fn parse_headers(lines: &[String]) -> Outcome<Vec<(&str, &str)>> {
    lines
        .iter()
        .map(|line| {
            let parsed = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
            parsed.ok_or_else(|| {
                Failure::usage(format!("--header: expected `name: value`; got `{line}`"))
            })
        })
        .collect()
}

/// What usually lies behind a refusal.
fn advice(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::MissingHeader(_) => {
            "pass the request's headers with --header 'webhook-id: …' and so on"
        }
        Refusal::Malformed { .. } => "pass the header's value as it came",
        Refusal::Stale { .. } => {
            "the request is old: set --now to when it came, or --tolerance; and check the receiver's clock"
        }
        Refusal::Future { .. } => "check the clocks of sender and receiver",
        _ => {
            "use the endpoint's own secret, and the body's bytes exactly as they came: no parsing, no added newline"
        }
    }
}
