//! What happens at sources, as log lines and metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use railpost_relay::{Observation, SourceObserver, Trouble};
use railpost_store::{RowRefusal, SourceFields, SourceName};
use railpost_telemetry::{Level, LogThrottle, Telemetry, Value};

use crate::limits::LOGGED_FIELD_LEN_MAX;

/// Logs and counts what happens at sources.
pub(super) struct SourceLog {
    telemetry: Arc<Telemetry>,
    sources: BTreeMap<SourceName, Mutex<SourceLogState>>,
}

/// What of a source was logged.
#[derive(Default)]
struct SourceLogState {
    trouble: Option<Trouble>,
    trouble_throttle: LogThrottle,
    refusal_throttle: LogThrottle,
}

impl SourceLog {
    pub(super) fn new<'n>(
        telemetry: Arc<Telemetry>,
        names: impl Iterator<Item = &'n SourceName>,
    ) -> Self {
        let sources = names.map(|name| (name.clone(), Mutex::default())).collect();
        Self { telemetry, sources }
    }

    fn line(&self, level: Level, event: &str, source: &SourceName, more: &[(&str, Value<'_>)]) {
        let mut fields = vec![("source", Value::Text(source.as_str()))];
        fields.extend_from_slice(more);
        self.telemetry.log.line(level, event, &fields);
    }

    /// A line for each new trouble, and one in a while as long as it lasts.
    fn trouble(&self, source: &SourceName, trouble: &Trouble, retry_after: Duration) {
        let Some(times) = self.state(source, |state| {
            let is_new = state.trouble.as_ref() != Some(trouble);
            if is_new {
                (state.trouble, state.trouble_throttle) =
                    (Some(trouble.clone()), LogThrottle::default());
            }
            state.trouble_throttle.now()
        }) else {
            return;
        };
        // That another server reads a source is as it should be.
        let level = match trouble {
            Trouble::Elsewhere(_) => Level::Info,
            _ => Level::Error,
        };
        let mut fields = vec![
            ("code", Value::Text(trouble.code())),
            ("problem", Value::Shown(trouble)),
            ("retry_ms", Value::Number(retry_after.as_millis() as u64)),
            ("times", Value::Number(times)),
        ];
        fields.extend(trouble.remedy().map(|remedy| ("fix", Value::Text(remedy))));
        self.line(level, "outbox_trouble", source, &fields);
    }

    /// The reason of a refusal may quote the payload: it is for those who may look at parked rows.
    fn refused(
        &self,
        source: &SourceName,
        fields: &SourceFields,
        refusal: &RowRefusal,
        dropped: bool,
    ) {
        let Some(times) = self.state(source, |state| state.refusal_throttle.now()) else { return };
        let mut line = vec![
            ("code", Value::Text(&refusal.code)),
            ("dropped", Value::Truth(dropped)),
            ("times", Value::Number(times)),
        ];
        let named = [
            ("tenant", &fields.tenant),
            ("event_id", &fields.id),
            ("event_type", &fields.event_type),
        ];
        let of_row =
            named.iter().filter_map(|(name, text)| Some((*name, beginning(text.as_deref()?))));
        line.extend(of_row.map(|(name, text)| (name, Value::Text(text))));
        self.line(Level::Warn, "outbox_refused", source, &line);
    }

    fn state<T>(
        &self,
        source: &SourceName,
        look: impl FnOnce(&mut SourceLogState) -> Option<T>,
    ) -> Option<T> {
        let state = self.sources.get(source)?;
        look(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A row that is refused may have texts of any length.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(LOGGED_FIELD_LEN_MAX)]
}

impl SourceObserver for SourceLog {
    fn observe(&self, source: &SourceName, observation: &Observation<'_>) {
        match *observation {
            Observation::Reading => {
                self.state(source, |state| state.trouble.take());
                self.line(Level::Info, "outbox_reading", source, &[]);
            }
            Observation::Trouble { trouble, retry_after } => {
                self.trouble(source, trouble, retry_after);
            }
            Observation::Alarm(problem) => {
                let fields = [("problem", Value::Text(problem))];
                self.line(Level::Error, "outbox_alarm", source, &fields);
            }
            Observation::Batch { accepted, duplicates, parked, took } => {
                self.telemetry.metrics.outbox.batch(source, took);
                if self.telemetry.log.takes(Level::Debug) {
                    let fields = [
                        ("accepted", Value::Number(accepted)),
                        ("duplicates", Value::Number(duplicates)),
                        ("parked", Value::Number(parked)),
                        ("latency_ms", Value::Millis(took.as_micros() as u64)),
                    ];
                    self.line(Level::Debug, "outbox_batch", source, &fields);
                }
            }
            Observation::Refused { fields, refusal, dropped } => {
                self.refused(source, fields, refusal, dropped);
            }
            Observation::Released(rows) => {
                self.line(Level::Info, "outbox_released", source, &[("rows", Value::Number(rows))]);
            }
        }
    }
}
