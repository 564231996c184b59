//! Hands: tasks that make attempts, one after the other. To make a task costs more than to give one its next
//! work.

use railpost_engine::{Failure, Timestamp};
use railpost_store::AttemptDetail;
use tokio::sync::oneshot;

use super::attempt::{Job, without_request};
use super::run::{Ended, News};
use crate::limits::IDLE_HANDS_MAX;

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
    pub(super) fn give(&mut self, job: Job) {
        let work = Box::new(Work { job, reported: false });
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
        work.end(detail, Some(Hand(hand)));
        drop(work);
        let Ok(given) = next.await else { return };
        work = given;
    }
}

/// What a hand is given to do. Its end is reported once, even if its task dies.
struct Work {
    job: Job,
    reported: bool,
}

impl Work {
    /// Tells how the attempt ended, and who is free now.
    fn end(&mut self, detail: AttemptDetail, hand: Option<Hand>) {
        self.reported = true;
        let Job { attempt, parcel, trace, tools, .. } = &self.job;
        let (attempt, parcel, trace) = (*attempt, Some(parcel.clone()), *trace);
        let ended = Ended { attempt, parcel, trace, detail: Box::new(detail), hand };
        let _ = tools.reporter.send(News::Ended(Box::new(ended)));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.reported {
            let attempt = &self.job.attempt;
            self.end(
                without_request(attempt, (Failure::NotSent, String::new()), Timestamp::default()),
                None,
            );
        }
    }
}
