//! The judge: what a delivery system promises, as simply as it can be said. It hears the facts, looks
//! at what is on record and under way, knows nothing of the engine, and says which promise is broken.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::{
    Attempt, AttemptResult, AttemptToken, Command, Config, Delivery, DeliveryState, Endpoint,
    EndpointStatus, Guarantee, Outcome, Timestamp, Transition,
};
use railpost_wire::{DeliveryId, EndpointId, TenantId};

use crate::containment::{BreakerModel, BucketModel};
use crate::fact::{Fact, InFlightAttempt};
use crate::ledger::{Entry, honoured, is_about_endpoint, meaning};
use crate::store::Store;

/// The promise that was broken.
pub(crate) type BrokenPromise = &'static str;

const RECORDED_FIRST: BrokenPromise = "at most once: recorded as sent before it is sent";

/// The world at the moment of a fact, just before it takes effect.
pub(crate) struct View<'a> {
    /// The engine's time.
    pub(crate) now: Timestamp,
    pub(crate) config: &'a Config,
    pub(crate) store: &'a Store,
    /// The endpoints that the process serves, as it last read them.
    pub(crate) served: &'a BTreeMap<EndpointId, Endpoint>,
    pub(crate) under_way: &'a BTreeMap<AttemptToken, InFlightAttempt>,
}

#[derive(Default)]
pub(crate) struct Model {
    /// At-most-once deliveries that have left.
    sent: BTreeSet<DeliveryId>,
    /// What waits beyond reason, as it was shown to the engine.
    due: BTreeSet<DeliveryId>,
    tenants: BTreeMap<TenantId, BucketModel>,
    /// The endpoints served.
    sites: BTreeMap<EndpointId, EndpointModel>,
    /// What has to be recorded next.
    ended: Option<(InFlightAttempt, AttemptResult)>,
}

/// An endpoint, as far as it follows from what was sent there and came back.
#[derive(Default)]
struct EndpointModel {
    appeared: Timestamp,
    told: BTreeMap<DeliveryId, Command>,
    held_until: Timestamp,
    bucket: BucketModel,
    breaker: BreakerModel,
    /// The last probe.
    probe: Option<AttemptToken>,
}

impl Model {
    pub(crate) fn judge(&mut self, view: &View<'_>, fact: &Fact) -> Result<(), BrokenPromise> {
        match fact {
            Fact::Appeared(endpoint) => {
                let site = EndpointModel { appeared: view.now, ..EndpointModel::default() };
                self.sites.insert(endpoint.id, site);
            }
            Fact::Left(id) => drop(self.sites.remove(id)),
            Fact::Crashed | Fact::Stopped => self.forget_process(),
            Fact::Restored => {
                self.forget_process();
                // The copy may be older than the record of what left.
                self.sent.clear();
            }
            Fact::Due(id) => drop(self.due.insert(*id)),
            Fact::Resumed(id) => self.at(*id, |site| {
                // A person who resumes it overrules what its receiver asked for before.
                (site.breaker, site.held_until) = (BreakerModel::ramping(), view.now);
            }),
            Fact::Changed(old, new) => self.at(old.id, |site| {
                site.bucket = site.bucket.under(old.policy.rate_limit, new.rate_limit, view.now);
                site.breaker = std::mem::take(&mut site.breaker).under(new.breaker);
            }),
            Fact::Commanded(command, about) => {
                self.at(about.endpoint, |site| _ = site.told.insert(about.id, *command));
            }
            Fact::Reserved(attempt) => self.start(view, attempt, true)?,
            Fact::Started(attempt) if view.under_way.contains_key(&attempt.token) => {
                let durable = view.store.durable_state(attempt.delivery);
                rule(durable == Some(DeliveryState::InFlight), RECORDED_FIRST)?;
                self.sent.insert(attempt.delivery);
            }
            Fact::Started(attempt) => self.start(view, attempt, false)?,
            Fact::Ended(flight, result) => self.end(view, flight, *result)?,
            Fact::Recorded(transition) => self.record(view, transition)?,
            _ => {}
        }
        Ok(())
    }

    /// Nothing may be left lying that is due and allowed.
    pub(crate) fn judge_idle(&self, view: &View<'_>) -> Result<(), BrokenPromise> {
        for id in self.sites.keys() {
            let lanes = view.store.lanes(*id);
            let heads = lanes.filter_map(|lane| view.store.open(*id, Some(lane)).next());
            // What does not surely fit in memory may have to wait for room there.
            let window = view.config.unkeyed_window as usize / 2;
            let in_memory = view.store.open(*id, None).count() <= window;
            let unkeyed = view.store.open(*id, None).filter(|_| in_memory);
            let waits = |it: &Delivery| view.is_due(it) && !view.is_under_way(it.id);
            let idle = heads.chain(unkeyed).any(waits) && self.allows(view, *id).is_ok();
            rule(!idle, "nothing idles while work is due and allowed")?;
        }
        Ok(())
    }

    /// Whether an endpoint may be sent something now.
    fn allows(&self, view: &View<'_>, id: EndpointId) -> Result<(), BrokenPromise> {
        let site = self.sites.get(&id).ok_or("nothing starts at an endpoint that is not served")?;
        let Endpoint { policy, tenant, status, .. } = view.endpoint(id);
        rule(*status == EndpointStatus::Active, "nothing starts where it is switched off")?;
        rule(site.held_until <= view.now, "a receiver that asked for time is left alone")?;
        let here = view.count(|flight| flight.attempt.endpoint == id);
        rule(here < policy.in_flight_max, "no more is under way than an endpoint takes")?;
        let most = site.breaker.most(view.now, |probe| view.under_way.contains_key(&probe));
        let passes = policy.breaker.is_none() || here < most;
        rule(passes, "an open breaker lets one probe pass, and a closed one ramps up")?;
        let taken = view.count(|_| true) + view.count(|flight| flight.tenant == *tenant);
        rule(taken < view.config.in_flight_max, "no tenant takes the places that others need")?;
        let shared = self.tenants.get(tenant).copied().unwrap_or_default();
        let tenant_limit = view.store.tenants()[tenant];
        rule(shared.spend(tenant_limit, view.now).is_some(), "no tenant's rate is exceeded")?;
        let spent = site.bucket.spend(policy.rate_limit, view.now);
        rule(spent.is_some(), "no endpoint's rate is exceeded")
    }

    fn start(
        &mut self,
        view: &View<'_>,
        attempt: &Attempt,
        reserved: bool,
    ) -> Result<(), BrokenPromise> {
        let Attempt { delivery: id, endpoint, token, number, .. } = *attempt;
        let delivery = view.store.delivery(id).ok_or("only what was accepted is sent")?;
        let Endpoint { policy, tenant, .. } = view.endpoint(endpoint);
        let once = policy.guarantee == Guarantee::AtMostOnce;
        rule(once == reserved, RECORDED_FIRST)?;
        let again = delivery.progress.attempts > 0 || self.sent.contains(&id);
        rule(!once || !again, "at most once: never sent twice")?;
        let due = view.is_due(delivery) || self.due.contains(&id);
        rule(due, "only what is due is sent")?;
        let replay = attempt.replay == delivery.progress.replay;
        rule(replay, "what a person asked for says so")?;
        rule(!view.is_under_way(id), "a delivery has one attempt under way at a time")?;
        let head = view.store.open(endpoint, delivery.place.map(|place| place.lane)).next();
        let first = delivery.place.is_none() || head.is_some_and(|head| head.id == id);
        rule(first, "within a lane nothing starts while the one before is open")?;
        rule(number == delivery.progress.attempts + 1, "attempts are counted one by one")?;
        self.allows(view, endpoint)?;
        let shared = self.tenants.entry(tenant.clone()).or_default();
        *shared = shared.spend(view.store.tenants()[tenant], view.now).unwrap_or_default();
        self.at(endpoint, |site| {
            site.bucket = site.bucket.spend(policy.rate_limit, view.now).unwrap_or_default();
            if site.breaker.started(token) {
                site.probe = Some(token);
            }
        });
        Ok(())
    }

    fn end(
        &mut self,
        view: &View<'_>,
        flight: &InFlightAttempt,
        result: AttemptResult,
    ) -> Result<(), BrokenPromise> {
        rule(self.ended.is_none(), "what came of an attempt is recorded at once")?;
        let served = self.sites.get_mut(&flight.attempt.endpoint).filter(|_| !flight.orphaned);
        let Some(site) = served else { return Ok(()) };
        self.ended = Some((flight.clone(), result));
        let policy = &view.endpoint(flight.attempt.endpoint).policy;
        let failed = meaning(result, policy) == Outcome::Retryable;
        if let AttemptResult::Response { status: 429 | 503, retry_after: Some(wish) } = result
            && failed
        {
            site.held_until = site.held_until.max(view.now + honoured(wish, &policy.retry));
        }
        let token = flight.attempt.token;
        match result {
            _ if is_about_endpoint(result) => site.breaker.ended(token, failed, policy, view.now),
            // A probe that is answered has found out what it was to find out.
            AttemptResult::Response { .. } if site.probe == Some(token) => {
                site.breaker.ended(token, false, policy, view.now);
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&mut self, view: &View<'_>, new: &Transition) -> Result<(), BrokenPromise> {
        let Some(old) = view.store.delivery(new.delivery) else { return Ok(()) };
        let ended = self.ended.take_if(|(flight, _)| flight.attempt.delivery == new.delivery);
        let site = self.sites.get_mut(&new.endpoint).ok_or("only what is served is recorded")?;
        let (told, appeared) = (site.told.remove(&new.delivery), site.appeared);
        self.due.remove(&new.delivery);
        let policy = &view.endpoint(new.endpoint).policy;
        Entry { old, new, ended, told, policy, appeared, now: view.now }.judge()
    }

    fn forget_process(&mut self) {
        (self.sites, self.tenants, self.ended) = Default::default();
        self.due.clear();
    }

    fn at(&mut self, id: EndpointId, then: impl FnOnce(&mut EndpointModel)) {
        self.sites.entry(id).and_modify(then);
    }
}

impl View<'_> {
    fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.served[&id]
    }

    fn is_due(&self, delivery: &Delivery) -> bool {
        match delivery.state {
            DeliveryState::Waiting { until } => until <= self.now,
            state => state == DeliveryState::Pending,
        }
    }

    fn is_under_way(&self, id: DeliveryId) -> bool {
        self.count(|flight| flight.attempt.delivery == id && !flight.orphaned) > 0
    }

    fn count(&self, wanted: impl Fn(&InFlightAttempt) -> bool) -> u32 {
        self.under_way.values().filter(|flight| wanted(flight)).count() as u32
    }
}

pub(crate) fn rule(kept: bool, promise: BrokenPromise) -> Result<(), BrokenPromise> {
    if kept { Ok(()) } else { Err(promise) }
}
