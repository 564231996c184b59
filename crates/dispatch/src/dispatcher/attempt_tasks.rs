//! The attempts under way: one task each, and the handle that aborts it.

use railpost_engine::{AttemptToken, Failure, Timestamp};
use railpost_store::AttemptDetail;
use railpost_wire::EndpointId;
use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;

use super::attempt::{AttemptJob, without_request};
use super::messages::{AttemptReport, TaskReport};

/// The tasks that make attempts, by token.
#[derive(Default)]
pub(super) struct AttemptTasks {
    running: FxHashMap<AttemptToken, RunningAttempt>,
}

struct RunningAttempt {
    endpoint: EndpointId,
    task: AbortHandle,
}

impl AttemptTasks {
    /// Makes an attempt in a task of its own, which reports its end once, even if it is aborted or panics.
    pub(super) fn spawn(&mut self, job: AttemptJob) {
        let (token, endpoint) = (job.attempt.token, job.attempt.endpoint);
        let task = tokio::spawn(make_attempt(job)).abort_handle();
        self.running.insert(token, RunningAttempt { endpoint, task });
    }

    /// Forgets a task that has reported its end.
    pub(super) fn remove(&mut self, token: AttemptToken) {
        self.running.remove(&token);
    }

    /// Aborts all attempts of an endpoint. Their connections are closed.
    pub(super) fn abort_endpoint(&self, endpoint: EndpointId) {
        let running = self.running.values().filter(|running| running.endpoint == endpoint);
        running.for_each(|running| running.task.abort());
    }

    /// Aborts all attempts.
    pub(super) fn abort_all(&self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

async fn make_attempt(job: AttemptJob) {
    let mut reported = ReportOnDrop { job, is_reported: false };
    let detail = reported.job.perform().await;
    reported.report(detail);
}

/// Reports the end of an attempt whose task is dropped before it could.
struct ReportOnDrop {
    job: AttemptJob,
    is_reported: bool,
}

impl ReportOnDrop {
    fn report(&mut self, detail: AttemptDetail) {
        self.is_reported = true;
        let AttemptJob { attempt, parcel, trace, context, .. } = &self.job;
        let (attempt, parcel, trace) = (*attempt, Some(parcel.clone()), *trace);
        let report = AttemptReport { attempt, parcel, trace, detail: Box::new(detail) };
        let _ = context.reports.send(TaskReport::AttemptEnded(Box::new(report)));
    }
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        if !self.is_reported {
            // The failure that is never held against an endpoint.
            let why = (Failure::NotSent, String::new());
            self.report(without_request(&self.job.attempt, why, Timestamp::default()));
        }
    }
}
