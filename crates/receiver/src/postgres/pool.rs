//! A bounded number of sessions for any number of requests.

use super::Session;
use crate::limits::POOL_WAIT_MAX;
use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_postgres::Client;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Client, BoxError>> + Send>>;

/// At most so many sessions. They are opened when they are needed, and kept. Clones share them.
///
/// ```no_run
/// # use railpost_receiver::postgres::Pool;
/// let pool = Pool::new(16, || async {
///     let url = "postgres://shop@127.0.0.1/shop";
///     let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
///     tokio::spawn(connection);
///     Ok(client)
/// });
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
}

/// A session on loan. Dropped, it goes back.
#[derive(Debug)]
pub struct Pooled {
    session: Option<Session>,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

/// Why there is no session.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// All were busy, or the server did not answer, for as long as a request may wait.
    Busy,
    /// A new one could not be opened.
    Connect(BoxError),
}

impl Pool {
    /// At most `size` sessions, and at least one, on connections that `connect` makes.
    pub fn new<F, T>(size: u16, connect: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Client, BoxError>> + Send + 'static,
    {
        Self(Arc::new(Shared {
            connect: Box::new(move || Box::pin(connect())),
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(usize::from(size.max(1)))),
        }))
    }

    /// A session, as soon as one is free. Callers are served in the order in which they came.
    pub async fn get(&self) -> Result<Pooled, PoolError> {
        timeout(POOL_WAIT_MAX, self.lend()).await.map_err(|_| PoolError::Busy)?
    }

    async fn lend(&self) -> Result<Pooled, PoolError> {
        let permit = self.0.permits.clone().acquire_owned().await.expect("a pool does not close");
        let session = match self.idle() {
            Some(session) => session,
            None => Session::new((self.0.connect)().await.map_err(PoolError::Connect)?),
        };
        Ok(Pooled { session: Some(session), pool: self.clone(), _permit: permit })
    }

    /// One that waits and whose connection has not ended.
    fn idle(&self) -> Option<Session> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|session| !session.is_closed())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.0.permits.available_permits();
        f.debug_struct("Pool").field("free", &free).finish_non_exhaustive()
    }
}

impl Deref for Pooled {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("it goes back when this is dropped")
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("it goes back when this is dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut idle = self.pool.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.extend(self.session.take());
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => write!(f, "no connection was to be had within {POOL_WAIT_MAX:?}"),
            Self::Connect(error) => write!(f, "no connection could be opened: {error}"),
        }
    }
}

impl Error for PoolError {}
