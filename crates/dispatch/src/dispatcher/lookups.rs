//! Looks up what the engine asks for, and hands it the answers. Lanes that run low side by side are looked
//! up in one call, and so are the endpoints of a server that starts: most of what a short load costs is the way
//! to the store and back.

use std::sync::Arc;

use railpost_engine::{Input, Load, LoadTicket};
use railpost_store::{Store, StoreError};
use tokio::sync::{Semaphore, mpsc};

use super::Watch;
use super::run::News;
use crate::limits::{
    ENDPOINT_LOADS_AT_ONCE, ENDPOINT_LOADS_PER_CALL, LOADS_CROWD, LOADS_PAUSE, LOADS_PER_CALL,
};

type Asked = (LoadTicket, Load);

/// Where loads are begun. Their answers come as [`News`].
pub(super) struct Lookups {
    lanes: mpsc::UnboundedSender<Asked>,
    endpoints: mpsc::UnboundedSender<Asked>,
}

/// What a lookup needs.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) store: Arc<dyn Store>,
    pub(super) watch: Arc<dyn Watch>,
    pub(super) news: mpsc::UnboundedSender<News>,
}

impl Lookups {
    /// Runs until it is dropped.
    pub(super) fn start(desk: Desk) -> Self {
        let (lanes, asked) = mpsc::unbounded_channel();
        tokio::spawn(look_up_lanes(desk.clone(), asked));
        let (endpoints, asked) = mpsc::unbounded_channel();
        tokio::spawn(look_up_endpoints(desk, asked));
        Self { lanes, endpoints }
    }

    /// Begins to look something up. A page of many lanes takes its time, so no lane waits for it.
    pub(super) fn begin(&self, ticket: LoadTicket, load: Load) {
        let queue = match load {
            Load::Lane { .. } => &self.lanes,
            Load::Lanes { .. } | Load::Unkeyed { .. } => &self.endpoints,
        };
        // Its receiver lives as long as this.
        let _ = queue.send((ticket, load));
    }
}

/// Looks up what is asked for together, and waits a moment for the rest of a crowd.
async fn look_up_lanes(desk: Desk, mut asked: mpsc::UnboundedReceiver<Asked>) {
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
        tokio::spawn(desk.clone().look_up(std::mem::take(&mut loads)));
    }
}

/// Looks up what endpoints have open, a few calls at a time: each has a page in memory until the engine takes it.
async fn look_up_endpoints(desk: Desk, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let turns = Arc::new(Semaphore::new(ENDPOINT_LOADS_AT_ONCE));
    let mut loads = Vec::new();
    while asked.recv_many(&mut loads, ENDPOINT_LOADS_PER_CALL).await > 0 {
        let turn = turns.clone().acquire_owned().await;
        let (desk, loads) = (desk.clone(), std::mem::take(&mut loads));
        tokio::spawn(async move {
            desk.look_up(loads).await;
            drop(turn);
        });
    }
}

impl Desk {
    /// If something does not read back, each is looked up alone: one that is damaged keeps no other back.
    async fn look_up(self, asked: Vec<Asked>) {
        let (tickets, loads): (Vec<_>, Vec<_>) = asked.iter().copied().unzip();
        match self.store.load_all(loads).await {
            Err(StoreError::Corrupt(_)) if asked.len() > 1 => {
                for one in asked {
                    Box::pin(self.clone().look_up(vec![one])).await;
                }
            }
            Ok(pages) => tickets
                .into_iter()
                .zip(pages)
                .for_each(|(ticket, page)| self.tell(Input::Loaded { ticket, page })),
            Err(trouble) => {
                self.watch.store_trouble(&trouble);
                tickets.into_iter().for_each(|ticket| self.tell(Input::LoadFailed(ticket)));
            }
        }
    }

    fn tell(&self, input: Input) {
        // If the run loop is gone, nobody waits for this.
        let _ = self.news.send(News::Input(Box::new(input)));
    }
}
