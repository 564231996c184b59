//! When to look at what again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{DeliveryKey, EndpointKey, TenantKey};
use crate::Timestamp;

/// What to look at. An alarm may ring for something that has changed meanwhile; its handler
/// checks again, so alarms are never taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// A waiting delivery is due.
    Delivery(DeliveryKey),
    /// An endpoint's hold, breaker or rate limit may let it go on.
    Endpoint(EndpointKey),
    /// A tenant's rate limit may let it go on.
    Tenant(TenantKey),
    /// A load that failed is to be asked for again.
    Load(u64),
    /// Unkeyed deliveries that were set aside come due.
    Unkeyed(EndpointKey),
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Timestamp, Alarm)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Timestamp, alarm: Alarm) {
        self.heap.push(Reverse((at, alarm)));
    }

    /// The next alarm that is due.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Alarm> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, alarm))| alarm)
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
