//! Sending goes before accepting when there is more to do than the machine can.
//!
//! A batch is accepted in one go and its events are sent one by one, so producers that find a free
//! processor every time would have it nearly to themselves. What they hand in would pile up in memory, be
//! sent seconds later than it could, and take longer to send, since nothing of it is near by then.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::{ACCEPTED_AT_ONCE_MAX, BEHIND_PAYLOADS_MIN, BEHIND_UNDER_WAY_MIN};

/// Accepts few events at a time while sending is behind.
#[derive(Debug)]
pub(super) struct AcceptThrottle {
    is_behind: AtomicBool,
    /// One for each event.
    permits: Semaphore,
}

impl AcceptThrottle {
    pub(super) fn new() -> Self {
        let permits = Semaphore::new(ACCEPTED_AT_ONCE_MAX as usize);
        Self { is_behind: AtomicBool::new(false), permits }
    }

    /// Sets whether sending is behind: many attempts are under way, and many payloads are in memory. With few
    /// attempts under way, payloads wait for a receiver or a lane, and throttling would not help them.
    pub(super) fn update(&self, under_way: usize, parcels: usize) {
        let is_behind = under_way >= BEHIND_UNDER_WAY_MIN && parcels >= BEHIND_PAYLOADS_MIN;
        // Most updates change nothing, and every accept reads the flag.
        if self.is_behind.load(Ordering::Relaxed) != is_behind {
            self.is_behind.store(is_behind, Ordering::Relaxed);
        }
    }

    /// Waits until so many events may be accepted. Drop the permit when they have been.
    pub(super) async fn permit(&self, events: usize) -> Option<SemaphorePermit<'_>> {
        if !self.is_behind.load(Ordering::Relaxed) {
            return None;
        }
        // A larger batch is accepted alone.
        let events = u32::try_from(events).unwrap_or(u32::MAX).min(ACCEPTED_AT_ONCE_MAX);
        // Boxed, because it is seldom waited for. The semaphore is never closed.
        Box::pin(self.permits.acquire_many(events)).await.ok()
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

    fn throttle(under_way: usize, parcels: usize) -> AcceptThrottle {
        let throttle = AcceptThrottle::new();
        throttle.update(under_way, parcels);
        throttle
    }

    #[tokio::test]
    async fn without_a_backlog_every_event_is_accepted_at_once() {
        for (under_way, parcels) in
            [(BEHIND_UNDER_WAY_MIN - 1, usize::MAX), (usize::MAX, BEHIND_PAYLOADS_MIN - 1)]
        {
            let throttle = throttle(under_way, parcels);
            let (first, second) = (throttle.permit(MAX).await, throttle.permit(MAX).await);
            assert!(first.is_none() && second.is_none());
        }
    }

    #[tokio::test]
    async fn with_a_backlog_few_events_are_accepted_at_a_time() {
        let throttle = throttle(BEHIND_UNDER_WAY_MIN, BEHIND_PAYLOADS_MIN);
        let most = throttle.permit(MAX - 1).await;
        let one = throttle.permit(1).await;
        let mut next = pin!(throttle.permit(1));
        assert!(is_pending(next.as_mut()).await);
        drop(one);
        assert!(most.is_some() && next.await.is_some());
    }

    #[tokio::test]
    async fn a_batch_above_the_limit_is_accepted_alone() {
        let throttle = throttle(usize::MAX, usize::MAX);
        let many = throttle.permit(10 * MAX).await;
        let mut one = pin!(throttle.permit(1));
        assert!(is_pending(one.as_mut()).await);
        drop(many);
        assert!(one.await.is_some());
    }

    #[tokio::test]
    async fn once_sending_has_caught_up_every_event_is_accepted_at_once() {
        let throttle = throttle(usize::MAX, usize::MAX);
        let permit = throttle.permit(MAX).await;
        throttle.update(0, 0);
        assert!(throttle.permit(MAX).await.is_none());
        assert!(permit.is_some());
    }
}
