//! Driving a connection to its end, within its deadlines.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::activity::{Activity, ClientTimeout};
use crate::limits::CLOSE_TIMEOUT;

/// How the driving of a connection ended.
pub(super) enum ConnectionEnd {
    /// HTTP says that it is over.
    Served(hyper::Result<()>),
    /// The client did not do something in time.
    Expired(ClientTimeout),
}

/// What a connection is to do.
pub(super) enum ConnectionStep<'a, 'b> {
    /// Go on.
    Serve(&'a mut Context<'b>),
    /// Take no more requests; those that are open go on.
    WindDown,
}

/// Drives a connection until HTTP says that it is over, or its client did not do something in time. One that is idle
/// for too long, and each when the server stops, is wound down.
pub(super) async fn drive(
    mut connection: impl FnMut(ConnectionStep<'_, '_>) -> Poll<hyper::Result<()>>,
    activity: &Activity,
    mut stopping: watch::Receiver<bool>,
) -> ConnectionEnd {
    let mut watchdog = Watchdog { activity, closing_since: None };
    let mut stop = pin!(stopping.wait_for(|stop| *stop));
    let mut is_stopping = false;
    let mut timer = pin!(sleep_until(watchdog.next_look()));
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(served) = connection(ConnectionStep::Serve(cx)) {
                return Poll::Ready(ConnectionEnd::Served(served));
            }
            if !is_stopping && stop.as_mut().poll(cx).is_ready() {
                is_stopping = true;
                watchdog.close();
                let _ = connection(ConnectionStep::WindDown);
                continue;
            }
            // A deadline that comes later than the timer is seen when the timer goes off.
            if let Some((at, _)) = watchdog.deadline()
                && at < timer.deadline()
            {
                timer.as_mut().reset(at);
            }
            ready!(timer.as_mut().poll(cx));
            match watchdog.expired() {
                Some(ClientTimeout::Idle) if watchdog.closing_since.is_none() => {
                    watchdog.close();
                    let _ = connection(ConnectionStep::WindDown);
                }
                Some(expiry) => return Poll::Ready(ConnectionEnd::Expired(expiry)),
                None => {}
            }
            timer.as_mut().reset(watchdog.next_look());
        }
    })
    .await
}

/// The deadline of a connection, and how long it may take to close.
struct Watchdog<'a> {
    activity: &'a Activity,
    closing_since: Option<Instant>,
}

impl Watchdog<'_> {
    fn close(&mut self) {
        self.closing_since = Some(Instant::now());
    }

    fn deadline(&self) -> Option<(Instant, ClientTimeout)> {
        match (self.activity.deadline(), self.closing_since) {
            (Some((_, ClientTimeout::Idle)), Some(since)) => {
                Some((since + Duration::from(CLOSE_TIMEOUT), ClientTimeout::Idle))
            }
            (deadline, _) => deadline,
        }
    }

    fn expired(&self) -> Option<ClientTimeout> {
        self.deadline().filter(|(at, _)| *at <= Instant::now()).map(|(_, expiry)| expiry)
    }

    /// While the server is waited for there is no deadline; there may be one before anybody is woken.
    fn next_look(&self) -> Instant {
        let later = || Instant::now() + self.activity.deadlines.idle;
        self.deadline().map_or_else(later, |(at, _)| at)
    }
}
