//! Secrets of an endpoint.

use railpost_engine::Span;
use serde_json::json;

use super::Session;
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
    list::show_items(session, &session.client.get(&url)?, &COLUMNS)
}

pub(super) fn rotate(session: &Session, endpoint: &str, overlap: Span) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", endpoint, "secrets", "rotate"]);
    let made = session.client.post(&url, &json!({ "overlap": overlap }))?;
    session.out.record(&made)?;
    session.out.hint(&format!(
        "Give the new secret to the receiver: it is not shown again. The old ones sign too for {overlap}."
    ));
    Ok(())
}

pub(super) fn reveal(session: &Session, endpoint: &str, secret: &str) -> Outcome {
    let url = session.client.of_tenant(&["endpoints", endpoint, "secrets", secret, "reveal"]);
    session.out.record(&session.client.act(&url)?)
}
