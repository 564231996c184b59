//! Calls that wait for the same connection go together: all calls that wait become one statement.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use railpost_store::limits::{CALL_TIMEOUT, GROUP_BYTES_MAX, GROUP_ITEMS_MAX, QUEUE_MAX};
use railpost_store::{Result, StoreError};

/// A call and who waits for it.
#[derive(Debug)]
pub(super) struct Call<I, O> {
    pub(super) input: I,
    reply: oneshot::Sender<Result<O>>,
}

impl<I, O> Call<I, O> {
    pub(super) fn answer(self, output: Result<O>) {
        // The caller may have gone away.
        let _ = self.reply.send(output);
    }
}

/// How much a call adds to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) items: usize,
    pub(super) bytes: usize,
}

/// The way in for calls of one kind.
#[derive(Debug)]
pub(super) struct Queue<I, O>(mpsc::Sender<Call<I, O>>);

impl<I: Send + 'static, O: Send + 'static> Queue<I, O> {
    /// Starts a task that hands groups of calls to `serve`, one group after the other, until the
    /// queue is dropped.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        weigh: impl Fn(&I) -> Weight + Send + 'static,
        serve: impl Fn(Vec<Call<I, O>>) -> F + Send + 'static,
    ) -> Self {
        let (queue, calls) = mpsc::channel(QUEUE_MAX);
        let mut waiting = Waiting { calls, next: None };
        tokio::spawn(async move {
            while let Some(first) = waiting.first().await {
                serve(waiting.gather(first, &weigh)).await;
            }
        });
        Self(queue)
    }

    /// Waits for a place in the queue, then for the answer.
    pub(super) async fn call(&self, input: I) -> Result<O> {
        let gone = || StoreError::Unavailable("the store has stopped".to_owned());
        let (reply, answer) = oneshot::channel();
        let sent =
            tokio::time::timeout(Duration::from(CALL_TIMEOUT), self.0.send(Call { input, reply }));
        let sent = sent.await.map_err(|_| {
            StoreError::Unavailable(format!("PostgreSQL is busy: no turn within {CALL_TIMEOUT}"))
        })?;
        sent.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// The calls that wait.
struct Waiting<I, O> {
    calls: mpsc::Receiver<Call<I, O>>,
    /// One that did not fit into the last group.
    next: Option<Call<I, O>>,
}

impl<I, O> Waiting<I, O> {
    async fn first(&mut self) -> Option<Call<I, O>> {
        match self.next.take() {
            Some(call) => Some(call),
            None => self.calls.recv().await,
        }
    }

    /// Those that are one group with `first`. One call may be as large as it likes; what comes on top
    /// of it is bounded.
    fn gather(&mut self, first: Call<I, O>, weigh: &impl Fn(&I) -> Weight) -> Vec<Call<I, O>> {
        let (mut items, mut bytes) = (weigh(&first.input).items, 0);
        let mut group = vec![first];
        while items < GROUP_ITEMS_MAX {
            let Ok(call) = self.calls.try_recv() else { break };
            let weight = weigh(&call.input);
            if bytes + weight.bytes > GROUP_BYTES_MAX {
                self.next = Some(call);
                break;
            }
            items += weight.items;
            bytes += weight.bytes;
            group.push(call);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the groups that calls of these weights make.
    fn groups(weights: &[(usize, usize)]) -> Vec<usize> {
        let (queue, calls) = mpsc::channel::<Call<Weight, ()>>(weights.len());
        for (items, bytes) in weights {
            let input = Weight { items: *items, bytes: *bytes };
            let (reply, _) = oneshot::channel();
            queue.try_send(Call { input, reply }).unwrap();
        }
        drop(queue);
        let mut waiting = Waiting { calls, next: None };
        let mut sizes = Vec::new();
        while let Some(Some(first)) = futures_util::FutureExt::now_or_never(waiting.first()) {
            sizes.push(waiting.gather(first, &|weight| *weight).len());
        }
        sizes
    }

    #[test]
    fn a_group_is_bounded_in_calls_items_and_bytes() {
        let mib = 1024 * 1024;
        for (weights, expected) in [
            (vec![(1, 10); 5], vec![5]),
            (vec![(1, 16 * mib); 4], vec![2, 2]),
            (vec![(1, 900 * mib), (1, mib), (1, mib)], vec![3]),
            (vec![(1, mib); 65], vec![17, 17, 17, 14]),
            (vec![(GROUP_ITEMS_MAX, 1); 3], vec![1, 1, 1]),
        ] {
            assert_eq!(groups(&weights), expected, "{weights:?}");
        }
    }
}
