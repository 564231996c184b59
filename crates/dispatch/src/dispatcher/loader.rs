//! Runs the loads that the engine asks for. Lanes that run low side by side are loaded in one call, and so are the
//! endpoints of a server that starts: most of what a short load costs is the way to the store and back.

use std::sync::Arc;

use railpost_engine::{Input, Load, LoadTicket};
use railpost_store::{Store, StoreError};
use tokio::sync::{Semaphore, mpsc};

use super::Observer;
use super::messages::TaskReport;
use crate::limits::{
    ENDPOINT_LOADS_AT_ONCE, ENDPOINT_LOADS_PER_CALL, LOADS_CROWD, LOADS_PAUSE, LOADS_PER_CALL,
};

type LoadRequest = (LoadTicket, Load);

/// Begins loads. Their pages come back as [`TaskReport::Input`].
pub(super) struct Loader {
    lanes: mpsc::UnboundedSender<LoadRequest>,
    endpoints: mpsc::UnboundedSender<LoadRequest>,
}

/// What a task that loads needs.
#[derive(Clone)]
pub(super) struct LoadTask {
    pub(super) store: Arc<dyn Store>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) reports: mpsc::UnboundedSender<TaskReport>,
}

impl Loader {
    /// Runs until it is dropped.
    pub(super) fn start(task: LoadTask) -> Self {
        let (lanes, asked) = mpsc::unbounded_channel();
        tokio::spawn(load_lanes(task.clone(), asked));
        let (endpoints, asked) = mpsc::unbounded_channel();
        tokio::spawn(load_endpoints(task, asked));
        Self { lanes, endpoints }
    }

    /// Begins a load. A page of many lanes takes its time, so no lane waits for it.
    pub(super) fn begin(&self, ticket: LoadTicket, load: Load) {
        let queue = match load {
            Load::Lane { .. } => &self.lanes,
            Load::Lanes { .. } | Load::Unkeyed { .. } => &self.endpoints,
        };
        // Its receiver lives as long as this.
        let _ = queue.send((ticket, load));
    }
}

/// Loads lanes in batches. When many are asked for at once, waits a moment for more.
async fn load_lanes(task: LoadTask, mut asked: mpsc::UnboundedReceiver<LoadRequest>) {
    let (mut loads, mut crowded) = (Vec::new(), false);
    while asked.recv_many(&mut loads, LOADS_PER_CALL).await > 0 {
        if crowded {
            tokio::time::sleep(LOADS_PAUSE).await;
            while loads.len() < LOADS_PER_CALL
                && let Ok(load) = asked.try_recv()
            {
                loads.push(load);
            }
        }
        crowded = loads.len() >= LOADS_CROWD;
        tokio::spawn(task.clone().load(std::mem::take(&mut loads)));
    }
}

/// Loads what endpoints have open, a few calls at a time: each has a page in memory until the engine takes it.
async fn load_endpoints(task: LoadTask, mut asked: mpsc::UnboundedReceiver<LoadRequest>) {
    let permits = Arc::new(Semaphore::new(ENDPOINT_LOADS_AT_ONCE));
    let mut loads = Vec::new();
    while asked.recv_many(&mut loads, ENDPOINT_LOADS_PER_CALL).await > 0 {
        let permit = permits.clone().acquire_owned().await;
        let (task, loads) = (task.clone(), std::mem::take(&mut loads));
        tokio::spawn(async move {
            task.load(loads).await;
            drop(permit);
        });
    }
}

impl LoadTask {
    /// If a row is damaged, each request is loaded alone: one damaged row affects no other endpoint.
    async fn load(self, requests: Vec<LoadRequest>) {
        let (tickets, loads): (Vec<_>, Vec<_>) = requests.iter().copied().unzip();
        match self.store.load_all(loads).await {
            Err(StoreError::Corrupt(_)) if requests.len() > 1 => {
                for request in requests {
                    Box::pin(self.clone().load(vec![request])).await;
                }
            }
            Ok(pages) => tickets
                .into_iter()
                .zip(pages)
                .for_each(|(ticket, page)| self.report(Input::Loaded { ticket, page })),
            Err(trouble) => {
                self.observer.store_trouble(&trouble);
                tickets.into_iter().for_each(|ticket| self.report(Input::LoadFailed(ticket)));
            }
        }
    }

    fn report(&self, input: Input) {
        // If the run loop has ended, the answer is not needed.
        let _ = self.reports.send(TaskReport::Input(Box::new(input)));
    }
}
