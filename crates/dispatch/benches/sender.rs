//! What one request costs: the sender beside a bare hyper client, both against a sink on loopback.
//!
//! `cargo bench -p railpost-dispatch` prints requests per second and CPU time per request of this
//! process alone; the sink is another one.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "it reports to a person")]

use std::convert::Infallible;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use railpost_dispatch::*;
use tokio::net::{TcpListener, TcpStream};

const CONCURRENT: usize = 64;
const REQUESTS: usize = 200_000;
const BODY_LEN: usize = 512;
const SINK: &str = "--sink";

fn main() {
    if std::env::args().any(|arg| arg == SINK) {
        return run_sink();
    }
    let (mut sink, address) = start_sink();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for round in 1..=3 {
            measure(&format!("hyper  {round}"), || bare(address)).await;
            measure(&format!("sender {round}"), || sender(address)).await;
        }
    });
    sink.kill().unwrap();
    sink.wait().unwrap();
}

async fn measure<F: Future<Output = ()>>(name: &str, run: impl FnOnce() -> F) {
    let (started, cpu) = (Instant::now(), cpu_time());
    run().await;
    let (elapsed, cpu) = (started.elapsed(), cpu_time() - cpu);
    let rate = REQUESTS as f64 / elapsed.as_secs_f64();
    let each = cpu.as_secs_f64() * 1e6 / REQUESTS as f64;
    println!("{name}: {rate:>7.0} requests/s, {each:.1} us of CPU per request");
}

/// User and system time of this process, to a hundredth of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The headers of one attempt, with fresh values, as in production.
fn headers(n: usize) -> [(&'static str, String); 11] {
    [
        ("webhook-id", format!("evt_{n:032}")),
        ("webhook-timestamp", (1_700_000_000 + n).to_string()),
        ("webhook-signature", format!("v1,{n:044}")),
        ("X-Webhook-Signature", format!("t=1700000000,v1={n:064}")),
        ("Idempotency-Key", format!("evt_{n:032}")),
        ("X-Event-Type", "order.paid".to_owned()),
        ("X-Event-Time", "2026-01-01T00:00:00.123Z".to_owned()),
        ("X-Key", format!("order-{n}")),
        ("X-Seq", n.to_string()),
        ("X-Attempt", "1".to_owned()),
        ("content-type", "application/json".to_owned()),
    ]
}

async fn concurrently<F>(one: impl Fn(usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks: Vec<_> = (0..CONCURRENT).map(|n| tokio::spawn(one(n))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn sender(address: SocketAddr) {
    let loopback = NamedNetwork::new("loopback", "127.0.0.0/8").unwrap();
    let guard = Guard::new(GuardConfig { networks: vec![loopback], https_only: false });
    let target = Target::parse(&format!("http://{address}/hooks"), &guard).unwrap();
    let pool = PoolBounds { idle_per_target: CONCURRENT, ..PoolBounds::default() };
    let sender = Sender::new(SenderConfig { guard, pool, ..SenderConfig::default() }).unwrap();
    let route = sender.route(&RouteConfig::new(target)).unwrap();
    let body = Bytes::from(vec![b'x'; BODY_LEN]);
    concurrently(|_| {
        let (sender, route, body) = (sender.clone(), route.clone(), body.clone());
        async move {
            for n in 0..REQUESTS / CONCURRENT {
                let request = Request::new(&route, headers(n), body.clone()).unwrap();
                let exchange = sender.send(request).await;
                assert!(exchange.detail.response.is_some(), "{:?}", exchange.detail);
            }
        }
    })
    .await;
}

/// What hyper alone takes: a connection for each task, no pool, no deadline, nothing noted.
async fn bare(address: SocketAddr) {
    let body = Bytes::from(vec![b'x'; BODY_LEN]);
    concurrently(|_| {
        let body = body.clone();
        async move {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut requests, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            for n in 0..REQUESTS / CONCURRENT {
                let mut request = http::Request::post("/hooks").header("host", "sink");
                for (name, value) in headers(n) {
                    request = request.header(name, value);
                }
                requests.ready().await.unwrap();
                let request = request.body(Full::new(body.clone())).unwrap();
                let answer = requests.send_request(request).await.unwrap();
                assert!(answer.status().is_success());
            }
        }
    })
    .await;
}

fn start_sink() -> (Child, SocketAddr) {
    let program = std::env::current_exe().unwrap();
    let mut sink = Command::new(program).arg(SINK).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(sink.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (sink, line.trim().parse().unwrap())
}

fn run_sink() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let service = hyper::service::service_fn(acknowledge);
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
}

async fn acknowledge(
    _: http::Request<Incoming>,
) -> Result<http::Response<Empty<Bytes>>, Infallible> {
    Ok(http::Response::new(Empty::new()))
}
