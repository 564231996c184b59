//! How many deliveries each tenant has open, as far as the writer had to count them.
//!
//! Counting a tenant reads all that it has open. So it is done once, and every group brings the count up to
//! date; a group that is given up takes back its own changes.

use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::errors::Translate;
use super::rows::open_deliveries;
use railpost_store::Result;

/// Open deliveries by `tenants.num`.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    open: FxHashMap<i64, u64>,
    /// What this group changed.
    changes: FxHashMap<i64, i64>,
    /// Whom this group counted, perhaps with changes of its own.
    counted: Vec<i64>,
    /// How often a tenant was counted.
    #[cfg(test)]
    pub(super) counts: u64,
}

impl Backlog {
    /// How many open deliveries a tenant has, if they were counted.
    pub(super) fn get(&self, tenant: i64) -> Option<u64> {
        self.open.get(&tenant).copied()
    }

    /// Counts them. What the group made has to be in the file.
    pub(super) fn count(&mut self, db: &Connection, tenant: i64) -> Result<u64> {
        let sql = concat!(
            "WITH whose AS (SELECT num FROM endpoints WHERE tenant = ?1 AND removed_at IS NULL) \
             SELECT count(*) FROM ",
            open_deliveries!()
        );
        let open: u64 = db
            .prepare_cached(sql)
            .translated()?
            .query_row([tenant], |row| row.get(0))
            .translated()?;
        self.open.insert(tenant, open);
        self.counted.push(tenant);
        #[cfg(test)]
        {
            self.counts += 1;
        }
        Ok(open)
    }

    /// Deliveries of this tenant were opened or closed.
    pub(super) fn change(&mut self, tenant: i64, by: i64) {
        if let Some(open) = self.open.get_mut(&tenant) {
            *open = open.saturating_add_signed(by);
            *self.changes.entry(tenant).or_default() += by;
        }
    }

    pub(super) fn forget(&mut self, tenant: i64) {
        self.open.remove(&tenant);
        self.changes.remove(&tenant);
    }

    /// The group is committed.
    pub(super) fn committed(&mut self) {
        self.changes.clear();
        self.counted.clear();
    }

    /// The group was given up.
    pub(super) fn undo(&mut self) {
        for (tenant, by) in self.changes.drain() {
            if let Some(open) = self.open.get_mut(&tenant) {
                *open = open.saturating_add_signed(-by);
            }
        }
        for tenant in self.counted.drain(..) {
            self.open.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use railpost_engine::Timestamp;
    use railpost_wire::{EndpointId, EventId, TenantId};
    use tempfile::TempDir;

    use super::super::session::WriteSession;
    use super::super::session::testing::{in_a_group, open};
    use railpost_store::{
        AcceptBatch, EndpointPrivate, EndpointSettings, Event, NewEndpoint, TenantSettings, Write,
    };

    const TENANTS: u64 = 50;
    const OPEN: u64 = 12;

    fn tenant(number: u64) -> TenantId {
        format!("tenant-{number}").parse().unwrap()
    }

    /// Events of a tenant, with these numbers.
    fn batch(of: u64, numbers: std::ops::Range<u64>) -> Arc<AcceptBatch> {
        let event = |number: u64| Event {
            id: EventId::generate(number, [0; 10]),
            event_type: "a.b".parse().unwrap(),
            key: None,
            payload: Bytes::new(),
            content_type: "text/plain".parse().unwrap(),
            schema_version: None,
            time: Timestamp::from_millis(number),
            traceparent: None,
            cloudevent: None,
        };
        let events = numbers.map(event).collect();
        Arc::new(AcceptBatch { tenant: tenant(of), events, accepted_by: None, idempotency: None })
    }

    fn create(session: &mut WriteSession<'_>) {
        for number in 0..TENANTS {
            let tenant = tenant(number);
            let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
            session.commit(&create.into()).unwrap();
            let endpoint = NewEndpoint {
                id: EndpointId::from_u128(number.into()),
                tenant,
                settings: EndpointSettings::all_events("https://example.com"),
                private: EndpointPrivate::default(),
            };
            session.commit(&Write::CreateEndpoint(endpoint).into()).unwrap();
        }
    }

    /// That what is remembered is what is stored, for each tenant that was counted.
    fn check(session: &WriteSession<'_>) {
        for (tenant, open) in &session.cache.backlog.open {
            let sql = "SELECT count(*) FROM deliveries AS d JOIN endpoints AS p ON p.num = d.endpoint \
                       WHERE p.tenant = ?1 AND p.removed_at IS NULL AND d.standing <= 3";
            let stored: u64 = session.db.query_row(sql, [tenant], |row| row.get(0)).unwrap();
            assert_eq!(*open, stored, "tenant {tenant}");
        }
    }

    /// A tenant may have millions open, and all of them wait while one is counted. So it is how often they
    /// are counted that counts.
    #[test]
    fn a_group_that_is_given_up_makes_nobody_be_counted_again() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder.path().join("store.db"));
        let mut session = file.session().unwrap();
        in_a_group(&mut session, create);
        let accept_all = |session: &mut WriteSession<'_>, numbers: std::ops::Range<u64>| {
            for of in 0..TENANTS {
                session.accept(&batch(of, numbers.clone())).unwrap();
            }
        };
        in_a_group(&mut session, |session| accept_all(session, 0..OPEN));
        assert_eq!(session.cache.backlog.counts, TENANTS, "each was counted once");

        session.begin(true).unwrap();
        accept_all(&mut session, OPEN..OPEN + 3);
        session.accept(&batch(7, 0..1)).unwrap();
        session.end().unwrap_err();
        session.give_up();
        check(&session);
        assert!(session.looks_up_next(), "one of them was accepted before");
        in_a_group(&mut session, |session| {
            accept_all(session, OPEN..OPEN + 3);
            session.accept(&batch(7, 0..1)).unwrap();
        });
        in_a_group(&mut session, |session| accept_all(session, OPEN + 3..OPEN + 5));
        check(&session);
        assert_eq!(session.cache.backlog.open.len() as u64, TENANTS);
        assert_eq!(session.cache.backlog.counts, TENANTS, "nobody was counted again");
    }

    #[test]
    fn an_endpoint_that_goes_takes_its_own_from_its_tenants_count_alone() {
        let folder = TempDir::new().unwrap();
        let file = open(&folder.path().join("store.db"));
        let mut session = file.session().unwrap();
        in_a_group(&mut session, create);
        in_a_group(&mut session, |session| {
            for of in 0..3 {
                session.accept(&batch(of, 0..OPEN)).unwrap();
            }
        });
        let remove = Write::RemoveEndpoint(EndpointId::from_u128(1));
        session.begin(true).unwrap();
        session.commit(&remove.clone().into()).unwrap();
        session.give_up();
        check(&session);
        in_a_group(&mut session, |session| session.commit(&remove.into()).unwrap());
        check(&session);
        assert_eq!((session.cache.backlog.open.len(), session.cache.backlog.counts), (3, 3));
    }
}
