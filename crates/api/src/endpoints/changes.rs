//! The changed fields of an endpoint, for the audit trail.

use std::collections::BTreeSet;

use railpost_store::{Endpoint, EndpointPrivate, EndpointSettings};
use serde_json::{Value, json};

use super::EndpointFields;
use crate::audit::Changes;

/// What differs between an endpoint and the same a moment later.
pub(super) fn between(before: &Endpoint, after: &Endpoint) -> Changes {
    let mut changes = Changes::between(&settings(before), &settings(after));
    // What cannot be read is replaced as a whole.
    let (old, new) = (before.private.clone(), after.private.clone());
    add_private(&mut changes, &old.unwrap_or_default(), &new.unwrap_or_default());
    changes
}

/// The settings that differ from the defaults.
pub(super) fn since_nothing(endpoint: &Endpoint) -> Changes {
    let settings = EndpointSettings::all_events("");
    let private = Ok(EndpointPrivate::default());
    between(&Endpoint { settings, private, ..endpoint.clone() }, endpoint)
}

/// The settings that are shown, without empty texts, and the status.
fn settings(endpoint: &Endpoint) -> Value {
    let fields = EndpointFields::from(endpoint.settings.clone());
    let mut settings = serde_json::to_value(fields).unwrap_or_default();
    if let Some(fields) = settings.as_object_mut() {
        fields.retain(|_, value| *value != "");
    }
    settings["status"] = json!(endpoint.status);
    settings
}

fn add_private(changes: &mut Changes, before: &EndpointPrivate, after: &EndpointPrivate) {
    let names: BTreeSet<&String> = before.headers.keys().chain(after.headers.keys()).collect();
    for name in names {
        let path = format!("headers.{name}");
        changes.add_secret(&path, before.headers.get(name), after.headers.get(name));
    }
    let (old, new) = (before.client_identity.as_ref(), after.client_identity.as_ref());
    changes.add_secret("client_identity", old, new);
    let (old, new) = (before.routing_key.as_ref(), after.routing_key.as_ref());
    changes.add_secret("routing_key", old, new);
}
