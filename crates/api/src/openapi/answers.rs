//! What the successful answer of each operation means to its caller.

use http::Method;

/// What the answer of this operation means, unless its type says so itself.
pub(crate) fn meaning(method: &Method, path: &str) -> Option<&'static str> {
    let found = ANSWERS.iter().find(|answer| (answer.0, answer.1) == (method.as_str(), path));
    found.map(|answer| answer.2)
}

/// Method, path, meaning. One line per operation, in the order of the document.
const ANSWERS: &[(&str, &str, &str)] = &[
    ("GET", "/docs", "A page with every operation, its parameters, bodies and answers."),
    ("GET", "/docs/errors", "A page with every error code: its status, its cause and what to do."),
    ("GET", "/docs/style.css", "The style sheet of the two pages."),
    ("GET", "/openapi.json", "This document."),
    (
        "GET",
        "/health/live",
        "The process runs and answers requests. This does not say whether it can accept events.",
    ),
    (
        "GET",
        "/metrics",
        "All metrics of this server. Figures about the store are at most five seconds old.",
    ),
    (
        "GET",
        "/v1/egress",
        "The networks that deliveries come from, for the allow lists of receivers. None: they are not fixed.",
    ),
    (
        "GET",
        "/v1/master-key/rotation",
        "How far the rotation of the master key is, or how the latest one ended.",
    ),
    ("POST", "/v1/master-key/rotation", "The rotation has begun, and goes on by itself."),
    ("GET", "/v1/whoami", "The API key of the request: its id, name, scope and tenant."),
    // Tenants and their keys.
    (
        "GET",
        "/v1/tenants",
        "A page of tenants. `next` is the cursor of the next page; without it this is the last page.",
    ),
    ("POST", "/v1/tenants", "The tenant exists and accepts events."),
    (
        "GET",
        "/v1/tenants/{tenant}",
        "The tenant. `erasing` has the progress while it is being deleted.",
    ),
    (
        "PATCH",
        "/v1/tenants/{tenant}",
        "The tenant as it is after the change. Its new limits apply at once.",
    ),
    (
        "DELETE",
        "/v1/tenants/{tenant}",
        "The tenant is marked: its keys are refused, it accepts no events, and nothing is sent to its endpoints. A \
         job erases its data; `erasing` of the tenant has the progress, and 404 says that all is erased.",
    ),
    ("GET", "/v1/tenants/{tenant}/keys", "A page of the tenant's API keys, without their values."),
    (
        "POST",
        "/v1/tenants/{tenant}/keys",
        "The key is valid at once. `key` has its value, which is shown this once.",
    ),
    (
        "DELETE",
        "/v1/tenants/{tenant}/keys/{key}",
        "The key is revoked: requests with it get 401 from now on.",
    ),
    ("GET", "/v1/keys", "A page of all API keys, without their values."),
    (
        "POST",
        "/v1/keys",
        "The key is valid at once. `key` has its value, which is shown this once.",
    ),
    ("DELETE", "/v1/keys/{key}", "The key is revoked: requests with it get 401 from now on."),
    // Endpoints.
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints",
        "A page of endpoints, each with its settings, without secrets.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints",
        "The endpoint exists and gets every matching event that is accepted from now on. `secret.value` is what \
         its receiver verifies with.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}",
        "The endpoint with its settings, without secrets.",
    ),
    (
        "PATCH",
        "/v1/tenants/{tenant}/endpoints/{endpoint}",
        "The endpoint as it is after the change, with its new `revision`. The next attempt uses the new settings.",
    ),
    (
        "DELETE",
        "/v1/tenants/{tenant}/endpoints/{endpoint}",
        "The endpoint is deleted, and nothing is sent to it any more. Its `open_deliveries` are being discarded in \
         the background; attempts in flight end first.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/health",
        "How the endpoint is doing just now: its state, its breaker, and what waits for it.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/figures",
        "Counts, rates and durations of the endpoint, one point per step, the earliest first.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/attempts",
        "The latest attempts at the endpoint, the newest first, each with its delivery and what came back.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/schedule",
        "When each attempt of a delivery would start that fails every time. Nothing is sent.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/pause",
        "The endpoint is paused: no attempt starts, attempts in flight end, and its backlog is kept and grows.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/resume",
        "`resumed` says what was done: an endpoint that was switched off is on, and sending ramps up from one \
         attempt at a time; or the open breaker lets one attempt through at once; or the pause that the receiver \
         asked for is over; or there was nothing to do.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/test",
        "A test event is stored, with one delivery to this endpoint. The delivery waits for the breaker and the \
         limits like any other: follow it with `GET …/deliveries/{delivery}`.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/probe",
        "The request was sent and this came back. `succeeded` says whether it was acknowledged; if not, `status` or \
         `failure` says why. Nothing is stored but an audit entry, and the endpoint's state is as before: `advice` \
         says whether to resume it.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets",
        "The endpoint's secrets: ids, kinds and times, without values.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets",
        "The secret signs every attempt from now on, beside the others. `value` is the secret itself.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/rotate",
        "The new secret signs every attempt from now on, beside the old ones until they expire. `value` is the \
         secret itself: give it to the receiver before then.",
    ),
    (
        "DELETE",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/{secret}",
        "The secret is deleted: attempts are not signed with it any more.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/endpoints/{endpoint}/secrets/{secret}/reveal",
        "The value of the secret. The audit trail has an entry with the key that asked.",
    ),
    // Event types.
    ("GET", "/v1/tenants/{tenant}/event-types", "A page of event types with their schemas."),
    ("GET", "/v1/tenants/{tenant}/event-types/{name}", "The event type with its schemas."),
    (
        "PUT",
        "/v1/tenants/{tenant}/event-types/{name}",
        "The event type as it is stored. Events that are published from now on are checked against its schemas.",
    ),
    (
        "DELETE",
        "/v1/tenants/{tenant}/event-types/{name}",
        "The event type is deleted. Events of this type are accepted without a check; stored ones stay.",
    ),
    // Events.
    (
        "POST",
        "/v1/tenants/{tenant}/events",
        "The event is durable: it is on disk, with one delivery for each endpoint that wants its type. \
         `deliveries` says how many; 0 means that no endpoint wants it. With `duplicate: true` it was accepted \
         before, and nothing new is sent. It is not delivered yet.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/events/batch",
        "All events are durable, with their deliveries, in one commit. There is one receipt for each event, in \
         the order of the request.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/events/stream",
        "The stream is open. There is one line of JSON for each line that was sent, in the same order: a receipt \
         once the event is durable, or the problem with it. A refused line does not stop the others.",
    ),
    ("GET", "/v1/tenants/{tenant}/events", "A page of events, without their payloads."),
    ("GET", "/v1/tenants/{tenant}/events/{event}", "The event. `GET …/payload` has its payload."),
    (
        "GET",
        "/v1/tenants/{tenant}/events/{event}/payload",
        "The payload, byte for byte as it was published, with its own content type.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/events/{event}/deliveries",
        "One delivery for each endpoint that the event went to, and one for each redelivery.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/events/{event}/redeliver",
        "A new delivery of the event to this endpoint is stored, at the end of its lane. The event id is the same; \
         attempts carry `X-Replay: true`.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/events/{event}/story",
        "Everything that happened to the event, the earliest first, and the endpoints that it did not match. \
         `left_off` counts entries beyond the first 1,000.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/find",
        "What was found in the tenant: up to 20 of each kind, each with the field that matched. An empty list means \
         that nothing matches.",
    ),
    (
        "GET",
        "/v1/find",
        "What was found in all tenants: up to 20 of each kind, each with the field that matched. An empty list means \
         that nothing matches.",
    ),
    // Deliveries, lanes and dead letters.
    (
        "GET",
        "/v1/tenants/{tenant}/deliveries",
        "A page of deliveries, each with its state and its place in its lane.",
    ),
    ("GET", "/v1/tenants/{tenant}/deliveries/{delivery}", "The delivery as it is just now."),
    (
        "GET",
        "/v1/tenants/{tenant}/deliveries/{delivery}/attempts",
        "A page of the attempts, each with what the receiver answered, or why no answer came.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/deliveries/{delivery}/discard",
        "The delivery is closed and is not sent again; its lane continues. If an attempt is in flight, the delivery \
         is discarded when that attempt ends, unless it is acknowledged.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/lanes/open",
        "Lanes with anything open, as the engine has them just now: how many are in which state, and the first of \
         them with what each waits for.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/lanes",
        "A page of held lanes, each with the dead letter that holds it.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/lanes/{lane}/replay",
        "The dead letter is pending again at the head of its lane, with new attempts. The lane continues once it is \
         acknowledged.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/lanes/{lane}/skip",
        "The lane continues with its next delivery. The dead letter stays and can be replayed outside its lane.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/lanes/{lane}/discard",
        "The dead letter is closed for good, and the lane continues with its next delivery.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/dead-letters",
        "A page of dead letters, each with the last answer of its receiver.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/dead-letters/{delivery}",
        "The dead letter with the last answer of its receiver and the hash of its payload.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/dead-letters/{delivery}/replay",
        "The dead letter is pending again, with new attempts: at the head of its lane if it holds it, otherwise \
         outside any lane.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/dead-letters/{delivery}/skip",
        "The lane continues with its next delivery. The dead letter stays and can be replayed outside its lane.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/dead-letters/{delivery}/discard",
        "The dead letter is closed for good; if it held its lane, the lane continues.",
    ),
    // Jobs over many deliveries.
    (
        "GET",
        "/v1/tenants/{tenant}/replays",
        "A page of replays, each with its filter and its progress.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/replays",
        "The job is stored and starts when the tenant's earlier ones have ended. `GET …/replays/{replay}` has its \
         progress. A dry run only counts the matching deliveries, and starts at once.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/replays/{replay}",
        "The job and its progress. `done` counts the deliveries that were handed over to sending; whether each \
         arrived is in its own state.",
    ),
    (
        "POST",
        "/v1/tenants/{tenant}/replays/{replay}/cancel",
        "The job stops before its next delivery. The deliveries that were handed over stay so.",
    ),
    // Figures, overview, audit.
    (
        "GET",
        "/v1/figures",
        "Counts, rates and durations of all tenants, one point per step, the earliest first.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/figures",
        "Counts, rates and durations of the tenant, one point per step, the earliest first.",
    ),
    (
        "GET",
        "/v1/report",
        "The objective, what was achieved, whose part the rest was, incidents, and each tenant.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/report",
        "The objective, what was achieved, whose part the rest was, incidents, and each endpoint.",
    ),
    (
        "GET",
        "/v1/overview",
        "Backlog, dead letters and endpoints that need attention, over all tenants.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/overview",
        "Backlog, dead letters and endpoints that need attention, of the tenant.",
    ),
    ("GET", "/v1/audit", "A page of audit entries of all tenants and of the server itself."),
    ("GET", "/v1/tenants/{tenant}/audit", "A page of the tenant's audit entries."),
    (
        "GET",
        "/v1/thin/{tenant}/{endpoint}/{event}",
        "The payload, byte for byte as it was published, with its own content type.",
    ),
    // Upkeep of the store.
    (
        "POST",
        "/v1/backup",
        "The backup is complete: a consistent snapshot, in the folder `backups` of the server's data folder. Copy it \
         to another machine.",
    ),
    ("POST", "/v1/prune", "Data past its retention is deleted; the answer counts it."),
    (
        "POST",
        "/v1/store/verify",
        "The check has ended. `whole` is false if the store is damaged; then `damage` says what, and a backup must \
         be restored.",
    ),
    (
        "POST",
        "/v1/lines/renew",
        "Every lane begins a new line with its next event. Open deliveries stay in their old lines.",
    ),
    // Sources of the outbox.
    ("GET", "/v1/outbox", "All sources, each with its state, its lag and what is wrong with it."),
    ("GET", "/v1/outbox/{source}", "The source with its state, its lag and what is wrong with it."),
    (
        "POST",
        "/v1/outbox/{source}/check",
        "The check has ended. `good` is false if a condition is not met; its finding says how to fix it.",
    ),
    ("GET", "/v1/outbox/{source}/parked", "A page of parked rows, without their payloads."),
    ("GET", "/v1/outbox/{source}/parked/{number}", "The parked row with its payload."),
    (
        "POST",
        "/v1/outbox/{source}/parked/retry-all",
        "All refused rows are handed over again, then the rows behind them. A row that is refused \
         again is parked again.",
    ),
    (
        "POST",
        "/v1/outbox/{source}/parked/{number}/retry",
        "The row is handed over again, then the rows behind it. If it is refused again, it is \
         parked again.",
    ),
    (
        "POST",
        "/v1/outbox/{source}/parked/{number}/skip",
        "The row is dropped for good, and the rows behind it are handed over.",
    ),
    (
        "POST",
        "/v1/outbox/{source}/parked/{number}/discard",
        "The row and all rows behind it are dropped for good.",
    ),
    (
        "GET",
        "/v1/outbox/grants",
        "All database roles that may call `railpost_emit`, each with its tenant.",
    ),
    ("GET", "/v1/outbox/grants/{role}", "The tenant that the role emits for."),
    (
        "PUT",
        "/v1/outbox/grants/{role}",
        "The role may call `railpost_emit`, and its events belong to this tenant.",
    ),
    (
        "DELETE",
        "/v1/outbox/grants/{role}",
        "The role may not call `railpost_emit` any more. Its events stay.",
    ),
    // Alerts.
    (
        "GET",
        "/v1/tenants/{tenant}/alerts",
        "A page of the tenant's alerts, open and resolved ones.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/alerts/open-count",
        "How many alerts of the tenant are open, by severity. At most a second old.",
    ),
    (
        "GET",
        "/v1/tenants/{tenant}/alerts/{alert}",
        "The alert, and the events of the tenant that told of it.",
    ),
    ("GET", "/v1/alerts", "A page of all alerts, open and resolved ones."),
    (
        "GET",
        "/v1/alerts/open-count",
        "How many alerts are open, by severity. At most a second old.",
    ),
    ("GET", "/v1/alerts/{alert}", "The alert, and the events that told of it."),
    (
        "POST",
        "/v1/alerts/test",
        "Both notices are published. Without endpoints that want them, they reach nobody.",
    ),
    ("GET", "/v1/alert-rules", "All rules, each with its settings in use and its open alerts."),
    ("GET", "/v1/silences", "All silences that have not ended."),
    (
        "POST",
        "/v1/silences",
        "Alerts that it covers are recorded and shown, and nothing of them is published until it ends.",
    ),
    (
        "POST",
        "/v1/silences/{silence}/end",
        "The silence has ended. Alerts that it covered and that are open are published.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_meaning_is_of_a_route_and_is_given_once() {
        let routes: BTreeSet<(String, &str)> = crate::routes()
            .iter()
            .map(|route| (route.operation.method.as_str().to_owned(), route.operation.path))
            .collect();
        let mut seen = BTreeSet::new();
        for (method, path, _) in ANSWERS {
            assert!(routes.contains(&((*method).to_owned(), path)), "{method} {path} is no route");
            assert!(seen.insert((method, path)), "{method} {path} has two meanings");
        }
    }
}
