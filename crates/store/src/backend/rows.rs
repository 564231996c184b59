//! Rows of either database, read back as what they were written from. Both have the same tables and
//! columns, so what a statement selects and how it is read stands here once.

use std::str::FromStr;

use bytes::Bytes;
use railpost_engine::{
    AttemptResult, DeadReason, Delivery, LaneId, Place, Progress, Span, Timestamp,
};
use railpost_wire::cloudevents::Origin;
use railpost_wire::{DeliveryId, EndpointId, EventId, Key, NodeId, SecretId, Seq};
use serde::de::DeserializeOwned;

use crate::backend::accepted_by;
use crate::backend::codes::{self, StateCode, timestamp};
use crate::backend::encryption;
use crate::backend::fanout::Subscriber;
use crate::{
    AttemptDetail, AttemptView, Counts, DeliveryView, Digest, DueRotation, Endpoint,
    EndpointPrivate, EndpointSecret, EndpointSettings, ErasingTenant, Event, EventDetails,
    EventHead, HeldLane, Hold, IdempotencyLookup, LastAttempt, LinePlace, MasterKey, Parcel,
    ParkedRow, ParkedSummary, ReleasedRow, Result, StateCounts, StoreError, StoredResponse, Tenant,
    Timing,
};

/// The columns of one row, one after the other.
pub trait Columns {
    /// A number, or nothing.
    fn int(&mut self) -> Result<Option<i64>>;
    /// A text, or nothing.
    fn text(&mut self) -> Result<Option<String>>;
    /// Bytes, or nothing.
    fn blob(&mut self) -> Result<Option<Vec<u8>>>;
    /// A truth value.
    fn flag(&mut self) -> Result<bool>;

    /// A number that must be there.
    fn number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T> {
        self.maybe_number(what)?.ok_or_else(|| corrupt(what, "nothing"))
    }

    /// A number that fits, or nothing.
    fn maybe_number<T: TryFrom<i64>>(&mut self, what: &str) -> Result<Option<T>> {
        let number = self.int()?;
        number.map(|number| T::try_from(number).map_err(|_| corrupt(what, number))).transpose()
    }

    /// An instant that must be there.
    fn instant(&mut self) -> Result<Timestamp> {
        self.number("an instant").map(timestamp)
    }

    /// An instant, or nothing.
    fn maybe_instant(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.int()?.map(timestamp))
    }

    /// Bytes that must be there.
    fn bytes(&mut self) -> Result<Vec<u8>> {
        self.blob()?.ok_or_else(|| corrupt("bytes", "nothing"))
    }

    /// So many bytes, which must be there.
    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        self.maybe_array(what)?.ok_or_else(|| corrupt(what, "nothing"))
    }

    /// So many bytes, or nothing.
    fn maybe_array<const N: usize>(&mut self, what: &str) -> Result<Option<[u8; N]>> {
        let bytes = self.blob()?.map(<[u8; N]>::try_from).transpose();
        bytes.map_err(|bytes| corrupt(what, format!("{bytes:?}")))
    }

    /// A text that must be there.
    fn word(&mut self) -> Result<String> {
        self.text()?.ok_or_else(|| corrupt("a text", "nothing"))
    }

    /// A text with rules of its own.
    fn parsed<T: FromStr>(&mut self, what: &str) -> Result<T> {
        let text = self.word()?;
        text.parse().map_err(|_| corrupt(what, text))
    }

    /// A record in JSON.
    fn json<T: DeserializeOwned>(&mut self, what: &str) -> Result<T> {
        json(&self.word()?, what)
    }

    /// Keys are bytes: in PostgreSQL a text cannot hold every character.
    fn key(&mut self) -> Result<Option<Key>> {
        let Some(bytes) = self.blob()? else { return Ok(None) };
        let text = String::from_utf8(bytes).ok();
        let key = text.and_then(|text| text.parse().ok());
        key.map(Some).ok_or_else(|| corrupt("a key", "bytes that are none"))
    }

    /// A key that must be there.
    fn parsed_key(&mut self) -> Result<Key> {
        self.key()?.ok_or_else(|| corrupt("a key", "nothing"))
    }

    /// A seq, or nothing.
    fn seq(&mut self) -> Result<Option<Seq>> {
        Ok(self.maybe_number("a seq")?.and_then(Seq::new))
    }

    /// A seq that must be there.
    fn need_seq(&mut self) -> Result<Seq> {
        self.seq()?.ok_or_else(|| corrupt("a seq", "nothing"))
    }
}

/// Reads a record in JSON.
pub fn json<T: DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| corrupt(what, error))
}

/// What is written into a column that holds JSON.
pub fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("records are maps with texts for keys")
}

fn corrupt(what: &str, found: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(format!("{what} does not read back: {found}"))
}

/// For [`tenant`].
#[doc(hidden)]
#[macro_export]
macro_rules! tenant_columns {
    () => {
        "id, settings, created_at, updated_at"
    };
}
#[doc(inline)]
pub use tenant_columns;

/// Reads `tenant_columns!`.
pub fn tenant(columns: &mut impl Columns) -> Result<Tenant> {
    Ok(Tenant {
        id: columns.parsed("a tenant's id")?,
        settings: columns.json("a tenant's settings")?,
        created_at: columns.instant()?,
        updated_at: columns.instant()?,
    })
}

/// For [`erasing_tenant`]. The versions before it was a job did not write down since when.
#[doc(hidden)]
#[macro_export]
macro_rules! erasing_tenant_columns {
    () => {
        "id, created_at, coalesce(erasing_since, updated_at), erased"
    };
}
#[doc(inline)]
pub use erasing_tenant_columns;

/// Reads `erasing_tenant_columns!`.
pub fn erasing_tenant(columns: &mut impl Columns) -> Result<ErasingTenant> {
    Ok(ErasingTenant {
        id: columns.parsed("a tenant's id")?,
        created_at: columns.instant()?,
        since: columns.instant()?,
        erased: columns.number("a count")?,
    })
}

/// For [`endpoint`].
#[doc(hidden)]
#[macro_export]
macro_rules! endpoint_columns {
    () => {
        "p.id, t.id, p.settings, p.private, p.status, p.status_since, p.failing_since, p.revision, \
         p.created_at, p.updated_at, p.removed_at, p.rotate_at"
    };
}
#[doc(inline)]
pub use endpoint_columns;

/// Reads `endpoint_columns!`.
pub fn endpoint(columns: &mut impl Columns, key: &MasterKey) -> Result<Endpoint> {
    let id = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    rest_of_endpoint(columns, id, key).map_err(|error| error.of_row("endpoint", id))
}

fn rest_of_endpoint(
    columns: &mut impl Columns,
    id: EndpointId,
    key: &MasterKey,
) -> Result<Endpoint> {
    let tenant = columns.parsed("a tenant's id")?;
    let settings = columns.json("an endpoint's settings")?;
    let private = match columns.bytes()?.as_slice() {
        [] => Ok(EndpointPrivate::default()),
        sealed => encryption::open_endpoint(key, id, sealed),
    };
    let status: i64 = columns.number("an endpoint's status")?;
    let status = codes::endpoint_status(status);
    Ok(Endpoint {
        id,
        tenant,
        settings,
        private,
        status: status.ok_or_else(|| corrupt("an endpoint's status", id))?,
        status_since: columns.maybe_instant()?,
        failing_since: columns.maybe_instant()?,
        revision: columns.number("a revision")?,
        created_at: columns.instant()?,
        updated_at: columns.instant()?,
        removed_at: columns.maybe_instant()?,
        rotates_at: columns.maybe_instant()?,
    })
}

/// Reads `id, rotate_at` of an endpoint.
pub fn due_rotation(columns: &mut impl Columns) -> Result<DueRotation> {
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    Ok(DueRotation { endpoint, at: columns.instant()? })
}

/// Reads `num, id, settings` of an endpoint.
pub fn subscriber(columns: &mut impl Columns) -> Result<Subscriber> {
    let num = columns.number("an endpoint's number")?;
    let id = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let settings: EndpointSettings = columns.json("an endpoint's settings")?;
    Ok(Subscriber::new(num, id, &settings))
}

/// Reads `s.id, s.sealed, s.created_at, s.expires_at`.
pub fn secret(
    columns: &mut impl Columns,
    endpoint: EndpointId,
    key: &MasterKey,
) -> Result<EndpointSecret> {
    let id = SecretId::from_bytes(columns.array("a secret's id")?);
    Ok(EndpointSecret {
        id,
        endpoint,
        value: encryption::open_secret(key, id, &columns.bytes()?)?,
        created_at: columns.instant()?,
        expires_at: columns.maybe_instant()?,
    })
}

/// Reads `fingerprint, status, body`.
pub fn idempotency(columns: &mut impl Columns, fingerprint: &Digest) -> Result<IdempotencyLookup> {
    let stored: Digest = columns.array("a fingerprint")?;
    let status = columns.number("a status")?;
    let response = StoredResponse { status, body: columns.bytes()?.into() };
    Ok(if stored == *fingerprint {
        IdempotencyLookup::Match(response)
    } else {
        IdempotencyLookup::Mismatch
    })
}

/// For [`event`].
#[doc(hidden)]
#[macro_export]
macro_rules! event_columns {
    () => {
        "e.id, e.type, e.key, e.content_type, e.schema_version, e.time, e.traceparent, e.cloudevent, \
         e.payload"
    };
}
#[doc(inline)]
pub use event_columns;

/// Reads `event_columns!`.
pub fn event(columns: &mut impl Columns) -> Result<Event> {
    let id: EventId = columns.parsed("an event's id")?;
    rest_of_event(columns, id.clone()).map_err(|error| error.of_row("event", id))
}

fn rest_of_event(columns: &mut impl Columns, id: EventId) -> Result<Event> {
    Ok(Event {
        id,
        event_type: columns.parsed("an event's type")?,
        key: columns.key()?,
        content_type: columns.parsed("an event's content type")?,
        schema_version: columns.maybe_number("a schema's version")?,
        time: columns.instant()?,
        traceparent: columns.text()?,
        cloudevent: cloudevent(columns.text()?)?,
        payload: columns.bytes()?.into(),
    })
}

fn cloudevent(text: Option<String>) -> Result<Option<Box<Origin>>> {
    let read = |text: String| {
        serde_json::from_str(&text)
            .map_err(|error| StoreError::Corrupt(format!("a CloudEvent's attributes: {error}")))
    };
    text.map(read).transpose()
}

/// For [`event_head`].
#[doc(hidden)]
#[macro_export]
macro_rules! event_head_columns {
    () => {
        "e.id, e.type, e.key, e.content_type, e.schema_version, e.time, e.accepted_at, \
         length(e.payload)"
    };
}
#[doc(inline)]
pub use event_head_columns;

/// Reads `event_head_columns!`.
pub fn event_head(columns: &mut impl Columns) -> Result<EventHead> {
    Ok(EventHead {
        id: columns.parsed("an event's id")?,
        event_type: columns.parsed("an event's type")?,
        key: columns.key()?,
        content_type: columns.parsed("an event's content type")?,
        schema_version: columns.maybe_number("a schema's version")?,
        time: columns.instant()?,
        accepted_at: columns.instant()?,
        payload_len: columns.number("a payload's length")?,
    })
}

/// For [`line_place`], of a delivery `d` and its lane `l`. Nearly all stand in their lane's latest line;
/// `old_lines` has the lines before it.
#[doc(hidden)]
#[macro_export]
macro_rules! line_columns {
    () => {
        "l.id, coalesce(d.seq, d.left_seq), \
         CASE WHEN coalesce(d.seq, d.left_seq) > l.line_before THEN l.line_before \
           ELSE (SELECT o.line_before FROM old_lines AS o WHERE o.lane = l.id \
             AND o.through >= coalesce(d.seq, d.left_seq) ORDER BY o.through LIMIT 1) END, \
         (SELECT r.id FROM eras AS r WHERE r.num = \
           CASE WHEN coalesce(d.seq, d.left_seq) > l.line_before THEN l.era \
             ELSE (SELECT o.era FROM old_lines AS o WHERE o.lane = l.id \
               AND o.through >= coalesce(d.seq, d.left_seq) ORDER BY o.through LIMIT 1) END)"
    };
}
#[doc(inline)]
pub use line_columns;

/// Nothing if the delivery never had a lane, or its lane was pruned.
pub fn line_place(columns: &mut impl Columns) -> Result<Option<LinePlace>> {
    let (lane, seq) = (columns.maybe_number("a lane")?.map(LaneId), columns.seq()?);
    let (before, era) = (columns.maybe_number("a line's beginning")?, columns.int()?);
    let line = lane.zip(seq).zip(before.zip(era));
    Ok(line
        .map(|((lane, seq), (before, era))| LinePlace::new(era.cast_unsigned(), lane, seq, before)))
}

/// For [`parcel`].
#[doc(hidden)]
#[macro_export]
macro_rules! parcel_columns {
    () => {
        concat!(
            "d.id, p.id, t.id, ",
            $crate::backend::rows::line_columns!(),
            ", e.accepted_at, ",
            $crate::backend::rows::event_columns!()
        )
    };
}
#[doc(inline)]
pub use parcel_columns;

/// Reads `parcel_columns!`.
pub fn parcel(columns: &mut impl Columns) -> Result<Parcel> {
    Ok(Parcel {
        delivery: DeliveryId::from_bytes(columns.array("a delivery's id")?),
        endpoint: EndpointId::from_bytes(columns.array("an endpoint's id")?),
        tenant: columns.parsed("a tenant's id")?,
        line: line_place(columns)?,
        accepted_at: columns.instant()?,
        event: event(columns)?,
    })
}

/// For [`delivery`].
#[doc(hidden)]
#[macro_export]
macro_rules! delivery_columns {
    () => {
        "d.id, d.lane, d.seq, d.standing, d.due, d.reason, d.attempts, d.round_attempts, \
         d.round_started_at, d.last_delay, d.replay"
    };
}
#[doc(inline)]
pub use delivery_columns;

/// Reads `delivery_columns!`.
pub fn delivery(columns: &mut impl Columns, endpoint: EndpointId) -> Result<Delivery> {
    let id = DeliveryId::from_bytes(columns.array("a delivery's id")?);
    rest_of_delivery(columns, id, endpoint).map_err(|error| error.of_row("delivery", id))
}

fn rest_of_delivery(
    columns: &mut impl Columns,
    id: DeliveryId,
    endpoint: EndpointId,
) -> Result<Delivery> {
    let (lane, seq) = (columns.maybe_number("a lane")?, columns.seq()?);
    let place = lane.map(LaneId).zip(seq).map(|(lane, seq)| Place { lane, seq });
    let state = StateCode {
        code: columns.number("a state code")?,
        due: columns.int()?,
        reason: columns.int()?,
    };
    let progress = Progress {
        attempts: columns.number("a number of attempts")?,
        round_attempts: columns.number("a number of attempts")?,
        round_started_at: columns.maybe_instant()?,
        last_delay: Span::from_millis(columns.number("a delay")?),
        replay: columns.flag()?,
    };
    Ok(Delivery { id, endpoint, place, state: state.state()?, progress })
}

/// For [`view`].
#[doc(hidden)]
#[macro_export]
macro_rules! view_columns {
    () => {
        concat!(
            "p.id, ",
            $crate::backend::rows::delivery_columns!(),
            ", t.id, e.id, e.type, e.key, ",
            $crate::backend::rows::line_columns!(),
            ", d.changed_at"
        )
    };
}
#[doc(inline)]
pub use view_columns;

/// What joins a delivery `d` with what people want to see of it. A tenant that is being erased is
/// gone already.
#[doc(hidden)]
#[macro_export]
macro_rules! view_joins {
    () => {
        "JOIN events AS e ON e.num = d.event JOIN endpoints AS p ON p.num = d.endpoint \
         JOIN tenants AS t ON t.num = e.tenant AND NOT t.erasing \
         LEFT JOIN lanes AS l ON l.id = coalesce(d.lane, d.left_lane)"
    };
}
#[doc(inline)]
pub use view_joins;

/// Reads `view_columns!`.
pub fn view(columns: &mut impl Columns) -> Result<DeliveryView> {
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let delivery = delivery(columns, endpoint)?;
    Ok(DeliveryView {
        delivery,
        tenant: columns.parsed("a tenant's id")?,
        event: columns.parsed("an event's id")?,
        event_type: columns.parsed("an event's type")?,
        key: columns.key()?,
        line: line_place(columns)?,
        created_at: Timestamp::from_millis(delivery.id.unix_ms()),
        changed_at: columns.instant()?,
    })
}

/// For [`counts`], over open deliveries `d`. How many dead letters hold no lane, which open id is the
/// lowest and which dead one is follow, as the backend finds them.
#[doc(hidden)]
#[macro_export]
macro_rules! open_count_columns {
    () => {
        "count(*) FILTER (WHERE d.standing = 0), count(*) FILTER (WHERE d.standing = 1), \
         count(*) FILTER (WHERE d.standing = 2), count(*) FILTER (WHERE d.standing = 3)"
    };
}
#[doc(inline)]
pub use open_count_columns;

/// Reads `open_count_columns!` and what the backend adds.
pub fn counts(columns: &mut impl Columns) -> Result<Counts> {
    let mut count = || columns.number("a count");
    let (pending, in_flight, waiting) = (count()?, count()?, count()?);
    let (held, dead) = (count()?, count()?);
    let mut oldest = || {
        let id = columns.maybe_array("a delivery's id")?.map(DeliveryId::from_bytes);
        Ok(id.map(|id| Timestamp::from_millis(id.unix_ms())))
    };
    let (oldest_open_at, oldest_dead_at) = (oldest()?, oldest()?);
    Ok(Counts { pending, in_flight, waiting, held, dead, oldest_open_at, oldest_dead_at })
}

/// For [`event_details`], over deliveries `d`; who brought the event comes before them.
#[doc(hidden)]
#[macro_export]
macro_rules! state_count_columns {
    () => {
        "count(*) FILTER (WHERE d.standing = 0), count(*) FILTER (WHERE d.standing = 1), \
         count(*) FILTER (WHERE d.standing = 2), count(*) FILTER (WHERE d.standing = 3), \
         count(*) FILTER (WHERE d.standing = 4), count(*) FILTER (WHERE d.standing = 5), \
         count(*) FILTER (WHERE d.standing = 6)"
    };
}
#[doc(inline)]
pub use state_count_columns;

/// Reads `accepted_by` and `state_count_columns!`.
pub fn event_details(columns: &mut impl Columns) -> Result<EventDetails> {
    let accepted_by = columns.blob()?.map(|bytes| accepted_by::decode(&bytes)).transpose()?;
    let mut counts = [0; codes::STATE_CODES];
    for count in &mut counts {
        *count = columns.number("a count")?;
    }
    Ok(EventDetails { accepted_by, states: StateCounts::by_state_code(&counts) })
}

/// For [`attempt`].
#[doc(hidden)]
#[macro_export]
macro_rules! attempt_columns {
    () => {
        "number, started_at, status, retry_after, failure, led_to, next_at, dns_us, connect_us, \
         tls_us, first_byte_us, total_us, message, headers, body, node"
    };
}
#[doc(inline)]
pub use attempt_columns;

/// Reads `attempt_columns!`.
pub fn attempt(columns: &mut impl Columns) -> Result<AttemptView> {
    let (number, started_at) = (columns.number("an attempt's number")?, columns.instant()?);
    let result = attempt_result(columns)?;
    let led_to = codes::stage(columns.number("a state code")?)?;
    let next_at = columns.maybe_instant()?;
    let mut part = || columns.maybe_number("a time in microseconds");
    let timing = Timing {
        dns_us: part()?,
        connect_us: part()?,
        tls_us: part()?,
        first_byte_us: part()?,
        total_us: part()?.unwrap_or_default(),
    };
    let message = columns.text()?;
    let response_headers = response_headers(columns)?;
    let body = columns.blob()?;
    let node = columns.maybe_array("a node")?.map(NodeId::from_bytes);
    let detail = AttemptDetail {
        number,
        started_at,
        result,
        timing,
        message,
        response_headers,
        response_body: body.unwrap_or_default().into(),
        node,
    };
    Ok(AttemptView { detail, led_to, next_at })
}

fn response_headers(columns: &mut impl Columns) -> Result<Vec<(String, String)>> {
    columns.text()?.map_or(Ok(vec![]), |text| json(&text, "response headers"))
}

fn dead_reason(columns: &mut impl Columns) -> Result<DeadReason> {
    let number = columns.int()?;
    number
        .and_then(codes::dead_reason)
        .ok_or_else(|| corrupt("a dead letter's reason", format!("{number:?}")))
}

fn attempt_result(columns: &mut impl Columns) -> Result<AttemptResult> {
    let status = columns.maybe_number("a status")?;
    let retry_after = columns.maybe_number("a delay")?.map(Span::from_millis);
    let failure = columns.int()?;
    match (status, failure.and_then(codes::failure)) {
        (Some(status), _) => Ok(AttemptResult::Response { status, retry_after }),
        (None, Some(failure)) => Ok(AttemptResult::Failed(failure)),
        (None, None) => Err(corrupt("an attempt's failure", format!("{failure:?}"))),
    }
}

/// For [`last_attempt`], of an attempt `a`.
#[doc(hidden)]
#[macro_export]
macro_rules! last_attempt_columns {
    () => {
        "a.number, a.started_at, a.status, a.retry_after, a.failure, a.message, a.headers"
    };
}
#[doc(inline)]
pub use last_attempt_columns;

/// Reads `last_attempt_columns!`.
pub fn last_attempt(columns: &mut impl Columns) -> Result<LastAttempt> {
    Ok(LastAttempt {
        number: columns.number("an attempt's number")?,
        started_at: columns.instant()?,
        result: attempt_result(columns)?,
        message: columns.text()?,
        response_headers: response_headers(columns)?,
    })
}

/// For [`held_lane`]; the lane's own key is what its backend makes of it.
#[doc(hidden)]
#[macro_export]
macro_rules! held_lane_columns {
    ($key:literal) => {
        concat!(
            "d.id, d.seq, d.changed_at, p.id, l.id, ",
            $key,
            ", l.last_seq, d.reason, ",
            $crate::backend::rows::line_columns!()
        )
    };
}
#[doc(inline)]
pub use held_lane_columns;

/// Reads `held_lane_columns!`, and the position in the list.
pub fn held_lane(columns: &mut impl Columns) -> Result<([u8; 16], HeldLane)> {
    let id = columns.array("a delivery's id")?;
    let lane = HeldLane {
        held_by: DeliveryId::from_bytes(id),
        held_at: columns.need_seq()?,
        since: columns.instant()?,
        endpoint: EndpointId::from_bytes(columns.array("an endpoint's id")?),
        lane: LaneId(columns.number("a lane")?),
        key: columns.key()?,
        last: columns.need_seq()?,
        reason: dead_reason(columns)?,
        line: line_place(columns)?,
    };
    Ok((id, lane))
}

/// For [`parked_row`].
#[doc(hidden)]
#[macro_export]
macro_rules! parked_columns {
    () => {
        "p.num, p.parked_at, p.hold, p.refusal, p.released, p.fields, p.bytes"
    };
}
#[doc(inline)]
pub use parked_columns;

/// Reads `parked_columns!`.
pub fn parked_row(columns: &mut impl Columns) -> Result<ParkedRow> {
    Ok(ParkedRow {
        number: columns.number("a number")?,
        parked_at: columns.instant()?,
        hold: columns.maybe_array("a hold")?.map(Hold),
        refusal: columns.text()?.map(|text| json(&text, "a refusal")).transpose()?,
        released: columns.flag()?,
        fields: columns.json("a parked row")?,
        bytes: columns.number("a size")?,
    })
}

/// The same, and the payload behind it.
pub fn released_row(columns: &mut impl Columns) -> Result<ReleasedRow> {
    Ok(ReleasedRow { row: parked_row(columns)?, payload: columns.blob()?.map(Bytes::from) })
}

/// How much is parked: version, rows and bytes.
pub fn parked_summary(columns: &mut impl Columns) -> Result<ParkedSummary> {
    Ok(ParkedSummary {
        version: columns.number("a version")?,
        rows: columns.number("a count")?,
        bytes: columns.number("a size")?,
    })
}
