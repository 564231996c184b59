//! Who goes next: fair between tenants, then between a tenant's endpoints.
//!
//! The tenant with the fewest attempts under way goes first, and among equals the one that has
//! waited longest. A tenant may only start another attempt while it has fewer under way than there
//! are free places in all: however many endpoints of one tenant hang, others find a place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use railpost_wire::TenantId;

use super::{EndpointKey, Table, TenantKey};
use crate::token_bucket::TokenBucket;
use crate::{RateLimit, Timestamp};

#[derive(Debug)]
pub(super) struct Schedule {
    in_flight: u32,
    in_flight_max: u32,
    tenants: Table<TenantKey, Tenant>,
    by_id: BTreeMap<TenantId, TenantKey>,
    /// Tenants that have something to start, as (attempts under way, turn, tenant).
    ready: BTreeSet<(u32, u64, TenantKey)>,
    /// Counts turns, so that who waited longest is known.
    turn: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    in_flight: u32,
    turn: u64,
    bucket: Option<TokenBucket>,
    /// Endpoints that have something to start.
    ring: VecDeque<EndpointKey>,
    /// Until when its rate limit keeps it from starting anything.
    limited_until: Option<Timestamp>,
    listed: bool,
}

/// What starts next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStart {
    Endpoint(EndpointKey),
    /// This tenant's rate limit says not before.
    TenantLimited(TenantKey, Timestamp),
    /// Nothing is ready, or the in-flight cap is reached.
    Nothing,
}

impl Schedule {
    pub(super) fn new(in_flight_max: u32) -> Self {
        Self {
            in_flight: 0,
            in_flight_max,
            tenants: Table::default(),
            by_id: BTreeMap::new(),
            ready: BTreeSet::new(),
            turn: 0,
        }
    }

    pub(super) fn tenant(&mut self, id: &TenantId) -> TenantKey {
        if let Some(key) = self.by_id.get(id) {
            return *key;
        }
        let key = self.tenants.insert(Tenant::default());
        self.by_id.insert(id.clone(), key);
        key
    }

    pub(super) fn find_tenant(&self, id: &TenantId) -> Option<TenantKey> {
        self.by_id.get(id).copied()
    }

    pub(super) fn set_limit(&mut self, key: TenantKey, limit: Option<RateLimit>, now: Timestamp) {
        let tenant = &mut self.tenants[key];
        match (&mut tenant.bucket, limit) {
            (Some(bucket), Some(limit)) => bucket.set_limit(limit, now),
            (bucket, limit) => *bucket = limit.map(|limit| TokenBucket::new(limit, now)),
        }
        self.lift_limit(key);
    }

    /// Puts an endpoint in line; it must not stand there already.
    pub(super) fn enqueue(&mut self, key: TenantKey, endpoint: EndpointKey) {
        self.tenants[key].ring.push_back(endpoint);
        self.list(key);
    }

    /// The endpoint whose turn it is; it leaves the line.
    pub(super) fn next(&mut self, now: Timestamp) -> NextStart {
        let free = self.in_flight_max - self.in_flight.min(self.in_flight_max);
        let Some(&(under_way, _, key)) = self.ready.first() else { return NextStart::Nothing };
        if under_way >= free {
            return NextStart::Nothing;
        }
        self.unlist(key);
        let tenant = &mut self.tenants[key];
        if let Some(at) = tenant.bucket.as_mut().map(|bucket| bucket.ready_at(now))
            && at > now
        {
            tenant.limited_until = Some(at);
            return NextStart::TenantLimited(key, at);
        }
        self.turn += 1;
        tenant.turn = self.turn;
        let endpoint = tenant.ring.pop_front().expect("a listed tenant has an endpoint in line");
        self.list(key);
        NextStart::Endpoint(endpoint)
    }

    /// The tenant's rate limit is worth another look.
    pub(super) fn lift_limit(&mut self, key: TenantKey) {
        self.tenants[key].limited_until = None;
        self.list(key);
    }

    pub(super) fn attempt_started(&mut self, key: TenantKey) {
        self.in_flight += 1;
        self.recount(key, |tenant| {
            tenant.in_flight += 1;
            if let Some(bucket) = &mut tenant.bucket {
                bucket.take();
            }
        });
    }

    pub(super) fn attempt_ended(&mut self, key: TenantKey) {
        self.in_flight -= 1;
        self.recount(key, |tenant| tenant.in_flight -= 1);
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn recount(&mut self, key: TenantKey, change: impl FnOnce(&mut Tenant)) {
        self.unlist(key);
        change(&mut self.tenants[key]);
        self.list(key);
    }

    fn list(&mut self, key: TenantKey) {
        let tenant = &mut self.tenants[key];
        if tenant.listed || tenant.ring.is_empty() || tenant.limited_until.is_some() {
            return;
        }
        tenant.listed = true;
        self.ready.insert((tenant.in_flight, tenant.turn, key));
    }

    fn unlist(&mut self, key: TenantKey) {
        let tenant = &mut self.tenants[key];
        if tenant.listed {
            tenant.listed = false;
            self.ready.remove(&(tenant.in_flight, tenant.turn, key));
        }
    }
}
