//! What people can do, as the audit trail names it. What Railpost does by itself is named where it does it
//! ([`AUDIT_SWITCH_OFF`](railpost_store::AUDIT_SWITCH_OFF), [`AUDIT_TENANT_ERASED`],
//! [`AUDIT_MASTER_KEY_ROTATED`]). `docs/security.md` has the table of both.

/// The audit trail's name for the end of erasing a tenant. Stable.
pub const AUDIT_TENANT_ERASED: &str = "tenant.erased";

/// The audit trail's name for the end of a rotation of the master key. Stable.
pub const AUDIT_MASTER_KEY_ROTATED: &str = "master_key.rotated";

/// Names every action once.
macro_rules! actions {
    ($($name:ident = $text:literal,)+) => {
        /// What was done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $(#[doc = $text] $name,)+
        }

        impl Action {
            /// Its name in the trail. Stable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Action::$name => $text,)+
                }
            }

            #[cfg(test)]
            const ALL: &[Action] = &[$(Action::$name,)+];
        }
    };
}

actions! {
    TenantCreate = "tenant.create",
    TenantChange = "tenant.change",
    TenantErase = "tenant.erase",
    EndpointCreate = "endpoint.create",
    EndpointChange = "endpoint.change",
    EndpointRemove = "endpoint.remove",
    EndpointPause = "endpoint.pause",
    EndpointResume = "endpoint.resume",
    EndpointTest = "endpoint.test",
    EndpointProbe = "endpoint.probe",
    SecretCreate = "secret.create",
    SecretRotate = "secret.rotate",
    SecretReveal = "secret.reveal",
    SecretRemove = "secret.remove",
    EventTypePut = "event_type.put",
    EventTypeRemove = "event_type.remove",
    EventRedeliver = "event.redeliver",
    DeliveryReplay = "delivery.replay",
    DeliverySkip = "delivery.skip",
    DeliveryDiscard = "delivery.discard",
    ReplayCreate = "replay.create",
    ReplayCancel = "replay.cancel",
    KeyCreate = "key.create",
    KeyRevoke = "key.revoke",
    KeyReplace = "key.replace",
    SessionSignIn = "session.sign_in",
    SessionSignInFailed = "session.sign_in_failed",
    SessionSignOut = "session.sign_out",
    StoreBackup = "store.backup",
    StorePrune = "store.prune",
    StoreVerify = "store.verify",
    LinesRenew = "lines.renew",
    MasterKeyRotate = "master_key.rotate",
    OutboxRetry = "outbox.retry",
    OutboxSkip = "outbox.skip",
    OutboxDiscard = "outbox.discard",
    OutboxGrant = "outbox.grant",
    OutboxRevoke = "outbox.revoke",
    SilenceCreate = "silence.create",
    SilenceEnd = "silence.end",
    AlertTest = "alert.test",
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::BTreeSet;

    use railpost_store::AUDIT_SWITCH_OFF;

    use super::*;

    #[test]
    fn the_docs_name_every_action_and_no_other() {
        let docs = include_str!("../../../../docs/security.md");
        let (_, table) = docs.split_once("## The audit trail").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap_or((table, ""));
        let row =
            |line: &'static str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name);
        let documented: BTreeSet<&str> = table.lines().filter_map(row).collect();
        let known = Action::ALL.iter().map(|action| action.name());
        let by_itself = [AUDIT_SWITCH_OFF, AUDIT_TENANT_ERASED, AUDIT_MASTER_KEY_ROTATED];
        let known: BTreeSet<&str> = known.chain(by_itself).collect();
        assert_eq!(documented, known);
        assert_eq!(known.len(), Action::ALL.len() + by_itself.len(), "no two are called the same");
    }
}
