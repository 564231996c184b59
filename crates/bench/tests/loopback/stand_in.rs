//! A stand-in for the server: as much of its HTTP API as the benchmark uses, deliveries in order and
//! signed, and a log to start again from. Told to, it does one thing wrong.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use railpost_wire::{Attempt, EventId, HeaderNames, Key, Secret, Seq, Signer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Names what the stand-in does wrong.
pub(crate) const WRONG: &str = "STAND_IN_DOES_WRONG";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    LeavesOneOut,
    DoesNotSign,
    SendsTwice,
}

impl Wrong {
    fn from_environment() -> Self {
        match std::env::var(WRONG).as_deref() {
            Ok("leaves one out") => Self::LeavesOneOut,
            Ok("does not sign") => Self::DoesNotSign,
            Ok("sends twice") => Self::SendsTwice,
            _ => Self::Nothing,
        }
    }
}

/// A line of the log: all that there is to start again from.
#[derive(Serialize, Deserialize)]
enum Line {
    Endpoint { tenant: String, url: String, types: Vec<String> },
    Event { tenant: String, event: Box<RawValue> },
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    event_type: String,
    key: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

#[derive(Deserialize)]
struct Batch {
    events: Vec<Box<RawValue>>,
}

/// One delivery.
struct Parcel {
    url: String,
    number: u64,
    lane: Option<(String, u64)>,
    body: Bytes,
}

/// A lane's way out and its highest seq.
type Lane = (UnboundedSender<Parcel>, u64);

struct StandIn {
    client: Client<HttpConnector, Full<Bytes>>,
    wrong: Wrong,
    secret: Secret,
    log: File,
    endpoints: Vec<(String, String, Vec<String>)>,
    lanes: HashMap<(String, String), Lane>,
    events: u64,
}

/// Serves where the environment says, until it is killed.
pub(crate) async fn serve(address: &str) {
    let folder = PathBuf::from(std::env::var_os("RAILPOST_SERVER_DATA_DIR").unwrap());
    let state = Arc::new(Mutex::new(StandIn::open(&folder.join("log"))));
    let listener = TcpListener::bind(address).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &state));
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    state: &Mutex<StandIn>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    let (status, body) = match (&head.method, &path[..]) {
        (&Method::GET, ["health", "ready"]) => (200, json!({}).to_string()),
        (&Method::POST, ["v1", "tenants"]) => (201, json!({}).to_string()),
        (&Method::POST, ["v1", "tenants", tenant, rest @ ..]) => {
            state.lock().unwrap().publish(tenant, rest, &body)
        }
        _ => (404, String::new()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status.try_into().unwrap();
    Ok(response)
}

impl StandIn {
    fn open(log: &PathBuf) -> Self {
        let lines = fs::read_to_string(log).unwrap_or_default();
        let mut stand_in = Self {
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
            wrong: Wrong::from_environment(),
            secret: Secret::generate(&[7; 32]),
            log: File::options().create(true).append(true).open(log).unwrap(),
            endpoints: Vec::new(),
            lanes: HashMap::new(),
            events: 0,
        };
        for line in lines.lines() {
            stand_in.take(serde_json::from_str(line).unwrap());
        }
        stand_in
    }

    fn publish(&mut self, tenant: &str, route: &[&str], body: &[u8]) -> (u16, String) {
        let one = |body: &[u8]| serde_json::from_slice::<Box<RawValue>>(body).unwrap();
        let events = match route {
            ["endpoints"] => return (201, self.create_endpoint(tenant, body)),
            ["events"] => vec![one(body)],
            ["events", "batch"] => serde_json::from_slice::<Batch>(body).unwrap().events,
            ["events", "stream"] => body.trim_ascii_end().split(|b| *b == b'\n').map(one).collect(),
            _ => return (404, String::new()),
        };
        let receipts = "{\"id\":\"evt\"}\n".repeat(events.len());
        let lines =
            events.into_iter().map(|event| Line::Event { tenant: tenant.to_owned(), event });
        self.keep(lines.collect());
        (if route.len() == 2 { 200 } else { 202 }, receipts)
    }

    fn create_endpoint(&mut self, tenant: &str, body: &[u8]) -> String {
        let given: serde_json::Value = serde_json::from_slice(body).unwrap();
        let url = given["url"].as_str().unwrap().to_owned();
        let types = serde_json::from_value(given["types"].clone()).unwrap();
        self.keep(vec![Line::Endpoint { tenant: tenant.to_owned(), url, types }]);
        json!({ "secret": { "id": "sec", "value": self.secret.reveal().as_str() } }).to_string()
    }

    fn keep(&mut self, lines: Vec<Line>) {
        let mut text = String::new();
        for line in &lines {
            text.push_str(&serde_json::to_string(line).unwrap());
            text.push('\n');
        }
        self.log.write_all(text.as_bytes()).unwrap();
        lines.into_iter().for_each(|line| self.take(line));
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Endpoint { tenant, url, types } => self.endpoints.push((tenant, url, types)),
            Line::Event { tenant, event } => self.fan_out(&tenant, &event),
        }
    }

    fn fan_out(&mut self, tenant: &str, event: &RawValue) {
        let event: Event<'_> = serde_json::from_str(event.get()).unwrap();
        self.events += 1;
        let body = Bytes::copy_from_slice(event.payload.get().as_bytes());
        let wanted = |(of, _, types): &&(String, String, Vec<String>)| {
            of == tenant && types.contains(&event.event_type)
        };
        let urls: Vec<String> =
            self.endpoints.iter().filter(wanted).map(|(_, url, _)| url.clone()).collect();
        for url in urls {
            self.send(url, event.key.clone(), body.clone());
        }
    }

    fn send(&mut self, url: String, key: Option<String>, body: Bytes) {
        let number = self.events;
        let first = u64::from(self.wrong == Wrong::LeavesOneOut);
        let (client, wrong, signer) =
            (self.client.clone(), self.wrong, Signer::Secret(self.secret.clone()));
        let begin = || {
            let (sender, parcels) = unbounded_channel();
            tokio::spawn(deliver(client, wrong, signer, parcels));
            (sender, first)
        };
        let Some(key) = key else {
            // Without a key there is no lane: a way out of its own.
            begin().0.send(Parcel { url, number, lane: None, body }).unwrap();
            return;
        };
        let (lane, seq) = self.lanes.entry((url.clone(), key.clone())).or_insert_with(begin);
        *seq += 1;
        lane.send(Parcel { url, number, lane: Some((key, *seq)), body }).unwrap();
    }
}

/// Delivers one after the other, each until it is acknowledged.
async fn deliver(
    client: Client<HttpConnector, Full<Bytes>>,
    wrong: Wrong,
    signer: Signer,
    mut parcels: UnboundedReceiver<Parcel>,
) {
    while let Some(parcel) = parcels.recv().await {
        let times = if wrong == Wrong::SendsTwice { 2 } else { 1 };
        let signers: &[Signer] =
            if wrong == Wrong::DoesNotSign { &[] } else { std::slice::from_ref(&signer) };
        for _ in 0..times {
            while client.request(request(&parcel, signers)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn request(parcel: &Parcel, signers: &[Signer]) -> Request<Full<Bytes>> {
    let id: EventId = format!("event-{}", parcel.number).parse().unwrap();
    let lane = parcel.lane.as_ref();
    let key: Option<Key> = lane.map(|(key, _)| key.parse().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let attempt = Attempt {
        event_id: &id,
        event_type: &"bench.event".parse().unwrap(),
        event_unix_ms: now.as_secs() * 1000,
        schema_version: None,
        key: key.as_ref(),
        line: None,
        seq: lane.map(|(_, seq)| Seq::try_from(*seq).unwrap()),
        after: None,
        number: 1,
        replay: false,
        thin: false,
        timestamp: now.as_secs().cast_signed(),
        body: &parcel.body,
        signers,
    };
    let mut request = Request::post(&parcel.url);
    for (name, value) in attempt.headers(&HeaderNames::default()) {
        request = request.header(name, value);
    }
    request.body(Full::new(parcel.body.clone())).unwrap()
}
