//! What is seen at a look.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use railpost_alerts::{
    AlertSettings, DiskSeen, EndpointSeen, Observations, SourceSeen, StoreTroubleSeen, Tracker,
};
use railpost_api::App;
use railpost_dispatch::{ServedConcern, ServedConcerns};
use railpost_engine::Timestamp;
use railpost_store::{Counts, Result, StoreError};
use railpost_telemetry::DiskSpace;
use railpost_wire::EndpointId;

use super::figures::FigureReader;
use super::lanes::LaneReader;
use crate::limits::{ALERTS_COUNTS_EVERY, ALERTS_HELD_LANES_MAX, ALERTS_OLDEST_LOOKUPS_MAX};
use crate::outbox::OutboxRelay;

/// Looks at the store, the engine, the sources and the disk.
pub(super) struct Observer {
    app: Arc<App>,
    outbox: Arc<OutboxRelay>,
    data_dir: PathBuf,
    figures: FigureReader,
    lanes: LaneReader,
    counted: Option<Counted>,
    trouble: Trouble,
    /// Since which look a source is in trouble.
    sources: BTreeMap<String, Timestamp>,
}

/// What was counted, and when: it costs the store more than the rest.
#[derive(Clone, Copy)]
struct Counted {
    at: Timestamp,
    dead_letters: u64,
    oldest_open_at: Option<Timestamp>,
}

/// The store's trouble.
#[derive(Default)]
struct Trouble {
    since: Option<Timestamp>,
    /// What went wrong since the last look.
    problem: Option<String>,
    /// How often the dispatcher had trouble, up to the last look.
    counted: u64,
}

impl Observer {
    pub(super) fn new(app: Arc<App>, outbox: Arc<OutboxRelay>, data_dir: PathBuf) -> Self {
        Self {
            app,
            outbox,
            data_dir,
            figures: FigureReader::default(),
            lanes: LaneReader::default(),
            counted: None,
            trouble: Trouble::default(),
            sources: BTreeMap::new(),
        }
    }

    /// The store could not be written or read.
    pub(super) fn store_failed(&mut self, problem: &StoreError) {
        self.app.telemetry.note_stopped(problem);
        self.trouble.problem = Some(problem.to_string());
    }

    /// All that rules look at. What cannot be seen is left out.
    pub(super) async fn observe(
        &mut self,
        settings: &AlertSettings,
        tracker: &Tracker,
        now: Timestamp,
    ) -> Observations<'_> {
        let signs_until = now + settings.secret_expiring.ahead;
        let concerns = self.app.dispatcher.concerns(signs_until, ALERTS_HELD_LANES_MAX).await;
        let (mut endpoints, mut held_lanes) = (None, None);
        if let Ok(concerns) = concerns {
            let counted = self.count(settings, &concerns, now).await;
            self.kept(counted);
            let ServedConcerns {
                endpoints: concerned, held_lanes: lanes, held_lanes_count, ..
            } = concerns;
            let others = held_lanes_count.saturating_sub(lanes.len() as u64);
            let read = self.lanes.read(&*self.app.store, lanes, others, tracker).await;
            held_lanes = self.kept(read);
            endpoints = Some(concerned.into_iter().map(endpoint_seen).collect());
        }
        let sources = self.sources_in_trouble(now);
        let figures = self.figures.read(&*self.app.store, settings, now).await;
        let problem = figures.as_ref().err().map(ToString::to_string);
        let figures = figures.ok();
        let trouble = Self::store_trouble(&self.app, &mut self.trouble, problem, now);
        Observations {
            figures,
            dead_letters: self.counted.map(|counted| counted.dead_letters),
            oldest_open_at: self.counted.map(|counted| counted.oldest_open_at),
            store_trouble: trouble,
            disk: DiskSpace::of(&self.data_dir).map(|disk| DiskSeen {
                path: self.data_dir.display().to_string(),
                free_bytes: disk.free_bytes,
                size_bytes: disk.size_bytes,
            }),
            endpoints,
            held_lanes,
            sources,
        }
    }

    /// The sources that are in trouble, from the first look at which they were.
    fn sources_in_trouble(&mut self, now: Timestamp) -> Vec<SourceSeen> {
        let before = std::mem::take(&mut self.sources);
        let mut seen = Vec::new();
        for (name, problem) in self.outbox.troubles() {
            let since = before.get(&name).copied().unwrap_or(now);
            self.sources.insert(name.clone(), since);
            seen.push(SourceSeen { name, since, problem });
        }
        seen
    }

    /// What was read, if it could be.
    fn kept<T>(&mut self, read: Result<T>) -> Option<T> {
        read.map_err(|problem| self.store_failed(&problem)).ok()
    }

    /// Counts what is open and dead, now and then.
    async fn count(
        &mut self,
        settings: &AlertSettings,
        concerns: &ServedConcerns,
        now: Timestamp,
    ) -> Result<()> {
        let is_fresh = |counted: &Counted| now.since(counted.at) < ALERTS_COUNTS_EVERY;
        if self.counted.as_ref().is_some_and(is_fresh) {
            return Ok(());
        }
        self.counted = None;
        self.app.store.check().await?;
        let Counts { held, dead, oldest_open_at, .. } = self.app.store.totals(None).await?;
        let is_old = |at: &Timestamp| now.since(*at) > settings.oldest_open.age;
        let oldest_open_at = match oldest_open_at.filter(is_old) {
            Some(oldest) if !concerns.paused.is_empty() => {
                self.oldest_of_unpaused(oldest, concerns).await?
            }
            oldest => oldest,
        };
        self.counted = Some(Counted { at: now, dead_letters: held + dead, oldest_open_at });
        Ok(())
    }

    /// The oldest open delivery of endpoints that are not paused, where paused ones may have older ones. A
    /// bounded number of endpoints is asked.
    async fn oldest_of_unpaused(
        &self,
        oldest: Timestamp,
        concerns: &ServedConcerns,
    ) -> Result<Option<Timestamp>> {
        let of_paused = self.oldest_of(concerns.paused.iter().copied()).await?;
        if of_paused.is_none_or(|of_paused| of_paused > oldest) {
            return Ok(Some(oldest));
        }
        self.oldest_of(concerns.endpoints.iter().map(|concern| concern.id)).await
    }

    async fn oldest_of(
        &self,
        endpoints: impl Iterator<Item = EndpointId>,
    ) -> Result<Option<Timestamp>> {
        let mut oldest = None;
        for id in endpoints.take(ALERTS_OLDEST_LOOKUPS_MAX) {
            let found = self.app.store.counts(id).await?.oldest_open_at;
            oldest = [oldest, found].into_iter().flatten().min();
        }
        Ok(oldest)
    }

    /// The store is in trouble from the first look at which something failed to the first at which nothing did.
    fn store_trouble(
        app: &App,
        trouble: &mut Trouble,
        problem: Option<String>,
        now: Timestamp,
    ) -> Option<StoreTroubleSeen> {
        let counted = app.telemetry.metrics.store_trouble.load(Ordering::Relaxed);
        let latest = || app.telemetry.latest_store_trouble();
        let of_dispatcher = (counted > trouble.counted).then(latest).flatten();
        trouble.counted = counted;
        let problem = trouble.problem.take().or(problem).or(of_dispatcher);
        trouble.since = problem.as_ref().map(|_| trouble.since.unwrap_or(now));
        Some(StoreTroubleSeen { since: trouble.since?, problem: problem? })
    }
}

fn endpoint_seen(concern: ServedConcern) -> EndpointSeen {
    let ServedConcern { id, tenant, url, served, disable_after, signs_until } = concern;
    let (health, blocked) = (served.health, served.blocked);
    EndpointSeen { id, tenant, url, health, blocked, disable_after, signs_until }
}
