//! Audit entries for signing in and out. Failures share entries, so that guessing keys does not fill the trail.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use railpost_api::{Action, App, AuditAction, Caller, Problem, note};
use railpost_engine::Timestamp;
use railpost_store::ApiKey;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::Dashboard;
use crate::limits::{SIGN_IN_ADDRESSES_MAX, SIGN_IN_FAILURE_ENTRIES_MAX, SIGN_IN_WINDOW};

/// Writes the entry of a sign-in with a key or a link.
pub(super) async fn signed_in(
    app: &Arc<App>,
    key: &Arc<ApiKey>,
    by_link: bool,
    address: IpAddr,
) -> Result<(), Problem> {
    let by = if by_link { "link" } else { "key" };
    let detail = json!({ "address": address, "by": by, "name": key.name });
    tell(app, key, Action::SessionSignIn, address, detail).await
}

pub(super) async fn signed_out(
    app: &Arc<App>,
    key: &Arc<ApiKey>,
    address: IpAddr,
) -> Result<(), Problem> {
    let detail = json!({ "address": address, "name": key.name });
    tell(app, key, Action::SessionSignOut, address, detail).await
}

async fn tell(
    app: &Arc<App>,
    key: &Arc<ApiKey>,
    action: Action,
    address: IpAddr,
    detail: Value,
) -> Result<(), Problem> {
    let (tenant, target) = (key.tenant.clone(), key.id.to_string());
    let caller = Caller { key: Some(key.clone()), address: Some(address) };
    note(app, caller, AuditAction { action, tenant, target, detail }).await
}

/// Counts a failed sign-in, and writes an entry if one is due.
pub(super) async fn failed(context: &Dashboard, address: IpAddr) {
    let app = &context.app;
    let report = context.sessions.failed_sign_ins.count(address, app.source.now());
    let Some(FailureReport { failures, elsewhere }) = report else { return };
    let mut detail = json!({ "address": address, "failures": failures });
    if elsewhere > 0 {
        detail["failures_elsewhere"] = elsewhere.into();
    }
    let (action, target) = (Action::SessionSignInFailed, address.to_string());
    let entry = AuditAction { action, tenant: None, target, detail };
    // They are refused all the same if it cannot be written.
    let _ = note(app, Caller { key: None, address: Some(address) }, entry).await;
}

/// Failures to sign in that no entry tells of yet.
#[derive(Debug, Default)]
pub(super) struct FailedSignIns(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_address: FxHashMap<IpAddr, AddressFailures>,
    /// Those of addresses that are not in the map any more.
    elsewhere: u64,
    /// When the first entry of this window was written, and how many were since.
    window_since: Timestamp,
    entries: u32,
    swept_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    since: Timestamp,
    count: u64,
    untold: u64,
}

/// What an entry tells.
#[derive(Debug, PartialEq, Eq)]
struct FailureReport {
    /// Failures of its address since its last entry.
    failures: u64,
    /// Failures of other addresses that got no entry.
    elsewhere: u64,
}

impl FailedSignIns {
    /// Counts a failure. An address gets an entry for the first failure in a while, and for the tenth,
    /// the hundredth and so on, if there is room for one.
    fn count(&self, address: IpAddr, now: Timestamp) -> Option<FailureReport> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.forget_old(now);
        counts.begin_again(address, now);
        let of_address = counts.of_address(address, now);
        of_address.count += 1;
        of_address.untold += 1;
        if !is_power_of_ten(of_address.count) || !counts.has_room(now) {
            return None;
        }
        counts.entries += 1;
        let failures = std::mem::take(&mut counts.of_address(address, now).untold);
        Some(FailureReport { failures, elsewhere: std::mem::take(&mut counts.elsewhere) })
    }
}

impl Counts {
    fn of_address(&mut self, address: IpAddr, now: Timestamp) -> &mut AddressFailures {
        self.by_address.entry(address).or_insert(AddressFailures {
            since: now,
            count: 0,
            untold: 0,
        })
    }

    /// Whether another entry may be written in this window.
    fn has_room(&mut self, now: Timestamp) -> bool {
        if now.since(self.window_since) >= SIGN_IN_WINDOW {
            (self.window_since, self.entries) = (now, 0);
        }
        self.entries < SIGN_IN_FAILURE_ENTRIES_MAX
    }

    /// An address that failed long ago counts from 1.
    fn begin_again(&mut self, address: IpAddr, now: Timestamp) {
        let of_address = self.of_address(address, now);
        if now.since(of_address.since) >= SIGN_IN_WINDOW {
            (of_address.since, of_address.count) = (now, 0);
        }
    }

    /// Counts what is left of addresses that failed long ago as failures from elsewhere; of all of them, if
    /// there are too many. Once in a window, or when there are too many.
    fn forget_old(&mut self, now: Timestamp) {
        let too_many = self.by_address.len() >= SIGN_IN_ADDRESSES_MAX;
        if !too_many && now.since(self.swept_at) < SIGN_IN_WINDOW {
            return;
        }
        self.swept_at = now;
        let elsewhere = &mut self.elsewhere;
        self.by_address.retain(|_, failed| {
            let stays = !too_many && now.since(failed.since) < SIGN_IN_WINDOW;
            *elsewhere += if stays { 0 } else { failed.untold };
            stays
        });
    }
}

fn is_power_of_ten(count: u64) -> bool {
    count > 0 && 10_u64.pow(count.ilog10()) == count
}

#[cfg(test)]
mod tests {
    use super::*;
    use railpost_engine::Span;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn one_address_gets_few_entries_that_tell_of_every_failure() {
        let failed = FailedSignIns::default();
        let report: Vec<FailureReport> =
            (0..1_000).filter_map(|_| failed.count(address(1), NOW)).collect();
        let failures: Vec<u64> = report.iter().map(|report| report.failures).collect();
        assert_eq!(failures, [1, 9, 90, 900]);
    }

    #[test]
    fn many_addresses_get_few_entries_and_the_next_window_tells_of_the_rest() {
        let failed = FailedSignIns::default();
        let many = SIGN_IN_ADDRESSES_MAX as u32 * 2;
        let report = (0..many).filter_map(|number| failed.count(address(number), NOW)).count();
        assert_eq!(report as u32, SIGN_IN_FAILURE_ENTRIES_MAX);
        assert!(failed.0.lock().unwrap().by_address.len() <= SIGN_IN_ADDRESSES_MAX);
        let later = NOW + SIGN_IN_WINDOW;
        let elsewhere = u64::from(many - SIGN_IN_FAILURE_ENTRIES_MAX);
        assert_eq!(failed.count(address(1), later), Some(FailureReport { failures: 1, elsewhere }));
    }

    #[test]
    fn an_address_that_failed_long_ago_begins_again() {
        let failed = FailedSignIns::default();
        for minutes in [0, 60, 120] {
            let now = NOW + Span::from_mins(minutes);
            assert_eq!(
                failed.count(address(1), now),
                Some(FailureReport { failures: 1, elsewhere: 0 })
            );
            assert_eq!(
                failed.count(address(2), now),
                Some(FailureReport { failures: 1, elsewhere: 0 })
            );
        }
    }
}
