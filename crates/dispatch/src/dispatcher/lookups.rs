//! Looks up what the engine asks for, and hands it the answers. Lanes that run low side by side are looked
//! up in one call: most of what a short load costs is the way to the store and back.

use std::sync::Arc;

use railpost_engine::{Input, Load, LoadTicket};
use railpost_store::Store;
use tokio::sync::mpsc;

use super::Watch;
use super::run::News;
use crate::limits::{LOADS_CROWD, LOADS_PAUSE, LOADS_PER_CALL};

type Asked = (LoadTicket, Load);

/// Where loads are begun. Their answers come as [`News`].
pub(super) struct Lookups {
    desk: Desk,
    lanes: mpsc::UnboundedSender<Asked>,
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
        Self { desk, lanes }
    }

    /// Begins to look something up. A page of many lanes takes its time, so it goes alone.
    pub(super) fn begin(&self, ticket: LoadTicket, load: Load) {
        match load {
            // Its receiver lives as long as this.
            Load::Lane { .. } => drop(self.lanes.send((ticket, load))),
            Load::Lanes { .. } | Load::Unkeyed { .. } => {
                drop(tokio::spawn(self.desk.clone().look_up(vec![(ticket, load)])));
            }
        }
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

impl Desk {
    async fn look_up(self, asked: Vec<Asked>) {
        let (tickets, loads): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        match self.store.load_all(loads).await {
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
