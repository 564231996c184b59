//! How notices reach people.

use async_trait::async_trait;
use railpost_alerts::NoticeStatus;
use railpost_store::{Alert, StoreError};

/// Publishes notices. A notice that is published again, after a crash, is the same event.
#[async_trait]
pub(crate) trait Publish: Send + Sync {
    /// Publishes that an alert fired, or that it was resolved. Durable when it answers.
    async fn publish(&self, alert: &Alert, status: NoticeStatus) -> Result<(), StoreError>;

    /// Sends the same without the store, as well as it can be. What was sent so once is not sent so again.
    async fn send_directly(&self, alert: &Alert, status: NoticeStatus);
}
