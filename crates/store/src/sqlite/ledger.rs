//! Records in SQLite, and what the engine and the sender read back.

use railpost_engine::{
    AttemptResult, Delivery, EndpointRecord, LaneId, LanePage, Load, Page, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, NodeId, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, params};

use super::desk::Desk;
use super::notes::Notes;
use super::rows::{all, first};
use super::unsettled::{Seen, Unsettled};
use crate::loading::{attempt_view, lane_page};
use crate::numbers::{
    DEAD, LAST_OPEN, OPEN, Standing, endpoint_status_number, failure_number, legal_from, millis,
    stage, timestamp,
};
use crate::rows::{self, delivery_columns, parcel_columns, to_json, view_joins};
use crate::{
    AttemptDetail, AttemptView, Epoch, Parcel, Partition, RecordBatch, Recorded, Result, Skipped,
    StoreError, brief,
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

impl Desk<'_> {
    pub(super) fn record(&mut self, batch: &RecordBatch) -> Result<Recorded> {
        self.check_epoch(batch)?;
        let mut recorded = Recorded::default();
        let mut journal = Journal::new(self.db, &mut self.notes)?;
        for (transition, detail) in &batch.transitions {
            match journal.record(transition, detail.as_deref())? {
                None => recorded.applied += 1,
                Some(skipped) => recorded.skipped.push(skipped),
            }
        }
        drop(journal);
        batch.endpoints.iter().try_for_each(|record| self.record_endpoint(record))?;
        Ok(recorded)
    }

    fn check_epoch(&mut self, batch: &RecordBatch) -> Result<()> {
        let partitions = self.notes.partitions(self.db)?;
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
        let sql = "UPDATE endpoints SET status = ?2, failing_since = ?3, updated_at = ?4 \
                   WHERE id = ?1";
        self.db.prepare_cached(sql)?.execute((
            record.endpoint.to_bytes(),
            endpoint_status_number(record.status),
            record.failing_since.map(millis),
            millis(record.at),
        ))?;
        Ok(())
    }

    pub(super) fn fence(&mut self, partition: Partition, epoch: Epoch) -> Result<()> {
        if self.notes.partitions(self.db)?.get(&partition.0).is_some_and(|stored| *stored > epoch.0)
        {
            return Err(StoreError::Fenced { partition });
        }
        let sql = "REPLACE INTO partitions (id, epoch) VALUES (?1, ?2)";
        self.db.prepare_cached(sql)?.execute((partition.0, epoch.0))?;
        self.notes.forget_registry();
        Ok(())
    }
}

/// Where transitions are written down, with the usual statement at hand.
struct Journal<'a> {
    db: &'a Connection,
    notes: &'a mut Notes,
    update: CachedStatement<'a>,
}

impl<'a> Journal<'a> {
    fn new(db: &'a Connection, notes: &'a mut Notes) -> Result<Self> {
        let update = db.prepare_cached(update_sql!(""))?;
        Ok(Self { db, notes, update })
    }

    /// Nothing, or why it was skipped.
    fn record(
        &mut self,
        transition: &Transition,
        detail: Option<&AttemptDetail>,
    ) -> Result<Option<Skipped>> {
        let standing = Standing::from(transition.state);
        let stage = transition.state.stage();
        let (told, from) =
            (detail.and_then(|detail| brief::encode(detail, stage)), legal_from(stage));
        // What follows an attempt follows an open state: one statement does it. A person's decision
        // may follow a dead letter too, which may have been open or not.
        let was_open = from & !OPEN == 0;
        let before = if was_open { None } else { self.standing(transition.delivery)? };
        if self.write_transition(transition, standing, from, told.as_deref())? == 0 {
            return self.skipped(transition.delivery).map(Some);
        }
        if let Some(place) = transition.place {
            let at = (transition.delivery, place);
            self.notes.lanes.stands(self.db, at, standing.number)?;
        }
        let was_open = before.map_or(was_open, |before| before <= LAST_OPEN);
        match (was_open, standing.number <= LAST_OPEN) {
            (true, false) => self.notes.backlog_changed(self.db, transition.endpoint, -1)?,
            (false, true) => self.notes.backlog_changed(self.db, transition.endpoint, 1)?,
            _ => {}
        }
        if let Some(detail) = detail.filter(|_| told.is_none()) {
            let view = attempt_view(detail, transition);
            self.write_attempt(transition.delivery, standing, &view)?;
        }
        Ok(None)
    }

    fn standing(&self, delivery: DeliveryId) -> Result<Option<i64>> {
        let sql = "SELECT standing FROM deliveries WHERE id = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        Ok(statement.query_row([delivery.to_bytes()], |row| row.get(0)).optional()?)
    }

    fn skipped(&self, delivery: DeliveryId) -> Result<Skipped> {
        let on_record = self.standing(delivery)?.map(stage).transpose()?;
        Ok(Skipped { delivery, on_record })
    }

    /// Writes the transition if the record allows it, and says how many rows that changed. A dead
    /// letter that holds no lane leaves it: its place becomes a memory.
    fn write_transition(
        &mut self,
        transition: &Transition,
        standing: Standing,
        from: i64,
        told: Option<&[u8]>,
    ) -> Result<usize> {
        let progress = transition.progress;
        let values = (
            transition.delivery.to_bytes(),
            standing.number,
            standing.due,
            standing.reason,
            progress.attempts,
            progress.round_attempts,
            progress.round_started_at.map(millis),
            i64::try_from(progress.last_delay.as_millis()).unwrap_or(i64::MAX),
            progress.replay,
            millis(transition.at),
            told,
            from,
        );
        if standing.number == DEAD {
            let leave =
                update_sql!(", left_seq = coalesce(seq, left_seq), lane = NULL, seq = NULL");
            return Ok(self.db.prepare_cached(leave)?.execute(values)?);
        }
        Ok(self.update.execute(values)?)
    }

    fn write_attempt(
        &self,
        delivery: DeliveryId,
        standing: Standing,
        view: &AttemptView,
    ) -> Result<()> {
        let AttemptView { detail, next_at, .. } = view;
        let (status, retry_after, failure) = match detail.result {
            AttemptResult::Response { status, retry_after } => (Some(status), retry_after, None),
            AttemptResult::Failed(failure) => (None, None, Some(failure_number(failure))),
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
        self.db.prepare_cached(sql)?.execute(params![
            delivery.to_bytes(),
            detail.number,
            millis(detail.started_at),
            status,
            retry_after.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
            failure,
            standing.number,
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
        ])?;
        Ok(())
    }
}

/// No lane has this number: they start with 1.
const BEFORE_ALL: LaneId = LaneId(0);

/// A load, and what was seen of the ends of its lanes before its read begins.
pub(super) struct Asked {
    load: Load,
    seen: Vec<(LaneId, Seen)>,
}

impl Asked {
    pub(super) fn new(load: Load, unsettled: &Unsettled) -> Self {
        let seen = match load {
            Load::Lane { lane, from, limit, .. } => {
                let seen = unsettled.see(lane, from, limit as usize);
                seen.map(|seen| (lane, seen)).into_iter().collect()
            }
            Load::Lanes { endpoint, after, limit, window } => {
                let after = after.unwrap_or(BEFORE_ALL);
                unsettled.see_lanes(endpoint, after, limit as usize + 1, window as usize)
            }
            Load::Unkeyed { .. } => Vec::new(),
        };
        Self { load, seen }
    }
}

pub(super) fn load(db: &Connection, asked: &Asked, unsettled: &Unsettled) -> Result<Page> {
    let Asked { load, seen } = asked;
    let (Load::Lanes { endpoint, .. }
    | Load::Lane { endpoint, .. }
    | Load::Unkeyed { endpoint, .. }) = *load;
    let sql = "SELECT num FROM endpoints WHERE id = ?1 AND removed_at IS NULL";
    let num = db.prepare_cached(sql)?.query_row([endpoint.to_bytes()], |row| row.get(0));
    // No endpoint has the number 0, so there is nothing to find.
    let from = Shelf { db, endpoint, num: num.optional()?.unwrap_or(0), seen };
    match *load {
        Load::Lanes { after, limit, window, .. } => {
            from.lanes(after, limit as usize, window, unsettled)
        }
        Load::Lane { lane, from: seq, limit, .. } => from.lane(lane, seq, limit).map(Page::Lane),
        Load::Unkeyed { after, due_by, limit, .. } => from.unkeyed(after, due_by, limit as usize),
    }
}

/// The deliveries of one endpoint.
struct Shelf<'a> {
    db: &'a Connection,
    endpoint: EndpointId,
    num: i64,
    /// By ascending lane.
    seen: &'a [(LaneId, Seen)],
}

impl Shelf<'_> {
    /// One seek per lane: what lies in a lane beyond its window is never looked at.
    fn lanes(
        &self,
        after: Option<LaneId>,
        limit: usize,
        window: u32,
        unsettled: &Unsettled,
    ) -> Result<Page> {
        let (mut last, mut lanes) = (after.unwrap_or(BEFORE_ALL), Vec::new());
        // Beyond this lane nobody looked.
        let horizon = self.seen.get(limit).map(|(lane, _)| *lane);
        while let Some(lane) = self.lane_after(last)? {
            if lanes.len() == limit || horizon.is_some_and(|horizon| lane > horizon) {
                return Ok(Page::Lanes { lanes, next: Some(last) });
            }
            let page = self.lane(lane, Seq::FIRST, window)?;
            // Those who were seen may all be closed by now, and others stand behind them.
            if !page.deliveries.is_empty() || page.through < page.last {
                // This may be newer than the read: it says that there is more, but not that everything
                // up to there is closed or listed.
                let last = page.last.max(unsettled.last(lane));
                lanes.push(LanePage { last, ..page });
            }
            last = lane;
        }
        Ok(Page::Lanes { lanes, next: horizon.map(|_| last) })
    }

    /// The next lane that somebody stands in, or stood when it was seen.
    fn lane_after(&self, last: LaneId) -> Result<Option<LaneId>> {
        let sql = "SELECT lane FROM places WHERE endpoint = ?1 AND lane > ?2 ORDER BY lane LIMIT 1";
        let mut statement = self.db.prepare_cached(sql)?;
        let settled = statement.query_row((self.num, row_number(last)), |row| row.get(0));
        let settled = settled.optional()?.map(LaneId);
        let seen = self.seen.iter().map(|(lane, _)| *lane).find(|lane| *lane > last);
        Ok(settled.into_iter().chain(seen).min())
    }

    /// The lane's row knows up to where everyone has a place who is open. Beyond that are those who were
    /// seen.
    fn lane(&self, lane: LaneId, from: Seq, limit: u32) -> Result<LanePage> {
        let sql = "SELECT last_seq FROM lanes WHERE id = ?1 AND endpoint = ?2";
        let number = row_number(lane);
        let row = self.db.prepare_cached(sql)?.query_row((number, self.num), |row| row.get(0));
        let row = row.optional()?.and_then(Seq::new);
        let sql = concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM places AS p JOIN deliveries AS d ON d.id = p.delivery \
             WHERE p.endpoint = ?1 AND p.lane = ?2 AND p.seq >= ?3 ORDER BY p.seq LIMIT ?4"
        );
        let mut deliveries = self.deliveries(sql, (self.num, number, from.get(), limit))?;
        let seen = self.seen.iter().find(|(seen, _)| *seen == lane).map(|(_, seen)| seen);
        let sql = concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM deliveries AS d WHERE id = ?1 AND lane = ?2 AND seq > ?3 AND standing <= 3"
        );
        let settled = row.map_or(0, Seq::get);
        for delivery in seen.iter().flat_map(|seen| &seen.deliveries) {
            deliveries.extend(self.deliveries(sql, (delivery.to_bytes(), number, settled))?);
        }
        deliveries.truncate(limit as usize);
        let through = row.max(seen.map(|seen| seen.through));
        let page = lane_page(lane, from, through, limit as usize, deliveries);
        Ok(LanePage { last: row.max(seen.map(|seen| seen.last)), ..page })
    }

    fn unkeyed(&self, after: Option<DeliveryId>, due_by: Timestamp, limit: usize) -> Result<Page> {
        let sql = concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM deliveries AS d INDEXED BY deliveries_unkeyed \
             WHERE endpoint = ?1 AND id > ?2 AND standing <= 3 AND lane IS NULL \
             AND (due IS NULL OR due <= ?3) ORDER BY id LIMIT ?4"
        );
        let after = after.map_or([0; 16], DeliveryId::to_bytes);
        let mut deliveries = self.deliveries(sql, (self.num, after, millis(due_by), limit + 1))?;
        let more = deliveries.len() > limit;
        deliveries.truncate(limit);
        let next = deliveries.last().map(|delivery| delivery.id).filter(|_| more);
        Ok(Page::Unkeyed { deliveries, next, next_due: self.next_due(due_by)? })
    }

    fn deliveries(&self, sql: &str, values: impl Params) -> Result<Vec<Delivery>> {
        all(self.db, sql, values, |columns| rows::delivery(columns, self.endpoint))
    }

    fn next_due(&self, due_by: Timestamp) -> Result<Option<Timestamp>> {
        let sql = "SELECT due FROM deliveries INDEXED BY deliveries_due \
                   WHERE endpoint = ?1 AND due > ?2 AND standing = 2 AND lane IS NULL \
                   ORDER BY due LIMIT 1";
        let mut statement = self.db.prepare_cached(sql)?;
        let due = statement.query_row((self.num, millis(due_by)), |row| row.get(0));
        Ok(due.optional()?.map(timestamp))
    }
}

/// A lane's number as a column holds it; one beyond that is nobody's.
fn row_number(lane: LaneId) -> i64 {
    i64::try_from(lane.0).unwrap_or(i64::MAX)
}

pub(super) fn parcels(db: &Connection, deliveries: &[DeliveryId]) -> Result<Vec<Parcel>> {
    let sql = concat!(
        "SELECT ",
        parcel_columns!(),
        " FROM deliveries AS d ",
        view_joins!(),
        " WHERE d.id = ?1"
    );
    // In the order of the table and, nearly, of the events: neighbours share pages.
    let mut ids: Vec<_> = deliveries.iter().map(|id| id.to_bytes()).collect();
    ids.sort_unstable();
    let mut statement = db.prepare_cached(sql)?;
    let found = ids.iter().map(|id| first(&mut statement, [id], |columns| rows::parcel(columns)));
    found.filter_map(Result::transpose).collect()
}
