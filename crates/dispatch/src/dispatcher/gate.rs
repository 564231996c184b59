//! Who goes first when there is more to do than the machine can: what was accepted is sent, and then more is
//! accepted.
//!
//! A batch is accepted in one go and its events are sent one by one, so producers that find a free
//! processor every time would have it nearly to themselves. What they hand in would pile up in memory, be
//! sent seconds later than it could, and take longer to send, since nothing of it is near by then.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::{ACCEPTED_AT_ONCE_MAX, BEHIND_PARCELS_MIN, BEHIND_UNDER_WAY_MIN};

/// Lets few events in at a time while sending is behind.
#[derive(Debug)]
pub(super) struct Gate {
    is_behind: AtomicBool,
    /// One for each event.
    turns: Semaphore,
}

impl Gate {
    pub(super) fn new() -> Self {
        let turns = Semaphore::new(ACCEPTED_AT_ONCE_MAX as usize);
        Self { is_behind: AtomicBool::new(false), turns }
    }

    /// Notes how many attempts are under way, and how many parcels are in memory. If there are many of both,
    /// sending is behind. With few attempts under way it is for a receiver or a lane that parcels wait,
    /// and they get no faster if nothing is accepted.
    pub(super) fn note(&self, under_way: usize, parcels: usize) {
        let is_behind = under_way >= BEHIND_UNDER_WAY_MIN && parcels >= BEHIND_PARCELS_MIN;
        // Most notes say what the one before said, and everyone who accepts looks at it.
        if self.is_behind.load(Ordering::Relaxed) != is_behind {
            self.is_behind.store(is_behind, Ordering::Relaxed);
        }
    }

    /// Waits until so many events may be accepted. They have been when the turn is dropped.
    pub(super) async fn turn(&self, events: usize) -> Option<SemaphorePermit<'_>> {
        if !self.is_behind.load(Ordering::Relaxed) {
            return None;
        }
        // More than are let in at a time come alone.
        let events = u32::try_from(events).unwrap_or(u32::MAX).min(ACCEPTED_AT_ONCE_MAX);
        // Boxed, because it is seldom waited for. Nobody closes the turns.
        Box::pin(self.turns.acquire_many(events)).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use super::*;

    const MAX: usize = ACCEPTED_AT_ONCE_MAX as usize;

    async fn is_pending(future: Pin<&mut impl Future>) -> bool {
        let mut future = future;
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    fn gate(under_way: usize, parcels: usize) -> Gate {
        let gate = Gate::new();
        gate.note(under_way, parcels);
        gate
    }

    #[tokio::test]
    async fn whoever_is_not_behind_lets_everyone_in() {
        for (under_way, parcels) in
            [(BEHIND_UNDER_WAY_MIN - 1, usize::MAX), (usize::MAX, BEHIND_PARCELS_MIN - 1)]
        {
            let gate = gate(under_way, parcels);
            let (first, second) = (gate.turn(MAX).await, gate.turn(MAX).await);
            assert!(first.is_none() && second.is_none());
        }
    }

    #[tokio::test]
    async fn whoever_is_behind_lets_few_in_at_a_time() {
        let gate = gate(BEHIND_UNDER_WAY_MIN, BEHIND_PARCELS_MIN);
        let most = gate.turn(MAX - 1).await;
        let one = gate.turn(1).await;
        let mut next = pin!(gate.turn(1));
        assert!(is_pending(next.as_mut()).await);
        drop(one);
        assert!(most.is_some() && next.await.is_some());
    }

    #[tokio::test]
    async fn more_than_are_let_in_at_a_time_come_alone() {
        let gate = gate(usize::MAX, usize::MAX);
        let many = gate.turn(10 * MAX).await;
        let mut one = pin!(gate.turn(1));
        assert!(is_pending(one.as_mut()).await);
        drop(many);
        assert!(one.await.is_some());
    }

    #[tokio::test]
    async fn whoever_catches_up_lets_everyone_in_again() {
        let gate = gate(usize::MAX, usize::MAX);
        let turn = gate.turn(MAX).await;
        gate.note(0, 0);
        assert!(gate.turn(MAX).await.is_none());
        assert!(turn.is_some());
    }
}
