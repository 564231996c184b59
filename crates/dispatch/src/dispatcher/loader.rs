//! Runs the loads that the engine asks for. Lanes that run low side by side are loaded in one call: most of what a
//! short load costs is the way to the store and back.

use std::sync::Arc;

use railpost_engine::{Input, Load, LoadTicket};
use railpost_store::Store;
use tokio::sync::mpsc;

use super::Observer;
use super::messages::TaskReport;
use crate::limits::{LOADS_CROWD, LOADS_PAUSE, LOADS_PER_CALL};

type LoadRequest = (LoadTicket, Load);

/// Begins loads. Their pages come back as [`TaskReport::Input`].
pub(super) struct Loader {
    task: LoadTask,
    lanes: mpsc::UnboundedSender<LoadRequest>,
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
        Self { task, lanes }
    }

    /// Begins a load. A page of many lanes takes its time, so it goes alone.
    pub(super) fn begin(&self, ticket: LoadTicket, load: Load) {
        match load {
            // Its receiver lives as long as this.
            Load::Lane { .. } => drop(self.lanes.send((ticket, load))),
            Load::Lanes { .. } | Load::Unkeyed { .. } => {
                drop(tokio::spawn(self.task.clone().load(vec![(ticket, load)])));
            }
        }
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

impl LoadTask {
    async fn load(self, requests: Vec<LoadRequest>) {
        let (tickets, loads): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        match self.store.load_all(loads).await {
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
