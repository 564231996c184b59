//! One server has a store at a time.
//!
//! A session of its own holds an advisory lock of the database, which the database releases as soon as that
//! session ends: when the process stops or crashes, or its machine vanishes. The holder of the lock writes a
//! random number of its own into `store.holder`, and everything that writes names that number: what is
//! still on its way from a server that has lost the lock is refused by the database itself.
//!
//! When the session is lost (the database was restarted, or failed over) the lock is taken again in the
//! background, and nothing is written before. If another server had it meanwhile, it is lost for good: what
//! this process has in memory is old.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::errors::Translate;
use super::link::{Address, Purpose, ServerIdentity};
use crate::limits::{CONNECT_TIMEOUT, LOCK_TIMEOUT, RECONNECT_AFTER};
use railpost_store::backend::codes::millis;
use railpost_store::limits::CALL_TIMEOUT;
use railpost_store::{Result, Setup, StoreError};

/// Whether this process may write.
#[derive(Clone, Debug)]
pub(super) enum LockState {
    /// It may, on this server.
    Held(ServerIdentity),
    /// The session was lost this moment.
    Retaking,
    /// Taking the lock again failed. It is tried again, unless another server had it.
    Lost(StoreError),
}

/// The lock on a session, before anything is known of the store's tables.
#[derive(Debug)]
pub(super) struct TakenLock {
    pub(super) client: Client,
    connection: JoinHandle<()>,
    pub(super) server: ServerIdentity,
}

impl TakenLock {
    /// Takes the lock. If another server has it, the error names that one.
    pub(super) async fn take(address: &Address) -> Result<Self> {
        let (mut client, connection) = address.connect(Purpose::LongWork).await?;
        let taking = async {
            let server = ServerIdentity::of(&client).await?;
            lock(&mut client).await?;
            Ok(server)
        };
        let bound = Duration::from(CONNECT_TIMEOUT) + Duration::from(LOCK_TIMEOUT);
        let taken = timeout(bound, taking).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("no answer while taking the store's lock".to_owned()))
        });
        Ok(Self { server: taken?, client, connection })
    }

    /// Makes `mine` the number of the store's holder, and the current era that of its server. Answers
    /// which number was there before.
    async fn become_holder(
        &mut self,
        mine: i64,
        only_after: Option<&[i64]>,
        now: i64,
    ) -> Result<i64> {
        let ServerIdentity { system, timeline } = self.server;
        let change = self.client.transaction().await.translated()?;
        let sql = "SELECT railpost_take_over($1, $2)";
        let before = change.query_one(sql, &[&mine, &only_after]).await.translated()?.get(0);
        let sql = "SELECT railpost_enter($1, $2, $3, $4)";
        change.execute(sql, &[&mine, &system, &timeline, &now]).await.translated()?;
        let sql = "UPDATE eras SET system_id = coalesce(system_id, $1), \
                   timeline = coalesce(timeline, $2) WHERE num = (SELECT max(num) FROM eras) \
                   AND (system_id IS NULL OR timeline IS NULL)";
        change.execute(sql, &[&system, &timeline]).await.translated()?;
        change.commit().await.translated()?;
        Ok(before)
    }
}

/// The same expression as `railpost_lock_key('server')`: there may be no functions yet.
macro_rules! server_key {
    () => {
        "hashtextextended('railpost server ' || current_schema(), 0)"
    };
}

/// Waits a little: a server that is just stopping may still have it.
async fn lock(client: &mut Client) -> Result<()> {
    let attempt = client.transaction().await.translated()?;
    let patience = format!("SET LOCAL lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    attempt.batch_execute(&patience).await.translated()?;
    match attempt.execute(concat!("SELECT pg_advisory_lock(", server_key!(), ")"), &[]).await {
        Ok(_) => Ok(attempt.commit().await.translated()?),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            attempt.rollback().await.translated()?;
            Err(locked(&holder(client).await?))
        }
        Err(error) => Err(error).translated(),
    }
}

fn locked(by: &str) -> StoreError {
    let advice = "one server at a time may use a database schema: stop that one first, or give this \
                  one a schema of its own";
    StoreError::Locked(format!("another server has it ({by}); {advice}"))
}

/// Who has the lock, in words.
async fn holder(client: &Client) -> Result<String> {
    let sql = concat!(
        "SELECT concat_ws(', ', a.application_name, 'from ' || host(a.client_addr), \
           'session ' || l.pid, 'since ' || to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ')) \
         FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND ((l.classid::bigint << 32) | l.objid::bigint) = ",
        server_key!()
    );
    let rows = client.query(sql, &[]).await.translated()?;
    Ok(rows.first().map_or_else(|| "it has just gone".to_owned(), |row| row.get(0)))
}

/// What connections know of the lock.
#[derive(Clone, Debug)]
pub(super) struct LockWatch {
    state: watch::Receiver<LockState>,
    recheck: Arc<Notify>,
}

impl LockWatch {
    /// Refuses everything once another server has the store.
    pub(super) fn check(&self) -> Result<()> {
        match &*self.state.borrow() {
            LockState::Lost(error @ StoreError::Locked(_)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether a connection to this server may be used: not if the lock is held on another one.
    pub(super) fn is_held_on(&self, server: ServerIdentity) -> bool {
        !matches!(&*self.state.borrow(), LockState::Held(held) if *held != server)
    }

    /// The address leads to another server than the one that the lock is held on: it is to be taken there
    /// before anything is read or written.
    pub(super) fn moved(&self) -> StoreError {
        self.recheck.notify_one();
        let problem = "another PostgreSQL server answers: the store's lock is being taken there";
        StoreError::Unavailable(problem.to_owned())
    }

    /// Waits until the lock is taken again; nothing if it never will be.
    pub(super) async fn retaken(&mut self) -> Option<()> {
        loop {
            self.state.changed().await.ok()?;
            if matches!(&*self.state.borrow_and_update(), LockState::Held(_)) {
                return Some(());
            }
        }
    }
}

/// The lock, kept for as long as this lives.
#[derive(Debug)]
pub(super) struct ServerLock {
    /// The holder's number that everything written names.
    number: i64,
    watch: LockWatch,
    task: AbortHandle,
}

impl ServerLock {
    /// Makes the session that has taken the lock the holder of the store.
    pub(super) async fn start(
        mut taken: TakenLock,
        address: Address,
        setup: Setup,
    ) -> Result<Arc<Self>> {
        let number = random_number(&setup);
        let before = taken.become_holder(number, None, millis(setup.source.now())).await?;
        let (state, receiver) = watch::channel(LockState::Held(taken.server));
        let recheck = Arc::new(Notify::new());
        let watch = LockWatch { state: receiver, recheck: recheck.clone() };
        let task = LockTask { address, setup, number, before, state, recheck };
        let task = tokio::spawn(task.run(taken)).abort_handle();
        Ok(Arc::new(Self { number, watch, task }))
    }

    /// For those who have to know when it is lost and taken again.
    pub(super) fn watch(&self) -> LockWatch {
        self.watch.clone()
    }

    /// The number to write under. Waits for a lock that was lost this moment.
    pub(super) async fn holder(&self) -> Result<i64> {
        let mut state = self.watch.state.clone();
        let settled = state.wait_for(|state| !matches!(state, LockState::Retaking));
        match timeout(Duration::from(CALL_TIMEOUT), settled).await {
            Ok(Ok(state)) => match &*state {
                LockState::Lost(error) => Err(error.clone()),
                LockState::Held(_) | LockState::Retaking => Ok(self.number),
            },
            _ => Err(StoreError::Unavailable("the store's lock is being taken again".to_owned())),
        }
    }
}

impl Drop for ServerLock {
    /// The session ends with its task, and the lock with the session.
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn random_number(setup: &Setup) -> i64 {
    let mut bytes = [0; 8];
    setup.source.fill_random(&mut bytes);
    i64::from_be_bytes(bytes)
}

/// Takes the lock again whenever its session is lost.
struct LockTask {
    address: Address,
    setup: Setup,
    number: i64,
    /// The holder before this one. It is there again after a failover that lost our own number.
    before: i64,
    state: watch::Sender<LockState>,
    /// Says that the address leads to another server.
    recheck: Arc<Notify>,
}

impl LockTask {
    async fn run(self, mut taken: TakenLock) {
        loop {
            tokio::select! {
                _ = &mut taken.connection => {}
                () = self.recheck.notified() => {}
            }
            drop(taken);
            self.state.send_replace(LockState::Retaking);
            taken = loop {
                match self.retake().await {
                    Ok(taken) => break taken,
                    Err(RetakeError::Permanent(error)) => {
                        self.state.send_replace(LockState::Lost(error));
                        return;
                    }
                    Err(RetakeError::Temporary(error)) => {
                        self.state.send_replace(LockState::Lost(error));
                        sleep(Duration::from(RECONNECT_AFTER)).await;
                    }
                }
            };
            self.state.send_replace(LockState::Held(taken.server));
        }
    }

    async fn retake(&self) -> std::result::Result<TakenLock, RetakeError> {
        let mut taken = TakenLock::take(&self.address).await.map_err(RetakeError::Temporary)?;
        let (now, expected) = (millis(self.setup.source.now()), [self.number, self.before]);
        let becoming = taken.become_holder(self.number, Some(&expected), now);
        match timeout(Duration::from(CALL_TIMEOUT), becoming).await {
            Ok(Ok(_)) => Ok(taken),
            Ok(Err(StoreError::Locked(problem))) => {
                let advice = "start this one again to use it when that one has stopped";
                Err(RetakeError::Permanent(StoreError::Locked(format!("{problem}; {advice}"))))
            }
            Ok(Err(error)) => Err(RetakeError::Temporary(error)),
            Err(_) => Err(RetakeError::Temporary(super::link::unanswered())),
        }
    }
}

/// Why the lock could not be taken again.
enum RetakeError {
    Temporary(StoreError),
    Permanent(StoreError),
}
