//! Lists in pages: what a caller asks for, what it gets, and where it goes on.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use railpost_wire::DeliveryId;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::LIST_LIMIT_MAX;
use crate::{Result, StoreError};

/// Which part of a list a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Most items: 1 to [`LIST_LIMIT_MAX`].
    pub limit: u32,
    /// Where the page before ended; nothing for the first page.
    pub after: Option<Cursor>,
}

impl PageRequest {
    /// The first page.
    pub fn first(limit: u32) -> Self {
        Self { limit, after: None }
    }

    /// The page after the one that ended with `cursor`.
    pub fn after(limit: u32, cursor: Cursor) -> Self {
        Self { limit, after: Some(cursor) }
    }

    /// The checked limit.
    pub fn limit(&self) -> Result<usize> {
        if (1..=LIST_LIMIT_MAX).contains(&self.limit) {
            return Ok(self.limit as usize);
        }
        let problem = format!("expected 1 to {LIST_LIMIT_MAX}; got {}", self.limit);
        Err(StoreError::invalid("limit", problem))
    }

    /// The position within the list `kind` after which the page starts.
    pub fn position<P: Position>(&self, kind: ListKind) -> Result<Option<P>> {
        self.after.as_ref().map(|cursor| cursor.position(kind)).transpose()
    }
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Listing<T> {
    /// The items. There may be fewer than asked for, even none, with more to come.
    pub items: Vec<T>,
    /// Where the next page starts; nothing when this was the last.
    pub next: Option<Cursor>,
    /// How many rows were looked at for it: what the page cost.
    pub looked_at: u64,
}

/// What it cost is no part of a page: backends look for the same items in different ways.
impl<T: PartialEq> PartialEq for Listing<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.items, &self.next) == (&other.items, &other.next)
    }
}

impl<T> Listing<T> {
    /// A page out of up to `limit + 1` rows in the list's order: the one too many says that there is
    /// another page.
    pub fn cut<P: Position>(mut rows: Vec<(P, T)>, limit: usize, kind: ListKind) -> Self {
        let (more, looked_at) = (rows.len() > limit, rows.len() as u64);
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|(position, _)| Cursor::at(kind, position));
        Self { items: rows.into_iter().map(|(_, item)| item).collect(), next, looked_at }
    }
}

/// Looks through `rows` in the list's order for the up to `limit` that are wanted, and at no more than
/// `most` of them.
pub fn scan<P: Position, T>(
    rows: impl Iterator<Item = Result<(P, T)>>,
    (limit, most): (usize, usize),
    kind: ListKind,
    wants: impl Fn(&T) -> bool,
) -> Result<Listing<T>> {
    let (mut found, mut looked_at) = (Vec::new(), 0_usize);
    for row in rows {
        let (position, item) = row?;
        looked_at += 1;
        let stopped_at = (looked_at == most).then(|| Cursor::at(kind, &position));
        if wants(&item) {
            found.push((position, item));
        }
        if found.len() > limit {
            break;
        }
        if stopped_at.is_some() {
            let items = found.into_iter().map(|(_, item)| item).collect();
            return Ok(Listing { items, next: stopped_at, looked_at: looked_at as u64 });
        }
    }
    Ok(Listing { looked_at: looked_at as u64, ..Listing::cut(found, limit, kind) })
}

/// A place in a list. Opaque text that is safe in a URL. It stays valid while rows come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

/// Which list a cursor belongs to. Stable: cursors outlive a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Events of a tenant.
    Events = 1,
    /// Deliveries.
    Deliveries = 2,
    /// Attempts of a delivery.
    Attempts = 3,
    /// Held lanes.
    HeldLanes = 4,
    /// Tenants.
    Tenants = 5,
    /// Endpoints.
    Endpoints = 6,
    /// Event types of a tenant.
    EventTypes = 7,
    /// API keys.
    ApiKeys = 8,
    /// Audit entries.
    Audit = 9,
    /// Replays of a tenant.
    Replays = 10,
    /// Parked rows of a source.
    ParkedRows = 11,
    /// Alerts.
    Alerts = 12,
}

impl Cursor {
    /// The place of a delivery in lists of deliveries.
    pub fn at_delivery(id: DeliveryId) -> Self {
        Self::at(ListKind::Deliveries, &id.to_bytes())
    }

    /// The place of a delivery's attempt with this number in the list of its attempts.
    pub fn after_attempt(number: i64) -> Self {
        Self::at(ListKind::Attempts, &number)
    }

    /// The delivery whose place it is, if it is a place in a list of deliveries.
    pub fn delivery(&self) -> Option<DeliveryId> {
        let id: [u8; 16] = self.position(ListKind::Deliveries).ok()?;
        Some(DeliveryId::from_u128(u128::from_be_bytes(id)))
    }

    /// The place of what stands at `position` in the list `kind`.
    pub fn at<P: Position>(kind: ListKind, position: &P) -> Self {
        let mut bytes = vec![kind as u8];
        position.write(&mut bytes);
        Self(bytes)
    }

    /// The position in the list `kind`. Refuses a cursor of another list.
    pub fn position<P: Position>(&self, kind: ListKind) -> Result<P> {
        let refuse = || StoreError::invalid("cursor", "expected a cursor that this list gave out");
        let (first, rest) = self.0.split_first().ok_or_else(refuse)?;
        if *first != kind as u8 {
            return Err(refuse());
        }
        P::read(rest).ok_or_else(refuse)
    }
}

/// What a list is ordered by, as bytes.
pub trait Position: Sized {
    /// Appends it to `bytes`.
    fn write(&self, bytes: &mut Vec<u8>);
    /// Reads it back.
    fn read(bytes: &[u8]) -> Option<Self>;
}

impl Position for i64 {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(i64::from_be_bytes)
    }
}

impl Position for [u8; 16] {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

impl Position for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.as_bytes());
    }

    /// A text that every database can hold.
    fn read(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.contains('\0'))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(&self.0))
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text);
        bytes
            .map(Self)
            .map_err(|_| StoreError::invalid("cursor", "expected a cursor that this list gave out"))
    }
}

/// As its text.
impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_from_its_text() {
        let cursor = Cursor::at(ListKind::Events, &-7_i64);
        assert_eq!(cursor.to_string().parse(), Ok(cursor.clone()));
        assert_eq!(cursor.position::<i64>(ListKind::Events), Ok(-7));
    }

    #[test]
    fn the_place_of_a_delivery_names_it() {
        let id = DeliveryId::from_u128(7);
        assert_eq!(Cursor::at_delivery(id).delivery(), Some(id));
        assert_eq!(Cursor::at(ListKind::Events, &7_i64).delivery(), None);
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let cursor = Cursor::at(ListKind::Deliveries, &[7_u8; 16]);
        assert!(cursor.position::<i64>(ListKind::Events).is_err());
        assert!(cursor.position::<i64>(ListKind::Deliveries).is_err());
        assert!("not base64!".parse::<Cursor>().is_err());
        let nul = Cursor::at(ListKind::Tenants, &"a\0".to_owned());
        assert!(nul.position::<String>(ListKind::Tenants).is_err());
        assert!(Cursor(Vec::new()).position::<i64>(ListKind::Events).is_err());
    }

    #[test]
    fn a_rare_filter_is_looked_for_in_bounded_pages() {
        let rows = |from: i64| (from..).map(|n| Ok((n, n)));
        let wanted = |n: &i64| *n == 30_000;
        let first = scan(rows(0), (2, 20_000), ListKind::Events, wanted).unwrap();
        assert!(first.items.is_empty());
        let position: i64 = first.next.unwrap().position(ListKind::Events).unwrap();
        assert_eq!(position, 19_999);
        assert_eq!(first.looked_at, 20_000);
        let second = scan(rows(position + 1), (2, 20_000), ListKind::Events, wanted).unwrap();
        assert_eq!(second.items, [30_000]);
    }

    #[test]
    fn a_scan_that_ends_on_its_last_row_never_exceeds_the_limit() {
        let last = 19_999;
        let rows = (0..).map(|n: i64| Ok((n, n)));
        let page = scan(rows, (1, 20_000), ListKind::Events, |n| *n == 5 || *n == last).unwrap();
        assert_eq!(page.items, [5]);
        assert_eq!(page.next, Some(Cursor::at(ListKind::Events, &5_i64)));
    }

    #[test]
    fn the_row_beyond_the_limit_says_that_there_is_more() {
        let rows = |count: i64| (0..count).map(|n| (n, n)).collect::<Vec<_>>();
        assert_eq!(Listing::cut(rows(2), 2, ListKind::Events).next, None);
        let page = Listing::cut(rows(3), 2, ListKind::Events);
        assert_eq!(page.items, [0, 1]);
        assert_eq!(page.next, Some(Cursor::at(ListKind::Events, &1_i64)));
    }
}
