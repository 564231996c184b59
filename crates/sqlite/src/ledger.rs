//! Records in SQLite, and what the engine and the sender read back.

use railpost_engine::{
    Accepted, AttemptResult, Delivery, EndpointRecord, LaneId, LanePage, Load, LoadedPage, Place,
    Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, NodeId, Seq, TenantId};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};

use super::cache::WriterCache;
use super::errors::Translate;
use super::lanes;
use super::rows::{RowReader, all, first, one};
use super::session::WriteSession;
use railpost_store::backend::brief_attempt;
use railpost_store::backend::codes::{
    DEAD, LAST_OPEN, OPEN, StateCode, endpoint_status_code, failure_code, legal_from, millis,
    stage, timestamp,
};
use railpost_store::backend::loading::{attempt_view, lane_page};
use railpost_store::backend::rows::{
    self, Columns, delivery_columns, parcel_columns, to_json, view_joins,
};
use railpost_store::limits::LIST_SCAN_MAX;
use railpost_store::{
    AttemptDetail, AttemptView, AuditEntry, Epoch, Parcel, Partition, RecordBatch, Recorded,
    RefusedTransition, Result, StoreError, Sweep, SweepPage,
};

/// Writes a transition if the record allows it, and something more.
macro_rules! update_sql {
    ($more:literal) => {
        concat!(
            "UPDATE deliveries SET standing = ?2, due = ?3, reason = ?4, \
             attempts = max(attempts, ?5), \
             round_attempts = ?6, round_started_at = ?7, last_delay = ?8, replay = ?9, \
             changed_at = ?10, brief = ?11",
            $more,
            " WHERE id = ?1 AND (1 << standing) & ?12"
        )
    };
}

impl WriteSession<'_> {
    pub(super) fn record(&mut self, batch: &RecordBatch) -> Result<Recorded> {
        self.check_epoch(batch)?;
        let mut recorded = Recorded::default();
        let mut writer = TransitionWriter::new(self.db, &mut self.cache)?;
        for (transition, detail) in &batch.transitions {
            match writer.record(transition, detail.as_deref())? {
                None => recorded.applied += 1,
                Some(refused) => recorded.refused.push(refused),
            }
        }
        drop(writer);
        batch.endpoints.iter().try_for_each(|record| self.record_endpoint(record))?;
        batch.audit.iter().try_for_each(|entry| self.write_audit(entry).map(drop))?;
        Ok(recorded)
    }

    fn check_epoch(&mut self, batch: &RecordBatch) -> Result<()> {
        let partitions = self.cache.partitions(self.db)?;
        if partitions.is_empty() {
            return Ok(());
        }
        let later = |partition: &Partition| {
            partitions.get(&partition.0).is_some_and(|epoch| *epoch > batch.epoch.0)
        };
        match batch.partitions().find(later) {
            Some(partition) => Err(StoreError::Fenced { partition }),
            None => Ok(()),
        }
    }

    fn record_endpoint(&self, record: &EndpointRecord) -> Result<()> {
        let sql = "UPDATE endpoints SET status = ?2, failing_since = ?3, updated_at = ?4, \
                   status_since = CASE WHEN status = ?2 THEN status_since ELSE ?4 END \
                   WHERE id = ?1 AND status = ?5";
        let changed = self.execute(
            sql,
            (
                record.endpoint.to_bytes(),
                endpoint_status_code(record.status),
                record.failing_since.map(millis),
                millis(record.at),
                endpoint_status_code(record.was),
            ),
        )?;
        let entry = AuditEntry::of_switch_off(record, None).filter(|_| changed > 0);
        let Some(entry) = entry else { return Ok(()) };
        let tenant = self.tenant_of(record.endpoint)?;
        self.write_audit(&AuditEntry { tenant, ..entry }).map(drop)
    }

    fn tenant_of(&self, endpoint: EndpointId) -> Result<Option<TenantId>> {
        let sql = "SELECT t.id FROM endpoints AS p JOIN tenants AS t ON t.num = p.tenant \
                   WHERE p.id = ?1";
        one(self.db, sql, [endpoint.to_bytes()], |columns| columns.parsed("a tenant's id"))
    }

    pub(super) fn fence(&mut self, partition: Partition, epoch: Epoch) -> Result<()> {
        if self.cache.partitions(self.db)?.get(&partition.0).is_some_and(|stored| *stored > epoch.0)
        {
            return Err(StoreError::Fenced { partition });
        }
        let sql = "REPLACE INTO partitions (id, epoch) VALUES (?1, ?2)";
        self.db.prepare_cached(sql).translated()?.execute((partition.0, epoch.0)).translated()?;
        self.cache.registry_changed();
        Ok(())
    }
}

/// Writes transitions, with the usual statement at hand.
struct TransitionWriter<'a> {
    db: &'a Connection,
    cache: &'a mut WriterCache,
    update: CachedStatement<'a>,
}

/// A delivery's row before a transition.
struct StoredDelivery {
    state_code: i64,
    /// Its endpoint's num, its lane and its seq, if it has a place.
    place: Option<(i64, i64, i64)>,
}

impl<'a> TransitionWriter<'a> {
    fn new(db: &'a Connection, cache: &'a mut WriterCache) -> Result<Self> {
        let update = db.prepare_cached(update_sql!("")).translated()?;
        Ok(Self { db, cache, update })
    }

    /// Nothing, or why it was skipped.
    fn record(
        &mut self,
        transition: &Transition,
        detail: Option<&AttemptDetail>,
    ) -> Result<Option<RefusedTransition>> {
        let state = StateCode::from(transition.state);
        let stage = transition.state.stage();
        let (brief, from) =
            (detail.and_then(|detail| brief_attempt::encode(detail, stage)), legal_from(stage));
        // What follows an attempt follows an open state: one statement does it. A person's decision
        // may follow a dead letter too, which may have been open or not.
        let was_open = from & !OPEN == 0;
        let skips = transition.state.is_skipped();
        let stored = if was_open && !skips { None } else { self.stored(transition.delivery)? };
        if self.write_transition(transition, state, from, brief.as_deref())? == 0 {
            return self.refused(transition.delivery).map(Some);
        }
        let was_open = stored.as_ref().map_or(was_open, |stored| stored.state_code <= LAST_OPEN);
        match (was_open, state.code <= LAST_OPEN) {
            (true, false) => self.cache.backlog_changed(self.db, transition.endpoint, -1)?,
            (false, true) => self.cache.backlog_changed(self.db, transition.endpoint, 1)?,
            _ => {}
        }
        if let Some((endpoint, lane, seq)) =
            stored.and_then(|stored| stored.place).filter(|_| skips)
        {
            lanes::skip(self.db, endpoint, lane, seq)?;
        }
        if let Some(detail) = detail.filter(|_| brief.is_none()) {
            let view = attempt_view(detail, transition);
            self.write_attempt(transition.delivery, state, &view)?;
        }
        Ok(None)
    }

    fn stored(&self, delivery: DeliveryId) -> Result<Option<StoredDelivery>> {
        let sql = "SELECT standing, endpoint, lane, seq FROM deliveries WHERE id = ?1";
        one(self.db, sql, [delivery.to_bytes()], |columns| {
            let state_code = columns.number("a state code")?;
            let (endpoint, lane, seq) = (columns.int()?, columns.int()?, columns.int()?);
            let place = endpoint.zip(lane).zip(seq);
            let place = place.map(|((endpoint, lane), seq)| (endpoint, lane, seq));
            Ok(StoredDelivery { state_code, place })
        })
    }

    fn refused(&self, delivery: DeliveryId) -> Result<RefusedTransition> {
        let stored = self.stored(delivery)?;
        let on_record = stored.map(|stored| stage(stored.state_code)).transpose()?;
        Ok(RefusedTransition { delivery, on_record })
    }

    /// Writes the transition if the record allows it, and says how many rows that changed. A dead
    /// letter that holds no lane leaves it: its place becomes a memory.
    fn write_transition(
        &mut self,
        transition: &Transition,
        state: StateCode,
        from: i64,
        brief: Option<&[u8]>,
    ) -> Result<usize> {
        let progress = transition.progress;
        let values = (
            transition.delivery.to_bytes(),
            state.code,
            state.due,
            state.reason,
            progress.attempts,
            progress.round_attempts,
            progress.round_started_at.map(millis),
            i64::try_from(progress.last_delay.as_millis()).unwrap_or(i64::MAX),
            progress.replay,
            millis(transition.at),
            brief,
            from,
        );
        if state.code == DEAD {
            let leave = update_sql!(
                ", left_lane = coalesce(lane, left_lane), left_seq = coalesce(seq, left_seq), \
                 lane = NULL, seq = NULL"
            );
            return self.db.prepare_cached(leave).translated()?.execute(values).translated();
        }
        self.update.execute(values).translated()
    }

    fn write_attempt(
        &self,
        delivery: DeliveryId,
        state: StateCode,
        view: &AttemptView,
    ) -> Result<()> {
        let AttemptView { detail, next_at, .. } = view;
        let (status, retry_after, failure) = match detail.result {
            AttemptResult::Response { status, retry_after } => (Some(status), retry_after, None),
            AttemptResult::Failed(failure) => (None, None, Some(failure_code(failure))),
        };
        let headers = Some(&detail.response_headers).filter(|headers| !headers.is_empty());
        let headers = headers.map(to_json);
        let body = Some(&detail.response_body[..]).filter(|body| !body.is_empty());
        let timing = detail.timing;
        let sql = "INSERT OR IGNORE INTO attempts (delivery, number, started_at, status, \
                   retry_after, failure, led_to, next_at, dns_us, connect_us, tls_us, \
                   first_byte_us, total_us, message, headers, body, node) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
                   ?17)";
        self.db
            .prepare_cached(sql)
            .translated()?
            .execute(params![
                delivery.to_bytes(),
                detail.number,
                millis(detail.started_at),
                status,
                retry_after.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
                failure,
                state.code,
                next_at.map(millis),
                timing.dns_us,
                timing.connect_us,
                timing.tls_us,
                timing.first_byte_us,
                timing.total_us,
                detail.message,
                headers,
                body,
                detail.node.map(NodeId::to_bytes),
            ])
            .translated()?;
        Ok(())
    }
}

/// No lane has this number: they start with 1.
const BEFORE_ALL: LaneId = LaneId(0);

pub(super) fn load(db: &Connection, load: &Load) -> Result<LoadedPage> {
    let (Load::Lanes { endpoint, .. }
    | Load::Lane { endpoint, .. }
    | Load::Unkeyed { endpoint, .. }) = *load;
    let sql = "SELECT num FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
    let num =
        db.prepare_cached(sql).translated()?.query_row([endpoint.to_bytes()], |row| row.get(0));
    // No endpoint has the number 0, so there is nothing to find.
    let reader = EndpointReader { db, endpoint, num: num.optional().translated()?.unwrap_or(0) };
    match *load {
        Load::Lanes { after, limit, window, .. } => reader.lanes(after, limit as usize, window),
        Load::Lane { lane, from, limit, .. } => {
            reader.lane(lane, from, limit).map(LoadedPage::Lane)
        }
        Load::Unkeyed { after, due_by, due_beyond, limit, .. } => {
            reader.unkeyed(after, (millis(due_by), millis(due_beyond)), limit as usize)
        }
    }
}

/// The open deliveries of one endpoint.
struct EndpointReader<'a> {
    db: &'a Connection,
    endpoint: EndpointId,
    num: i64,
}

impl EndpointReader<'_> {
    /// One seek per lane: what lies in a lane beyond its window is never looked at.
    fn lanes(&self, after: Option<LaneId>, limit: usize, window: u32) -> Result<LoadedPage> {
        let (mut last, mut lanes) = (after.unwrap_or(BEFORE_ALL), Vec::new());
        while let Some(lane) = self.lane_after(last)? {
            if lanes.len() == limit {
                return Ok(LoadedPage::Lanes { lanes, next: Some(last) });
            }
            lanes.push(self.lane(lane, Seq::FIRST, window)?);
            last = lane;
        }
        Ok(LoadedPage::Lanes { lanes, next: None })
    }

    /// The next lane that has an open delivery.
    fn lane_after(&self, last: LaneId) -> Result<Option<LaneId>> {
        let sql = "SELECT lane FROM deliveries INDEXED BY deliveries_open \
                   WHERE endpoint = ?1 AND lane > ?2 AND standing <= 3 ORDER BY lane LIMIT 1";
        let mut statement = self.db.prepare_cached(sql).translated()?;
        let lane = statement.query_row((self.num, row_number(last)), |row| row.get(0));
        Ok(lane.optional().translated()?.map(LaneId))
    }

    fn lane(&self, lane: LaneId, from: Seq, limit: u32) -> Result<LanePage> {
        let sql = "SELECT last_seq FROM lanes WHERE id = ?1 AND endpoint = ?2";
        let number = row_number(lane);
        let last = self
            .db
            .prepare_cached(sql)
            .translated()?
            .query_row((number, self.num), |row| row.get(0));
        let last = last.optional().translated()?.and_then(Seq::new);
        let sql = concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM deliveries AS d INDEXED BY deliveries_open WHERE endpoint = ?1 AND lane = ?2 \
             AND seq >= ?3 AND standing <= 3 ORDER BY seq LIMIT ?4"
        );
        let deliveries = self.deliveries(sql, (self.num, number, from.get(), limit))?;
        let follows = if last.is_some() { self.follows(number, from)? } else { vec![] };
        Ok(lane_page(lane, from, last, limit as usize, deliveries, follows))
    }

    /// What of a lane does not follow the one before it. There is little: what the lane has passed goes.
    fn follows(&self, lane: i64, from: Seq) -> Result<Vec<(Seq, u64)>> {
        let sql =
            "SELECT seq, follows FROM lane_follows WHERE lane = ?1 AND seq >= ?2 ORDER BY seq";
        all(self.db, sql, (lane, from.get()), |columns| {
            Ok((columns.need_seq()?, columns.number("a seq")?))
        })
    }

    /// Those that wait until an instant between the two are left out.
    fn unkeyed(
        &self,
        after: Option<DeliveryId>,
        (due_by, due_beyond): (i64, i64),
        limit: usize,
    ) -> Result<LoadedPage> {
        let sql = concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM deliveries AS d INDEXED BY deliveries_open \
             WHERE endpoint = ?1 AND lane IS NULL AND seq IS NULL AND id > ?2 AND standing <= 3 \
             AND (due IS NULL OR due <= ?3 OR due > ?4) ORDER BY id LIMIT ?5"
        );
        let after = after.map_or([0; 16], DeliveryId::to_bytes);
        let mut deliveries =
            self.deliveries(sql, (self.num, after, due_by, due_beyond, limit + 1))?;
        let more = deliveries.len() > limit;
        deliveries.truncate(limit);
        let next = deliveries.last().map(|delivery| delivery.id).filter(|_| more);
        let next_due = self.next_due(due_by, due_beyond)?;
        Ok(LoadedPage::Unkeyed { deliveries, next, next_due })
    }

    fn deliveries(&self, sql: &str, values: impl Params) -> Result<Vec<Delivery>> {
        all(self.db, sql, values, |columns| rows::delivery(columns, self.endpoint))
    }

    fn next_due(&self, due_by: i64, due_beyond: i64) -> Result<Option<Timestamp>> {
        let sql = "SELECT due FROM deliveries INDEXED BY deliveries_due \
                   WHERE endpoint = ?1 AND due > ?2 AND due <= ?3 AND standing = 2 \
                   AND lane IS NULL ORDER BY due LIMIT 1";
        let mut statement = self.db.prepare_cached(sql).translated()?;
        let due = statement.query_row((self.num, due_by, due_beyond), |row| row.get(0));
        Ok(due.optional().translated()?.map(timestamp))
    }
}

/// A lane's number as a column holds it; no lane has one beyond that.
fn row_number(lane: LaneId) -> i64 {
    i64::try_from(lane.0).unwrap_or(i64::MAX)
}

/// Row by row: one that cannot be read does not keep the others back.
pub(super) fn parcels(
    db: &Connection,
    deliveries: &[DeliveryId],
) -> Result<Vec<(DeliveryId, Result<Parcel>)>> {
    let sql = concat!(
        "SELECT ",
        parcel_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id = ?1"
    );
    // In the order of the table and, nearly, of the events: neighbours share pages.
    let mut ids = deliveries.to_vec();
    ids.sort_unstable();
    let mut statement = db.prepare_cached(sql).translated()?;
    let found = ids.into_iter().filter_map(|id| {
        let parcel = first(&mut statement, [id.to_bytes()], |columns| rows::parcel(columns));
        Some((id, parcel.map_err(|error| error.of_row("delivery", id)).transpose()?))
    });
    Ok(found.collect())
}

/// Looks at a stretch of the table, and at no more rows of it than a list does.
pub(super) fn sweep(db: &Connection, sweep: &Sweep) -> Result<SweepPage> {
    let sql = "SELECT d.id, p.id, d.lane, d.seq, d.replay, \
               d.standing <= 3 AND p.removed_at IS NULL FROM deliveries AS d \
               CROSS JOIN endpoints AS p ON p.num = d.endpoint \
               WHERE d.id > ?1 AND d.id <= ?2 ORDER BY d.id";
    let mut statement = db.prepare_cached(sql).translated()?;
    let mut rows =
        statement.query((sweep.after.to_bytes(), sweep.through.to_bytes())).translated()?;
    let (mut deliveries, mut looked_at, mut last) = (Vec::new(), 0, sweep.after);
    let mut next = None;
    while let Some(row) = rows.next().translated()? {
        if looked_at == LIST_SCAN_MAX {
            next = Some(last);
            break;
        }
        let (accepted, is_open) = swept(&mut RowReader::new(row))?;
        if is_open && deliveries.len() == sweep.limit as usize {
            next = Some(last);
            break;
        }
        (looked_at, last) = (looked_at + 1, accepted.id);
        deliveries.extend(Some(accepted).filter(|_| is_open));
    }
    let sql = "SELECT id FROM eras ORDER BY num DESC LIMIT 1";
    let era: i64 =
        db.prepare_cached(sql).translated()?.query_row([], |row| row.get(0)).translated()?;
    Ok(SweepPage { deliveries, next, era: era.cast_unsigned() })
}

/// A delivery, and whether it is open.
fn swept(columns: &mut RowReader<'_, '_>) -> Result<(Accepted, bool)> {
    let id = DeliveryId::from_bytes(columns.array("a delivery's id")?);
    let endpoint = EndpointId::from_bytes(columns.array("an endpoint's id")?);
    let (lane, seq) = (columns.maybe_number("a lane")?, columns.seq()?);
    let place = lane.map(LaneId).zip(seq).map(|(lane, seq)| Place { lane, seq });
    Ok((Accepted { id, endpoint, place, replay: columns.flag()? }, columns.flag()?))
}
