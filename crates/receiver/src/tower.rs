//! For tower: a layer around a handler, and a service that queues.
//!
//! [`ReceiverLayer`] lets a handler see only what it should apply: it verifies, asks an inbox, and
//! remembers the event if the handler answered 2xx. With a SQL inbox it only verifies
//! ([`ReceiverLayer::verifying`]), and the handler asks the inbox in its own transaction.
//!
//! [`IntakeService`] has no handler: it verifies, hands the delivery to a queue, and acknowledges.

use crate::delivery::Delivery;
use crate::inbox::Verdict;
use crate::memory::{MemoryInbox, Ticket};
use crate::request_verifier::{RequestVerifier, body_again, unix_now};
use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use railpost_wire::Received;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tower_layer::Layer;
use tower_service::Service;

/// Any error, as handlers and stores have them.
pub type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An inbox that claims an event before the handler runs, and remembers it after.
pub trait ClaimingInbox: Clone + Send + Sync + 'static {
    /// The right to apply one event. Dropped, it gives the event back.
    type Ticket: Send;

    /// Judges an event, and claims it if it is to be applied.
    fn begin(
        &self,
        received: &Received,
        now: i64,
    ) -> impl Future<Output = Result<(Verdict, Self::Ticket), BoxError>> + Send;

    /// The effect has happened: remember the event.
    fn done(
        &self,
        ticket: Self::Ticket,
        now: i64,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The effect has failed: leave the event to the sender's next attempt.
    fn undo(&self, ticket: Self::Ticket) -> impl Future<Output = Result<(), BoxError>> + Send {
        drop(ticket);
        async { Ok(()) }
    }
}

impl ClaimingInbox for MemoryInbox {
    type Ticket = Ticket;

    async fn begin(&self, received: &Received, now: i64) -> Result<(Verdict, Ticket), BoxError> {
        let ticket = MemoryInbox::begin(self, received, now);
        Ok((ticket.verdict(), ticket))
    }

    async fn done(&self, ticket: Ticket, now: i64) -> Result<(), BoxError> {
        ticket.done(now);
        Ok(())
    }
}

/// No inbox: every authentic event goes to the handler, which asks its own.
#[derive(Debug, Clone, Copy)]
pub struct NoInbox;

impl ClaimingInbox for NoInbox {
    type Ticket = ();

    async fn begin(&self, _: &Received, _: i64) -> Result<(Verdict, ()), BoxError> {
        Ok((Verdict::Fresh, ()))
    }

    async fn done(&self, (): (), _: i64) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Verifies requests and asks an inbox before a handler runs. The handler finds the [`Delivery`] among the
/// request's extensions, and the body as it was.
#[derive(Debug, Clone)]
pub struct ReceiverLayer<I> {
    verifier: RequestVerifier,
    inbox: I,
    counts: bool,
}

impl ReceiverLayer<NoInbox> {
    /// Verifies only.
    pub fn verifying(verifier: RequestVerifier) -> Self {
        Self { verifier, inbox: NoInbox, counts: false }
    }
}

impl<I: ClaimingInbox> ReceiverLayer<I> {
    /// Verifies, deduplicates and keeps in order.
    pub fn new(verifier: RequestVerifier, inbox: I) -> Self {
        Self { verifier, inbox, counts: true }
    }
}

impl<S, I: Clone> Layer<S> for ReceiverLayer<I> {
    type Service = ReceiverService<S, I>;

    fn layer(&self, inner: S) -> Self::Service {
        ReceiverService { inner, layer: self.clone() }
    }
}

/// A handler behind a [`ReceiverLayer`].
#[derive(Debug, Clone)]
pub struct ReceiverService<S, I> {
    inner: S,
    layer: ReceiverLayer<I>,
}

impl<S, I, B, R> Service<Request<B>> for ReceiverService<S, I>
where
    S: Service<Request<B>, Response = Response<R>, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static,
    I: ClaimingInbox,
    B: Body<Data: Buf + Send> + From<Bytes> + Send + 'static,
    R: From<&'static str> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = BoxFuture<Result<Response<R>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready is this one; its clone waits for its turn.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(self.layer.clone().handle(request, inner))
    }
}

impl<I: ClaimingInbox> ReceiverLayer<I> {
    async fn handle<S, B, R>(
        self,
        request: Request<B>,
        mut inner: S,
    ) -> Result<Response<R>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>>,
        B: Body<Data: Buf> + From<Bytes>,
        R: From<&'static str>,
    {
        let (mut head, delivery) = match self.verifier.verify(request).await {
            Ok(admitted) => admitted,
            Err(rejection) => return Ok(rejection.answer().response()),
        };
        let (verdict, ticket) = match self.inbox.begin(&delivery.received, unix_now()).await {
            Ok(begun) => begun,
            Err(error) => return Ok(self.verifier.failed(&*error).response()),
        };
        if !verdict.applies() {
            self.count_if(true, verdict);
            return Ok(verdict.answer().response());
        }
        let body = body_again(&delivery);
        head.extensions.insert(delivery);
        let outcome = inner.call(Request::from_parts(head, body)).await;
        let applied = outcome.as_ref().is_ok_and(|response| response.status().is_success());
        let settled = match applied {
            true => self.inbox.done(ticket, unix_now()).await,
            false => self.inbox.undo(ticket).await,
        };
        match settled {
            Err(error) => Ok(self.verifier.failed(&*error).response()),
            Ok(()) => {
                self.count_if(applied, verdict);
                outcome
            }
        }
    }

    fn count_if(&self, settled: bool, verdict: Verdict) {
        if settled && self.counts {
            self.verifier.counters().count(verdict);
        }
    }
}

/// Takes deliveries in to be processed later. Once it has said so, they are acknowledged: with a SQL
/// queue they are durable by then.
///
/// Any `Fn(Delivery, i64)` with such a future is one; the number is the time in seconds since 1970.
pub trait Intake: Clone + Send + Sync + 'static {
    /// Judges a delivery and queues it if it is to be applied. `None`: the queue is full.
    fn take(
        &self,
        delivery: Delivery,
        now: i64,
    ) -> impl Future<Output = Result<Option<Verdict>, BoxError>> + Send;
}

impl<F, T> Intake for F
where
    F: Fn(Delivery, i64) -> T + Clone + Send + Sync + 'static,
    T: Future<Output = Result<Option<Verdict>, BoxError>> + Send,
{
    fn take(
        &self,
        delivery: Delivery,
        now: i64,
    ) -> impl Future<Output = Result<Option<Verdict>, BoxError>> + Send {
        self(delivery, now)
    }
}

/// A bounded queue in memory, behind an inbox in memory. What it has acknowledged and no worker has
/// processed is lost when the process ends, and the sender will not send it again.
#[derive(Debug, Clone)]
pub struct MemoryQueue {
    inbox: MemoryInbox,
    sender: mpsc::Sender<Delivery>,
}

impl MemoryQueue {
    /// A queue for so many deliveries, and the end that a worker takes them from, in order.
    pub fn new(inbox: MemoryInbox, capacity: usize) -> (Self, mpsc::Receiver<Delivery>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self { inbox, sender }, receiver)
    }
}

impl Intake for MemoryQueue {
    async fn take(&self, delivery: Delivery, now: i64) -> Result<Option<Verdict>, BoxError> {
        let ticket = self.inbox.begin(&delivery.received, now);
        if !ticket.verdict().applies() {
            return Ok(Some(ticket.verdict()));
        }
        match self.sender.try_send(delivery) {
            Ok(()) => Ok(Some(ticket.done(now))),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(None),
            Err(closed @ mpsc::error::TrySendError::Closed(_)) => Err(closed.to_string().into()),
        }
    }
}

/// Verifies requests, hands them to an intake, and answers.
#[derive(Debug, Clone)]
pub struct IntakeService<I> {
    verifier: RequestVerifier,
    intake: I,
}

impl<I: Intake> IntakeService<I> {
    /// Hands verified deliveries to an intake.
    pub fn new(verifier: RequestVerifier, intake: I) -> Self {
        Self { verifier, intake }
    }

    async fn handle<B: Body<Data: Buf>>(self, request: Request<B>) -> Response<Full<Bytes>> {
        let delivery = match self.verifier.verify(request).await {
            Ok((_, delivery)) => delivery,
            Err(rejection) => return rejection.answer().response(),
        };
        let answer = match self.intake.take(delivery, unix_now()).await {
            Ok(Some(verdict)) => {
                self.verifier.counters().count(verdict);
                verdict.answer()
            }
            Ok(None) => {
                self.verifier.counters().count_full();
                crate::Answer::FULL
            }
            Err(error) => self.verifier.failed(&*error),
        };
        answer.response()
    }
}

impl<I: Intake, B> Service<Request<B>> for IntakeService<I>
where
    B: Body<Data: Buf + Send> + Send + 'static,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}
