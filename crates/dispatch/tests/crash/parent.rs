//! The process that kills: runs the receiver, the child and the clock.

use std::convert::Infallible;
use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use crate::child::Orders;
use crate::judge::{Arrival, Judge};

/// Kills in a default run.
const KILLS: u32 = 20;
/// Events that one life of the child accepts at the most.
const EVENTS_PER_LIFE: u32 = 2_000;
/// So long until a run that hangs is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a run came to.
pub(crate) struct Summary {
    seed: u64,
    kills: u32,
    acknowledged: usize,
    delivered: usize,
    duplicates: u64,
    once: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kills, acknowledged, delivered, duplicates, once } = self;
        write!(
            f,
            "{kills} kills, {acknowledged} accepts acknowledged, {delivered} events delivered, \
             {duplicates} duplicates, 0 order violations, at most once: {once} sent, 0 twice \
             (seed {seed})"
        )
    }
}

/// The receiver's state, and a bell that rings with every arrival.
#[derive(Default)]
struct Reception {
    judge: Mutex<Judge>,
    arrived: Notify,
}

pub(crate) async fn run(store: &str) -> Result<Summary, String> {
    let seed = environment("RAILPOST_CRASH_SEED").unwrap_or_else(|| fastrand::u64(..));
    let kills = environment("RAILPOST_CRASH_KILLS").unwrap_or(u64::from(KILLS)) as u32;
    let mut dice = fastrand::Rng::with_seed(seed);
    let (reception, receiver) = listen(dice.fork()).await;
    let mut acknowledged = Vec::new();
    for run in 1..=kills {
        let orders = Orders {
            run,
            store: store.to_owned(),
            receiver: receiver.clone(),
            events: EVENTS_PER_LIFE,
        };
        let after = Duration::from_millis(dice.u64(5..400));
        acknowledged.extend(live_and_die(orders, after).await?);
    }
    let last = Orders { run: kills + 1, store: store.to_owned(), receiver, events: 0 };
    drain(last, &reception, &acknowledged).await?;
    let judge = reception.judge.lock().unwrap();
    match judge.violations() {
        [] => Ok(Summary {
            seed,
            kills,
            acknowledged: acknowledged.len(),
            delivered: judge.delivered(),
            duplicates: judge.duplicates,
            once: judge.delivered_once(),
        }),
        violations => Err(format!("seed {seed}: {}", violations.join("; "))),
    }
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// One life: from the start until it is killed, `after` its first acknowledgement. Gives the events it
/// acknowledged.
async fn live_and_die(orders: Orders, after: Duration) -> Result<Vec<String>, String> {
    let mut child = spawn(&orders);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
    let first = first.map_err(|_| "the child acknowledged nothing".to_owned())?.unwrap();
    acknowledged.push(first.ok_or("the child ended by itself")?);
    let death = tokio::time::sleep(after);
    tokio::pin!(death);
    loop {
        tokio::select! {
            line = lines.next_line() => match line.unwrap() {
                Some(event) => acknowledged.push(event),
                None => return Err("the child ended by itself".into()),
            },
            () = &mut death => break,
        }
    }
    child.start_kill().unwrap();
    // What it wrote before it died is still in the pipe.
    while let Some(event) = lines.next_line().await.unwrap() {
        acknowledged.push(event);
    }
    child.wait().await.unwrap();
    Ok(acknowledged)
}

/// The last life accepts nothing and ends when everything acknowledged has arrived.
async fn drain(
    orders: Orders,
    reception: &Reception,
    acknowledged: &[String],
) -> Result<(), String> {
    let mut child = spawn(&orders);
    let all_arrived = async {
        loop {
            let arrived = reception.arrived.notified();
            if reception.judge.lock().unwrap().missing(acknowledged).is_empty() {
                return;
            }
            arrived.await;
        }
    };
    if tokio::time::timeout(PATIENCE, all_arrived).await.is_err() {
        child.start_kill().unwrap();
        let judge = reception.judge.lock().unwrap();
        let missing = judge.missing(acknowledged);
        return Err(format!("{} acknowledged events never arrived: {missing:?}", missing.len()));
    }
    drop(child.stdin.take());
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    match ended.map_err(|_| "the child did not stop")?.unwrap() {
        status if status.success() => Ok(()),
        status => Err(format!("the last child ended with {status}")),
    }
}

fn spawn(orders: &Orders) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .envs(orders.environment())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn listen(dice: fastrand::Rng) -> (Arc<Reception>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let reception = Arc::new(Reception::default());
    let state = reception.clone();
    let dice = Arc::new(Mutex::new(dice));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (state, dice) = (state.clone(), dice.clone());
            let service = service_fn(move |request| answer(request, state.clone(), dice.clone()));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    (reception, url)
}

async fn answer(
    request: hyper::Request<Incoming>,
    reception: Arc<Reception>,
    dice: Arc<Mutex<fastrand::Rng>>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut response = hyper::Response::new(Full::default());
    // A sender that died halfway has sent nothing.
    let Ok(_) = body.collect().await else { return Ok(response) };
    let header = |name: &str| head.headers[name].to_str().unwrap().to_owned();
    let arrival = Arrival {
        event: header("webhook-id"),
        key: header("x-key"),
        seq: header("x-seq").parse().unwrap(),
        run: header("user-agent").trim_start_matches("crash-test/").parse().unwrap(),
    };
    let mut judge = reception.judge.lock().unwrap();
    if head.uri.path() == "/once" {
        judge.apply_once(arrival);
    } else if dice.lock().unwrap().u8(..) < 8 {
        // Now and then it is not well: then nothing is applied, and the sender has to try again.
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
    } else {
        judge.apply(arrival);
    }
    reception.arrived.notify_waiters();
    Ok(response)
}

/// A database of its own on the test server.
pub(crate) async fn fresh_database(server: &str) -> String {
    let name = format!("railpost_crash_{}", std::process::id());
    let (client, connection) =
        tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    format!("{base}/{name}")
}
