//! The entries of a story, and their words.

use railpost_engine::{
    AttemptResult, DeadReason, DeliveryStage, DeliveryState, DiscardReason, Outcome, Overrides,
    Span, Time, Timestamp,
};
use railpost_store::{
    AUDIT_SWITCH_OFF, AttemptView as StoredAttempt, AuditEntry, DeliveryView as Delivery, Replay,
    ReplayAction,
};
use railpost_wire::EndpointId;

use super::request_headers::request_headers;
use super::{EntryKind, Facts, StoryAttempt, StoryEntry};
use crate::attempts::{AttemptView, words};
use crate::audit::Action;
use crate::events::AcceptedByView;

/// Tells what happened out of all that is known.
pub(super) struct Teller<'f> {
    pub(super) facts: &'f Facts,
    pub(super) accepted_by: Option<AcceptedByView>,
}

impl Teller<'_> {
    /// The entries, the earliest first. Of those of one instant, what people did comes before the attempts that
    /// followed from it; the others stay in the order in which one follows from the other.
    pub(super) fn entries(&self) -> Vec<StoryEntry> {
        let mut entries = vec![self.accepted()];
        for view in &self.facts.deliveries {
            entries.push(self.made(view));
            self.attempts(view, &mut entries);
            entries.extend(self.closed_without_attempt(view));
            entries.extend(self.replays_of(view));
        }
        entries.extend(self.facts.audit.iter().filter_map(|entry| self.audited(entry)));
        entries.sort_by_key(|entry| (entry.at, entry.kind.rank()));
        entries
    }

    fn accepted(&self) -> StoryEntry {
        let text = match &self.accepted_by {
            Some(AcceptedByView::Key { name: Some(name), .. }) => {
                format!("Accepted, published with the API key `{name}`.")
            }
            Some(AcceptedByView::Key { id, name: None }) => {
                format!("Accepted, published with the API key {id}.")
            }
            Some(AcceptedByView::Source { name }) => {
                format!("Accepted, relayed from the source `{name}`.")
            }
            Some(AcceptedByView::Server) => "Accepted, published by the server itself.".to_owned(),
            None => "Accepted.".to_owned(),
        };
        let by = self.accepted_by.clone();
        StoryEntry { by, ..entry(self.facts.event.accepted_at, EntryKind::Accepted, text) }
    }

    /// The delivery came to be: with its event, or because somebody asked for it.
    fn made(&self, view: &Delivery) -> StoryEntry {
        let url = self.facts.url(view.delivery.endpoint);
        if !self.facts.is_redelivery(view) {
            let lane = match (&view.key, &view.line) {
                (Some(key), Some(place)) => {
                    format!(" It is number {} in the line of the key `{key}`.", place.seq)
                }
                (None, Some(place)) => format!(" It is number {} in its line.", place.seq),
                (_, None) => String::new(),
            };
            let text = format!("Matched the endpoint {url}.{lane}");
            return of(view, entry(view.created_at, EntryKind::Matched, text));
        }
        let text = format!("Another delivery was made, to {url}.");
        let made = of(view, entry(view.created_at, EntryKind::Redelivered, text));
        StoryEntry { by: self.who_redelivered(view), ..made }
    }

    /// The last who asked for it before it was made: by itself, or with a replay.
    fn who_redelivered(&self, view: &Delivery) -> Option<AcceptedByView> {
        let endpoint = view.delivery.endpoint;
        let asked = self.facts.audit.iter().filter(|entry| {
            let to = entry.detail["endpoint"].as_str();
            entry.action == Action::EventRedeliver.name() && to == Some(&endpoint.to_string())
        });
        let asked = asked.map(|entry| (entry.at, &entry.actor));
        let jobs = self.facts.replays.iter().filter(
            |replay| matches!(replay.action, ReplayAction::Redeliver { to } if to == endpoint),
        );
        let jobs = jobs.map(|replay| (replay.created_at, &replay.actor));
        let before = asked.chain(jobs).filter(|(at, _)| *at <= view.created_at);
        let (_, actor) = before.max_by_key(|(at, _)| *at)?;
        self.facts.actor(actor)
    }

    fn attempts(&self, view: &Delivery, entries: &mut Vec<StoryEntry>) {
        let mut was_dead = self.facts.is_redelivery(view);
        for attempt in self.facts.attempts_of(view.delivery.id) {
            entries.push(self.attempt(view, attempt, was_dead));
            entries.extend(self.led_to(view, attempt));
            was_dead |= attempt.led_to == DeliveryStage::Dead;
        }
    }

    fn attempt(&self, view: &Delivery, attempt: &StoredAttempt, is_replay: bool) -> StoryEntry {
        let url = self.facts.url(view.delivery.endpoint);
        let detail = &attempt.detail;
        let took = Span::from_millis(u64::from(detail.timing.total_us).div_ceil(1_000));
        let came = match detail.result {
            AttemptResult::Response { status, .. } => format!("answered {status} after {took}"),
            AttemptResult::Failed(_) => {
                format!("no answer: {}", words(detail.result, detail.message.as_deref()))
            }
        };
        let text = format!("Attempt {} to {url}: {came}.", detail.number);
        let shown = StoryAttempt {
            attempt: AttemptView::of(attempt.clone(), &self.overrides(view.delivery.endpoint)),
            request_headers: request_headers(self.facts, view, attempt, is_replay),
        };
        let attempt = Some(shown);
        StoryEntry { attempt, ..of(view, entry(detail.started_at, EntryKind::Attempt, text)) }
    }

    fn overrides(&self, endpoint: EndpointId) -> Overrides {
        let found = self.facts.endpoints.get(&endpoint);
        found.map(|found| found.settings.policy.outcomes.clone()).unwrap_or_default()
    }

    /// What an attempt's outcome led to.
    fn led_to(&self, view: &Delivery, attempt: &StoredAttempt) -> Vec<StoryEntry> {
        let at = ended_at(attempt);
        let url = self.facts.url(view.delivery.endpoint);
        let told = |kind, text| of(view, entry(at, kind, text));
        match attempt.led_to {
            DeliveryStage::Waiting => {
                let next = attempt
                    .next_at
                    .map_or("later".to_owned(), |at| format!("not before {}", Time::from(at)));
                vec![told(EntryKind::Waiting, format!("The next attempt goes {next}."))]
            }
            DeliveryStage::Delivered => {
                vec![told(EntryKind::Delivered, format!("Delivered to {url}."))]
            }
            DeliveryStage::Dead => {
                let why = self.why_dead(view, attempt);
                let text = format!("Given up on {url}: {why}. It is a dead letter.");
                let mut entries = vec![told(EntryKind::Dead, text)];
                entries.extend(self.held(view, at));
                entries
            }
            DeliveryStage::Pending | DeliveryStage::InFlight | DeliveryStage::Discarded => vec![],
        }
    }

    /// The reason that is on record if it is dead still, or else what its outcome tells.
    fn why_dead(&self, view: &Delivery, attempt: &StoredAttempt) -> &'static str {
        let is_last = self
            .facts
            .attempts_of(view.delivery.id)
            .last()
            .is_some_and(|last| last.detail.number == attempt.detail.number);
        if let DeliveryState::Dead { reason, .. } = view.delivery.state
            && is_last
        {
            return dead_reason(reason);
        }
        let overrides = self.overrides(view.delivery.endpoint);
        match railpost_engine::classify(attempt.detail.result, &overrides) {
            Outcome::Permanent => dead_reason(DeadReason::Permanent),
            _ => "no further attempt was allowed",
        }
    }

    /// A dead letter that holds its lane.
    fn held(&self, view: &Delivery, at: Timestamp) -> Option<StoryEntry> {
        let endpoint = self.facts.endpoints.get(&view.delivery.endpoint)?;
        let holds = match view.delivery.state {
            DeliveryState::Dead { holds: true, .. } => true,
            _ => endpoint.settings.policy.dead_letters_hold(),
        };
        if !holds || view.line.is_none() {
            return None;
        }
        let text = match &view.key {
            Some(key) => format!(
                "Its lane is held: later events of the key `{key}` wait until this one is replayed, skipped \
                 or discarded."
            ),
            None => "Its lane is held: later events wait until this one is replayed, skipped or discarded."
                .to_owned(),
        };
        Some(of(view, entry(at, EntryKind::Held, text)))
    }

    /// An end that no attempt and no command led to.
    fn closed_without_attempt(&self, view: &Delivery) -> Option<StoryEntry> {
        let last = self.facts.attempts_of(view.delivery.id).last().map(|last| last.led_to);
        let (kind, text) = match view.delivery.state {
            DeliveryState::Dead { reason, .. } if last != Some(DeliveryStage::Dead) => (
                EntryKind::Dead,
                format!("Given up: {}. It is a dead letter.", dead_reason(reason)),
            ),
            DeliveryState::Discarded { reason: DiscardReason::EndpointRemoved } => {
                (EntryKind::Discarded, "Discarded, because its endpoint was removed.".to_owned())
            }
            DeliveryState::Discarded { reason: DiscardReason::Person }
                if !self.was_commanded(view, Action::DeliveryDiscard) =>
            {
                (EntryKind::Discarded, "Discarded.".to_owned())
            }
            _ => return None,
        };
        Some(of(view, entry(view.changed_at, kind, text)))
    }

    fn was_commanded(&self, view: &Delivery, action: Action) -> bool {
        let target = view.delivery.id.to_string();
        let mut audit = self.facts.audit.iter();
        audit.any(|entry| entry.action == action.name() && entry.target == target)
    }

    /// The replays that reached the delivery. Which deliveries a replay acted on is not written down one by one:
    /// its filter and the delivery's state at that time tell.
    fn replays_of(&self, view: &Delivery) -> Vec<StoryEntry> {
        let reached = self.facts.replays.iter().filter(|replay| self.reaches(replay, view));
        let told = reached.filter_map(|replay| {
            let (kind, done) = match replay.action {
                ReplayAction::Replay => (EntryKind::Replayed, "Replayed"),
                ReplayAction::Skip => (EntryKind::Skipped, "Skipped"),
                ReplayAction::Discard => (EntryKind::Discarded, "Discarded"),
                ReplayAction::Redeliver { .. } => return None,
            };
            let text = format!("{done} by the replay {}{}.", replay.id, self.by(&replay.actor));
            let by = self.facts.actor(&replay.actor);
            Some(StoryEntry { by, ..of(view, entry(replay.created_at, kind, text)) })
        });
        told.collect()
    }

    fn reaches(&self, replay: &Replay, view: &Delivery) -> bool {
        let filter = &replay.filter;
        let mut before = self.facts.attempts_of(view.delivery.id).iter();
        let last = before.rfind(|attempt| attempt.detail.started_at <= replay.created_at);
        let was_dead = last.is_some_and(|last| last.led_to == DeliveryStage::Dead);
        let stage_fits = filter.stage != Some(DeliveryStage::Dead) || was_dead;
        view.created_at <= replay.created_at
            && stage_fits
            && filter.endpoint.is_none_or(|endpoint| endpoint == view.delivery.endpoint)
            && filter.event_type.as_ref().is_none_or(|wanted| *wanted == view.event_type)
            && filter.key.as_ref().is_none_or(|key| view.key.as_ref() == Some(key))
            && filter.created.contains(view.created_at)
            && filter.wants_last_attempt(last.map(|last| last.detail.result))
    }

    /// What the audit trail tells, as far as it is part of the story.
    fn audited(&self, audit: &AuditEntry) -> Option<StoryEntry> {
        let by_whom = self.by(&audit.actor);
        let deliveries = &self.facts.deliveries;
        let delivery = deliveries.iter().find(|view| view.delivery.id.to_string() == audit.target);
        let endpoint: Option<EndpointId> = audit.target.parse().ok();
        let url = endpoint.map(|id| self.facts.url(id)).unwrap_or_default();
        let is = |action: Action| audit.action == action.name();
        if audit.detail["resumed"] == "nothing_to_do" {
            return None;
        }
        let (kind, text) = if is(Action::DeliveryReplay) {
            (EntryKind::Replayed, format!("Replayed{by_whom}: it is pending again."))
        } else if is(Action::DeliverySkip) {
            (EntryKind::Skipped, format!("Skipped{by_whom}: its lane goes on without it."))
        } else if is(Action::DeliveryDiscard) {
            (EntryKind::Discarded, format!("Discarded{by_whom}."))
        } else if is(Action::EndpointPause) {
            (EntryKind::Person, format!("The endpoint {url} was paused{by_whom}."))
        } else if is(Action::EndpointResume) {
            (EntryKind::Person, format!("The endpoint {url} was resumed{by_whom}."))
        } else if is(Action::EndpointChange) {
            (
                EntryKind::Person,
                format!("The settings of the endpoint {url} were changed{by_whom}."),
            )
        } else if is(Action::EndpointRemove) {
            (EntryKind::Person, format!("The endpoint {url} was removed{by_whom}."))
        } else if audit.action == AUDIT_SWITCH_OFF {
            (EntryKind::Person, format!("The endpoint {url} was switched off by Railpost."))
        } else {
            return None;
        };
        // An endpoint's own affairs end with the event's.
        if kind == EntryKind::Person && !self.is_within(audit.at) {
            return None;
        }
        let at = match delivery {
            Some(view) if kind == EntryKind::Replayed => self.replayed_at(view, audit.at),
            _ => audit.at,
        };
        let told = entry(at, kind, text);
        let told = delivery.map_or_else(|| told.clone(), |view| of(view, told.clone()));
        let by = self.facts.actor(&audit.actor);
        Some(StoryEntry { by, endpoint: told.endpoint.or(endpoint), ..told })
    }

    /// When a dead letter was replayed: not after the attempt that this led to. The engine's clock, which attempts
    /// are told by, may be a little behind the audit trail's.
    fn replayed_at(&self, view: &Delivery, audited_at: Timestamp) -> Timestamp {
        let mut pairs = self.facts.attempts_of(view.delivery.id).windows(2);
        let followed = pairs.rfind(|pair| {
            pair[0].led_to == DeliveryStage::Dead && pair[0].detail.started_at < audited_at
        });
        followed.map_or(audited_at, |pair| audited_at.min(pair[1].detail.started_at))
    }

    /// Whether anything of the event was still open then.
    fn is_within(&self, at: Timestamp) -> bool {
        let mut deliveries = self.facts.deliveries.iter();
        deliveries.any(|view| view.delivery.state.is_open() || at <= view.changed_at)
    }

    fn by(&self, actor: &str) -> String {
        match self.facts.actor(actor) {
            Some(AcceptedByView::Key { name: Some(name), .. }) => {
                format!(" with the API key `{name}`")
            }
            Some(AcceptedByView::Key { id, .. }) => format!(" with the API key {id}"),
            _ => String::new(),
        }
    }
}

fn entry(at: Timestamp, kind: EntryKind, text: String) -> StoryEntry {
    let (by, endpoint, delivery, attempt) = (None, None, None, None);
    StoryEntry { at: at.into(), kind, text, by, endpoint, delivery, attempt }
}

/// The entry, about this delivery.
fn of(view: &Delivery, entry: StoryEntry) -> StoryEntry {
    let (endpoint, delivery) = (Some(view.delivery.endpoint), Some(view.delivery.id));
    StoryEntry { endpoint, delivery, ..entry }
}

fn ended_at(attempt: &StoredAttempt) -> Timestamp {
    let took = u64::from(attempt.detail.timing.total_us).div_ceil(1_000);
    attempt.detail.started_at + Span::from_millis(took)
}

fn dead_reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Permanent => "the answer is one that no retry fixes",
        DeadReason::AttemptsExhausted => "it failed as often as its policy allows",
        DeadReason::Expired => "the next attempt would have come after its time to live",
        DeadReason::SingleAttemptFailed => "its only attempt failed, and it may not be sent again",
        DeadReason::OutcomeUnknown => {
            "its only attempt may have arrived, and what came of it was lost in a crash"
        }
    }
}
