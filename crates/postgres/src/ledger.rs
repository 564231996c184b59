//! Records in PostgreSQL, and what the engine and the sender read back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use railpost_engine::{
    Accepted, AttemptResult, Delivery, EndpointRecord, LaneId, LanePage, Load, Page, Place,
    Transition,
};
use railpost_wire::{DeliveryId, EndpointId, NodeId, Seq, TenantId};

use super::errors::Translate;
use super::groups::{Call, Weight};
use super::link::{Link, Session, Values};
use super::node::{HeldTransaction, Node};
use super::rows::{RowReader, all, one};
use railpost_store::backend::brief_attempt;
use railpost_store::backend::codes::{
    LAST_OPEN, OPEN, StateCode, endpoint_status_code, failure_code, legal_from, millis, stage,
    timestamp,
};
use railpost_store::backend::loading::{attempt_view, lane_page};
use railpost_store::backend::rows::{
    self, Columns, delivery_columns, parcel_columns, to_json, view_joins,
};
use railpost_store::limits::{
    ATTEMPT_MESSAGE_LEN_MAX, LIST_SCAN_MAX, RESPONSE_BODY_LEN_MAX, RESPONSE_HEADERS_LEN_MAX,
};
use railpost_store::{
    AttemptDetail, AttemptView, AuditEntry, Epoch, Parcel, Partition, RecordBatch, Recorded,
    RefusedTransition, Result, StoreError, Sweep, SweepPage,
};

pub(super) type RecordCall = Call<Arc<RecordBatch>, Recorded>;

/// What a call adds to its group, once its attempts are cut to their bounds.
pub(super) fn weight(batch: &Arc<RecordBatch>) -> Weight {
    let of_attempt = |detail: &AttemptDetail| {
        let headers = detail.response_headers.iter().map(|(name, value)| name.len() + value.len());
        detail.response_body.len().min(RESPONSE_BODY_LEN_MAX)
            + headers.sum::<usize>().min(RESPONSE_HEADERS_LEN_MAX)
            + detail.message.as_ref().map_or(0, String::len).min(ATTEMPT_MESSAGE_LEN_MAX)
    };
    let attempts = batch.transitions.iter().filter_map(|(_, detail)| detail.as_deref());
    let rows = batch.transitions.len() + batch.endpoints.len() + batch.audit.len();
    let bytes = rows * ROW_LEN + attempts.map(of_attempt).sum::<usize>();
    Weight { items: batch.transitions.len(), bytes }
}

/// About how many bytes a record takes, but for what came back from the receiver.
const ROW_LEN: usize = 256;

/// Serves a group of calls that need not wait for the disk as one statement.
pub(super) async fn serve_visible(node: &Node, calls: Vec<RecordCall>) {
    let arrays = RecordArrays::new(calls.iter().map(|call| &*call.input));
    let written = write_visible(node, &arrays, calls.iter().map(|call| &call.input)).await;
    answer(node, &arrays, calls, written);
}

/// What a crash may have lost is written before anything else, and what is written here is kept for the
/// same case.
async fn write_visible(
    node: &Node,
    arrays: &RecordArrays,
    batches: impl Iterator<Item = &Arc<RecordBatch>>,
) -> Result<RecordResult> {
    let holder = node.lock.holder().await?;
    let session = node.records.session().await?;
    write_lost_again(node, &session, holder).await?;
    let (durable, mark) = {
        let unflushed = node.unflushed();
        (unflushed.is_due(), unflushed.mark())
    };
    let result = arrays
        .write(&node.records, &session, holder, WriteMode { durable, once_more: false })
        .await?;
    let mut unflushed = node.unflushed();
    if durable && arrays.changed_something(&result) {
        unflushed.flushed(mark);
    } else {
        let written = batches.filter(|batch| !batch.transitions.is_empty());
        written.for_each(|batch| unflushed.keep(batch.clone(), &session));
    }
    Ok(result)
}

async fn write_lost_again(node: &Node, session: &Arc<Session>, holder: i64) -> Result<()> {
    let lost = node.unflushed().lost_before(session);
    if lost.is_empty() {
        return Ok(());
    }
    let mark = node.unflushed().mark();
    let arrays = RecordArrays::new(lost.iter().map(|batch| &**batch));
    let mode = WriteMode { durable: true, once_more: true };
    let result = arrays.write(&node.records, session, holder, mode).await?;
    let mut unflushed = node.unflushed();
    unflushed.written_again(session);
    if arrays.changed_something(&result) {
        unflushed.flushed(mark);
    }
    Ok(())
}

/// Serves a group of calls that wait for the disk as one statement.
pub(super) async fn serve_durable(node: &Node, calls: Vec<RecordCall>) {
    let arrays = RecordArrays::new(calls.iter().map(|call| &*call.input));
    let writing = async {
        let holder = node.lock.holder().await?;
        let session = node.durable_records.session().await?;
        let mode = WriteMode { durable: true, once_more: false };
        let mark = node.unflushed().mark();
        let result = arrays.write(&node.durable_records, &session, holder, mode).await?;
        if arrays.changed_something(&result) {
            node.unflushed().flushed(mark);
        }
        Ok(result)
    };
    let written = writing.await;
    answer(node, &arrays, calls, written);
}

fn answer(
    node: &Node,
    arrays: &RecordArrays,
    calls: Vec<RecordCall>,
    written: Result<RecordResult>,
) {
    match written {
        Ok(result) => {
            arrays.count_closed(node, &result);
            let answers = arrays.answers(&result);
            calls.into_iter().zip(answers).for_each(|(call, answer)| call.answer(answer));
        }
        Err(error) => calls.into_iter().for_each(|call| call.answer(Err(error.clone()))),
    }
}

/// WriteMode a group is written.
#[derive(Clone, Copy)]
struct WriteMode {
    /// It is on disk when it is answered.
    durable: bool,
    /// It may have been written before.
    once_more: bool,
}

/// What the database said of a group.
struct RecordResult {
    /// The calls that touch a partition with a later owner.
    fenced: HashMap<usize, Partition>,
    /// The transitions that were not written, by their place in the arrays, and what is on record.
    refused: HashMap<usize, Option<i64>>,
}

/// A group as arrays.
#[derive(Default)]
struct RecordArrays {
    calls: usize,
    fences: Fences,
    transitions: Transitions,
    attempts: Attempts,
    endpoints: Endpoints,
    audit: AuditEntries,
    /// By transition: its delivery and its endpoint.
    about: Vec<(DeliveryId, EndpointId)>,
}

#[derive(Default)]
struct Fences {
    call: Vec<i32>,
    partition: Vec<i32>,
    epoch: Vec<i64>,
}

#[derive(Default)]
struct Transitions {
    call: Vec<i32>,
    round: Vec<i32>,
    id: Vec<Vec<u8>>,
    from_set: Vec<i64>,
    state_code: Vec<i64>,
    due: Vec<Option<i64>>,
    reason: Vec<Option<i64>>,
    attempts: Vec<i64>,
    round_attempts: Vec<i64>,
    round_started_at: Vec<Option<i64>>,
    last_delay: Vec<i64>,
    replay: Vec<bool>,
    at: Vec<i64>,
    brief: Vec<Option<Vec<u8>>>,
}

#[derive(Default)]
struct Attempts {
    ord: Vec<i64>,
    number: Vec<i64>,
    started_at: Vec<i64>,
    status: Vec<Option<i64>>,
    retry_after: Vec<Option<i64>>,
    failure: Vec<Option<i64>>,
    next_at: Vec<Option<i64>>,
    dns_us: Vec<Option<i64>>,
    connect_us: Vec<Option<i64>>,
    tls_us: Vec<Option<i64>>,
    first_byte_us: Vec<Option<i64>>,
    total_us: Vec<i64>,
    message: Vec<Option<String>>,
    headers: Vec<Option<String>>,
    body: Vec<Option<Vec<u8>>>,
    node: Vec<Option<Vec<u8>>>,
}

#[derive(Default)]
struct Endpoints {
    call: Vec<i32>,
    id: Vec<Vec<u8>>,
    status: Vec<i64>,
    was: Vec<i64>,
    failing_since: Vec<Option<i64>>,
    at: Vec<i64>,
    audit_id: Vec<Option<Vec<u8>>>,
    audit: Vec<Option<String>>,
}

#[derive(Default)]
struct AuditEntries {
    call: Vec<i32>,
    id: Vec<Vec<u8>>,
    at: Vec<i64>,
    tenant: Vec<Option<String>>,
    target: Vec<String>,
    record: Vec<String>,
}

impl RecordArrays {
    fn new<'a>(batches: impl Iterator<Item = &'a RecordBatch>) -> Self {
        let mut arrays = Self::default();
        let mut rounds: HashMap<DeliveryId, i32> = HashMap::new();
        for (call, batch) in batches.enumerate() {
            arrays.calls += 1;
            let call = call as i32;
            arrays.fences.add(call, batch);
            for (transition, detail) in &batch.transitions {
                let round = rounds.entry(transition.delivery).or_default();
                *round += 1;
                arrays.add(call, *round, transition, detail.as_deref());
            }
            batch.endpoints.iter().for_each(|record| arrays.endpoints.add(call, record));
            batch.audit.iter().for_each(|entry| arrays.audit.add(call, entry));
        }
        arrays
    }

    fn add(
        &mut self,
        call: i32,
        round: i32,
        transition: &Transition,
        detail: Option<&AttemptDetail>,
    ) {
        let stage = transition.state.stage();
        let brief = detail.and_then(|detail| brief_attempt::encode(detail, stage));
        self.about.push((transition.delivery, transition.endpoint));
        if let Some(detail) = detail.filter(|_| brief.is_none()) {
            // Arrays of PostgreSQL count from 1.
            self.attempts.add(self.about.len() as i64, &attempt_view(detail, transition));
        }
        self.transitions.add(call, round, transition, brief);
    }

    async fn write(
        &self,
        link: &Link,
        session: &Arc<Session>,
        holder: i64,
        mode: WriteMode,
    ) -> Result<RecordResult> {
        let sql = "SELECT what, ord, standing FROM railpost_record($1, $2, $3, $4, $5, $6, $7, $8, \
                   $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, \
                   $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, \
                   $42, $43, $44, $45, $46, $47, $48, $49, $50)";
        let (f, t, a, p) = (&self.fences, &self.transitions, &self.attempts, &self.endpoints);
        let u = &self.audit;
        let values: Values<'_> = &[
            &holder,
            &mode.durable,
            &mode.once_more,
            &f.call,
            &f.partition,
            &f.epoch,
            &t.call,
            &t.round,
            &t.id,
            &t.from_set,
            &t.state_code,
            &t.due,
            &t.reason,
            &t.attempts,
            &t.round_attempts,
            &t.round_started_at,
            &t.last_delay,
            &t.replay,
            &t.at,
            &t.brief,
            &a.ord,
            &a.number,
            &a.started_at,
            &a.status,
            &a.retry_after,
            &a.failure,
            &a.next_at,
            &a.dns_us,
            &a.connect_us,
            &a.tls_us,
            &a.first_byte_us,
            &a.total_us,
            &a.message,
            &a.headers,
            &a.body,
            &a.node,
            &p.call,
            &p.id,
            &p.status,
            &p.was,
            &p.failing_since,
            &p.at,
            &p.audit_id,
            &p.audit,
            &u.call,
            &u.id,
            &u.at,
            &u.tenant,
            &u.target,
            &u.record,
        ];
        let rows = link.query_on(session, sql, values).await?;
        let mut result = RecordResult { fenced: HashMap::new(), refused: HashMap::new() };
        for row in &rows {
            let columns = &mut RowReader::new(row);
            let (what, ord) = (columns.word()?, columns.number::<usize>("a place in an array")?);
            if what == "fenced" {
                result.fenced.insert(ord, Partition(columns.number("a partition")?));
            } else {
                result.refused.insert(ord - 1, columns.int()?);
            }
        }
        Ok(result)
    }

    /// Whether it wrote anything, so that its commit had something to wait for.
    fn changed_something(&self, result: &RecordResult) -> bool {
        let fenced = |call: &i32| result.fenced.contains_key(&(*call as usize));
        let counted = self.transitions.call.iter().filter(|call| !fenced(call)).count();
        counted > result.refused.len()
    }

    fn answers(&self, result: &RecordResult) -> Vec<Result<Recorded>> {
        let mut answers: Vec<_> = (0..self.calls).map(|_| Recorded::default()).collect();
        let mut strange = HashMap::new();
        for (index, (delivery, _)) in self.about.iter().enumerate() {
            let call = self.transitions.call[index] as usize;
            match result.refused.get(&index) {
                None => answers[call].applied += 1,
                Some(code) => match code.map(stage).transpose() {
                    Ok(on_record) => {
                        answers[call]
                            .refused
                            .push(RefusedTransition { delivery: *delivery, on_record });
                    }
                    Err(error) => drop(strange.insert(call, error)),
                },
            }
        }
        let answer = |(call, recorded)| match result.fenced.get(&call) {
            Some(partition) => Err(StoreError::Fenced { partition: *partition }),
            None => strange.remove(&call).map_or(Ok(recorded), Err),
        };
        answers.into_iter().enumerate().map(answer).collect()
    }

    /// What follows an attempt follows an open state; whatever else closes a delivery is found by
    /// the next count.
    fn count_closed(&self, node: &Node, result: &RecordResult) {
        let t = &self.transitions;
        let fenced: HashSet<i32> = result.fenced.keys().map(|call| *call as i32).collect();
        for (index, (_, endpoint)) in self.about.iter().enumerate() {
            let closed = t.from_set[index] & !OPEN == 0 && t.state_code[index] > LAST_OPEN;
            let written = !result.refused.contains_key(&index) && !fenced.contains(&t.call[index]);
            if closed && written {
                node.tenants.closed(*endpoint);
            }
        }
    }
}

impl Fences {
    fn add(&mut self, call: i32, batch: &RecordBatch) {
        let partitions: HashSet<Partition> = batch.partitions().collect();
        for partition in partitions {
            self.call.push(call);
            self.partition.push(i32::from(partition.0));
            self.epoch.push(i64::try_from(batch.epoch.0).unwrap_or(i64::MAX));
        }
    }
}

impl Transitions {
    fn add(&mut self, call: i32, round: i32, transition: &Transition, brief: Option<Vec<u8>>) {
        let state = StateCode::from(transition.state);
        let progress = transition.progress;
        self.call.push(call);
        self.round.push(round);
        self.id.push(transition.delivery.to_bytes().to_vec());
        self.from_set.push(legal_from(transition.state.stage()));
        self.state_code.push(state.code);
        self.due.push(state.due);
        self.reason.push(state.reason);
        self.attempts.push(progress.attempts.into());
        self.round_attempts.push(progress.round_attempts.into());
        self.round_started_at.push(progress.round_started_at.map(millis));
        self.last_delay.push(span(progress.last_delay));
        self.replay.push(progress.replay);
        self.at.push(millis(transition.at));
        self.brief.push(brief);
    }
}

impl Attempts {
    fn add(&mut self, ord: i64, view: &AttemptView) {
        let detail = &view.detail;
        let (status, retry_after, failure) = match detail.result {
            AttemptResult::Response { status, retry_after } => {
                (Some(i64::from(status)), retry_after.map(span), None)
            }
            AttemptResult::Failed(failure) => (None, None, Some(failure_code(failure))),
        };
        let timing = detail.timing;
        let headers = Some(&detail.response_headers).filter(|headers| !headers.is_empty());
        let body = Some(&detail.response_body).filter(|body| !body.is_empty());
        self.ord.push(ord);
        self.number.push(detail.number.into());
        self.started_at.push(millis(detail.started_at));
        self.status.push(status);
        self.retry_after.push(retry_after);
        self.failure.push(failure);
        self.next_at.push(view.next_at.map(millis));
        self.dns_us.push(timing.dns_us.map(i64::from));
        self.connect_us.push(timing.connect_us.map(i64::from));
        self.tls_us.push(timing.tls_us.map(i64::from));
        self.first_byte_us.push(timing.first_byte_us.map(i64::from));
        self.total_us.push(timing.total_us.into());
        self.message.push(detail.message.clone());
        self.headers.push(headers.map(to_json));
        self.body.push(body.map(|body| body.to_vec()));
        self.node.push(detail.node.map(|node: NodeId| node.to_bytes().to_vec()));
    }
}

impl Endpoints {
    fn add(&mut self, call: i32, record: &EndpointRecord) {
        self.call.push(call);
        self.id.push(record.endpoint.to_bytes().to_vec());
        self.status.push(endpoint_status_code(record.status));
        self.was.push(endpoint_status_code(record.was));
        self.failing_since.push(record.failing_since.map(millis));
        self.at.push(millis(record.at));
        // The database knows whose endpoint it is.
        let entry = AuditEntry::of_switch_off(record, None);
        self.audit_id.push(entry.as_ref().map(|entry| entry.id.to_bytes().to_vec()));
        self.audit.push(entry.as_ref().map(to_json));
    }
}

impl AuditEntries {
    fn add(&mut self, call: i32, entry: &AuditEntry) {
        self.call.push(call);
        self.id.push(entry.id.to_bytes().to_vec());
        self.at.push(millis(entry.at));
        self.tenant.push(entry.tenant.as_ref().map(TenantId::to_string));
        self.target.push(entry.target.clone());
        self.record.push(to_json(entry));
    }
}

fn span(span: railpost_engine::Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) async fn fence(node: &Node, partition: Partition, epoch: Epoch) -> Result<()> {
    let sql = "INSERT INTO partitions AS p (id, epoch) VALUES ($1, $2) \
               ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch \
               WHERE p.epoch <= excluded.epoch RETURNING id";
    let epoch = i64::try_from(epoch.0).unwrap_or(i64::MAX);
    let fencing = async |held: &HeldTransaction<'_>| match held
        .query(sql, &[&i32::from(partition.0), &epoch])
        .await
        .translated()?
        .is_empty()
    {
        true => Err(StoreError::Fenced { partition }),
        false => Ok(()),
    };
    node.changes.run(fencing).await
}

pub(super) async fn load(node: &Node, load: Load) -> Result<Page> {
    match load {
        Load::Lanes { endpoint, after, limit, window } => {
            load_lanes(node.reader(), endpoint, after, limit as usize, window).await
        }
        Load::Lane { endpoint, lane, from, limit } => {
            load_lane(node.reader(), endpoint, lane, from, limit).await.map(Page::Lane)
        }
        Load::Unkeyed { endpoint, after, due_by, due_beyond, limit } => {
            let due = (millis(due_by), millis(due_beyond));
            load_unkeyed(node.reader(), endpoint, after, due, limit as usize).await
        }
    }
}

async fn load_unkeyed(
    reader: &Link,
    endpoint: EndpointId,
    after: Option<DeliveryId>,
    (due_by, due_beyond): (i64, i64),
    limit: usize,
) -> Result<Page> {
    let sql = concat!(
        "SELECT ",
        delivery_columns!(),
        " FROM endpoints AS p JOIN deliveries AS d ON d.endpoint = p.num WHERE p.id = $1 \
         AND p.removed_at IS NULL AND d.id > $2 AND d.standing <= 3 AND d.lane IS NULL \
         AND (d.due IS NULL OR d.due <= $3 OR d.due > $5) ORDER BY d.id LIMIT $4"
    );
    let (id, after) = (endpoint.to_bytes(), after.map_or([0; 16], DeliveryId::to_bytes));
    let most = limit as i64 + 1;
    let values: Values<'_> = &[&id.as_slice(), &after.as_slice(), &due_by, &most, &due_beyond];
    let rows = reader.query(sql, values).await?;
    let mut deliveries = all(&rows, |columns| rows::delivery(columns, endpoint))?;
    let more = deliveries.len() > limit;
    deliveries.truncate(limit);
    let next = deliveries.last().map(|delivery| delivery.id).filter(|_| more);
    let sql = "SELECT d.due FROM endpoints AS p JOIN deliveries AS d ON d.endpoint = p.num \
               WHERE p.id = $1 AND p.removed_at IS NULL AND d.standing = 2 \
               AND d.lane IS NULL AND d.due > $2 AND d.due <= $3 ORDER BY d.due LIMIT 1";
    let rows = reader.query(sql, &[&id.as_slice(), &due_by, &due_beyond]).await?;
    let next_due = one(&rows, |columns| columns.number("an instant"))?.map(timestamp);
    Ok(Page::Unkeyed { deliveries, next, next_due })
}

/// One seek per lane and one per window: what lies in a lane beyond its window is never looked at.
async fn load_lanes(
    reader: &Link,
    endpoint: EndpointId,
    after: Option<LaneId>,
    limit: usize,
    window: u32,
) -> Result<Page> {
    let sql = concat!(
        "WITH RECURSIVE live AS (SELECT num FROM endpoints WHERE id = $1 AND removed_at IS NULL), \
         open (lane) AS ( \
           (SELECT d.lane FROM deliveries AS d WHERE d.endpoint = (SELECT num FROM live) \
            AND d.lane > $2 AND d.standing <= 3 AND d.lane IS NOT NULL ORDER BY d.lane LIMIT 1) \
           UNION ALL \
           SELECT (SELECT d.lane FROM deliveries AS d WHERE d.endpoint = (SELECT num FROM live) \
            AND d.lane > o.lane AND d.standing <= 3 AND d.lane IS NOT NULL \
            ORDER BY d.lane LIMIT 1) FROM open AS o WHERE o.lane IS NOT NULL), \
         page AS (SELECT lane FROM open WHERE lane IS NOT NULL LIMIT $3) \
         SELECT l.id, l.last_seq, ",
        delivery_columns!(),
        " FROM page \
         JOIN lanes AS l ON l.id = page.lane CROSS JOIN LATERAL ( \
           SELECT * FROM deliveries AS d WHERE d.endpoint = l.endpoint AND d.lane = l.id \
           AND d.standing <= 3 AND d.lane IS NOT NULL ORDER BY d.seq LIMIT $4) AS d \
         ORDER BY l.id, d.seq"
    );
    let after = after.map_or(0, |lane| i64::try_from(lane.0).unwrap_or(i64::MAX));
    let most = limit as i64 + 1;
    let id = endpoint.to_bytes();
    let values: Values<'_> = &[&id.as_slice(), &after, &most, &i64::from(window)];
    let rows = reader.query(sql, values).await?;
    let found = all(&rows, |columns| {
        let (lane, last) = (LaneId(columns.number("a lane")?), columns.need_seq()?);
        Ok((lane, last, rows::delivery(columns, endpoint)?))
    })?;
    let mut follows = follows(reader, found.iter().map(|(lane, _, _)| *lane)).await?;
    let mut lanes = Vec::new();
    for stretch in found.chunk_by(|a, b| a.0 == b.0) {
        let (lane, last, _) = stretch[0];
        let deliveries = stretch.iter().map(|(_, _, delivery)| *delivery).collect();
        let follows = follows.remove(&lane).unwrap_or_default();
        lanes.push(lane_page(lane, Seq::FIRST, Some(last), window as usize, deliveries, follows));
    }
    let more = lanes.len() > limit;
    lanes.truncate(limit);
    let next = lanes.last().map(|page: &LanePage| page.lane).filter(|_| more);
    Ok(Page::Lanes { lanes, next })
}

async fn load_lane(
    reader: &Link,
    endpoint: EndpointId,
    lane: LaneId,
    from: Seq,
    limit: u32,
) -> Result<LanePage> {
    let sql = concat!(
        "SELECT l.last_seq, ",
        delivery_columns!(),
        " FROM endpoints AS p \
         JOIN lanes AS l ON l.endpoint = p.num LEFT JOIN LATERAL ( \
           SELECT * FROM deliveries AS d WHERE d.endpoint = l.endpoint AND d.lane = l.id \
           AND d.seq >= $3 AND d.standing <= 3 AND d.lane IS NOT NULL \
           ORDER BY d.seq LIMIT $4) AS d ON true \
         WHERE p.id = $1 AND p.removed_at IS NULL AND l.id = $2 ORDER BY d.seq"
    );
    let number = i64::try_from(lane.0).unwrap_or(i64::MAX);
    let (id, from_seq) = (endpoint.to_bytes(), from.get() as i64);
    let values: Values<'_> = &[&id.as_slice(), &number, &from_seq, &i64::from(limit)];
    let rows = reader.query(sql, values).await?;
    let last = one(&rows, |columns| columns.need_seq())?;
    let mut deliveries: Vec<Delivery> = Vec::new();
    for row in rows.iter().filter(|row| row.get::<_, Option<&[u8]>>(1).is_some()) {
        let columns = &mut RowReader::new(row);
        columns.need_seq()?;
        deliveries.push(rows::delivery(columns, endpoint)?);
    }
    let follows = match last {
        Some(_) => follows(reader, std::iter::once(lane)).await?.remove(&lane),
        None => None,
    };
    let follows = follows.unwrap_or_default();
    Ok(lane_page(lane, from, last, limit as usize, deliveries, follows))
}

/// By lane: which numbers do not follow the one before them, and which one they follow instead.
async fn follows(
    reader: &Link,
    lanes: impl Iterator<Item = LaneId>,
) -> Result<HashMap<LaneId, Vec<(Seq, u64)>>> {
    let mut numbers: Vec<i64> = lanes.map(|lane| lane.0 as i64).collect();
    numbers.dedup();
    let sql =
        "SELECT lane, seq, follows FROM lane_follows WHERE lane = ANY ($1) ORDER BY lane, seq";
    let rows = reader.query(sql, &[&numbers]).await?;
    let mut by_lane = HashMap::<LaneId, Vec<(Seq, u64)>>::new();
    for row in &rows {
        let columns = &mut RowReader::new(row);
        let (lane, seq) = (LaneId(columns.number("a lane")?), columns.need_seq()?);
        by_lane.entry(lane).or_default().push((seq, columns.number("a seq")?));
    }
    Ok(by_lane)
}

/// Walks deliveries by their ids, open or not, so many at most: a stretch that is closed costs no more.
pub(super) async fn sweep(node: &Node, sweep: &Sweep) -> Result<SweepPage> {
    let sql = "WITH seen AS MATERIALIZED ( \
                 SELECT d.id, d.endpoint, d.lane, d.seq, d.standing, d.replay FROM deliveries AS d \
                 WHERE d.id > $1 AND d.id <= $2 ORDER BY d.id LIMIT $3), \
               open AS ( \
                 SELECT s.id, p.id AS endpoint, s.lane, s.seq, s.replay FROM seen AS s \
                 JOIN endpoints AS p ON p.num = s.endpoint AND p.removed_at IS NULL \
                 WHERE s.standing <= 3 ORDER BY s.id LIMIT $4) \
               SELECT (SELECT e.id FROM eras AS e ORDER BY e.num DESC LIMIT 1), \
                 (SELECT s.id FROM seen AS s ORDER BY s.id DESC LIMIT 1), \
                 (SELECT count(*) FROM seen), o.id, o.endpoint, o.lane, o.seq, o.replay \
               FROM (SELECT) AS one LEFT JOIN open AS o ON true ORDER BY o.id";
    let (after, through) = (sweep.after.to_bytes(), sweep.through.to_bytes());
    let (scan, limit) = (i64::from(LIST_SCAN_MAX), sweep.limit as usize);
    let values: Values<'_> = &[&after.as_slice(), &through.as_slice(), &scan, &(limit as i64 + 1)];
    let rows = node.reader().query(sql, values).await?;
    let (mut era, mut last_seen, mut seen) = (0, None, 0);
    let mut deliveries = Vec::new();
    for row in &rows {
        let columns = &mut RowReader::new(row);
        era = columns.number::<i64>("an era")?.cast_unsigned();
        last_seen = columns.maybe_array("a delivery's id")?.map(DeliveryId::from_bytes);
        seen = columns.number("a count")?;
        if let Some(id) = columns.maybe_array("a delivery's id")? {
            deliveries.push(swept(DeliveryId::from_bytes(id), columns)?);
        }
    }
    let cut = deliveries.len() > limit;
    deliveries.truncate(limit);
    let last_listed = deliveries.last().map(|accepted| accepted.id);
    let next = if cut { last_listed } else { last_seen.filter(|_| seen == scan) };
    Ok(SweepPage { deliveries, next, era })
}

fn swept(id: DeliveryId, columns: &mut RowReader<'_>) -> Result<Accepted> {
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let (lane, seq) = (columns.maybe_number("a lane")?.map(LaneId), columns.seq()?);
    let place = lane.zip(seq).map(|(lane, seq)| Place { lane, seq });
    Ok(Accepted { id, endpoint, place, replay: columns.flag()? })
}

/// One that cannot be read does not keep the others back: if the server stumbles over it, each is asked
/// for by itself.
pub(super) async fn parcels(
    node: &Node,
    deliveries: &[DeliveryId],
) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
    match read_parcels(node, deliveries).await {
        Err(StoreError::Corrupt(_)) => {}
        read => return read,
    }
    let mut parcels = Vec::new();
    for delivery in deliveries {
        match read_parcels(node, &[*delivery]).await {
            Ok(read) => parcels.extend(read),
            Err(error @ StoreError::Corrupt(_)) => parcels.push((*delivery, Err(error))),
            Err(error) => return Err(error),
        }
    }
    Ok(parcels)
}

async fn read_parcels(
    node: &Node,
    deliveries: &[DeliveryId],
) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
    let sql = concat!(
        "SELECT ",
        parcel_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id = ANY ($1)"
    );
    let ids: Vec<Vec<u8>> = deliveries.iter().map(|id| id.to_bytes().to_vec()).collect();
    let rows = node.reader().query(sql, &[&ids]).await?;
    let parcel = |row| {
        let id = DeliveryId::from_bytes(RowReader::new(row).array("a delivery's id")?);
        Ok((id, rows::parcel(&mut RowReader::new(row))))
    };
    rows.iter().map(parcel).collect()
}
