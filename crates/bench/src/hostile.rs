//! A hostile client: how much it slows a good producer down.
//!
//! A producer publishes at a steady rate, first alone, then while others hold connections with heads, bodies and silence
//! that never end, and show invalid API keys. Both are measured in turn, and the medians are compared.

mod attack;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tokio::task::JoinSet;

use crate::clock::now_us;
use crate::histogram::Histogram;
use crate::http::{Call, Connection};
use crate::limits::{
    HOSTILE_CONNECTIONS, HOSTILE_PER_S, HOSTILE_RATIO_MAX, HOSTILE_ROUNDS, HOSTILE_RUN, WARM_UP,
};
use crate::load::plan::due_us;
use crate::server::{ADMIN_KEY, Server};
use attack::Attack;

/// Latency of a producer in one run, in microseconds.
struct LatencyQuantiles {
    p50: u64,
    p99: u64,
}

/// Measures the producer alone and under attack, and says what came out. An error if the attack slows it down too much.
pub(crate) fn run(railpost: &Path, folder: &Path, quick: bool) -> Result<String, String> {
    let store = format!("sqlite:{}", folder.join("hostile.db").display());
    let server = Server::start(railpost, &folder.join("hostile"), &store)?;
    let (run_time, rounds) = match quick {
        true => (HOSTILE_RUN / 10, 1),
        false => (HOSTILE_RUN, HOSTILE_ROUNDS),
    };
    publish(server.address(), WARM_UP)?;
    let (mut quiet, mut attacked) = (Vec::new(), Vec::new());
    let mut met = String::new();
    for _ in 0..rounds {
        quiet.push(publish(server.address(), run_time)?);
        let attack = Attack::begin(server.address(), run_time)?;
        attacked.push(publish(server.address(), run_time)?);
        met = attack.end();
    }
    let (quiet, attacked) = (median(quiet), median(attacked));
    let ratio = attacked.p99 as f64 / quiet.p99.max(1) as f64;
    let text = format!(
        "A producer of {HOSTILE_PER_S} events/s, median of {rounds} round(s) of {run_time:?}:\n  \
         quiet         p50 {} µs, p99 {} µs\n  \
         under attack  p50 {} µs, p99 {} µs: {ratio:.2} times the quiet p99\n  \
         the last attack met: {met}\n",
        quiet.p50, quiet.p99, attacked.p50, attacked.p99
    );
    match ratio <= HOSTILE_RATIO_MAX {
        true => Ok(text),
        false => Err(format!("{text}More than {HOSTILE_RATIO_MAX} times the quiet p99")),
    }
}

fn median(mut latency: Vec<LatencyQuantiles>) -> LatencyQuantiles {
    latency.sort_by_key(|latency| latency.p99);
    let middle = latency.len() / 2;
    latency.swap_remove(middle)
}

/// Publishes at a steady rate. A latency counts from when its event was due, so that waiting for a connection counts.
fn publish(address: &str, run_time: Duration) -> Result<LatencyQuantiles, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let latencies = runtime.block_on(async {
        let mut producers = JoinSet::new();
        let begun = Instant::now();
        for producer in 0..HOSTILE_CONNECTIONS {
            producers.spawn(produce(address.to_owned(), producer, begun, run_time));
        }
        let mut all = Histogram::default();
        while let Some(latencies) = producers.join_next().await {
            all.merge(&latencies.map_err(|error| error.to_string())??);
        }
        Ok::<_, String>(all)
    })?;
    let at = |quantile| latencies.quantile(quantile).ok_or("nothing was published".to_owned());
    Ok(LatencyQuantiles { p50: at(0.5)?, p99: at(0.99)? })
}

/// Every so many-th event of the schedule.
async fn produce(
    address: String,
    producer: u64,
    begun: Instant,
    run_time: Duration,
) -> Result<Histogram, String> {
    let run = now_us();
    let mut connection = Connection::open(&address, Some(ADMIN_KEY)).await?;
    let mut latencies = Histogram::default();
    for slot in (producer..).step_by(HOSTILE_CONNECTIONS as usize) {
        let due = begun + Duration::from_micros(due_us(slot, HOSTILE_PER_S));
        if due >= begun + run_time {
            return Ok(latencies);
        }
        tokio::time::sleep_until(due.into()).await;
        let id = format!("hostile-{run}-{producer}-{slot}");
        let body = format!(r#"{{"id":"{id}","type":"order.paid","payload":{slot}}}"#);
        let call = Call {
            method: Method::POST,
            path: "/v1/tenants/default/events",
            content_type: "application/json",
            body: Bytes::from(body),
        };
        let (status, body) = connection.send(call).await?;
        if status != StatusCode::ACCEPTED {
            return Err(format!(
                "an event was answered {status}: {}",
                String::from_utf8_lossy(&body)
            ));
        }
        latencies.add(due.elapsed().as_micros() as u64);
    }
    Ok(latencies)
}
