//! Work that continues when its client disconnects.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The work panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkPanicked;

/// Work that changes things, which goes on when its client goes away: what is committed must reach the
/// dispatcher too. Most clients stay, so it is done in the client's own task; when that is dropped, the
/// rest of the work gets a task of its own.
pub struct DespiteDisconnect<T: Send + 'static>(Option<Work<T>>);

/// Work that goes on when its client goes away.
pub fn run_despite_disconnect<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> DespiteDisconnect<T> {
    DespiteDisconnect(Some(Box::pin(work)))
}

impl<T: Send + 'static> Future for DespiteDisconnect<T> {
    type Output = Result<T, WorkPanicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(mut work) = self.0.take() else { return Poll::Ready(Err(WorkPanicked)) };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Ok(Poll::Pending) => {
                self.0 = Some(work);
                Poll::Pending
            }
            Err(_) => Poll::Ready(Err(WorkPanicked)),
        }
    }
}

impl<T: Send + 'static> Drop for DespiteDisconnect<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_is_done_all_the_same() {
        let ((go, may_go), (tell, told)) = (oneshot::channel(), oneshot::channel());
        let mut work = run_despite_disconnect(async move {
            may_go.await.unwrap();
            tell.send("done").unwrap();
        });
        assert!(futures_util::FutureExt::now_or_never(&mut work).is_none());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(told.await, Ok("done"));
    }

    #[tokio::test]
    async fn work_that_somebody_waits_for_gives_its_result() {
        assert_eq!(run_despite_disconnect(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn work_that_panics_is_a_defect_and_not_the_end_of_its_client() {
        let work = async { panic!("as planned") };
        assert_eq!(run_despite_disconnect::<()>(work).await, Err(WorkPanicked));
    }
}
