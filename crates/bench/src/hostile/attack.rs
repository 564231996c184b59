//! The attack: connections that never get anywhere, and invalid keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::http::{Call, Connection};
use crate::limits::{
    FAILURE_PAUSE, HOSTILE_DRIP, HOSTILE_HOLDERS, HOSTILE_KEY_CONNECTIONS, HOSTILE_KEYS,
};

/// An attack under way. It has a thread of its own.
pub(super) struct Attack {
    runtime: Runtime,
    counters: Arc<AttackCounters>,
}

/// How the server answered the attackers.
#[derive(Default)]
struct AttackCounters {
    cut: AtomicU64,
    unauthorized: AtomicU64,
    limited: AtomicU64,
    other: AtomicU64,
}

/// How a connection is held: what is sent at once, and whether a byte follows now and then.
const WAYS: [(&str, bool); 3] = [
    ("GET /health/live HTTP/1.1\r\nhost: a\r\nx-slow: ", true),
    ("GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n", false),
    ("POST /dashboard/sign-in HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\nkey=", true),
];

impl Attack {
    /// Begins an attack whose keys last for `run_time`.
    pub(super) fn begin(address: &str, run_time: Duration) -> Result<Self, String> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let counters = Arc::new(AttackCounters::default());
        for (sent, drips) in WAYS {
            for _ in 0..HOSTILE_HOLDERS {
                runtime.spawn(hold(address.to_owned(), sent, drips, counters.clone()));
            }
        }
        let every = run_time * HOSTILE_KEY_CONNECTIONS / HOSTILE_KEYS;
        for guesser in 0..HOSTILE_KEY_CONNECTIONS {
            runtime.spawn(guess(address.to_owned(), guesser, every, counters.clone()));
        }
        Ok(Self { runtime, counters })
    }

    /// Ends it, and says what it counters.
    pub(super) fn end(self) -> String {
        self.runtime.shutdown_background();
        let AttackCounters { cut, unauthorized, limited, other } = &*self.counters;
        let [cut, unauthorized, limited, other] =
            [cut, unauthorized, limited, other].map(|count| count.load(Ordering::Relaxed));
        format!(
            "{cut} connections cut; keys answered 401 {unauthorized} times, 429 {limited} times, \
             otherwise {other} times"
        )
    }
}

/// Holds a connection for as long as it may, and then another one.
async fn hold(address: String, sent: &str, drips: bool, counters: Arc<AttackCounters>) {
    loop {
        let Ok(mut stream) = TcpStream::connect(&address).await else {
            sleep(FAILURE_PAUSE).await;
            continue;
        };
        let _ = stream.write_all(sent.as_bytes()).await;
        let mut answer = [0; 1024];
        loop {
            match timeout(HOSTILE_DRIP, stream.read(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(_)) => {}
                Err(_) if drips && stream.write_all(b"x").await.is_err() => break,
                Err(_) => {}
            }
        }
        counters.cut.fetch_add(1, Ordering::Relaxed);
    }
}

/// Shows one unknown key after the other.
async fn guess(address: String, guesser: u32, every: Duration, counters: Arc<AttackCounters>) {
    let mut ticks = tokio::time::interval(every);
    for number in 0_u64.. {
        ticks.tick().await;
        let key = format!("rp_guess-{guesser:08}-{number:024}");
        let Ok(mut connection) = Connection::open(&address, Some(&key)).await else { continue };
        let call = Call {
            method: Method::GET,
            path: "/v1/tenants/default",
            content_type: "application/json",
            body: Bytes::new(),
        };
        let count = match connection.send(call).await {
            Ok((StatusCode::UNAUTHORIZED, _)) => &counters.unauthorized,
            Ok((StatusCode::TOO_MANY_REQUESTS, _)) => &counters.limited,
            _ => &counters.other,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
