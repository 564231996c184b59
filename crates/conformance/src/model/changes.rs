//! Changes of what is configured, and figures. Ids come from a few, so that some exist and some do not.

use bytes::Bytes;
use railpost_engine::{EndpointRecord, EndpointStatus, Ordering, Policy, PolicyFields, Timestamp};
use railpost_wire::{
    ApiKeyId, AuditId, EndpointId, EventType, ReplayId, Secret, SecretId, TenantId,
};

use super::Model;
use railpost_store::{
    ApiKey, AuditEntry, Change, DeliveryFilter, Digest, EndpointPrivate, EndpointSettings,
    EventTypeRecord, Figures, FiguresScope, IdempotencyKey, IdempotencyRecord, NewEndpoint,
    NewSecret, Replay, ReplayAction, ReplayProgress, ReplayState, Scope, SecretValue,
    StoredResponse, TenantSettings, Validation, Write,
};

/// The numbers that ids of API keys, replays, secrets and requests are made of.
pub(super) const FEW: std::ops::Range<u8> = 1..7;

pub(super) const EVENT_TYPES: [&str; 3] = ["a.b", "c.d", "e.f"];

impl Model {
    pub(super) fn change(&mut self) -> Change {
        let id = self.some_endpoint();
        let count = if self.dice.u32(..4) == 0 { 2 } else { 1 };
        let writes = (0..count).map(|_| self.write(id)).collect();
        let audit = Some(self.audit_entry("change", id));
        Change { writes, audit, idempotency: self.request() }
    }

    pub(super) fn audit_entry(&mut self, action: &str, target: EndpointId) -> AuditEntry {
        let tenant = self.some_tenant();
        self.made += 1;
        AuditEntry {
            id: AuditId::from_u128(self.made.into()),
            at: self.now(),
            tenant: (self.dice.u32(..4) > 0).then_some(tenant),
            actor: "model".to_owned(),
            address: None,
            action: action.to_owned(),
            target: target.to_string(),
            detail: serde_json::Value::Null,
        }
    }

    fn write(&mut self, id: EndpointId) -> Write {
        match self.dice.u32(..20) {
            0 => Write::RemoveEndpoint(id),
            1..4 => {
                let settings = settings(self.ordering(), ["*", "a.*"][self.dice.usize(..2)]);
                let private = EndpointPrivate::default();
                let revision = (self.dice.u32(..4) == 0).then(|| self.dice.u64(1..4));
                Write::UpdateEndpoint { id, settings, private, revision }
            }
            4 => Write::SetEndpointStatus(id, self.status()),
            5..7 => {
                let max = self.dice.u64(10..60);
                let lowered = self.dice.u32(..3) == 0 && self.backend.choices().exact_backlog;
                let backlog_max = lowered.then_some(max);
                let settings = TenantSettings { backlog_max, ..TenantSettings::default() };
                Write::UpdateTenant(self.tenants[0].clone(), settings)
            }
            7..10 => {
                let ordering = self.ordering();
                self.new_endpoint(0, ordering)
            }
            10..13 => self.write_of_a_secret(id),
            13..15 => self.write_of_an_event_type(),
            15..18 => self.write_of_an_api_key(),
            _ => Write::PutReplay(Box::new(self.replay())),
        }
    }

    pub(super) fn new_endpoint(&mut self, tenant: usize, ordering: Ordering) -> Write {
        self.made += 1;
        let id = EndpointId::from_u128(self.made.into());
        self.endpoints.push(id);
        let (settings, private) = (settings(ordering, "*"), EndpointPrivate::default());
        let tenant = self.tenants[tenant].clone();
        Write::CreateEndpoint(NewEndpoint { id, tenant, settings, private })
    }

    fn ordering(&mut self) -> Ordering {
        let all = [Ordering::PerKey, Ordering::PerKey, Ordering::Global, Ordering::None];
        all[self.dice.usize(..4)]
    }

    fn status(&mut self) -> EndpointStatus {
        [EndpointStatus::Active, EndpointStatus::Paused][self.dice.usize(..2)]
    }

    pub(super) fn some_endpoint(&mut self) -> EndpointId {
        self.endpoints[self.dice.usize(..self.endpoints.len())]
    }

    fn some_tenant(&mut self) -> TenantId {
        self.tenants[self.dice.usize(..2)].clone()
    }

    fn write_of_a_secret(&mut self, endpoint: EndpointId) -> Write {
        let number = self.dice.u8(FEW);
        let id = SecretId::from_u128(number.into());
        match self.dice.u32(..4) {
            0 => Write::RemoveSecret { endpoint, id },
            1 => Write::ExpireSecret { endpoint, id, at: self.later() },
            _ => {
                let value = SecretValue::Shared(Secret::from_bytes(&[number; 32]).unwrap());
                let expires_at = self.dice.bool().then(|| self.later());
                Write::CreateSecret(NewSecret { id, endpoint, value, expires_at })
            }
        }
    }

    fn write_of_an_event_type(&mut self) -> Write {
        let name: EventType = EVENT_TYPES[self.dice.usize(..3)].parse().unwrap();
        let tenant = self.some_tenant();
        if self.dice.u32(..4) == 0 {
            return Write::RemoveEventType(tenant, name);
        }
        let schemas = [(1, serde_json::json!({"minimum": self.dice.u8(..)}))].into();
        let description = "a \"type\"".to_owned();
        let validation = [Validation::Off, Validation::Reject][self.dice.usize(..2)];
        Write::PutEventType(EventTypeRecord { tenant, name, description, schemas, validation })
    }

    fn write_of_an_api_key(&mut self) -> Write {
        let number = self.dice.u8(FEW);
        let id = ApiKeyId::from_u128(number.into());
        match self.dice.u32(..4) {
            0 => Write::RevokeApiKey(id, self.now()),
            1 => Write::TouchApiKey(id, self.now()),
            _ => Write::CreateApiKey(ApiKey {
                id,
                tenant: self.dice.bool().then(|| tenant_of(&self.tenants, number)),
                name: "ci".to_owned(),
                scope: Scope::PublishOnly,
                hash: [number; 32],
                created_at: self.now(),
                expires_at: self.dice.bool().then(|| self.later()),
                revoked_at: None,
                last_used_at: None,
            }),
        }
    }

    fn replay(&mut self) -> Replay {
        let states = [ReplayState::Running, ReplayState::Running, ReplayState::Cancelled];
        let state = states[self.dice.usize(..3)];
        let number = self.dice.u8(FEW);
        Replay {
            id: ReplayId::from_u128(number.into()),
            tenant: tenant_of(&self.tenants, number),
            created_at: Timestamp::from_millis(u64::from(number / 2)),
            actor: "model".to_owned(),
            action: ReplayAction::Skip,
            filter: DeliveryFilter::default(),
            rate_per_s: None,
            dry_run: false,
            state,
            progress: ReplayProgress { matched: self.dice.u64(..9), ..Default::default() },
            preview: vec![],
            cursor: None,
            problem: None,
            finished_at: (state != ReplayState::Running).then(|| self.now()),
        }
    }

    /// Mostly nothing, so that most requests are carried out.
    pub(super) fn request(&mut self) -> Option<Box<IdempotencyRecord>> {
        if self.dice.u32(..8) > 0 {
            return None;
        }
        let number = self.dice.u8(FEW);
        Some(Box::new(IdempotencyRecord {
            key: request_key(number),
            fingerprint: fingerprint(self.dice.u8(..2)),
            response: StoredResponse { status: 202, body: Bytes::from_static(b"{}") },
            tenant: self.dice.bool().then(|| tenant_of(&self.tenants, number)),
            expires_at: self.later(),
        }))
    }

    pub(super) fn figures(&mut self) -> Vec<(FiguresScope, Timestamp, Figures)> {
        let scopes = [
            FiguresScope::All,
            FiguresScope::Tenant(self.some_tenant()),
            FiguresScope::Endpoint(self.some_endpoint()),
        ];
        let figures = scopes.map(|scope| {
            let at = Timestamp::from_millis(self.now().as_millis() - self.dice.u64(..200_000));
            let status = [200, 404, 500][self.dice.usize(..3)];
            let by_status = [(status, 1)].into();
            let mut figures = Figures { attempts: 1, by_status, ..Figures::default() };
            figures.attempt_us.record(self.dice.u64(..100_000));
            (scope, at, figures)
        });
        figures.into()
    }

    pub(super) fn endpoint_record(&mut self) -> EndpointRecord {
        use EndpointStatus::{Active, Failing, Paused, Quarantined};
        let mut status = || [Active, Paused, Quarantined, Failing][self.dice.usize(..4)];
        let (status, was) = (status(), status());
        let endpoint = self.some_endpoint();
        let failing_since = self.dice.bool().then(|| self.now());
        EndpointRecord { endpoint, status, was, failing_since, at: self.now() }
    }

    /// An instant that most scenarios come to.
    fn later(&mut self) -> Timestamp {
        Timestamp::from_millis(self.now().as_millis() + self.dice.u64(1..800))
    }
}

fn settings(ordering: Ordering, filter: &str) -> EndpointSettings {
    let policy = Policy::new(PolicyFields { ordering, ..PolicyFields::default() }).unwrap();
    let filters = vec![filter.parse().unwrap()];
    let all = EndpointSettings::all_events("https://example.com");
    EndpointSettings { policy, filters, ..all }
}

/// One thing is always the same tenant's.
fn tenant_of(tenants: &[TenantId], number: u8) -> TenantId {
    tenants[usize::from(number) % tenants.len()].clone()
}

pub(super) fn request_key(number: u8) -> IdempotencyKey {
    let (owner, route) = ("model".to_owned(), "POST /v1/events".to_owned());
    IdempotencyKey { owner, route, key: format!("request-{number}") }
}

pub(super) fn fingerprint(number: u8) -> Digest {
    [number; 32]
}
