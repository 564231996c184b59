//! What a load generator is asked to publish, and when each event is due.

use serde::{Deserialize, Serialize};

/// How events travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// The payload alone, for a sink or a forwarder.
    Bare,
    /// One event per request.
    Single,
    /// So many events per request, all or none.
    Batch(u32),
    /// So many events per request, a line each.
    Stream(u32),
}

impl Form {
    /// Events of one request.
    pub(crate) fn events(self) -> u32 {
        match self {
            Self::Bare | Self::Single => 1,
            Self::Batch(events) | Self::Stream(events) => events,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Stream(_) => "application/x-ndjson",
            _ => "application/json",
        }
    }

    /// Where events of this form are published, below a tenant.
    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Bare | Self::Single => "events",
            Self::Batch(_) => "events/batch",
            Self::Stream(_) => "events/stream",
        }
    }
}

/// Which keys events have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Keys {
    /// None.
    None,
    /// All the same.
    Hot,
    /// So many, each published by one connection alone, so that its order is known.
    Many(u32),
}

impl Keys {
    /// The key of a producer's event, scattered over the keys that are its own.
    pub(crate) fn pick(self, producer: u32, producers: u32, number: u64) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Hot => Some(0),
            Self::Many(keys) => {
                let own = (keys / producers).max(1);
                Some((scatter(number) % u64::from(own)) as u32 * producers + producer)
            }
        }
    }
}

/// A number that looks like chance and is the same every time: multiplied by an odd constant near
/// 2^64 divided by the golden ratio, upper half.
fn scatter(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

/// One run of load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Host and port.
    pub(crate) address: String,
    /// Where to publish: the tenants' routes in turn.
    pub(crate) paths: Vec<String>,
    pub(crate) token: Option<String>,
    pub(crate) form: Form,
    pub(crate) payload_bytes: usize,
    pub(crate) keys: Keys,
    /// Types of events, each with keys of its own.
    pub(crate) types: u32,
    /// The first type's number: so that two generators need not share one.
    pub(crate) first_type: u32,
    pub(crate) connections: u32,
    /// Events per second by schedule; nothing means as fast as answers come.
    pub(crate) per_s: Option<u64>,
    /// Number of the first event.
    pub(crate) first: u64,
    /// Most events, and the longest time: whichever comes first ends the run.
    pub(crate) events: u64,
    pub(crate) millis: u64,
}

/// When the event at `slot` of a schedule is due, in microseconds after its start. Computed from the
/// slot alone, so that nothing adds up and a late event delays no other.
pub(crate) fn due_us(slot: u64, per_s: u64) -> u64 {
    let micros = u128::from(slot) * 1_000_000 / u128::from(per_s.max(1));
    u64::try_from(micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_schedule_is_absolute() {
        for (slot, per_s, expected) in [
            (0, 200, 0),
            (1, 200, 5_000),
            (200, 200, 1_000_000),
            (1, 2_000, 500),
            (1, 3, 333_333),
            (2, 3, 666_666),
            (3, 3, 1_000_000),
            (3_000_000_000_000, 3, 1_000_000_000_000_000_000),
            (5, 0, 5_000_000),
        ] {
            assert_eq!(due_us(slot, per_s), expected, "slot {slot} at {per_s}/s");
        }
    }

    #[test]
    fn every_key_is_used_and_belongs_to_one_producer() {
        let (keys, producers) = (1_000, 8);
        let mut seen = vec![BTreeSet::new(); producers as usize];
        for number in 0..50_000 {
            let producer = number as u32 % producers;
            let key = Keys::Many(keys).pick(producer, producers, number);
            seen[producer as usize].extend(key);
        }
        let all: BTreeSet<u32> = seen.iter().flatten().copied().collect();
        assert_eq!(all, (0..keys).collect());
        assert_eq!(seen.iter().map(BTreeSet::len).sum::<usize>(), keys as usize);
    }

    #[test]
    fn no_keys_and_one_key_are_what_they_say() {
        assert_eq!(Keys::None.pick(3, 8, 17), None);
        assert_eq!(Keys::Hot.pick(3, 8, 17), Some(0));
        assert_eq!(Keys::Many(1).pick(0, 1, 17), Some(0));
    }
}
