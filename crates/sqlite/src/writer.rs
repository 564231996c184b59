//! The one thread that writes: all jobs that wait for it go into one transaction.
//!
//! A group that holds an accept, a change or a durable record is flushed to the disk before anyone is
//! answered. A group of plain records is not: it becomes durable with the next group that is.
//!
//! A small group of accepts goes to the accept log ([`super::accept_log`]); others apply that log first.
//!
//! If the disk fails to keep a group, nothing is written any more ([`StopReason`]).

use std::thread::JoinHandle;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::session::{OpenFile, WriteSession};
use super::stop::StopReason;
use crate::limits::{CROWD_ITEMS, CROWD_JOBS, CROWD_NAP, CROWD_NAPS};
use railpost_store::limits::{CALL_TIMEOUT, GROUP_BYTES_MAX, GROUP_ITEMS_MAX, QUEUE_MAX};
use railpost_store::{Durability, Result, StoreError};

/// A handle to the writer's thread. Dropping it ends the thread, after all that waits is written.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
    stop: StopReason,
}

impl Writer {
    /// Writes to the file, until there is a reason to stop.
    pub(super) fn start(file: OpenFile, stop: StopReason) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let (send, received) = std::sync::mpsc::sync_channel(1);
        let write = move || match file.session() {
            Ok(session) => {
                let _ = send.send(Ok(()));
                serve(session, jobs);
            }
            Err(error) => drop(send.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("railpost-sqlite".to_owned()).spawn(write);
        let thread = thread.map_err(|error| {
            StoreError::Unavailable(format!("no thread to write with: {error}"))
        })?;
        received.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), stop })
    }

    /// Hands `work` to the writer and waits until its group is committed.
    ///
    /// The work may be done more than once, in a group and then alone. If it answers with an error that is
    /// not the surroundings' fault, it must not have written anything.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        spec: JobSpec,
        work: impl FnMut(&mut WriteSession<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.stop.check()?;
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Task { spec, work, output: None, reply });
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        if let Err(refused) = queue.try_send(job) {
            wait_for_turn(queue, refused).await?;
        }
        answer.await.map_err(|_| gone())?
    }
}

/// Hands the writer what there was no room for. Apart from the rest, because it is seldom needed and long.
async fn wait_for_turn(
    queue: &mpsc::Sender<Box<dyn Job>>,
    refused: TrySendError<Box<dyn Job>>,
) -> Result<()> {
    let TrySendError::Full(job) = refused else { return Err(gone()) };
    let patience = std::time::Duration::from_millis(CALL_TIMEOUT.as_millis());
    let sent = Box::pin(tokio::time::timeout(patience, queue.send(job))).await;
    let sent = sent.map_err(|_| {
        StoreError::Unavailable(format!("the writer is busy: no turn within {CALL_TIMEOUT}"))
    })?;
    sent.map_err(|_| gone())
}

fn gone() -> StoreError {
    StoreError::Unavailable("the writer has stopped".to_owned())
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        // A writer that panicked has told its callers by not answering.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What a piece of work asks of its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobSpec {
    /// How safe it must be before it is answered.
    pub(super) durability: Durability,
    /// How many events or records it brings.
    pub(super) items: usize,
    /// How many bytes of payloads and responses those have.
    pub(super) bytes: usize,
    /// Whether it accepts events and does nothing else, and may be logged.
    pub(super) loggable: bool,
}

/// Work, its result, and who waits for it.
trait Job: Send {
    fn spec(&self) -> JobSpec;
    /// Does the work. An error means that the group must be given up.
    fn run(&mut self, session: &mut WriteSession<'_>) -> Result<()>;
    /// Answers, once it is known what became of the group.
    fn answer(self: Box<Self>, group: Result<()>);
}

struct Task<T, F> {
    spec: JobSpec,
    work: F,
    output: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut WriteSession<'_>) -> Result<T> + Send> Job for Task<T, F> {
    fn spec(&self) -> JobSpec {
        self.spec
    }

    fn run(&mut self, session: &mut WriteSession<'_>) -> Result<()> {
        let output = (self.work)(session);
        let failed = output.as_ref().err().filter(|error| error.is_environment()).cloned();
        self.output = Some(output);
        failed.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, group: Result<()>) {
        let gone = || Err(StoreError::Unavailable("the work was not done".to_owned()));
        let Task { output, reply, .. } = *self;
        // The caller may have gone away.
        let _ = reply.send(group.and_then(|()| output.unwrap_or_else(gone)));
    }
}

fn serve(mut session: WriteSession<'_>, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
    let mut crowded = false;
    while let Some(first) = jobs.blocking_recv() {
        let mut group = gather(first, &mut jobs, crowded);
        crowded = group.len() >= CROWD_JOBS;
        let result = commit(&mut session, &mut group);
        if result.is_err() && group.len() > 1 && !session.stop.is_set() {
            // One job's trouble is not everyone's.
            for job in group {
                let mut alone = [job];
                let result = commit(&mut session, &mut alone);
                alone.into_iter().for_each(|job| job.answer(result.clone()));
            }
        } else {
            group.into_iter().for_each(|job| job.answer(result.clone()));
        }
    }
    // If this fails, opening the file does it.
    let _ = session.stop.check().and_then(|()| session.apply_log());
}

/// The first job and all that wait, up to the bounds; the last one may pass them. In a crowd more are on
/// their way: the writer naps as long as that brings more, because they join this commit and not the next.
fn gather(
    first: Box<dyn Job>,
    jobs: &mut mpsc::Receiver<Box<dyn Job>>,
    crowded: bool,
) -> Vec<Box<dyn Job>> {
    let JobSpec { mut items, mut bytes, .. } = first.spec();
    let mut group = vec![first];
    let mut naps = if crowded { CROWD_NAPS } else { 0 };
    loop {
        let before = group.len();
        while items < GROUP_ITEMS_MAX
            && bytes < GROUP_BYTES_MAX
            && let Ok(job) = jobs.try_recv()
        {
            items += job.spec().items;
            bytes += job.spec().bytes;
            group.push(job);
        }
        let in_vain = naps < CROWD_NAPS && group.len() == before;
        if naps == 0 || in_vain || items >= CROWD_ITEMS || bytes >= GROUP_BYTES_MAX {
            return group;
        }
        naps -= 1;
        std::thread::sleep(CROWD_NAP);
    }
}

/// All jobs in one transaction.
fn commit(session: &mut WriteSession<'_>, group: &mut [Box<dyn Job>]) -> Result<()> {
    session.stop.check()?;
    if is_logged(session, group) {
        let done = try_commit(session, group, Target::Log);
        if !session.log.take_refusal() {
            return session.stop.check().and(done);
        }
    }
    let durable = group.iter().any(|job| job.spec().durability == Durability::Durable);
    let tables = Target::Tables { durable };
    let mut done = session.apply_log().and_then(|()| try_commit(session, group, tables));
    if done.is_err() && session.looks_up_next() {
        done = try_commit(session, group, tables);
    }
    // What a sync lost is not known: callers that wait learn why the store stopped writing.
    session.stop.check().and(done)
}

/// Where a group is written.
#[derive(Clone, Copy, Debug)]
enum Target {
    Log,
    Tables { durable: bool },
}

/// Whether the group goes to the accept log. A crowd does not: a page of each tree serves many of its events.
fn is_logged(session: &WriteSession<'_>, group: &[Box<dyn Job>]) -> bool {
    let small = group.len() < CROWD_JOBS && group.iter().all(|job| job.spec().loggable);
    small && session.log.has_room()
}

fn try_commit(
    session: &mut WriteSession<'_>,
    group: &mut [Box<dyn Job>],
    target: Target,
) -> Result<()> {
    match target {
        Target::Log => session.begin_logged()?,
        Target::Tables { durable } => session.begin(durable)?,
    }
    let done = group.iter_mut().try_for_each(|job| job.run(session));
    let done = done.and_then(|()| session.end());
    if done.is_err() {
        session.give_up();
    }
    done
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::super::session::testing::open;
    use super::*;
    use crate::limits::LOOKUP_GROUPS;

    fn job(
        items: usize,
        work: impl FnMut(&mut WriteSession<'_>) -> Result<()> + Send + 'static,
    ) -> Box<dyn Job> {
        let spec = JobSpec { durability: Durability::Durable, items, bytes: 0, loggable: false };
        Box::new(Task { spec, work, output: None, reply: oneshot::channel().0 })
    }

    fn job_of_bytes(bytes: usize) -> Box<dyn Job> {
        let spec = JobSpec { durability: Durability::Durable, items: 1, bytes, loggable: false };
        let work = |_: &mut WriteSession<'_>| Ok(());
        Box::new(Task { spec, work, output: None, reply: oneshot::channel().0 })
    }

    /// What an insert of a known event does to a group that did not look for it.
    fn collide_unless_looked_up(session: &mut WriteSession<'_>) -> Result<()> {
        if session.looks_up() {
            return Ok(());
        }
        session.collided = true;
        Err(StoreError::Unavailable("it is there".to_owned()))
    }

    #[test]
    fn a_group_that_meets_a_known_event_is_done_again_and_those_after_it_look_first() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = open(&folder.path().join("store.db"));
        let mut session = file.session().unwrap();
        assert_eq!(commit(&mut session, &mut [job(1, collide_unless_looked_up)]), Ok(()));
        for group in 2..=LOOKUP_GROUPS {
            assert!(session.looks_up(), "group {group}");
            commit(&mut session, &mut [job(1, |_| Ok(()))]).unwrap();
        }
        assert_eq!(commit(&mut session, &mut [job(1, |_| Ok(()))]), Ok(()));
        assert!(!session.looks_up());
    }

    #[test]
    fn a_group_that_fails_for_another_reason_is_tried_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = open(&folder.path().join("store.db"));
        let mut session = file.session().unwrap();
        let (send, received) = std::sync::mpsc::channel();
        let fails = move |_: &mut WriteSession<'_>| {
            send.send(()).unwrap();
            Err(StoreError::Full("the disk".to_owned()))
        };
        let result = commit(&mut session, &mut [job(1, fails)]);
        assert_eq!(result, Err(StoreError::Full("the disk".to_owned())));
        assert_eq!(received.iter().count(), 1);
    }

    #[test]
    fn a_group_is_all_that_waits_up_to_the_bound() {
        for crowded in [false, true] {
            let (queue, mut jobs) = mpsc::channel(10);
            for items in [1, GROUP_ITEMS_MAX - 2, 7] {
                queue.try_send(job(items, |_| Ok(()))).ok().unwrap();
            }
            assert_eq!(gather(job(1, |_| Ok(())), &mut jobs, crowded).len(), 3);
            assert_eq!(gather(jobs.try_recv().ok().unwrap(), &mut jobs, crowded).len(), 1);
        }
    }

    #[test]
    fn a_group_takes_no_more_jobs_once_it_has_its_bytes() {
        for crowded in [false, true] {
            let (queue, mut jobs) = mpsc::channel(10);
            for bytes in [GROUP_BYTES_MAX / 2, GROUP_BYTES_MAX / 2, 1, 1] {
                queue.try_send(job_of_bytes(bytes)).ok().unwrap();
            }
            assert_eq!(gather(job_of_bytes(0), &mut jobs, crowded).len(), 3);
            assert_eq!(gather(job_of_bytes(GROUP_BYTES_MAX), &mut jobs, crowded).len(), 1);
            assert_eq!(gather(job_of_bytes(0), &mut jobs, crowded).len(), 3);
        }
    }
}
