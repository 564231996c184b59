//! The engine's tables and the keys into them. A key of something removed finds nothing, ever: that
//! is what makes late answers harmless.

use std::fmt;
use std::marker::PhantomData;

use slotmap::{DefaultKey, SlotMap};

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(DefaultKey);

        impl From<DefaultKey> for $name {
            fn from(key: DefaultKey) -> Self {
                Self(key)
            }
        }

        impl From<$name> for DefaultKey {
            fn from(key: $name) -> Self {
                key.0
            }
        }
    )*};
}

keys!(
    /// A delivery in memory.
    DeliveryKey,
    /// An endpoint that this engine serves.
    EndpointKey,
    /// A tenant with such an endpoint.
    TenantKey
);

/// A slot map that takes its own kind of key only.
pub(super) struct Table<K, V> {
    slots: SlotMap<DefaultKey, V>,
    keys: PhantomData<K>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { slots: SlotMap::new(), keys: PhantomData }
    }
}

impl<K: Into<DefaultKey> + From<DefaultKey>, V> Table<K, V> {
    pub(super) fn insert(&mut self, value: V) -> K {
        self.slots.insert(value).into()
    }

    pub(super) fn get(&self, key: K) -> Option<&V> {
        self.slots.get(key.into())
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.slots.get_mut(key.into())
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        self.slots.remove(key.into())
    }

    /// All of them, in the order of their slots.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.values()
    }

    /// The same with their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.slots.iter().map(|(key, value)| (key.into(), value))
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

/// For keys that came from this engine's own bookkeeping and must be there.
impl<K: Into<DefaultKey> + From<DefaultKey>, V> std::ops::Index<K> for Table<K, V> {
    type Output = V;

    fn index(&self, key: K) -> &V {
        &self.slots[key.into()]
    }
}

impl<K: Into<DefaultKey> + From<DefaultKey>, V> std::ops::IndexMut<K> for Table<K, V> {
    fn index_mut(&mut self, key: K) -> &mut V {
        &mut self.slots[key.into()]
    }
}

impl<K, V: fmt::Debug> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.values()).finish()
    }
}
