//! The calls of a scenario, and what is answered.

use railpost_engine::{Accepted, Timestamp};

use railpost_store::{
    AcceptBatch, Change, Figures, FiguresScope, PruneStep, Pruned, Receipt, RecordBatch, Recorded,
    RedeliverBatch, Result, Store, StoreError,
};

/// One call of a group, in the memory store's names.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Accept(AcceptBatch),
    Redeliver(RedeliverBatch),
    Record(RecordBatch),
    Commit(Change),
    Prune(PruneStep),
    CloseRemoved(u32),
    BeginEra,
    AddFigures(Vec<(FiguresScope, Timestamp, Figures)>),
    /// Accepts something and fails then: its group is given up, where the backend has groups.
    Fail(AcceptBatch),
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Accept(Result<Vec<Receipt>>),
    Redeliver(Result<Vec<Accepted>>),
    Record(Result<Recorded>),
    Done(Result<()>),
    Count(Result<u64>),
    Pruned(Result<Pruned>),
}

pub(super) async fn on_any(store: &dyn Store, call: Call) -> Answer {
    match call {
        Call::Accept(batch) => Answer::Accept(store.accept(batch.into()).await),
        Call::Redeliver(batch) => Answer::Redeliver(store.redeliver(batch).await),
        Call::Record(batch) => Answer::Record(store.record(batch.into()).await),
        Call::Commit(change) => Answer::Done(store.commit(change).await),
        Call::CloseRemoved(limit) => Answer::Count(store.close_removed(limit).await),
        Call::AddFigures(batch) => Answer::Done(store.add_figures(batch).await),
        Call::BeginEra => Answer::Done(store.begin_era().await),
        Call::Prune(step) => {
            let pruned = store.prune(step).await;
            Answer::Pruned(pruned.map(|pruned| Pruned { next: None, ..pruned }))
        }
        Call::Fail(_) => unreachable!("each store fails in its own way"),
    }
}

pub(super) fn failure() -> StoreError {
    StoreError::Unavailable("as the model has it".to_owned())
}
