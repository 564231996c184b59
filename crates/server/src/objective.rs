//! Judging deliveries by the objective: counts those that passed it without an acknowledgement, each once.
//!
//! What was acknowledged in time is counted by telemetry when it happens. The store says how far deliveries were
//! judged, and what is late goes there with it in one commit: a crash neither loses nor repeats any.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use railpost_api::App;
use railpost_engine::{EndpointStatus, Span, Timestamp};
use railpost_store::limits::FIGURES_MINUTES_KEPT;
use railpost_store::{
    Figures, FiguresScope, JudgedStep, LateAtEndpoint, LatePage, LateQuery, Resolution, Store,
    StoreError, first_delivery_id,
};
use railpost_telemetry::{LateDeliveries, Level, Metrics, Value};
use railpost_wire::DeliveryId;
use tokio::sync::watch;

use crate::limits::{JUDGE_EVERY, JUDGE_GRACE};
use crate::upkeep::stops_within;

/// Judges every few seconds, until the server stops.
pub(crate) async fn judge_regularly(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    while !stops_within(Duration::from(JUDGE_EVERY), &mut stopping).await {
        if let Err(problem) = Judge::of(&app).judge_all(&stopping).await {
            app.telemetry.note_stopped(&problem);
            let fields = [("problem", Value::Display(&problem))];
            app.telemetry.log.line(Level::Warn, "judging_failed", &fields);
        }
    }
}

/// What judging needs.
struct Judge<'a> {
    store: &'a dyn Store,
    metrics: &'a Metrics,
    within: Span,
    now: Timestamp,
}

impl<'a> Judge<'a> {
    fn of(app: &'a App) -> Self {
        Self {
            store: &*app.store,
            metrics: &app.telemetry.metrics,
            within: app.settings.objective.within,
            now: app.source.now(),
        }
    }

    /// Judges all that has passed the objective.
    async fn judge_all(&self, stopping: &watch::Receiver<bool>) -> Result<(), StoreError> {
        while !*stopping.borrow() && self.judge_some().await? {}
        Ok(())
    }

    /// Judges a page. Says whether there may be more.
    async fn judge_some(&self) -> Result<bool, StoreError> {
        // Records of acknowledgements come some time after them.
        let due = ago(self.now, self.within + JUDGE_GRACE);
        let was = self.store.judged_before().await?;
        let Some(from) = was.filter(|judged| judged.unix_ms() <= self.now.as_millis()) else {
            return self.begin(was, due).await;
        };
        let query = LateQuery { from, before: stretch_end(from, due), within: self.within };
        if query.end() <= from {
            return Ok(false);
        }
        let page = self.store.late_deliveries(query).await?;
        let late = self.late_by_endpoint(&page);
        let is_more = page.judged_before < first_delivery_id(due);
        let step = JudgedStep {
            was: Some(from),
            judged_before: page.judged_before,
            figures: by_scope(&late, query.before + self.within),
        };
        if self.store.add_judged(step).await? {
            late.iter().for_each(|(_, figures)| self.count(figures));
        }
        Ok(is_more)
    }

    /// On a new store, or after the clock was set back: what was made before is not judged.
    async fn begin(&self, was: Option<DeliveryId>, due: Timestamp) -> Result<bool, StoreError> {
        let step = JudgedStep { was, judged_before: first_delivery_id(due), figures: Vec::new() };
        self.store.add_judged(step).await?;
        Ok(false)
    }

    /// The late deliveries of each endpoint that is not paused.
    fn late_by_endpoint<'p>(&self, page: &'p LatePage) -> Vec<(&'p LateAtEndpoint, Figures)> {
        let breakers = self.metrics.breakers();
        let judged = page.endpoints.iter().filter(|late| late.status != EndpointStatus::Paused);
        judged.map(|late| (late, late_figures(late, breakers.contains(&late.endpoint)))).collect()
    }

    fn count(&self, figures: &Figures) {
        let Figures { late_operator, late_receiver, .. } = *figures;
        self.metrics.late(LateDeliveries { operator: late_operator, receiver: late_receiver });
    }
}

/// Until when deliveries are judged at once. What happened in which minute matters as long as minutes are kept.
fn stretch_end(from: DeliveryId, due: Timestamp) -> Timestamp {
    let from = Timestamp::from_millis(from.unix_ms());
    let is_recent = due.since(from) < FIGURES_MINUTES_KEPT;
    let resolution = if is_recent { Resolution::Minute } else { Resolution::Hour };
    due.min(resolution.start_of(from) + resolution.span())
}

/// Whose part it was: the receiver's if it was sent something and did not acknowledge it, or if nothing is sent to it
/// because of that; else the operator's.
fn late_figures(late: &LateAtEndpoint, is_breaker_open: bool) -> Figures {
    let is_failing =
        late.status != EndpointStatus::Active || late.failing_since.is_some() || is_breaker_open;
    let attempted = late.attempted + late.behind_attempted;
    let (late_receiver, late_operator) = match is_failing {
        true => (attempted + late.unattempted, 0),
        false => (attempted, late.unattempted),
    };
    Figures { late_receiver, late_operator, ..Figures::default() }
}

/// The figures of endpoints, of their tenants and of all, at the time when they passed the objective.
fn by_scope(
    late: &[(&LateAtEndpoint, Figures)],
    at: Timestamp,
) -> Vec<(FiguresScope, Timestamp, Figures)> {
    let mut sums: BTreeMap<FiguresScope, Figures> = BTreeMap::new();
    for (late, figures) in late {
        let tenant = FiguresScope::Tenant(late.tenant.clone());
        for scope in [FiguresScope::Endpoint(late.endpoint), tenant, FiguresScope::All] {
            sums.entry(scope).or_default().merge(figures);
        }
    }
    sums.into_iter().map(|(scope, figures)| (scope, at, figures)).collect()
}

fn ago(now: Timestamp, span: Span) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(span.as_millis()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Mutex;

    use bytes::Bytes;
    use railpost_engine::{
        Accepted, DeadReason, DeliveryState, EndpointRecord, Progress, Transition,
    };
    use railpost_store::{
        AcceptBatch, Archive, EndpointPrivate, EndpointSettings, Event, Intake, Judging, Ledger,
        MasterKey, MemoryStore, NewEndpoint, Period, Receipt, RecordBatch, Registry, Setup, Source,
        TenantSettings, Write,
    };
    use railpost_telemetry::TelemetrySettings;
    use railpost_wire::{EndpointId, EventId};

    use super::*;

    const WITHIN: Span = Span::from_mins(10);
    const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// A clock that is set by hand, and a count in the place of dice.
    #[derive(Debug)]
    struct ManualSource(Mutex<(Timestamp, u64)>);

    impl Source for ManualSource {
        fn now(&self) -> Timestamp {
            self.0.lock().unwrap().0
        }

        fn fill_random(&self, bytes: &mut [u8]) {
            let count = &mut self.0.lock().unwrap().1;
            *count += 1;
            bytes.fill(*count as u8);
        }
    }

    /// A store with one endpoint, and what its deliveries are judged by.
    struct World {
        source: Arc<ManualSource>,
        store: MemoryStore,
        metrics: Metrics,
        endpoint: EndpointId,
    }

    impl World {
        async fn new() -> Self {
            let source = Arc::new(ManualSource(Mutex::new((START, 0))));
            let setup = Setup { source: source.clone(), master_key: MasterKey::new(&[7; 32]) };
            let store = MemoryStore::new(setup);
            let (tenant, endpoint): (railpost_wire::TenantId, _) =
                ("acme".parse().unwrap(), EndpointId::from_u128(1));
            let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
            store.commit(create.into()).await.unwrap();
            let new = NewEndpoint {
                id: endpoint,
                tenant,
                settings: EndpointSettings::all_events("https://example.com"),
                private: EndpointPrivate::default(),
            };
            store.commit(Write::CreateEndpoint(new).into()).await.unwrap();
            let metrics = Metrics::new([], &TelemetrySettings::default());
            let world = Self { source, store, metrics, endpoint };
            world.judge().await;
            world
        }

        fn after(&self, span: Span) {
            let now = &mut self.source.0.lock().unwrap().0;
            *now = *now + span;
        }

        async fn publish(&self, key: Option<&str>) -> Accepted {
            let mut random = [0; 10];
            self.source.fill_random(&mut random);
            let event = Event {
                id: EventId::generate(self.source.now().as_millis(), random),
                event_type: "order.paid".parse().unwrap(),
                key: key.map(|key| key.parse().unwrap()),
                payload: Bytes::new(),
                content_type: "text/plain".parse().unwrap(),
                schema_version: None,
                time: self.source.now(),
                traceparent: None,
                cloudevent: None,
            };
            let tenant = "acme".parse().unwrap();
            let batch =
                AcceptBatch { tenant, events: vec![event], accepted_by: None, idempotency: None };
            let receipts = self.store.accept(batch.into()).await.unwrap();
            let Receipt::Accepted { deliveries, .. } = &receipts[0] else { panic!("{receipts:?}") };
            deliveries[0].accepted
        }

        /// Records the state of a delivery after an attempt.
        async fn attempted(&self, accepted: &Accepted, state: DeliveryState) {
            let at = self.source.now();
            let progress = Progress {
                attempts: 1,
                round_attempts: 1,
                round_started_at: Some(at),
                ..Progress::default()
            };
            let Accepted { id, endpoint, place, .. } = *accepted;
            let transition =
                Transition { delivery: id, endpoint, place, state, progress, attempt: None, at };
            self.store.record(RecordBatch::of([transition]).into()).await.unwrap();
        }

        async fn set_status(&self, status: EndpointStatus, was: EndpointStatus) {
            let at = self.source.now();
            let endpoint = self.endpoint;
            let record = EndpointRecord { endpoint, status, was, failing_since: None, at };
            let batch = RecordBatch { endpoints: vec![record], ..RecordBatch::of([]) };
            self.store.record(batch.into()).await.unwrap();
        }

        /// As a server that was just started does.
        async fn judge(&self) {
            let judge = Judge {
                store: &self.store,
                metrics: &self.metrics,
                within: WITHIN,
                now: self.source.now(),
            };
            judge.judge_all(&watch::channel(false).1).await.unwrap();
        }

        /// Late by the operator's part and by the receiver's, in all figures alike.
        async fn late(&self) -> (u64, u64) {
            let mut found = Vec::new();
            let tenant = FiguresScope::Tenant("acme".parse().unwrap());
            for scope in [FiguresScope::All, tenant, FiguresScope::Endpoint(self.endpoint)] {
                for resolution in [Resolution::Minute, Resolution::Hour] {
                    let period = Period::default();
                    let rows = self.store.figures(&scope, resolution, period).await.unwrap();
                    let sum = rows.iter().fold((0, 0), |(operator, receiver), (_, figures)| {
                        (operator + figures.late_operator, receiver + figures.late_receiver)
                    });
                    found.push(sum);
                }
            }
            found.dedup();
            assert_eq!(found.len(), 1, "{found:?}");
            found[0]
        }
    }

    fn waiting() -> DeliveryState {
        DeliveryState::Waiting { until: START + Span::from_days(1) }
    }

    #[tokio::test]
    async fn a_delivery_is_late_once_when_it_passed_the_objective() {
        let world = World::new().await;
        let accepted = world.publish(None).await;
        world.after(WITHIN + JUDGE_GRACE);
        world.judge().await;
        assert_eq!(world.late().await, (0, 0), "its last millisecond is not over");
        world.after(Span::from_millis(1));
        for _ in 0..3 {
            world.judge().await;
            assert_eq!(world.late().await, (1, 0));
            world.after(Span::from_mins(1));
        }
        world.attempted(&accepted, DeliveryState::Delivered).await;
        world.after(WITHIN);
        world.judge().await;
        assert_eq!(world.late().await, (1, 0), "acknowledged later, it is not judged again");
        let page = world.metrics.render(&railpost_telemetry::Sample::default());
        for line in [
            r#"railpost_deliveries_judged_total{result="late_operator"} 1"#,
            r#"railpost_deliveries_judged_total{result="late_receiver"} 0"#,
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[tokio::test]
    async fn the_receivers_part_is_what_was_sent_or_stands_behind_what_was() {
        let world = World::new().await;
        let head = world.publish(Some("a")).await;
        world.publish(Some("a")).await;
        world.publish(Some("b")).await;
        world.attempted(&head, waiting()).await;
        let dead = world.publish(None).await;
        let reason = DeadReason::AttemptsExhausted;
        world.attempted(&dead, DeliveryState::Dead { reason, holds: false }).await;
        world.after(WITHIN + JUDGE_GRACE + Span::from_millis(1));
        world.judge().await;
        assert_eq!(world.late().await, (1, 3), "a head, one behind it and a dead letter");
    }

    #[tokio::test]
    async fn nothing_sent_to_a_failing_endpoint_is_the_receivers_part() {
        let world = World::new().await;
        world.publish(None).await;
        world.set_status(EndpointStatus::Quarantined, EndpointStatus::Active).await;
        world.after(WITHIN + JUDGE_GRACE + Span::from_millis(1));
        world.judge().await;
        assert_eq!(world.late().await, (0, 1));
    }

    #[tokio::test]
    async fn what_passes_the_objective_while_its_endpoint_is_paused_is_never_judged() {
        let world = World::new().await;
        world.publish(None).await;
        world.set_status(EndpointStatus::Paused, EndpointStatus::Active).await;
        world.after(WITHIN + JUDGE_GRACE + Span::from_millis(1));
        world.judge().await;
        world.set_status(EndpointStatus::Active, EndpointStatus::Paused).await;
        world.after(WITHIN);
        world.judge().await;
        assert_eq!(world.late().await, (0, 0));
    }

    #[tokio::test]
    async fn what_is_discarded_or_acknowledged_in_time_is_not_late() {
        let world = World::new().await;
        let (discarded, delivered) = (world.publish(None).await, world.publish(None).await);
        world.attempted(&discarded, DeliveryState::DISCARDED).await;
        world.after(WITHIN);
        world.attempted(&delivered, DeliveryState::Delivered).await;
        world.after(JUDGE_GRACE + Span::from_millis(1));
        world.judge().await;
        assert_eq!(world.late().await, (0, 0));
    }

    #[tokio::test]
    async fn acknowledged_after_the_objective_and_before_it_is_judged_is_late() {
        let world = World::new().await;
        let accepted = world.publish(None).await;
        world.after(WITHIN + Span::from_millis(1));
        world.attempted(&accepted, DeliveryState::Delivered).await;
        world.after(JUDGE_GRACE);
        world.judge().await;
        assert_eq!(
            world.late().await,
            (1, 0),
            "it was sent too late, so it is the operator's part"
        );
    }

    #[tokio::test]
    async fn a_crash_between_counting_and_committing_neither_loses_nor_repeats() {
        let world = World::new().await;
        world.publish(None).await;
        world.after(WITHIN + JUDGE_GRACE + Span::from_millis(1));
        let from = world.store.judged_before().await.unwrap().unwrap();
        let before = ago(world.source.now(), WITHIN + JUDGE_GRACE);
        let query = LateQuery { from, before, within: WITHIN };
        // Counted, and killed before it was written.
        assert_eq!(world.store.late_deliveries(query).await.unwrap().endpoints.len(), 1);
        assert_eq!(world.late().await, (0, 0));
        world.judge().await;
        assert_eq!(world.late().await, (1, 0));
        // Written, and killed before the answer came: the next start asks again.
        let (was, judged_before) = (Some(from), query.end());
        let step = JudgedStep { was, judged_before, figures: vec![] };
        assert_eq!(world.store.add_judged(step).await, Ok(false));
        world.judge().await;
        assert_eq!(world.late().await, (1, 0));
    }

    #[tokio::test]
    async fn what_passed_while_the_server_stood_still_counts_in_the_minutes_in_which_it_did() {
        let world = World::new().await;
        for _ in 0..3 {
            world.publish(None).await;
            world.after(Span::from_hours(1));
        }
        world.judge().await;
        assert_eq!(world.late().await, (3, 0));
        let period = Period::default();
        let rows = world.store.figures(&FiguresScope::All, Resolution::Minute, period).await;
        let minutes: Vec<_> = rows.unwrap().iter().map(|(at, _)| at.since(START)).collect();
        let passed = |hours| (Span::from_hours(hours) + WITHIN).as_millis();
        for (hours, minute) in minutes.iter().enumerate() {
            let off = minute.as_millis().abs_diff(passed(hours as u64));
            assert!(off <= 60_000, "{minutes:?}");
        }
    }

    #[tokio::test]
    async fn judging_goes_on_after_the_clock_was_set_back() {
        let world = World::new().await;
        world.after(Span::from_days(365));
        world.judge().await;
        world.source.0.lock().unwrap().0 = START + Span::from_days(1);
        world.judge().await;
        world.publish(None).await;
        world.after(WITHIN + JUDGE_GRACE + Span::from_millis(1));
        world.judge().await;
        assert_eq!(world.late().await, (1, 0));
    }
}
