//! One call: what a handler has at hand, and how it changes things.

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

/// What a handler has at hand.
#[derive(Clone, Debug)]
pub(crate) struct Ctx {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    idempotent_request: Option<Arc<IdempotentRequest>>,
}

/// What is done to what, for the audit trail. No secrets, no payloads.
#[derive(Clone, Debug)]
pub struct AuditAction {
    /// What.
    pub action: Action,
    /// In whose realm.
    pub tenant: Option<TenantId>,
    /// To what, by its id.
    pub target: String,
    /// What else is worth knowing.
    pub detail: serde_json::Value,
}

/// Writes down what `caller` did where it was not done through a route.
pub async fn note(
    app: &Arc<App>,
    caller: Caller,
    audit_action: AuditAction,
) -> Result<(), Problem> {
    Ctx::new(app.clone(), caller).note(audit_action).await
}

impl AuditAction {
    /// The same, saying what changed.
    pub(crate) fn with_changes(mut self, changes: Changes) -> Self {
        changes.put_into(&mut self.detail);
        self
    }
}

impl Ctx {
    /// A call by `caller`, outside of a request that may come again.
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

    /// Makes a change together with its audit entry and the answer for when the request comes again,
    /// in one commit, and has the dispatcher follow. Every mutation goes through here, those included
    /// that only the dispatcher carries out: they bring no writes.
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

    /// Writes down what was done where nothing else is written.
    pub(crate) async fn note(&self, audit_action: AuditAction) -> Result<(), Problem> {
        let change = Change { audit: Some(self.audit_entry(audit_action)), ..Change::default() };
        Ok(self.app.dispatcher.commit(change).await?)
    }

    /// Stores the answer for when the request comes again, where the work and its audit entry had a
    /// commit of their own.
    pub(crate) async fn remember<A: Answer>(&self, answer: A) -> Result<A, Problem> {
        if let Some(record) = self.record(&answer, true) {
            let change = Change { idempotency: Some(record), ..Change::default() };
            self.app.dispatcher.commit(change).await?;
        }
        Ok(answer)
    }

    /// The answer as it is to be stored with the work, if the request may come again.
    pub(crate) fn record<A: Answer>(
        &self,
        answer: &A,
        secret: bool,
    ) -> Option<Box<IdempotencyRecord>> {
        let request = self.idempotent_request.as_ref()?;
        Some(Box::new(request.record(A::STATUS, answer.to_bytes(), secret)))
    }

    /// The same for an answer that tells what became of that many events: only the commit knows.
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

    /// The entry of what is done, for the commit of the work where that is not [`commit`](Self::commit).
    pub(crate) fn audit_entry(&self, audit_action: AuditAction) -> AuditEntry {
        let AuditAction { action, tenant, target, detail } = audit_action;
        let (at, actor) = (self.now(), self.caller.actor());
        let id = AuditId::generate(at.as_millis(), self.app.random());
        let (action, address) = (action.name().to_owned(), self.caller.address);
        AuditEntry { id, at, tenant, actor, address, action, target, detail }
    }
}
