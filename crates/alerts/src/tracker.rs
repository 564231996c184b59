//! Alerts that are not settled: opened, resolved, and what is to be published of them.

use std::collections::{BTreeMap, BTreeSet};

use railpost_engine::Timestamp;
use railpost_store::{Alert, Silence, Told};
use railpost_wire::{AlertId, TenantId};
use serde_json::json;

use crate::condition::Condition;
use crate::limits::{ALERTS_OPEN_PER_RULE_MAX, START_GRACE};
use crate::notice::{NoticeStatus, RESERVED_TENANT};
use crate::{AlertSettings, Evaluation, Rule, summary};

/// The subject of the one alert of a rule that stands for all above the bound.
pub const OTHERS: &str = "others";

/// What makes an alert one: its rule, its tenant and its subject.
type Identity = (Rule, Option<TenantId>, String);

/// The alerts that are not settled, and which of them are not written down as they are.
///
/// An alert is written down before anything of it is published: [`Self::unsaved`], then [`Self::saved`],
/// then [`Self::due`].
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    alerts: BTreeMap<AlertId, Alert>,
    open: BTreeMap<Identity, AlertId>,
    unsaved: BTreeSet<AlertId>,
    started_at: Timestamp,
}

impl Tracker {
    /// Goes on with what is on record. What is loaded after a start says little of what holds, so nothing on
    /// record is resolved within [`START_GRACE`].
    pub fn new(on_record: Vec<Alert>, now: Timestamp) -> Self {
        let mut tracker = Self { started_at: now, ..Self::default() };
        for mut alert in on_record {
            match alert.rule.parse::<Rule>() {
                Ok(_) => {}
                // Another version's rule: nobody here can say whether it holds, or tell of it.
                Err(_) => {
                    alert.resolved_at = alert.resolved_at.or(Some(now));
                    alert.told = Told::Withheld;
                    tracker.unsaved.insert(alert.id);
                }
            }
            tracker.insert(alert);
        }
        tracker
    }

    fn insert(&mut self, alert: Alert) {
        if let (true, Ok(rule)) = (alert.is_open(), alert.rule.parse()) {
            self.open.insert((rule, alert.tenant.clone(), alert.subject.clone()), alert.id);
        }
        self.alerts.insert(alert.id, alert);
    }

    /// The open ones.
    pub fn open(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.values().filter(|alert| alert.is_open())
    }

    /// Whether there is an open alert of this.
    pub fn is_open(&self, rule: Rule, tenant: Option<&TenantId>, subject: &str) -> bool {
        self.open.contains_key(&(rule, tenant.cloned(), subject.to_owned()))
    }

    /// Compares what holds with what is open: resolves what is gone for long enough, and opens what is new.
    /// Answers what was resolved and opened. `new_id` makes the id of an alert.
    pub fn observe(
        &mut self,
        evaluation: &Evaluation,
        settings: &AlertSettings,
        now: Timestamp,
        new_id: &mut dyn FnMut() -> AlertId,
    ) -> Vec<Alert> {
        let mut changed = Vec::new();
        for rule in Rule::ALL.into_iter().filter(|rule| !evaluation.unseen.contains(rule)) {
            let look = RuleLook { rule, settings, now };
            let conditions = evaluation.conditions.iter().filter(|one| one.rule == rule);
            let conditions: BTreeMap<Identity, &Condition> =
                conditions.map(|condition| (identity(condition), condition)).collect();
            let unlisted = evaluation.unlisted.iter().filter(|(listed, _)| *listed == rule);
            let unlisted: u64 = unlisted.map(|(_, count)| count).sum();
            let others = others_of(rule);
            // Of a rule that is not listed whole, nobody knows what is gone.
            if unlisted == 0 {
                let goes = |one: &Identity| *one != others && !conditions.contains_key(one);
                self.resolve_gone(look, goes, &mut changed);
            }
            let above = self.hold(look, conditions, unlisted, new_id, &mut changed);
            match above {
                0 => self.resolve_gone(look, |one| *one == others, &mut changed),
                _ => self.hold_others(look, above, new_id, &mut changed),
            }
        }
        changed
    }

    /// What holds of a rule stays open, or is opened. Answers how many are above the bound.
    fn hold(
        &mut self,
        look: RuleLook<'_>,
        conditions: BTreeMap<Identity, &Condition>,
        unlisted: u64,
        new_id: &mut dyn FnMut() -> AlertId,
        changed: &mut Vec<Alert>,
    ) -> u64 {
        let others = others_of(look.rule);
        let is_single = |identity: &&Identity| identity.0 == look.rule && **identity != others;
        let mut count = self.open.keys().filter(is_single).count();
        let new = conditions.keys().filter(|identity| !self.open.contains_key(identity)).count();
        let fits = unlisted == 0 && count + new <= ALERTS_OPEN_PER_RULE_MAX;
        let storm_goes_on = !fits && self.open.contains_key(&others);
        let mut above = unlisted;
        for (identity, condition) in conditions {
            let is_open = self.open.contains_key(&identity);
            // While there are others, nothing moves up: each would be a notice of its own.
            if !is_open && !fits && (storm_goes_on || count >= ALERTS_OPEN_PER_RULE_MAX) {
                above += 1;
                continue;
            }
            if !is_open {
                count += 1;
                let alert = look.fired(condition, new_id());
                changed.push(alert.clone());
                self.unsaved.insert(alert.id);
                self.insert(alert);
            }
            self.hold_on(&identity, look.now);
        }
        above
    }

    fn hold_on(&mut self, identity: &Identity, now: Timestamp) {
        let id = self.open.get(identity);
        if let Some(alert) = id.and_then(|id| self.alerts.get_mut(id)) {
            alert.last_held_at = now;
        }
    }

    /// So many are above the bound: one alert says so, and how many.
    fn hold_others(
        &mut self,
        look: RuleLook<'_>,
        above: u64,
        new_id: &mut dyn FnMut() -> AlertId,
        changed: &mut Vec<Alert>,
    ) {
        let identity = others_of(look.rule);
        let (summary, details) = (summary::of_others(look.rule, above), json!({ "count": above }));
        match self.open.get(&identity) {
            None => {
                let alert = Alert {
                    id: new_id(),
                    rule: look.rule.name().to_owned(),
                    tenant: None,
                    subject: OTHERS.to_owned(),
                    severity: look.settings.rule(look.rule).severity,
                    summary,
                    details,
                    fired_at: look.now,
                    last_held_at: look.now,
                    resolved_at: None,
                    told: Told::Nothing,
                };
                changed.push(alert.clone());
                self.unsaved.insert(alert.id);
                self.insert(alert);
            }
            Some(id) => {
                let alert = self.alerts.get_mut(id).expect("an open alert is kept");
                alert.last_held_at = look.now;
                // Until it is told, its record is what its notice is made of: that never changes.
                if alert.told != Told::Nothing && alert.details != details {
                    (alert.summary, alert.details) = (summary, details);
                    self.unsaved.insert(alert.id);
                }
            }
        }
    }

    /// Resolves the open alerts of a rule that are gone for long enough.
    fn resolve_gone(
        &mut self,
        look: RuleLook<'_>,
        is_gone: impl Fn(&Identity) -> bool,
        changed: &mut Vec<Alert>,
    ) {
        let resolve_after = look.settings.resolve_after(look.rule);
        let gone: Vec<Identity> = self
            .open
            .iter()
            .filter(|(identity, _)| identity.0 == look.rule && is_gone(identity))
            .filter(|(_, id)| {
                let alert = &self.alerts[id];
                let is_inherited = alert.last_held_at < self.started_at;
                look.now.since(alert.last_held_at) >= resolve_after
                    && (!is_inherited || look.now.since(self.started_at) >= START_GRACE)
            })
            .map(|(identity, _)| identity.clone())
            .collect();
        for identity in gone {
            let Some(id) = self.open.remove(&identity) else { continue };
            let alert = self.alerts.get_mut(&id).expect("an open alert is kept");
            alert.resolved_at = Some(look.now);
            self.unsaved.insert(id);
            changed.push(alert.clone());
        }
    }

    /// What is to be written down.
    pub fn unsaved(&self) -> Vec<Alert> {
        self.unsaved.iter().filter_map(|id| self.alerts.get(id)).cloned().collect()
    }

    /// These were written down as they are here.
    pub fn saved(&mut self, written: &[Alert]) {
        for alert in written {
            if self.alerts.get(&alert.id) == Some(alert) {
                self.unsaved.remove(&alert.id);
            }
        }
        self.forget_settled();
    }

    /// What is to be published next of each alert that is written down. What is silenced is not; what was
    /// resolved before anything of it could be published never is.
    pub fn due(&mut self, silences: &[Silence], now: Timestamp) -> Vec<(Alert, NoticeStatus)> {
        let mut due = Vec::new();
        for (id, alert) in &mut self.alerts {
            if self.unsaved.contains(id) {
                continue;
            }
            let of_notices = alert.tenant.as_ref().is_some_and(|id| id.as_str() == RESERVED_TENANT);
            let withheld = of_notices || silences.iter().any(|silence| silence.covers(alert, now));
            match (alert.told, alert.is_open()) {
                (Told::Nothing, false) if withheld => {
                    alert.told = Told::Withheld;
                    self.unsaved.insert(*id);
                }
                _ if withheld => {}
                (Told::Nothing, _) => due.push((alert.clone(), NoticeStatus::Fired)),
                (Told::Fired, false) => due.push((alert.clone(), NoticeStatus::Resolved)),
                _ => {}
            }
        }
        due
    }

    /// This was published.
    pub fn told(&mut self, id: AlertId, status: NoticeStatus) {
        let Some(alert) = self.alerts.get_mut(&id) else { return };
        alert.told = match status {
            NoticeStatus::Resolved => Told::Resolved,
            NoticeStatus::Fired | NoticeStatus::Told => Told::Fired,
        };
        self.unsaved.insert(id);
    }

    fn forget_settled(&mut self) {
        let unsaved = &self.unsaved;
        self.alerts.retain(|id, alert| !alert.is_settled() || unsaved.contains(id));
    }
}

#[derive(Clone, Copy)]
struct RuleLook<'a> {
    rule: Rule,
    settings: &'a AlertSettings,
    now: Timestamp,
}

impl RuleLook<'_> {
    fn fired(self, condition: &Condition, id: AlertId) -> Alert {
        Alert {
            id,
            rule: self.rule.name().to_owned(),
            tenant: condition.tenant.clone(),
            subject: condition.subject.clone(),
            severity: self.settings.rule(self.rule).severity,
            summary: condition.summary(),
            details: condition.details(),
            fired_at: self.now,
            last_held_at: self.now,
            resolved_at: None,
            told: Told::Nothing,
        }
    }
}

fn identity(condition: &Condition) -> Identity {
    (condition.rule, condition.tenant.clone(), condition.subject.clone())
}

fn others_of(rule: Rule) -> Identity {
    (rule, None, OTHERS.to_owned())
}
