//! The rules of alerts as the API shows them, and tests of who is reached.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use railpost_alerts::{AlertSettings, NoticeContext, Rule, TestNotice};
use railpost_api::{RunningAlerts, TestReach};
use railpost_engine::Timestamp;
use railpost_store::StoreError;
use railpost_wire::AlertId;

use crate::notices::Notices;

/// The alerts of a configuration.
pub(crate) struct ConfiguredAlerts {
    settings: AlertSettings,
    context: NoticeContext,
    /// Set at the start: notices need the API's parts, and this is one of them.
    notices: OnceLock<Arc<Notices>>,
}

impl ConfiguredAlerts {
    /// Alerts with these settings, whose notices say this of the server.
    pub(crate) fn new(settings: AlertSettings, context: NoticeContext) -> Self {
        Self { settings, context, notices: OnceLock::new() }
    }

    /// Publishes by these notices from here on.
    pub(crate) fn publish_with(&self, notices: Arc<Notices>) {
        // A server starts once, so nothing was set before.
        let _ = self.notices.set(notices);
    }
}

#[async_trait]
impl RunningAlerts for ConfiguredAlerts {
    fn settings(&self) -> &AlertSettings {
        &self.settings
    }

    fn runbook(&self, rule: Rule) -> Option<String> {
        let base = self.context.runbook_url.trim_end_matches('/');
        (!base.is_empty()).then(|| format!("{base}/{}", rule.runbook()))
    }

    async fn publish_test(
        &self,
        id: AlertId,
        rule: Option<Rule>,
        at: Timestamp,
    ) -> Result<TestReach, StoreError> {
        let starting = || StoreError::Unavailable("the server is starting".to_owned());
        let notices = self.notices.get().ok_or_else(starting)?;
        let test = TestNotice { rule, id, at, settings: &self.settings };
        notices.publish_test(&test).await
    }
}

impl fmt::Debug for ConfiguredAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredAlerts").field("context", &self.context).finish_non_exhaustive()
    }
}
