//! The context of one API call, and how a handler makes a change.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use railpost_engine::Timestamp;
use railpost_store::{
    AcceptBody, AcceptRecord, AuditEntry, Change, EventOutcome, IdempotencyRecord, Write,
};
use railpost_wire::{AuditId, TenantId};

use super::answer::Answer;
use super::audit::{Action, Changes};
use super::auth::Caller;
use super::idempotency::IdempotentRequest;
use super::problem::Problem;
use crate::app::App;

/// The context of one API call.
#[derive(Clone, Debug)]
pub(crate) struct Ctx {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    idempotent_request: Option<Arc<IdempotentRequest>>,
}

/// An action and its target, for the audit trail. It contains no secrets and no payloads.
#[derive(Clone, Debug)]
pub struct AuditAction {
    /// The action.
    pub action: Action,
    /// The tenant of the target, if it has one.
    pub tenant: Option<TenantId>,
    /// The id of the target.
    pub target: String,
    /// Further details.
    pub detail: serde_json::Value,
}

/// Writes an audit entry for an action of `caller` outside of a route.
pub async fn note(
    app: &Arc<App>,
    caller: Caller,
    audit_action: AuditAction,
) -> Result<(), Problem> {
    Ctx::new(app.clone(), caller).note(audit_action).await
}

impl AuditAction {
    /// The same, with the changed fields.
    pub(crate) fn with_changes(mut self, changes: Changes) -> Self {
        changes.put_into(&mut self.detail);
        self
    }
}

impl Ctx {
    /// A call by `caller`, without an idempotency key.
    pub(crate) fn new(app: Arc<App>, caller: Caller) -> Self {
        Self { app, caller, idempotent_request: None }
    }

    pub(crate) fn idempotent_request(
        self,
        idempotent_request: Option<Arc<IdempotentRequest>>,
    ) -> Self {
        Self { idempotent_request, ..self }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.app.source.now()
    }

    /// Makes a change together with its audit entry and the stored answer of its idempotency key, in one
    /// commit, and tells the dispatcher. Maintenance of the store comes here after its work, without writes.
    /// Three kinds of changes have commits of their own: publishing, which has no audit entry; redeliveries and
    /// endpoint tests; and commands about deliveries. The last two include the audit entry. Tests and commands
    /// store their answer with [`remember`](Self::remember).
    pub(crate) async fn commit<A: Answer>(
        &self,
        writes: Vec<Write>,
        audit_action: AuditAction,
        answer: A,
    ) -> Result<A, Problem> {
        let change = Change {
            writes,
            audit: Some(self.audit_entry(audit_action)),
            idempotency: self.record(&answer, true),
        };
        self.app.dispatcher.commit(change).await?;
        Ok(answer)
    }

    /// Writes an audit entry alone, for an action that changes nothing in the store.
    pub(crate) async fn note(&self, audit_action: AuditAction) -> Result<(), Problem> {
        let change = Change { audit: Some(self.audit_entry(audit_action)), ..Change::default() };
        Ok(self.app.dispatcher.commit(change).await?)
    }

    /// Stores the answer of an idempotency key, where the change and its audit entry had a separate commit.
    pub(crate) async fn remember<A: Answer>(&self, answer: A) -> Result<A, Problem> {
        if let Some(record) = self.record(&answer, true) {
            let change = Change { idempotency: Some(record), ..Change::default() };
            self.app.dispatcher.commit(change).await?;
        }
        Ok(answer)
    }

    /// The answer to store with the change, if the request has an idempotency key.
    pub(crate) fn record<A: Answer>(
        &self,
        answer: &A,
        secret: bool,
    ) -> Option<Box<IdempotencyRecord>> {
        let request = self.idempotent_request.as_ref()?;
        Some(Box::new(request.record(A::STATUS, answer.to_bytes(), secret)))
    }

    /// The same for an answer with the outcomes of that many events, which only the commit knows.
    pub(crate) fn accept_record(
        &self,
        status: StatusCode,
        events: usize,
        body: AcceptBody,
    ) -> Option<Box<AcceptRecord>> {
        let request = self.idempotent_request.as_ref()?;
        let end_of_time = Timestamp::from_millis(u64::MAX);
        let longest = EventOutcome { accepted_at: end_of_time, deliveries: Some(usize::MAX) };
        let body_len_max = body(&vec![longest; events]).len();
        let record = request.record(status, Bytes::new(), false);
        Some(Box::new(AcceptRecord { record, body_len_max, body }))
    }

    /// The audit entry of an action, for changes that do not use [`commit`](Self::commit).
    pub(crate) fn audit_entry(&self, audit_action: AuditAction) -> AuditEntry {
        let AuditAction { action, tenant, target, detail } = audit_action;
        let (at, actor) = (self.now(), self.caller.actor());
        let id = AuditId::generate(at.as_millis(), self.app.random());
        let (action, address) = (action.name().to_owned(), self.caller.address);
        AuditEntry { id, at, tenant, actor, address, action, target, detail }
    }
}
