//! Who may record: partitions of endpoints, and the epochs of their owners.

use std::fmt;

use railpost_wire::EndpointId;

/// One of 256 parts that all endpoints fall into. An owner owns whole partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(pub u8);

impl Partition {
    /// The partition of an endpoint. Stable: the last byte of its id, which is random.
    pub fn of(endpoint: EndpointId) -> Self {
        Self(endpoint.to_bytes()[15])
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of a partition's owner: each one has a higher one than its predecessor. An owner that
/// never took part in a take-over has epoch 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);
