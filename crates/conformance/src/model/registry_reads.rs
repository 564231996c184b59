//! What is compared of tenants, endpoints, API keys, audit, idempotency and figures.

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use railpost_engine::Timestamp;
use railpost_wire::{ApiKeyId, EndpointId, ReplayId, SecretId, TenantId};

use super::Model;
use super::changes::{EVENT_TYPES, FEW, fingerprint, request_key};
use railpost_store::{
    Access, Archive, AuditQuery, EndpointSecret, FiguresScope, Period, Registry, Resolution,
    SecretValue, Store,
};

impl Model {
    /// One read of both stores.
    async fn same<'m, T: Debug + PartialEq>(
        &'m self,
        what: impl Debug,
        read: impl Fn(&'m dyn Store) -> BoxFuture<'m, T>,
    ) {
        let (backend, memory) = (read(self.backend()).await, read(&self.memory).await);
        assert_eq!(backend, memory, "seed {}: {what:?}", self.seed);
    }

    pub(super) async fn same_registry(&self, limit: u32) {
        self.same_list("tenants", limit, |store, page| store.tenants(page), |one| one).await;
        for tenant in &self.tenants {
            self.same(tenant, |store| store.tenant(tenant)).await;
            self.same_event_types(tenant, limit).await;
            let what = ("replays", tenant);
            self.same_list(what, limit, |store, page| store.replays(tenant, page), |one| one).await;
        }
        for whose in self.tenants.iter().map(Some).chain([None]) {
            let what = ("endpoints", whose);
            self.same_list(what, limit, |store, page| store.endpoints(whose, page), |one| one)
                .await;
        }
        for id in &self.endpoints {
            self.same(id, |store| store.endpoint(*id)).await;
            let backend = self.backend().secrets(*id).await.unwrap();
            let memory = self.memory.secrets(*id).await.unwrap();
            assert_eq!(revealed(backend), revealed(memory), "seed {}: {id}", self.seed);
        }
        let named: Vec<_> = self.endpoints.iter().rev().take(99).copied().collect();
        let mut backend = self.backend().settings_of(named.clone()).await.unwrap();
        let mut memory = self.memory.settings_of(named).await.unwrap();
        backend.sort_by_key(|(id, _)| *id);
        memory.sort_by_key(|(id, _)| *id);
        assert_eq!(backend, memory, "seed {}", self.seed);
        for id in FEW.map(|number| ReplayId::from_u128(number.into())) {
            self.same(id, |store| store.replay(id)).await;
        }
        self.same("running replays", |store| store.running_replays()).await;
    }

    async fn same_event_types(&self, tenant: &TenantId, limit: u32) {
        let what = ("event types", tenant);
        self.same_list(what, limit, |store, page| store.event_types(tenant, page), |one| one).await;
        for name in EVENT_TYPES {
            let name = name.parse().unwrap();
            let backend = self.backend().event_type(tenant, &name).await;
            let memory = self.memory.event_type(tenant, &name).await;
            assert_eq!(backend, memory, "seed {}: {name}", self.seed);
        }
    }

    pub(super) async fn same_access(&mut self, limit: u32) {
        let at = self.some_period();
        for whose in self.tenants.iter().map(Some).chain([None]) {
            let what = ("API keys", whose);
            self.same_list(what, limit, |store, page| store.api_keys(whose, page), |one| one).await;
            for target in [None, self.endpoints.first().map(ToString::to_string)] {
                let (tenant, what) = (whose.cloned(), ("audit", whose, &target, at));
                let query =
                    |page| AuditQuery { tenant: tenant.clone(), target: target.clone(), at, page };
                self.same_list(what, limit, |store, page| store.audit(query(page)), |one| one)
                    .await;
            }
        }
        for number in FEW {
            let (id, hash) = (ApiKeyId::from_u128(number.into()), [number; 32]);
            self.same(id, |store| store.api_key(id)).await;
            let by_hash = self.backend().api_key_by_hash(&hash).await;
            assert_eq!(by_hash, self.memory.api_key_by_hash(&hash).await, "seed {}", self.seed);
            for fingerprint in [0, 1].map(fingerprint) {
                let key = request_key(number);
                let backend = self.backend().lookup_idempotency(&key, &fingerprint).await;
                let memory = self.memory.lookup_idempotency(&key, &fingerprint).await;
                assert_eq!(backend, memory, "seed {}: {key:?} {fingerprint:?}", self.seed);
            }
        }
    }

    pub(super) async fn same_figures(&self) {
        let tenants = self.tenants.iter().cloned().map(FiguresScope::Tenant);
        let endpoints = self.endpoints.iter().copied().map(FiguresScope::Endpoint);
        let from = Some(Timestamp::from_millis(self.now().as_millis() - 100_000));
        for scope in tenants.chain(endpoints).chain([FiguresScope::All]) {
            for resolution in [Resolution::Minute, Resolution::Hour] {
                for period in [Period::default(), Period { from, before: None }] {
                    let backend = self.backend().figures(&scope, resolution, period).await;
                    let memory = self.memory.figures(&scope, resolution, period).await;
                    let what = (&scope, resolution, period);
                    assert_eq!(backend, memory, "seed {}: {what:?}", self.seed);
                }
            }
        }
    }
}

/// Secrets as they can be compared.
fn revealed(
    secrets: Vec<EndpointSecret>,
) -> Vec<(SecretId, EndpointId, String, Timestamp, Option<Timestamp>)> {
    let reveal = |value: &SecretValue| match value {
        SecretValue::Shared(secret) => secret.reveal().to_string(),
        SecretValue::Signing(key) => key.reveal().to_string(),
    };
    secrets
        .into_iter()
        .map(|one| (one.id, one.endpoint, reveal(&one.value), one.created_at, one.expires_at))
        .collect()
}
