//! Sources as the API shows them.

use async_trait::async_trait;
use railpost_api::{
    FindingVerdict, FindingView, RunningSources, SlotView, SourceMode, SourceState, SourceTrouble,
    SourceView,
};
use railpost_engine::Time;
use railpost_relay::config::{Location, Mode};
use railpost_relay::{Finding, Relay, SlotStatus, SourceConfig, SourceStatus, Trouble, Verdict};
use railpost_store::SourceName;
use railpost_wire::TenantId;

use super::OutboxRelay;
use crate::config::show_url;

#[async_trait]
impl RunningSources for OutboxRelay {
    fn status(&self) -> Vec<SourceView> {
        let status = self.running().as_ref().map(Relay::status).unwrap_or_default();
        status.into_iter().zip(&self.configs).map(|(status, config)| view(status, config)).collect()
    }

    async fn check(&self, source: &SourceName) -> Option<Vec<FindingView>> {
        let config = self.configs.iter().find(|config| config.name == *source)?;
        let findings = railpost_relay::check(config, self.store_address.as_ref()).await;
        Some(findings.into_iter().map(finding).collect())
    }

    fn tenant(&self, source: &SourceName) -> Option<TenantId> {
        self.configs.iter().find(|config| config.name == *source)?.tenant.clone()
    }

    fn wake(&self) {
        if let Some(relay) = self.running().as_ref() {
            relay.wake();
        }
    }
}

fn view(status: SourceStatus, config: &SourceConfig) -> SourceView {
    let (state, trouble) = state(status.state);
    SourceView {
        name: status.name.to_string(),
        mode: Some(match status.mode {
            Mode::Poll => SourceMode::Poll,
            Mode::Tail => SourceMode::Tail,
            Mode::Messages => SourceMode::Messages,
        }),
        url: Some(match &config.location {
            Location::Postgres { url, .. } => show_url(url),
            Location::Store => "store".to_owned(),
            Location::Sqlite(path) => format!("sqlite:{}", path.display()),
        }),
        state,
        trouble,
        relayed: status.relayed,
        duplicates: status.duplicates,
        refused: status.refused,
        parked_rows: status.parked.rows,
        parked_bytes: status.parked.bytes,
        pending: status.pending,
        lag_ms: status.lag.as_millis() as u64,
        last_row_at: status.last_row_at.map(Time::from),
        position: None,
        wakes_by_poll: status.wakes_by_poll,
        wakes_by_notify: status.wakes_by_notify,
        slot: status.slot.map(|SlotStatus { retained_bytes, safe_bytes, lost }| SlotView {
            retained_bytes,
            safe_bytes,
            lost,
        }),
    }
}

fn state(state: railpost_relay::SourceState) -> (SourceState, Option<SourceTrouble>) {
    use railpost_relay::SourceState as Relayed;
    match state {
        Relayed::Starting => (SourceState::Starting, None),
        Relayed::Reading => (SourceState::Reading, None),
        Relayed::Trouble { trouble, since } => {
            let state = match trouble {
                Trouble::Elsewhere(_) => SourceState::Elsewhere,
                _ => SourceState::Trouble,
            };
            let told = SourceTrouble {
                code: trouble.code().to_owned(),
                problem: trouble.to_string(),
                fix: trouble.remedy().map(str::to_owned),
                since: Some(since.into()),
            };
            (state, Some(told))
        }
    }
}

fn finding(finding: Finding) -> FindingView {
    FindingView {
        condition: finding.condition.to_owned(),
        verdict: match finding.verdict {
            Verdict::Good => FindingVerdict::Good,
            Verdict::Warning => FindingVerdict::Warning,
            Verdict::Bad => FindingVerdict::Bad,
        },
        found: finding.found,
        fix: finding.fix,
    }
}
