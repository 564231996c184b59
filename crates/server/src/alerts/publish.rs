//! How notices reach people.

use async_trait::async_trait;
use railpost_alerts::NoticeStatus;
use railpost_store::{Alert, StoreError};
use railpost_telemetry::{Level, Log, Value};

/// Publishes notices. A notice that is published again, after a crash, is the same event.
#[async_trait]
pub(crate) trait Publish: Send + Sync {
    /// Publishes that an alert fired, or that it was resolved. Durable when it answers.
    async fn publish(&self, alert: &Alert, status: NoticeStatus) -> Result<(), StoreError>;
}

/// Notices as log lines.
pub(crate) struct LoggedNotices(pub(crate) Log);

#[async_trait]
impl Publish for LoggedNotices {
    async fn publish(&self, alert: &Alert, status: NoticeStatus) -> Result<(), StoreError> {
        let fields =
            [("alert", Value::Display(&alert.id)), ("status", Value::Text(status.as_str()))];
        self.0.line(Level::Debug, "notice", &fields);
        Ok(())
    }
}
