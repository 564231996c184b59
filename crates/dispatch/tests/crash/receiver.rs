//! The receiver: verifies, and applies each event once, its inbox's row and its effect in one transaction.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use railpost_receiver::sqlite::{self, SqliteInbox};
use railpost_receiver::{InboxConfig, Receiver, Verdict};
use railpost_store::{Source, SystemSource};
use railpost_wire::Received;
use rusqlite::{Connection, params};
use tokio::net::TcpSocket;

use crate::child_config::ReceiverChildConfig;
use crate::sender::secret;

/// What the parent reads at the end. `effects` are in the order in which they happened; `verdicts` counts
/// what the inbox said; `twice` holds what the at-most-once endpoint got a second time.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS effects (num INTEGER PRIMARY KEY, event TEXT NOT NULL, key TEXT);
    CREATE TABLE IF NOT EXISTS verdicts (verdict TEXT PRIMARY KEY, count INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS once (event TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS twice (event TEXT NOT NULL);
";

struct Shop {
    database: Mutex<Connection>,
    inbox: SqliteInbox,
    receiver: Receiver,
}

/// Listens until it is killed.
pub(crate) async fn run(config: ReceiverChildConfig) {
    let shop = Arc::new(Shop {
        database: Mutex::new(open(&config.database)),
        inbox: SqliteInbox::new(InboxConfig::named("crash")),
        receiver: Receiver::new(vec![secret()], vec![]),
    });
    let listener = listen(config.port);
    while let Ok((stream, _)) = listener.accept().await {
        let shop = shop.clone();
        let service = service_fn(move |request| answer(request, shop.clone()));
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }
}

/// Only the process dies here, never the machine: no commit needs to reach the disk.
pub(crate) fn open(path: &str) -> Connection {
    let database = Connection::open(path).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.pragma_update(None, "synchronous", "OFF").unwrap();
    database.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    database.execute_batch(TABLES).unwrap();
    sqlite::create_tables(&database).unwrap();
    database
}

/// On the port that the life before had.
fn listen(port: u16) -> tokio::net::TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    socket.listen(1024).unwrap()
}

async fn answer(
    request: hyper::Request<Incoming>,
    shop: Arc<Shop>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut response = hyper::Response::new(Full::default());
    // A sender that died halfway has sent nothing.
    let Ok(body) = body.collect().await else { return Ok(response) };
    let header = |name: &str| head.headers.get(name).map(hyper::header::HeaderValue::as_bytes);
    let now = (SystemSource.now().as_millis() / 1000) as i64;
    let received = shop.receiver.verify(header, &body.to_bytes(), now).unwrap();
    let status = match head.uri.path() {
        "/once" => shop.take_once(&received),
        _ => shop.apply(&received, now),
    };
    *response.status_mut() = status.try_into().unwrap();
    Ok(response)
}

impl Shop {
    fn apply(&self, received: &Received, now: i64) -> u16 {
        let mut database = self.database.lock().unwrap();
        let transaction = database.transaction().unwrap();
        let verdict = self.inbox.admit(&transaction, received, now).unwrap();
        let (event, key) =
            (received.event_id.to_string(), received.key.as_ref().map(railpost_wire::Key::as_str));
        if verdict.applies() {
            let sql = "INSERT INTO effects (event, key) VALUES (?1, ?2)";
            transaction.execute(sql, params![event, key]).unwrap();
        }
        let sql = "INSERT INTO verdicts VALUES (?1, 1) ON CONFLICT DO UPDATE SET count = count + 1";
        transaction.execute(sql, [name(verdict)]).unwrap();
        transaction.commit().unwrap();
        verdict.answer().status
    }

    fn take_once(&self, received: &Received) -> u16 {
        let event = received.event_id.to_string();
        let database = self.database.lock().unwrap();
        let added = database.execute("INSERT OR IGNORE INTO once VALUES (?1)", [&event]).unwrap();
        if added == 0 {
            database.execute("INSERT INTO twice VALUES (?1)", [&event]).unwrap();
        }
        200
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fresh => "fresh",
        Verdict::Duplicate => "duplicate",
        Verdict::Stale { .. } => "stale",
        Verdict::Gap { .. } => "gap",
        Verdict::Busy => "busy",
    }
}
