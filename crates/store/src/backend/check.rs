//! Bad input, refused before anything is written: the error names the field and the bound.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use railpost_engine::{Load, Timestamp};
use railpost_wire::cloudevents::Origin;
use railpost_wire::limits::{ROUTING_KEY_LEN_MAX, TEMPLATE_LEN_MAX};
use railpost_wire::{SilenceId, TenantId};

use ring::digest::{Context, SHA256};

use crate::backend::rows::to_json;
use crate::limits::*;
use crate::{
    AcceptBatch, AcceptRecord, Alert, ApiKey, AuditEntry, Change, Digest, EndpointPrivate,
    EndpointSettings, Epoch, Event, EventTypeRecord, Figures, FiguresScope, IdempotencyRecord,
    ParkBatch, ParkedSummary, PruneStep, RecordBatch, RedeliverBatch, ReleaseStep, Replay,
    ReplayState, Result, RowRefusal, RowToPark, Scope, Silence, SourceName, SourcePosition,
    StoreError, Sweep, TenantSettings, Write,
};

/// An accept is within its bounds, and no event stands in it twice.
pub fn accept(batch: &AcceptBatch) -> Result<()> {
    at_most("events (entries)", batch.events.len(), BATCH_EVENTS_MAX)?;
    let bytes = batch.events.iter().map(|event| event.payload.len()).sum();
    at_most("events (bytes of payload)", bytes, BATCH_BYTES_MAX)?;
    for (index, event) in batch.events.iter().enumerate() {
        check_event(event).map_err(|error| within(&format!("events[{index}]"), error))?;
    }
    match &batch.events[..] {
        [] | [_] => {}
        events => different_ids(events)?,
    }
    let Some(AcceptRecord { record, body_len_max, .. }) = batch.idempotency.as_deref() else {
        return Ok(());
    };
    at_most("idempotency.body (bytes)", *body_len_max, IDEMPOTENCY_BODY_LEN_MAX)?;
    idempotency(record)
}

fn different_ids(events: &[Event]) -> Result<()> {
    let mut ids = HashSet::with_capacity(events.len());
    match events.iter().position(|event| !ids.insert(&event.id)) {
        None => Ok(()),
        Some(index) => {
            let problem = format!("`{}` stands in the batch twice", events[index].id);
            Err(StoreError::invalid(format!("events[{index}].id"), problem))
        }
    }
}

fn check_event(event: &Event) -> Result<()> {
    at_most("payload (bytes)", event.payload.len(), PAYLOAD_LEN_MAX)?;
    event.cloudevent.as_deref().map_or(Ok(()), check_cloudevent)?;
    match &event.traceparent {
        Some(traceparent) => printable("traceparent", traceparent, TRACEPARENT_LEN_MAX),
        None => Ok(()),
    }
}

fn check_cloudevent(origin: &Origin) -> Result<()> {
    let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let (count, bytes) = (origin.extensions.len(), origin.extension_bytes());
    for (field, value, max) in [
        ("cloudevent.id (bytes)", origin.id.len(), CLOUDEVENT_ID_LEN_MAX),
        ("cloudevent.source (bytes)", origin.source.len(), CLOUDEVENT_URI_LEN_MAX),
        ("cloudevent.subject (bytes)", len(&origin.subject), CLOUDEVENT_SUBJECT_LEN_MAX),
        ("cloudevent.dataschema (bytes)", len(&origin.dataschema), CLOUDEVENT_URI_LEN_MAX),
        ("cloudevent.extensions (entries)", count, CLOUDEVENT_EXTENSIONS_MAX),
        ("cloudevent.extensions (bytes)", bytes, CLOUDEVENT_EXTENSION_BYTES_MAX),
    ] {
        at_most(field, value, max)?;
    }
    Ok(())
}

/// A redelivery is within its bounds.
pub fn redeliver(batch: &RedeliverBatch) -> Result<()> {
    at_most("orders (entries)", batch.orders.len(), BATCH_EVENTS_MAX)?;
    batch.audit.as_ref().map_or(Ok(()), audit)?;
    batch.idempotency.as_deref().map_or(Ok(()), idempotency)
}

/// A record is within its bounds.
pub fn record(batch: &RecordBatch) -> Result<()> {
    at_most("transitions (entries)", batch.transitions.len(), BATCH_RECORDS_MAX)?;
    at_most("endpoints (entries)", batch.endpoints.len(), BATCH_RECORDS_MAX)?;
    at_most("audit (entries)", batch.audit.len(), BATCH_RECORDS_MAX)?;
    batch.audit.iter().try_for_each(audit)
}

/// A load is within its bounds.
pub fn load(load: &Load) -> Result<()> {
    let (limit, window) = match load {
        Load::Lanes { limit, window, .. } => (*limit, *window),
        Load::Lane { limit, .. } | Load::Unkeyed { limit, .. } => (*limit, 1),
    };
    in_bounds("limit", limit, LOAD_LIMIT_MAX)?;
    in_bounds("window", window, LOAD_LIMIT_MAX)
}

fn in_bounds(field: &str, value: u32, max: u32) -> Result<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(StoreError::invalid(field, format!("expected 1 to {max}; got {value}")))
}

/// How much one step of upkeep may do.
pub fn step(limit: u32) -> Result<()> {
    in_bounds("limit", limit, UPKEEP_STEP_MAX)
}

/// A page of due rotations is within its bounds.
pub fn due_rotations(limit: u32) -> Result<()> {
    in_bounds("limit", limit, LIST_LIMIT_MAX)
}

/// A step of re-encryption is within its bounds.
pub fn reencrypt(limit: u32) -> Result<()> {
    in_bounds("limit", limit, REENCRYPT_STEP_MAX)
}

/// A sweep is within its bounds.
pub fn sweep(sweep: &Sweep) -> Result<()> {
    in_bounds("limit", sweep.limit, SWEEP_MAX)
}

/// A step of pruning is within its bounds.
pub fn prune(step: &PruneStep) -> Result<()> {
    self::step(step.limit)
}

/// A change is within its bounds.
pub fn change(change: &Change) -> Result<()> {
    at_most("writes (entries)", change.writes.len(), CHANGE_WRITES_MAX)?;
    change.writes.iter().try_for_each(write)?;
    change.audit.as_ref().map_or(Ok(()), audit)?;
    change.idempotency.as_deref().map_or(Ok(()), idempotency)
}

fn write(write: &Write) -> Result<()> {
    match write {
        Write::CreateTenant(_, settings) | Write::UpdateTenant(_, settings) => tenant(settings),
        Write::CreateEndpoint(new) => endpoint(&new.settings, &new.private),
        Write::UpdateEndpoint { settings, private, .. } => endpoint(settings, private),
        Write::PutEventType(record) => event_type(record),
        Write::CreateApiKey(key) => text("name", &key.name, TEXT_LEN_MAX),
        Write::RenameApiKey(_, name) => text("name", name, TEXT_LEN_MAX),
        Write::PutReplay(put) => replay(put),
        Write::EraseTenant(_)
        | Write::SetEndpointStatus(..)
        | Write::RemoveEndpoint(_)
        | Write::CreateSecret(_)
        | Write::ExpireSecret { .. }
        | Write::RemoveSecret { .. }
        | Write::RemoveEventType(..)
        | Write::RevokeApiKey(..)
        | Write::TouchApiKey(..) => Ok(()),
    }
}

/// Whether `key` may be revoked at `at`, given all keys that are no tenant's.
pub fn admin_key_remains(key: &ApiKey, at: Timestamp, all: &[ApiKey]) -> Result<()> {
    let is_worth_something = key.revoked_at.is_none() && key.expires_at.is_none_or(|end| at < end);
    let stays = |other: &ApiKey| {
        let lasts = other.revoked_at.is_none() && other.expires_at.is_none();
        other.id != key.id && other.scope == Scope::Admin && lasts
    };
    match key.scope == Scope::Admin && is_worth_something && !all.iter().any(stays) {
        true => Err(StoreError::LastAdminKey),
        false => Ok(()),
    }
}

fn tenant(settings: &TenantSettings) -> Result<()> {
    text("name", &settings.name, TEXT_LEN_MAX)?;
    match settings.backlog_max {
        Some(max) if max > BACKLOG_MAX => {
            let problem = format!("expected at most {BACKLOG_MAX}; got {max}");
            Err(StoreError::invalid("backlog_max", problem))
        }
        _ => Ok(()),
    }
}

fn endpoint(settings: &EndpointSettings, private: &EndpointPrivate) -> Result<()> {
    printable("url", &settings.url, URL_LEN_MAX)?;
    text("description", &settings.description, TEXT_LEN_MAX)?;
    at_most("filters (entries)", settings.filters.len(), FILTERS_MAX)?;
    if settings.filters.is_empty() {
        let problem = "expected at least one event type, such as `order.*`, or `*` for all";
        return Err(StoreError::invalid("filters", problem));
    }
    if let Some(bound) = settings.thin_above {
        at_most("thin_above", bound as usize, PAYLOAD_LEN_MAX)?;
    }
    if let Some(template) = &settings.template {
        at_most("template", template.len(), TEMPLATE_LEN_MAX)?;
    }
    if let Some(routing_key) = &private.routing_key {
        printable("routing_key", routing_key, ROUTING_KEY_LEN_MAX)?;
    }
    at_most("headers (entries)", private.headers.len(), HEADERS_MAX)?;
    for (name, value) in &private.headers {
        printable("headers (name)", name, HEADER_VALUE_LEN_MAX)?;
        printable("headers (value)", value, HEADER_VALUE_LEN_MAX)?;
    }
    if let Some(identity) = &private.client_identity {
        at_most("client_identity.certificate_pem", identity.certificate_pem.len(), PEM_LEN_MAX)?;
        at_most("client_identity.key_pem", identity.key_pem.len(), PEM_LEN_MAX)?;
    }
    Ok(())
}

fn event_type(record: &EventTypeRecord) -> Result<()> {
    text("description", &record.description, TEXT_LEN_MAX)?;
    at_most("schemas (entries)", record.schemas.len(), SCHEMA_VERSIONS_MAX)?;
    let lens = record.schemas.values().map(|schema| schema.to_string().len());
    let (longest, all) = lens.fold((0, 0), |(longest, all), len| (len.max(longest), all + len));
    at_most("schemas (bytes)", longest, SCHEMA_LEN_MAX)?;
    at_most("schemas (bytes of all versions)", all, 10 * SCHEMA_LEN_MAX)
}

fn replay(replay: &Replay) -> Result<()> {
    text("actor", &replay.actor, TEXT_LEN_MAX)?;
    text("problem", replay.problem.as_deref().unwrap_or_default(), TEXT_LEN_MAX)?;
    if replay.rate_per_s == Some(0) {
        return Err(StoreError::invalid("rate_per_s", "expected 1 or more, or nothing; got 0"));
    }
    at_most("preview (deliveries)", replay.preview.len(), REPLAY_PREVIEW_MAX)?;
    let runs = replay.state == ReplayState::Running;
    if runs == replay.finished_at.is_some() {
        let problem = "expected an instant once it does not run, and none while it does";
        return Err(StoreError::invalid("finished_at", problem));
    }
    Ok(())
}

/// Figures are within their bounds.
pub fn figures(batch: &[(FiguresScope, Timestamp, Figures)]) -> Result<()> {
    at_most("figures (entries)", batch.len(), FIGURES_BATCH_MAX)?;
    for (_, _, figures) in batch {
        let status = figures.by_status.last_key_value().map_or(0, |(status, _)| *status);
        at_most("by_status (status)", status.into(), FIGURES_STATUS_MAX.into())?;
        at_most("by_failure (entries)", figures.by_failure.len(), FIGURES_FAILURES_MAX)?;
        let longest = figures.by_failure.keys().map(String::len).max().unwrap_or_default();
        at_most("by_failure (bytes of a name)", longest, FIGURES_FAILURE_LEN_MAX)?;
    }
    Ok(())
}

/// How many replays run besides one that is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningReplays {
    /// Of the replay's own tenant.
    pub of_tenant: usize,
    /// Of all tenants.
    pub of_all: usize,
}

/// A new replay that is to run fits among the `others` that do.
pub fn replay_fits(others: RunningReplays, replay: &Replay) -> Result<()> {
    if replay.state != ReplayState::Running {
        return Ok(());
    }
    let RunningReplays { of_tenant, of_all } = others;
    at_most("running replays (of the tenant)", of_tenant + 1, REPLAYS_RUNNING_PER_TENANT_MAX)?;
    at_most("running replays (of all tenants)", of_all + 1, REPLAYS_RUNNING_MAX)
}

/// What was put is stored: a row was written. Otherwise it is not this caller's to change.
pub fn replay_put(rows: u64, replay: &Replay) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    let problem = format!("replay `{}` has finished or is another tenant's", replay.id);
    Err(StoreError::conflict("id", problem))
}

/// An audit entry is within its bounds.
pub fn audit(entry: &AuditEntry) -> Result<()> {
    for (field, value) in
        [("actor", &entry.actor), ("action", &entry.action), ("target", &entry.target)]
    {
        text(field, value, TEXT_LEN_MAX)?;
    }
    at_most("detail (bytes)", entry.detail.to_string().len(), AUDIT_DETAIL_LEN_MAX)
}

/// Alerts are within their bounds.
pub fn alerts(alerts: &[Alert]) -> Result<()> {
    at_most("alerts (entries)", alerts.len(), ALERTS_BATCH_MAX)?;
    for alert in alerts {
        text("rule", &alert.rule, ALERT_RULE_LEN_MAX)?;
        text("subject", &alert.subject, ALERT_SUBJECT_LEN_MAX)?;
        text("summary", &alert.summary, ALERT_SUMMARY_LEN_MAX)?;
        at_most("details (bytes)", alert.details.to_string().len(), ALERT_DETAILS_LEN_MAX)?;
    }
    Ok(())
}

/// A silence and its audit entry are within their bounds.
pub fn silence(silence: &Silence, entry: &AuditEntry) -> Result<()> {
    text("rule", silence.rule.as_deref().unwrap_or_default(), ALERT_RULE_LEN_MAX)?;
    text("subject", silence.subject.as_deref().unwrap_or_default(), ALERT_SUBJECT_LEN_MAX)?;
    text("by", &silence.by, TEXT_LEN_MAX)?;
    text("reason", &silence.reason, SILENCE_REASON_LEN_MAX)?;
    if silence.until <= silence.from {
        return Err(StoreError::invalid("until", "expected an instant after `from`"));
    }
    audit(entry)
}

/// There is room for another silence beside so many.
pub fn silence_fits(others: usize) -> Result<()> {
    at_most("silences (at a time)", others + 1, SILENCES_MAX)
}

/// What is said of a silence that does not exist or has ended.
pub fn no_silence(id: SilenceId) -> StoreError {
    StoreError::NotFound(format!("silence `{id}` that has not ended"))
}

fn idempotency(record: &IdempotencyRecord) -> Result<()> {
    let key = &record.key;
    for (field, value) in [
        ("idempotency.owner", &key.owner),
        ("idempotency.route", &key.route),
        ("idempotency.key", &key.key),
    ] {
        text(field, value, IDEMPOTENCY_TEXT_LEN_MAX)?;
    }
    at_most("idempotency.body (bytes)", record.response.body.len(), IDEMPOTENCY_BODY_LEN_MAX)
}

/// Refuses a `value` beyond `max`, and names the field.
pub fn at_most(field: &str, value: usize, max: usize) -> Result<()> {
    if value <= max {
        return Ok(());
    }
    Err(StoreError::invalid(field, format!("expected at most {max}; got {value}")))
}

/// How long a source is leased, and by whom.
pub fn lease(holder: &str) -> Result<()> {
    text("holder", holder, SOURCE_HOLDER_LEN_MAX)
}

/// How far a source was read.
pub fn position(position: &SourcePosition) -> Result<()> {
    text("system", &position.system, SOURCE_SYSTEM_LEN_MAX)?;
    number(position.number)
}

fn number(value: u64) -> Result<()> {
    if i64::try_from(value).is_ok() {
        return Ok(());
    }
    Err(StoreError::invalid("number", format!("expected at most {}; got {value}", i64::MAX)))
}

/// Rows to park. Answers how many bytes they have.
pub fn park(batch: &ParkBatch) -> Result<u64> {
    at_most("rows (entries)", batch.rows.len(), PARK_ROWS_MAX)?;
    let mut bytes = 0;
    for (index, row) in batch.rows.iter().enumerate() {
        let len = parked_len(row);
        let checked = at_most("row (bytes)", len as usize, PARKED_ROW_LEN_MAX)
            .and_then(|()| row.refusal.as_ref().map_or(Ok(()), refusal));
        checked.map_err(|error| within(&format!("rows[{index}]"), error))?;
        bytes += len;
    }
    at_most("rows (bytes)", bytes as usize, PARKED_ROW_LEN_MAX)?;
    Ok(bytes)
}

/// How many bytes a parked row counts for: its payload, and its other fields as JSON.
pub fn parked_len(row: &RowToPark) -> u64 {
    let payload = row.payload.as_ref().map_or(0, Bytes::len);
    (payload + to_json(&row.fields).len()) as u64
}

/// What tells a parked row from others: all that it holds. A row that was parked and not removed at its
/// source is read again, and is the same.
pub fn parked_digest(row: &RowToPark) -> Digest {
    let mut context = Context::new(&SHA256);
    let fields = to_json(&row.fields);
    context.update(&(fields.len() as u64).to_be_bytes());
    context.update(fields.as_bytes());
    context.update(row.payload.as_deref().unwrap_or_default());
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Whether rows may be parked beside those that are.
pub fn parked_fit(summary: ParkedSummary, rows: usize, bytes: u64) -> bool {
    summary.rows + rows as u64 <= PARKED_ROWS_MAX && summary.bytes + bytes <= PARKED_BYTES_MAX
}

fn refusal(refusal: &RowRefusal) -> Result<()> {
    at_most("refusal.reason (bytes)", refusal.reason.len(), REFUSAL_REASON_LEN_MAX)?;
    at_most("refusal.code (bytes)", refusal.code.len(), FIGURES_FAILURE_LEN_MAX)
}

/// What became of released rows.
pub fn release_step(step: &ReleaseStep) -> Result<()> {
    at_most("accepted (entries)", step.accepted.len(), PARK_ROWS_MAX)?;
    step.refused.as_ref().map_or(Ok(()), |(_, again)| refusal(again))
}

/// A source is forgotten when nothing of it is parked.
pub fn nothing_parked(source: &SourceName, rows: u64) -> Result<()> {
    if rows == 0 {
        return Ok(());
    }
    let problem =
        format!("{rows} rows of source `{source}` are parked: retry or discard them first");
    Err(StoreError::conflict("source", problem))
}

/// What is said of a row that a command cannot be about.
pub fn no_head(source: &SourceName, number: u64) -> StoreError {
    StoreError::NotFound(format!("a parked row {number} of source `{source}` that holds others"))
}

/// What is said of roles where there are none.
pub fn no_emit_roles() -> StoreError {
    let problem =
        "only a PostgreSQL store has the function `railpost_emit`: set store.url to its URL";
    StoreError::invalid("store", problem)
}

/// One page of a list may name so many deliveries, endpoints or events.
pub fn page_of<T>(what: &str, named: &[T]) -> Result<()> {
    at_most(&format!("{what} (entries)"), named.len(), LIST_LIMIT_MAX as usize)
}

/// A text that every database can hold: not too long, and without the one character that some
/// cannot.
fn text(field: &str, value: &str, max: usize) -> Result<()> {
    at_most(&format!("{field} (bytes)"), value.len(), max)?;
    if value.contains('\0') {
        return Err(StoreError::invalid(field, "expected a text without NUL characters"));
    }
    Ok(())
}

/// A text that can stand in an HTTP request.
fn printable(field: &str, value: &str, max: usize) -> Result<()> {
    at_most(&format!("{field} (bytes)"), value.len(), max)?;
    if value.is_empty() || !value.bytes().all(|c| c.is_ascii_graphic() || c == b' ') {
        return Err(StoreError::invalid(field, "expected visible ASCII"));
    }
    Ok(())
}

fn within(path: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Invalid { field, problem } => {
            StoreError::Invalid { field: format!("{path}.{field}"), problem }
        }
        StoreError::Conflict { field, problem } => {
            StoreError::Conflict { field: format!("{path}.{field}"), problem }
        }
        other => other,
    }
}

/// Refuses an event whose id the tenant has used for another one; names what differs. The time is no
/// part of it: a producer that gives none gets the time of each try.
pub fn same_event(index: usize, stored: &Event, given: &Event) -> Result<()> {
    let differs = [
        ("type", stored.event_type != given.event_type),
        ("key", stored.key != given.key),
        ("payload", stored.payload != given.payload),
        ("content_type", stored.content_type != given.content_type),
        ("schema_version", stored.schema_version != given.schema_version),
    ];
    match differs.into_iter().find(|(_, differs)| *differs) {
        Some((field, _)) => {
            let problem = format!("event `{}` was accepted before with another {field}", given.id);
            Err(StoreError::conflict(format!("events[{index}].{field}"), problem))
        }
        None => Ok(()),
    }
}

/// Refuses a change that was made from another revision than the stored one.
pub fn revision(id: impl fmt::Display, stored: u64, given: Option<u64>) -> Result<()> {
    match given {
        Some(given) if given != stored => {
            let problem = format!("`{id}` is at revision {stored}, not {given}: look again");
            Err(StoreError::conflict("revision", problem))
        }
        _ => Ok(()),
    }
}

/// What is created must not have existed: a row was added.
pub fn created(rows: u64, what: &str, id: impl fmt::Display) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(StoreError::conflict("id", format!("{what} `{id}` exists")))
}

/// A tenant's id is free: a row was added. One that is being erased keeps its id until that has ended.
pub fn tenant_created(rows: u64, id: &TenantId, erasing: bool) -> Result<()> {
    match erasing {
        true => {
            let problem =
                format!("tenant `{id}` is being erased; its id is free when that has ended");
            Err(StoreError::conflict("id", problem))
        }
        false => created(rows, "tenant", id),
    }
}

/// Only a tenant that is marked for it is erased.
pub fn is_erasing(erasing: bool, id: &TenantId) -> Result<()> {
    match erasing {
        true => Ok(()),
        false => Err(StoreError::conflict("tenant", format!("tenant `{id}` is not being erased"))),
    }
}

/// What is changed must have existed: a row was changed.
pub fn found(rows: u64, what: &str, id: impl fmt::Display) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(StoreError::not_found(what, id))
}

/// An epoch that every database can hold.
pub fn epoch(epoch: Epoch) -> Result<()> {
    if i64::try_from(epoch.0).is_ok() {
        return Ok(());
    }
    Err(StoreError::invalid("epoch", format!("expected at most {}; got {}", i64::MAX, epoch.0)))
}
