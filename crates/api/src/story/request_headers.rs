//! The headers that an attempt sent, made again: what was sent is not stored.

use railpost_engine::{AttemptResult, Failure, Timestamp};
use railpost_store::{
    AttemptView as StoredAttempt, DeliveryView as Delivery, Endpoint, EndpointSecret, SecretValue,
};
use railpost_wire::{Attempt, Envelope, EnvelopeSettings, Event, Header, Signer};

use super::Facts;

/// Characters of a signature that are shown: enough to compare, too few to use.
const SIGNATURE_SHOWN: usize = 6;

/// What stands for what is not shown.
const HIDDEN: &str = "…";

/// The headers of one attempt by the endpoint's settings of today, as wire makes them; empty if nothing was sent
/// or the endpoint is gone.
pub(super) fn request_headers(
    facts: &Facts,
    view: &Delivery,
    attempt: &StoredAttempt,
    is_replay: bool,
) -> Vec<(String, String)> {
    let Some(endpoint) = facts.endpoints.get(&view.delivery.endpoint) else { return Vec::new() };
    let unsent = [Failure::NotSent, Failure::PayloadMissing, Failure::BlockedAddress];
    if let AttemptResult::Failed(failure) = attempt.detail.result
        && unsent.contains(&failure)
    {
        return Vec::new();
    }
    let stored = &facts.event.event;
    let envelope = envelope_of(endpoint, stored.payload.len());
    let source = format!("/tenants/{}", endpoint.tenant);
    let source = source.parse().expect("a tenant id is safe in a path");
    let private = endpoint.private.as_ref().ok();
    let routing_key = private.and_then(|private| private.routing_key.as_deref());
    let template = endpoint.settings.template.as_ref().and_then(|text| text.parse().ok());
    let settings = EnvelopeSettings {
        routing_key: routing_key.unwrap_or_default(),
        template: template.as_ref(),
    };
    let event = Event {
        id: &stored.id,
        event_type: &stored.event_type,
        key: stored.key.as_ref(),
        payload: &stored.payload,
        content_type: &stored.content_type,
        schema_version: stored.schema_version,
        unix_ms: stored.time.as_millis(),
        source: &source,
        cloudevent: stored.cloudevent.as_deref(),
        url: "",
    };
    let content = envelope.wrap_with(&event, &settings);
    let started_at = attempt.detail.started_at;
    let signers = signers(endpoint, facts.secrets.get(&endpoint.id), started_at);
    let own = Attempt {
        event_id: &stored.id,
        event_type: &stored.event_type,
        event_unix_ms: stored.time.as_millis(),
        schema_version: stored.schema_version,
        key: stored.key.as_ref(),
        line: view.line.as_ref().map(|place| &place.line),
        seq: view.line.as_ref().map(|place| place.seq),
        after: None,
        number: attempt.detail.number,
        replay: is_replay,
        thin: envelope == Envelope::Thin,
        timestamp: i64::try_from(started_at.as_millis() / 1000).unwrap_or(i64::MAX),
        body: &content.body,
        signers: &signers,
    };
    let names = &endpoint.settings.header_names;
    let of_content = content.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let values = own.values();
    let of_attempt = values.iter().map(|(header, value)| {
        let is_signature = matches!(header, Header::WebhookSignature | Header::XWebhookSignature);
        let value = if is_signature { shortened(value) } else { value.to_owned() };
        (names.name(header).to_owned(), value)
    });
    let own_headers = private.into_iter().flat_map(|private| private.headers.keys());
    let own_headers = own_headers.map(|name| (name.clone(), HIDDEN.to_owned()));
    of_content.chain(of_attempt).chain(own_headers).collect()
}

fn envelope_of(endpoint: &Endpoint, payload_len: usize) -> Envelope {
    let is_above = |bound: u32| payload_len as u64 > u64::from(bound);
    match endpoint.settings.thin_above.is_some_and(is_above) {
        true => Envelope::Thin,
        false => endpoint.settings.envelope,
    }
}

/// The secrets that signed then.
fn signers(
    endpoint: &Endpoint,
    secrets: Option<&Vec<EndpointSecret>>,
    at: Timestamp,
) -> Vec<Signer> {
    let signed = endpoint.settings.policy.signed;
    let active = |secret: &&EndpointSecret| {
        signed && secret.created_at <= at && secret.expires_at.is_none_or(|end| at < end)
    };
    let secrets = secrets.into_iter().flatten().filter(active);
    let signer = |secret: &EndpointSecret| match secret.value.clone() {
        SecretValue::Shared(secret) => Signer::Secret(secret),
        SecretValue::Signing(key) => Signer::Key(key),
    };
    secrets.map(signer).collect()
}

/// The value with the beginning of each signature alone: what stands between `,`, `=` and spaces and is too long
/// for a timestamp.
fn shortened(value: &str) -> String {
    let mut short = String::new();
    for part in value.split_inclusive([' ', ',', '=']) {
        let text = part.trim_end_matches([' ', ',', '=']);
        if text.len() > TIMESTAMP_LEN_MAX {
            short.push_str(&text[..text.floor_char_boundary(SIGNATURE_SHOWN)]);
            short.push_str(HIDDEN);
            short.push_str(part[text.len()..].trim_start_matches('='));
        } else {
            short.push_str(part);
        }
    }
    short
}

/// A timestamp in seconds has ten digits for the next two centuries.
const TIMESTAMP_LEN_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_shortened_and_the_rest_stays() {
        for (value, short) in [
            ("v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=", "v1,K5oZfz…"),
            (
                "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= v1a,hnO3f9T8Ytu9HwrXslvumlUpqtN=",
                "v1,K5oZfz… v1a,hnO3f9…",
            ),
            (
                "t=1700000000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e",
                "t=1700000000,v1=5257a8…",
            ),
        ] {
            assert_eq!(shortened(value), short);
        }
    }
}
