//! Replays as jobs: what a person asked to be done to many deliveries, and how far it has got.

use railpost_engine::Timestamp;
use railpost_wire::{DeliveryId, EndpointId, ReplayId, TenantId};
use serde::{Deserialize, Serialize};

use crate::{Cursor, DeliveryFilter};

/// A job that does the same to every delivery that its filter finds. It is written by
/// [`Write::PutReplay`](crate::Write::PutReplay), and its form in a store is stable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its id.
    pub id: ReplayId,
    /// Whose deliveries.
    pub tenant: TenantId,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Who asked for it: an API key's id.
    pub actor: String,
    /// What is done.
    pub action: ReplayAction,
    /// To which deliveries.
    pub filter: DeliveryFilter,
    /// Most deliveries per second; nothing for as fast as it goes.
    pub rate_per_s: Option<u32>,
    /// Whether it only counts what it would do.
    pub dry_run: bool,
    /// Where it stands.
    pub state: ReplayState,
    /// What it has done.
    pub progress: ReplayProgress,
    /// Of one that only counts: the first deliveries in the order in which they would go, up to
    /// [`REPLAY_PREVIEW_MAX`](crate::limits::REPLAY_PREVIEW_MAX).
    #[serde(default)]
    pub preview: Vec<DeliveryId>,
    /// How far it has got in the list of deliveries: after a restart it goes on from there.
    pub cursor: Option<Cursor>,
    /// Why it failed.
    pub problem: Option<String>,
    /// When it ended; nothing while it runs, and only then.
    pub finished_at: Option<Timestamp>,
}

/// What is done to each delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayAction {
    /// A dead letter is sent again, in its place.
    Replay,
    /// A held lane moves on; the dead letter stays where people can see it.
    Skip,
    /// It is closed, and is not sent any more.
    Discard,
    /// Its event is delivered once more, to this endpoint.
    Redeliver {
        /// Which.
        to: EndpointId,
    },
}

/// Where a replay stands. All but the first are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayState {
    /// It has more to do.
    Running,
    /// All matching deliveries were handled.
    Done,
    /// A person stopped it.
    Cancelled,
    /// It failed; `problem` says why.
    Failed,
}

/// How much a replay has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayProgress {
    /// Deliveries that the filter found.
    pub matched: u64,
    /// Deliveries that the action was done to.
    pub done: u64,
    /// Deliveries whose state did not allow the action.
    pub refused: u64,
    /// Deliveries that were looked at to find those.
    #[serde(default)]
    pub looked_at: u64,
    /// How long it has worked, in milliseconds, pauses between two starts left out.
    #[serde(default)]
    pub took_ms: u64,
}

#[cfg(test)]
mod tests {
    use railpost_engine::{DeadReason, DeliveryStage, DiscardReason, Failure};

    use super::*;
    use crate::listing::ListKind;
    use crate::{ClosedReason, Period};

    fn replay() -> Replay {
        Replay {
            id: ReplayId::from_u128(1),
            tenant: "acme".parse().unwrap(),
            created_at: Timestamp::from_millis(5),
            actor: "key_x".to_owned(),
            action: ReplayAction::Redeliver { to: EndpointId::from_u128(2) },
            filter: DeliveryFilter {
                stage: Some(DeliveryStage::Dead),
                endpoint: Some(EndpointId::from_u128(3)),
                event_type: Some("order.paid".parse().unwrap()),
                key: Some("k".parse().unwrap()),
                reason: Some(ClosedReason::Dead(DeadReason::AttemptsExhausted)),
                status: Some(503),
                failure: Some(Failure::Timeout),
                created: Period { from: Some(Timestamp::from_millis(1)), before: None },
            },
            rate_per_s: Some(50),
            dry_run: true,
            state: ReplayState::Failed,
            progress: ReplayProgress { matched: 3, done: 2, refused: 1, looked_at: 20, took_ms: 7 },
            preview: vec![DeliveryId::from_u128(4)],
            cursor: Some(Cursor::at(ListKind::Deliveries, &[7_u8; 16])),
            problem: Some("no such endpoint".to_owned()),
            finished_at: Some(Timestamp::from_millis(9)),
        }
    }

    #[test]
    fn the_stored_form_never_changes() {
        let expected = serde_json::json!({
            "id": "rpl_00000000000000000000000001",
            "tenant": "acme",
            "created_at": 5,
            "actor": "key_x",
            "action": {"redeliver": {"to": "ep_00000000000000000000000002"}},
            "filter": {
                "stage": "dead",
                "endpoint": "ep_00000000000000000000000003",
                "event_type": "order.paid",
                "key": "k",
                "reason": "attempts_exhausted",
                "status": 503,
                "failure": "timeout",
                "created": {"from": 1, "before": null},
            },
            "rate_per_s": 50,
            "dry_run": true,
            "state": "failed",
            "progress": {"matched": 3, "done": 2, "refused": 1, "looked_at": 20, "took_ms": 7},
            "preview": ["dlv_00000000000000000000000004"],
            "cursor": "AgcHBwcHBwcHBwcHBwcHBwc",
            "problem": "no such endpoint",
            "finished_at": 9,
        });
        assert_eq!(serde_json::to_value(replay()).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Replay>(expected).unwrap(), replay());
    }

    #[test]
    fn a_replay_of_an_earlier_version_is_read() {
        let mut stored = serde_json::to_value(replay()).unwrap();
        stored.as_object_mut().unwrap().remove("preview");
        let filter = stored["filter"].as_object_mut().unwrap();
        for added in ["reason", "status", "failure"] {
            filter.remove(added).unwrap();
        }
        stored["progress"] = serde_json::json!({"matched": 3, "done": 2, "refused": 1});
        let read: Replay = serde_json::from_value(stored).unwrap();
        assert_eq!((read.preview, read.progress.looked_at, read.progress.took_ms), (vec![], 0, 0));
        let DeliveryFilter { reason, status, failure, .. } = read.filter;
        assert_eq!((reason, status, failure), (None, None, None));
    }

    #[test]
    fn both_kinds_of_reasons_read_back_by_their_names() {
        let reasons = [
            (ClosedReason::Dead(DeadReason::Expired), "expired"),
            (ClosedReason::Discarded(DiscardReason::EndpointRemoved), "endpoint_removed"),
        ];
        for (reason, name) in reasons {
            assert_eq!(serde_json::to_value(reason).unwrap(), name);
            assert_eq!(serde_json::from_value::<ClosedReason>(name.into()).unwrap(), reason);
        }
        let problem = serde_json::from_value::<ClosedReason>("broken".into()).unwrap_err();
        assert!(problem.to_string().contains("`attempts_exhausted`"), "{problem}");
    }

    #[test]
    fn the_names_of_actions_and_states_never_change() {
        use ReplayAction::*;
        for (action, name) in [(Replay, "replay"), (Skip, "skip"), (Discard, "discard")] {
            assert_eq!(serde_json::to_value(action).unwrap(), name);
        }
        use ReplayState::*;
        for (state, name) in
            [(Running, "running"), (Done, "done"), (Cancelled, "cancelled"), (Failed, "failed")]
        {
            assert_eq!(serde_json::to_value(state).unwrap(), name);
        }
    }
}
