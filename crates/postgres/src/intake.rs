//! Accepting events into PostgreSQL: a group of calls is one statement.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use railpost_engine::{Accepted, LaneId, Place, Timestamp};
use railpost_wire::{DeliveryId, EndpointId, EventId, Key, TenantId};

use super::groups::{Call, Weight};
use super::node::Node;
use super::rows::all;
use super::tenant_cache::TenantEntry;
use crate::limits::COLLISIONS_MAX;
use railpost_store::backend::accepted_by;
use railpost_store::backend::check;
use railpost_store::backend::codes::millis;
use railpost_store::backend::delivery_ids::{DeliveryIds, nth};
use railpost_store::backend::fanout::Subscriber;
use railpost_store::backend::rows::{self, Columns, event_columns, to_json};
use railpost_store::{
    AcceptBatch, AcceptRecord, Event, EventOutcome, IdempotencyKey, IdempotencyRecord, LinePlace,
    NewDelivery, Receipt, Result, Source, StoreError,
};

/// A delivery's place in its lane and in its line.
#[derive(Clone, Debug)]
pub(super) struct NewPlace {
    pub(super) place: Place,
    line: LinePlace,
}

pub(super) type AcceptCall = Call<Arc<AcceptBatch>, Vec<Receipt>>;

/// A call on its way, and which of its events turned out to be known.
struct Pending {
    call: AcceptCall,
    known: Vec<Option<Timestamp>>,
}

/// What the database said of a group.
enum AcceptResult {
    Placed(Vec<(usize, NewPlace)>),
    /// Another node was in the way.
    Again,
    /// These tenants have changed since they were looked up, by their numbers.
    Stale(Vec<i64>),
    /// These events, or the answers to these requests, are on record.
    Known {
        events: Vec<usize>,
        answers: Vec<usize>,
    },
}

/// What a call adds to its group.
pub(super) fn weight(batch: &Arc<AcceptBatch>) -> Weight {
    let answer = batch.idempotency.as_ref().map_or(0, |record| record.body_len_max);
    let payloads: usize = batch.events.iter().map(Event::bytes).sum();
    Weight { items: batch.events.len(), bytes: payloads + answer }
}

/// Serves a group of calls. Those that name the same event or request take turns.
pub(super) async fn serve(node: &Node, calls: Vec<AcceptCall>) {
    let mut waiting = calls;
    while !waiting.is_empty() {
        let (group, rest) = split_off_repeats(waiting);
        serve_group(node, group).await;
        waiting = rest;
    }
}

/// The first calls that have nothing in common, and the rest: calls are accepted in the order in which they came.
fn split_off_repeats(calls: Vec<AcceptCall>) -> (Vec<Pending>, Vec<AcceptCall>) {
    let (mut group, mut rest) = (Vec::new(), Vec::new());
    let mut events: HashSet<(TenantId, EventId)> = HashSet::new();
    let mut requests: HashSet<IdempotencyKey> = HashSet::new();
    for call in calls {
        let batch = &call.input;
        let request = batch.idempotency.as_ref().map(|accept| &accept.record.key);
        let event = |event: &Event| (batch.tenant.clone(), event.id.clone());
        let alone = batch.events.iter().all(|e| !events.contains(&event(e)))
            && request.is_none_or(|request| !requests.contains(request));
        if !alone || !rest.is_empty() {
            rest.push(call);
            continue;
        }
        events.extend(batch.events.iter().map(event));
        requests.extend(request.cloned());
        let known = vec![None; batch.events.len()];
        group.push(Pending { call, known });
    }
    (group, rest)
}

async fn serve_group(node: &Node, mut group: Vec<Pending>) {
    for _ in 0..COLLISIONS_MAX {
        match try_group(node, &mut group).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return answer_all(group, &error),
        }
    }
    let problem = format!("other nodes were in the way {COLLISIONS_MAX} times");
    answer_all(group, &StoreError::Unavailable(problem));
}

fn answer_all(group: Vec<Pending>, error: &StoreError) {
    group.into_iter().for_each(|pending| pending.call.answer(Err(error.clone())));
}

/// One try; whether everyone was answered.
async fn try_group(node: &Node, group: &mut Vec<Pending>) -> Result<bool> {
    let now = node.setup.source.now();
    let tenants = group.iter().map(|pending| &pending.call.input.tenant);
    let entries = node.tenants.entries(node.reader(), tenants).await?;
    let entries = refuse(node, group, entries).await?;
    if group.is_empty() {
        return Ok(true);
    }
    let arrays = AcceptArrays::new(group, &entries, &node.ids, &*node.setup.source, now);
    match arrays.write(node, now).await? {
        AcceptResult::Placed(places) => {
            for (entry, count) in entries.iter().zip(&arrays.counts) {
                node.tenants.opened(entry.num, *count);
            }
            let receipts = arrays.receipts(&places);
            std::mem::take(group).into_iter().zip(receipts).for_each(|(pending, receipts)| {
                pending.call.answer(Ok(receipts));
            });
            Ok(true)
        }
        AcceptResult::Again => Ok(false),
        AcceptResult::Stale(tenants) => {
            node.tenants.forget(&tenants);
            Ok(false)
        }
        AcceptResult::Known { events, answers } => {
            let owners = arrays.owners(&events, &answers);
            look_up_known(node, group, owners).await?;
            Ok(group.is_empty())
        }
    }
}

/// Answers the calls that cannot be accepted, and leaves the others with their tenants.
async fn refuse(
    node: &Node,
    group: &mut Vec<Pending>,
    entries: Vec<Result<TenantEntry>>,
) -> Result<Vec<TenantEntry>> {
    let mut kept = Vec::new();
    let mut tenants: Vec<TenantEntry> = Vec::new();
    let mut added = std::collections::HashMap::<i64, u64>::new();
    for (mut pending, entry) in std::mem::take(group).into_iter().zip(entries) {
        let checked = match entry {
            Ok(entry) => {
                let added = added.entry(entry.num).or_default();
                let fits = pending.check_fits(node, &entry, *added).await;
                fits.map(|with_it| {
                    *added = with_it;
                    entry
                })
            }
            Err(error) => Err(error),
        };
        match checked {
            Ok(entry) => {
                kept.push(pending);
                tenants.push(entry);
            }
            Err(error) => pending.call.answer(Err(error)),
        }
    }
    *group = kept;
    Ok(tenants)
}

impl Pending {
    /// The events that are not known yet.
    fn fresh(&self) -> impl Iterator<Item = (usize, &Event)> {
        let events = self.call.input.events.iter().enumerate();
        events.filter(|(index, _)| self.known[*index].is_none())
    }

    fn wanted(&self, entry: &TenantEntry) -> u64 {
        self.fresh().map(|(_, event)| entry.wanting(event).count() as u64).sum()
    }

    /// Finds out which of these events are on record. One that differs from what is there is an error.
    async fn look_up(&mut self, node: &Node, indexes: &[usize]) -> Result<()> {
        let batch = &self.call.input;
        let sql = concat!(
            "SELECT ",
            event_columns!(),
            ", e.accepted_at FROM tenants AS t \
             JOIN events AS e ON e.tenant = t.num WHERE t.id = $1 AND e.id = ANY ($2)"
        );
        let ids: Vec<_> = indexes.iter().map(|index| batch.events[*index].id.to_string()).collect();
        let found = node.reader().query(sql, &[&batch.tenant.as_str(), &ids]).await?;
        let found = all(&found, |columns| Ok((rows::event(columns)?, columns.instant()?)))?;
        let mut found: Vec<_> = found
            .into_iter()
            .filter_map(|(stored, accepted_at)| {
                let index = indexes.iter().find(|index| batch.events[**index].id == stored.id)?;
                Some((*index, stored, accepted_at))
            })
            .collect();
        // If several events conflict, the first one is named.
        found.sort_unstable_by_key(|(index, ..)| *index);
        for (index, stored, accepted_at) in found {
            check::same_event(index, &stored, &batch.events[index])?;
            self.known[index] = Some(accepted_at);
        }
        Ok(())
    }

    /// That there is room for it beside what the group adds already. Where there is not, events that are
    /// on record take none; says how much the group adds with it.
    async fn check_fits(&mut self, node: &Node, entry: &TenantEntry, before: u64) -> Result<u64> {
        let added = before + self.wanted(entry);
        match node.tenants.check_backlog(node.reader(), entry, added).await {
            Err(StoreError::BacklogFull { .. }) => {}
            checked => return checked.map(|()| added),
        }
        let fresh: Vec<_> = self.fresh().map(|(index, _)| index).collect();
        self.look_up(node, &fresh).await?;
        let added = before + self.wanted(entry);
        node.tenants.check_backlog(node.reader(), entry, added).await.map(|()| added)
    }
}

impl TenantEntry {
    fn wanting(&self, event: &Event) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter().filter(|subscriber| subscriber.wants(&event.event_type))
    }
}

/// Finds out what is on record of the events and requests that are known: which call they are of, and
/// which event of it.
async fn look_up_known(
    node: &Node,
    group: &mut Vec<Pending>,
    owners: (Vec<(usize, usize)>, Vec<usize>),
) -> Result<()> {
    let (events, answers) = owners;
    let mut refused: Vec<(usize, StoreError)> =
        answers.into_iter().map(|call| (call, StoreError::Repeated)).collect();
    let mut by_call = BTreeMap::<usize, Vec<usize>>::new();
    events.into_iter().for_each(|(call, index)| by_call.entry(call).or_default().push(index));
    for (call, indexes) in by_call {
        match group[call].look_up(node, &indexes).await {
            Err(error) if error.is_environment() => return Err(error),
            Err(error) => refused.push((call, error)),
            Ok(()) => {}
        }
    }
    refused.sort_by_key(|(call, _)| std::cmp::Reverse(*call));
    refused.dedup_by_key(|(call, _)| *call);
    for (call, error) in refused {
        group.remove(call).call.answer(Err(error));
    }
    Ok(())
}

/// A group as arrays, and how to find the calls' own in them again.
struct AcceptArrays<'a> {
    /// The tenants by their numbers, with the count of changes that is known of each.
    tenants: BTreeMap<i64, i64>,
    /// By call: how many deliveries.
    counts: Vec<u64>,
    /// By call and event: when it was accepted before, or its deliveries.
    outcomes: Vec<Vec<Outcome>>,
    /// By event in the arrays: its call and its index there.
    event_owners: Vec<(usize, usize)>,
    /// By request in the arrays: its call.
    answer_owners: Vec<usize>,
    events: Events<'a>,
    deliveries: Deliveries<'a>,
    answers: Answers<'a>,
    accepted_at: Timestamp,
}

enum Outcome {
    Known(Timestamp),
    /// From which place in the arrays on, and how many.
    Fresh(usize, usize),
}

impl Outcome {
    /// The outcome as an answer tells it, if the group is accepted `now`.
    fn as_answered(&self, now: Timestamp) -> EventOutcome {
        match self {
            Outcome::Known(at) => EventOutcome { accepted_at: *at, deliveries: None },
            Outcome::Fresh(_, count) => EventOutcome { accepted_at: now, deliveries: Some(*count) },
        }
    }
}

#[derive(Default)]
struct Events<'a> {
    tenant: Vec<i64>,
    id: Vec<String>,
    event_type: Vec<&'a str>,
    key: Vec<Option<&'a [u8]>>,
    content_type: Vec<&'a str>,
    schema_version: Vec<Option<i64>>,
    time: Vec<i64>,
    traceparent: Vec<Option<&'a str>>,
    cloudevent: Vec<Option<String>>,
    payload: Vec<&'a [u8]>,
    first: Vec<[u8; 16]>,
    last: Vec<Vec<u8>>,
    accepted_by: Vec<Option<Vec<u8>>>,
}

#[derive(Default)]
pub(super) struct Deliveries<'a> {
    id: Vec<[u8; 16]>,
    event: Vec<i32>,
    endpoint: Vec<i64>,
    key: Vec<Option<&'a [u8]>>,
    /// Where they go, for the answer.
    to: Vec<EndpointId>,
}

#[derive(Default)]
struct Answers<'a> {
    owner: Vec<&'a str>,
    route: Vec<&'a str>,
    key: Vec<&'a str>,
    fingerprint: Vec<&'a [u8]>,
    status: Vec<i32>,
    body: Vec<Bytes>,
    tenant: Vec<Option<&'a str>>,
    expires_at: Vec<i64>,
}

impl<'a> AcceptArrays<'a> {
    fn new(
        group: &'a [Pending],
        entries: &'a [TenantEntry],
        ids: &Mutex<DeliveryIds>,
        source: &dyn Source,
        now: Timestamp,
    ) -> Self {
        let mut arrays = Self {
            tenants: BTreeMap::new(),
            counts: vec![],
            outcomes: vec![],
            event_owners: vec![],
            answer_owners: vec![],
            events: Events::default(),
            deliveries: Deliveries::default(),
            answers: Answers::default(),
            accepted_at: now,
        };
        let mut ids = ids.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (call, (pending, entry)) in group.iter().zip(entries).enumerate() {
            // If two calls know different counts, the lower one is old, and that is what counts.
            let changes = arrays.tenants.entry(entry.num).or_insert(entry.changes);
            *changes = entry.changes.min(*changes);
            let before = arrays.deliveries.id.len();
            let accepted_by = pending.call.input.accepted_by.as_ref().map(accepted_by::encode);
            let mut outcomes: Vec<_> =
                pending.known.iter().map(|at| Outcome::Known(at.unwrap_or(now))).collect();
            for (index, event) in pending.fresh() {
                let fanout = entry.wanting(event).count();
                outcomes[index] = Outcome::Fresh(arrays.deliveries.id.len(), fanout);
                arrays.event_owners.push((call, index));
                arrays.add_event(entry, event, ids.take(source, now, fanout));
                arrays.events.accepted_by.push(accepted_by.clone());
            }
            if let Some(record) = &pending.call.input.idempotency {
                arrays.answer_owners.push(call);
                let outcomes_answered: Vec<_> =
                    outcomes.iter().map(|outcome| outcome.as_answered(now)).collect();
                arrays.answers.add(record, &outcomes_answered);
            }
            arrays.outcomes.push(outcomes);
            arrays.counts.push((arrays.deliveries.id.len() - before) as u64);
        }
        arrays
    }

    fn add_event(&mut self, entry: &'a TenantEntry, event: &'a Event, first: DeliveryId) {
        let before = self.deliveries.id.len();
        // Arrays of PostgreSQL count from 1.
        let number = self.events.id.len() as i32 + 1;
        for (index, to) in entry.wanting(event).enumerate() {
            self.deliveries.add(nth(first, index), number, to, event.key.as_ref());
        }
        let fanout = self.deliveries.id.len() - before;
        let last = fanout.checked_sub(1).map(|last| nth(first, last).to_bytes().to_vec());
        self.events.add(entry.num, event, first, last.unwrap_or_default());
    }

    async fn write(&self, node: &Node, now: Timestamp) -> Result<AcceptResult> {
        let sql = "SELECT what, ord, lane, seq, line_before, era FROM railpost_accept( \
                   $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, \
                   $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)";
        let holder = node.lock.holder().await?;
        let session = node.accepts.session().await?;
        let server = session.server;
        let (tenants, changes): (Vec<i64>, Vec<i64>) = self.tenants.iter().unzip();
        let (e, d, i) = (&self.events, &self.deliveries, &self.answers);
        let ids: Vec<&[u8]> = d.id.iter().map(<[u8; 16]>::as_slice).collect();
        let bodies: Vec<&[u8]> = i.body.iter().map(|body| &body[..]).collect();
        let firsts: Vec<&[u8]> = e.first.iter().map(<[u8; 16]>::as_slice).collect();
        let values: super::link::Values<'_> = &[
            &holder,
            &server.system,
            &server.timeline,
            &millis(now),
            &tenants,
            &changes,
            &e.tenant,
            &e.id,
            &e.event_type,
            &e.key,
            &e.content_type,
            &e.schema_version,
            &e.time,
            &e.traceparent,
            &e.cloudevent,
            &e.payload,
            &firsts,
            &e.last,
            &e.accepted_by,
            &ids,
            &d.event,
            &d.endpoint,
            &d.key,
            &i.owner,
            &i.route,
            &i.key,
            &i.fingerprint,
            &i.status,
            &bodies,
            &i.tenant,
            &i.expires_at,
        ];
        let mark = node.unflushed().mark();
        match node.accepts.try_query_on(&session, sql, values).await? {
            Ok(rows) => {
                let result = self.result(&rows)?;
                if matches!(result, AcceptResult::Placed(_)) && !e.id.is_empty() {
                    node.unflushed().flushed(mark);
                }
                Ok(result)
            }
            Err(_collision) => Ok(AcceptResult::Again),
        }
    }

    fn receipts(&self, places: &[(usize, NewPlace)]) -> Vec<Vec<Receipt>> {
        let mut by_delivery = vec![None; self.deliveries.id.len()];
        for (index, place) in places {
            by_delivery[*index] = Some(place);
        }
        let receipt = |outcome: &Outcome| match outcome {
            Outcome::Known(accepted_at) => Receipt::Duplicate { accepted_at: *accepted_at },
            Outcome::Fresh(from, count) => {
                let made = |index: usize| self.deliveries.new_delivery(index, by_delivery[index]);
                let deliveries = (*from..from + count).map(made).collect();
                Receipt::Accepted { accepted_at: self.accepted_at, deliveries }
            }
        };
        self.outcomes.iter().map(|events| events.iter().map(receipt).collect()).collect()
    }

    fn result(&self, rows: &[tokio_postgres::Row]) -> Result<AcceptResult> {
        let (mut places, mut events, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut stale = Vec::new();
        let row = |columns: &mut super::rows::RowReader<'_>| {
            let (what, ord) = (columns.word()?, columns.number::<usize>("a place in an array")?);
            Ok((what, ord, new_place(columns)?))
        };
        for (what, ord, place) in all(rows, row)? {
            match (what.as_str(), place) {
                ("stale", _) => stale.extend(self.tenants.keys().nth(ord - 1)),
                ("event", _) => events.push(ord - 1),
                ("answered", _) => answers.push(ord - 1),
                (_, Some(place)) => places.push((ord - 1, place)),
                (_, None) => {
                    return Err(StoreError::Corrupt("a delivery without a place".to_owned()));
                }
            }
        }
        Ok(match (stale.is_empty(), events.is_empty() && answers.is_empty()) {
            (false, _) => AcceptResult::Stale(stale),
            (true, false) => AcceptResult::Known { events, answers },
            (true, true) => AcceptResult::Placed(places),
        })
    }

    /// Whose the events and the requests with these places in the arrays are.
    fn owners(&self, events: &[usize], answers: &[usize]) -> (Vec<(usize, usize)>, Vec<usize>) {
        let events = events.iter().map(|index| self.event_owners[*index]).collect();
        (events, answers.iter().map(|index| self.answer_owners[*index]).collect())
    }
}

/// Reads `lane, seq, line_before, era`; nothing if there is no seq.
pub(super) fn new_place(columns: &mut super::rows::RowReader<'_>) -> Result<Option<NewPlace>> {
    let (lane, seq) = (LaneId(columns.number("a lane")?), columns.seq()?);
    let (before, era) = (columns.number("a line's beginning")?, columns.int()?);
    Ok(seq.zip(era).map(|(seq, era)| NewPlace {
        place: Place { lane, seq },
        line: LinePlace::new(era.cast_unsigned(), lane, seq, before),
    }))
}

impl<'a> Events<'a> {
    fn add(&mut self, tenant: i64, event: &'a Event, first: DeliveryId, last: Vec<u8>) {
        self.tenant.push(tenant);
        self.id.push(event.id.to_string());
        self.event_type.push(event.event_type.as_str());
        self.key.push(event.key.as_ref().map(|key| key.as_str().as_bytes()));
        self.content_type.push(event.content_type.as_str());
        self.schema_version.push(event.schema_version.map(i64::from));
        self.time.push(millis(event.time));
        self.traceparent.push(event.traceparent.as_deref());
        self.cloudevent.push(event.cloudevent.as_ref().map(to_json));
        self.payload.push(&event.payload);
        self.first.push(first.to_bytes());
        self.last.push(last);
    }
}

impl<'a> Deliveries<'a> {
    fn add(&mut self, id: DeliveryId, event: i32, to: &Subscriber, key: Option<&'a Key>) {
        self.id.push(id.to_bytes());
        self.event.push(event);
        self.endpoint.push(to.num);
        self.key.push(lane_key(to, key));
        self.to.push(to.id);
    }

    fn new_delivery(&self, index: usize, place: Option<&NewPlace>) -> NewDelivery {
        let id = DeliveryId::from_bytes(self.id[index]);
        let (endpoint, in_lane) = (self.to[index], place.map(|place| place.place));
        let accepted = Accepted { id, endpoint, place: in_lane, replay: false };
        NewDelivery { accepted, line: place.map(|place| place.line.clone()) }
    }
}

/// The key of the lane that a delivery belongs to: empty for the endpoint's one lane for everything.
pub(super) fn lane_key<'a>(to: &Subscriber, key: Option<&'a Key>) -> Option<&'a [u8]> {
    to.lane_for(key).map(|key| key.map_or("", Key::as_str).as_bytes())
}

impl<'a> Answers<'a> {
    fn add(&mut self, accept: &'a AcceptRecord, outcomes: &[EventOutcome]) {
        let IdempotencyRecord { key, fingerprint, response, tenant, expires_at } = &accept.record;
        self.owner.push(&key.owner);
        self.route.push(&key.route);
        self.key.push(&key.key);
        self.fingerprint.push(fingerprint);
        self.status.push(i32::from(response.status));
        self.body.push((accept.body)(outcomes));
        self.tenant.push(tenant.as_ref().map(TenantId::as_str));
        self.expires_at.push(millis(*expires_at));
    }
}
