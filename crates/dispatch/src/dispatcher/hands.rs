//! Hands: tasks that make attempts, one after the other. To make a task costs more than to give one its next
//! work.

use std::sync::Arc;

use railpost_engine::{Attempt, Failure, Timestamp};
use railpost_store::{AttemptDetail, Parcel};
use tokio::sync::{mpsc, oneshot};

use super::attempt::{Job, without_request};
use super::run::{Ended, News};
use crate::TraceParent;
use crate::limits::IDLE_HANDS_MAX;

/// What a hand is given to do: an attempt to make, and how to report its end.
struct Work {
    job: Job,
    report: Report,
}

/// A task that made an attempt and waits for the next one. Dropping this ends it.
pub(super) struct Hand(oneshot::Sender<Box<Work>>);

/// The hands without work.
#[derive(Default)]
pub(super) struct Hands {
    /// Whoever was busy last is on top: what it used is still in the caches.
    idle: Vec<Hand>,
}

impl Hands {
    /// Has the attempt made.
    pub(super) fn give(&mut self, job: Job, report: Report) {
        let work = Box::new(Work { job, report });
        let work = match self.idle.pop() {
            // A task that died gives its work back.
            Some(Hand(hand)) => hand.send(work).err(),
            None => Some(work),
        };
        if let Some(work) = work {
            tokio::spawn(make_attempts(work));
        }
    }

    /// Keeps a hand for later, if there are not enough.
    pub(super) fn keep(&mut self, hand: Option<Hand>) {
        if self.idle.len() < IDLE_HANDS_MAX {
            self.idle.extend(hand);
        }
    }
}

/// Makes one attempt after the other, until nobody has one for this task.
async fn make_attempts(mut work: Box<Work>) {
    loop {
        let detail = work.job.perform().await;
        let (hand, next) = oneshot::channel();
        work.report.end(detail, Some(Hand(hand)));
        drop(work);
        let Ok(given) = next.await else { return };
        work = given;
    }
}

/// Sees to it that an attempt is reported once, even if its task dies.
pub(super) struct Report {
    attempt: Attempt,
    pub(super) parcel: Option<Arc<Parcel>>,
    pub(super) trace: Option<TraceParent>,
    reporter: mpsc::UnboundedSender<News>,
    reported: bool,
}

impl Report {
    pub(super) fn new(attempt: Attempt, reporter: mpsc::UnboundedSender<News>) -> Self {
        Self { attempt, parcel: None, trace: None, reporter, reported: false }
    }

    /// Tells how the attempt ended, and who is free now.
    pub(super) fn end(&mut self, detail: AttemptDetail, hand: Option<Hand>) {
        self.reported = true;
        let (attempt, parcel, trace) = (self.attempt, self.parcel.take(), self.trace);
        let detail = Box::new(detail);
        let ended = Box::new(Ended { attempt, parcel, trace, detail, hand });
        let _ = self.reporter.send(News::Ended(ended));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.reported {
            let died = without_request(&self.attempt, Failure::NotSent, Timestamp::default());
            self.end(died, None);
        }
    }
}
