//! Secrets of an endpoint.

use railpost_engine::Span;
use serde_json::json;

use super::Session;
use super::confirm::Confirmation;
use super::failure::Outcome;
use super::list;
use super::out::{Column, age, field, full_column};

const COLUMNS: [Column; 5] = [
    full_column("id", |item| field(item, "id")),
    full_column("kind", |item| field(item, "kind")),
    full_column("active", |item| field(item, "active")),
    full_column("created", |item| age(item, "created_at")),
    full_column("expires", |item| age(item, "expires_at")),
];

pub(super) fn list(session: &Session, endpoint: &str) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", endpoint, "secrets"]);
    let secrets = session.client.get(&url)?;
    list::show_items(session, &secrets, &COLUMNS)?;
    if let Some(at) = secrets["next_rotation_at"].as_str() {
        session.out.hint(&format!("The server rotates them at {at}."));
    }
    Ok(())
}

pub(super) fn rotate(
    session: &Session,
    endpoint: &str,
    overlap: Span,
    confirmation: Confirmation,
) -> Outcome {
    if overlap == Span::ZERO {
        let effect = format!(
            "This makes a new secret for {endpoint} and ends the old ones at once: a receiver that does not have the new one rejects every delivery."
        );
        confirmation.ask(session.out, &effect)?;
    }
    let url = session.client.of_tenant(&["endpoints", endpoint, "secrets", "rotate"]);
    let made = session.client.post(&url, &json!({ "overlap": overlap }))?;
    session.out.record(&made)?;
    session.out.hint(&give_to_receiver(endpoint, &field(&made, "id")));
    session.out.hint(&match overlap == Span::ZERO {
        true => "The old secrets have ended.".to_owned(),
        false => format!("The old secrets sign too for {overlap}."),
    });
    Ok(())
}

/// What to do with a secret that was made.
pub(super) fn give_to_receiver(endpoint: &str, secret: &str) -> String {
    format!(
        "Give the secret to the receiver. To see it again: railpost endpoints reveal {endpoint} {secret}"
    )
}

pub(super) fn reveal(session: &Session, endpoint: &str, secret: &str) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", endpoint, "secrets", secret, "reveal"]);
    session.out.record(&session.client.act(&url)?)
}
