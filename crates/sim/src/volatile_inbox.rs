//! A receiver that keeps everything in memory: the real inbox for that, and the effects.

use std::collections::BTreeMap;

use railpost_receiver::{MemoryInbox, Policy, Retention, Ticket, Verdict};
use railpost_wire::Received;

use crate::receiver::AppliedEvent;

pub(crate) struct VolatileInbox {
    inbox: MemoryInbox,
    pub(crate) effects: Vec<AppliedEvent>,
    /// Events that are being applied.
    tickets: BTreeMap<u64, Ticket>,
}

impl VolatileInbox {
    pub(crate) fn new(policy: Policy) -> Self {
        let inbox = MemoryInbox::new(policy, Retention::default());
        Self { inbox, effects: Vec::new(), tickets: BTreeMap::new() }
    }

    /// Judges an event and applies it, unless that takes long: then it is finished later, as this piece
    /// of `work`. Says whether the effect is there.
    pub(crate) fn take(
        &mut self,
        received: &Received,
        application: &AppliedEvent,
        work: Option<u64>,
        poisoned: bool,
        seconds: i64,
    ) -> (Verdict, bool) {
        let ticket = self.inbox.begin(received, seconds);
        let verdict = ticket.verdict();
        match work {
            _ if !verdict.applies() || poisoned => (verdict, false),
            Some(work) => {
                self.tickets.insert(work, ticket);
                (verdict, false)
            }
            None => {
                self.effects.push(application.clone());
                (ticket.done(seconds), true)
            }
        }
    }

    pub(crate) fn finish(
        &mut self,
        work: u64,
        application: &AppliedEvent,
        seconds: i64,
    ) -> Option<Verdict> {
        let ticket = self.tickets.remove(&work)?;
        self.effects.push(application.clone());
        Some(ticket.done(seconds))
    }
}
