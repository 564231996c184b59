//! Calls that wait for the same connection go together: whatever waits is one statement.

use tokio::sync::{mpsc, oneshot};

use super::link::duration;
use crate::limits::{GROUP_ITEMS_MAX, PATIENCE, QUEUE_MAX};
use crate::{Result, StoreError};

/// A call and who waits for it.
#[derive(Debug)]
pub(super) struct Call<I, O> {
    pub(super) input: I,
    reply: oneshot::Sender<Result<O>>,
}

impl<I, O> Call<I, O> {
    pub(super) fn answer(self, output: Result<O>) {
        // Whoever asked may have gone away.
        let _ = self.reply.send(output);
    }
}

/// The way in for calls of one kind.
#[derive(Debug)]
pub(super) struct Queue<I, O>(mpsc::Sender<Call<I, O>>);

impl<I: Send + 'static, O: Send + 'static> Queue<I, O> {
    /// Starts a task that hands groups of calls to `serve`, one group after the other, until the
    /// queue is dropped.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        items: impl Fn(&I) -> usize + Send + 'static,
        serve: impl Fn(Vec<Call<I, O>>) -> F + Send + 'static,
    ) -> Self {
        let (queue, mut calls) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(async move {
            while let Some(first) = calls.recv().await {
                serve(gather(first, &mut calls, &items)).await;
            }
        });
        Self(queue)
    }

    /// Waits for a place in the queue, then for the answer.
    pub(super) async fn call(&self, input: I) -> Result<O> {
        let gone = || StoreError::Unavailable("the store has stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        let sent = tokio::time::timeout(duration(PATIENCE), self.0.send(Call { input, reply }));
        let sent = sent.await.map_err(|_| {
            StoreError::Unavailable(format!("PostgreSQL is busy: no turn within {PATIENCE}"))
        })?;
        sent.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

fn gather<I, O>(
    first: Call<I, O>,
    calls: &mut mpsc::Receiver<Call<I, O>>,
    items: &impl Fn(&I) -> usize,
) -> Vec<Call<I, O>> {
    let mut count = items(&first.input);
    let mut group = vec![first];
    while count < GROUP_ITEMS_MAX {
        let Ok(call) = calls.try_recv() else { break };
        count += items(&call.input);
        group.push(call);
    }
    group
}
