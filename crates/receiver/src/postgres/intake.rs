//! A queue in PostgreSQL behind a tower service.

use super::{Pool, PostgresQueue};
use crate::delivery::Delivery;
use crate::inbox::Verdict;
use crate::tower::{BoxError, Intake};

/// Takes deliveries into a queue, as many at once as its pool has sessions. What it has acknowledged is
/// durable.
#[derive(Debug, Clone)]
pub struct PostgresIntake {
    queue: PostgresQueue,
    pool: Pool,
}

impl PostgresIntake {
    /// An intake of this queue.
    pub fn new(queue: PostgresQueue, pool: Pool) -> Self {
        Self { queue, pool }
    }
}

impl Intake for PostgresIntake {
    async fn take(&self, delivery: Delivery, now: i64) -> Result<Option<Verdict>, BoxError> {
        let mut session = self.pool.get().await?;
        Ok(self.queue.take(&mut session, &delivery, now).await?)
    }
}
