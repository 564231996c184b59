//! Secrets that the server rotates by itself, under a clock of the test's own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use railpost::config::{AllowLoopback, Config};
use railpost::serve::{OpenStore, Server};
use railpost_engine::{Span, Timestamp};
use railpost_sqlite::SqliteStore;
use railpost_store::{
    AuditQuery, Change, EndpointPrivate, EndpointSecret, EndpointSettings, MasterKey, NewEndpoint,
    NewSecret, PageRequest, Period, SecretValue, Setup, Source, Store, SystemSource,
    TenantSettings, Write,
};
use railpost_telemetry::{Level, Log};
use railpost_wire::{EndpointId, Secret, SecretId};
use serde_json::json;
use tempfile::TempDir;

use crate::receiver::{Arrived, Receiver};
use crate::scene::{of_tenant, text};
use crate::world::World;

const HOUR: Span = Span::from_hours(1);

/// The machine's clock, set forward.
#[derive(Debug, Default)]
struct ForwardClock(AtomicU64);

impl ForwardClock {
    fn forward(&self, by: Span) {
        self.0.fetch_add(by.as_millis(), Ordering::SeqCst);
    }
}

impl Source for ForwardClock {
    fn now(&self) -> Timestamp {
        SystemSource.now() + Span::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        SystemSource.steady()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemSource.fill_random(bytes);
    }
}

/// Endpoints of one receiver whose secrets are rotated every hour. Their numbers are in a header of each delivery.
struct RotatingWorld {
    world: World,
    store: Arc<dyn Store>,
    clock: Arc<ForwardClock>,
    receiver: Receiver,
    endpoints: u32,
    _folder: TempDir,
}

fn id(number: u32) -> EndpointId {
    EndpointId::from_u128(u128::from(number) + 1)
}

async fn seed(store: &dyn Store, url: &str, endpoints: u32) {
    let tenant: railpost_wire::TenantId = "default".parse().unwrap();
    let create = Write::CreateTenant(tenant.clone(), TenantSettings::default());
    store.commit(create.into()).await.unwrap();
    for numbers in (0..endpoints).collect::<Vec<_>>().chunks(50) {
        let writes = numbers.iter().flat_map(|number| {
            let mut settings = EndpointSettings::all_events(url);
            settings.rotate_every = Some(HOUR);
            let headers = [("x-number".to_owned(), number.to_string())].into();
            let private = EndpointPrivate { headers, ..EndpointPrivate::default() };
            let tenant = tenant.clone();
            let endpoint = NewEndpoint { id: id(*number), tenant, settings, private };
            let mut bytes = [0; 32];
            SystemSource.fill_random(&mut bytes);
            let secret = NewSecret {
                id: SecretId::generate(1, bytes[..10].try_into().unwrap()),
                endpoint: id(*number),
                value: SecretValue::Shared(Secret::generate(&bytes)),
                expires_at: None,
            };
            [Write::CreateEndpoint(endpoint), Write::CreateSecret(secret)]
        });
        let change = Change { writes: writes.collect(), ..Change::default() };
        store.commit(change).await.unwrap();
    }
}

impl RotatingWorld {
    fn new(endpoints: u32) -> Self {
        let (folder, receiver) = (tempfile::tempdir().unwrap(), Receiver::new());
        let clock = Arc::new(ForwardClock::default());
        let master_key = MasterKey::new(&[3; 32]);
        let setup = Setup { source: clock.clone(), master_key: master_key.clone() };
        let path = folder.path().join("railpost.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, setup).unwrap());
        let mut config = Config::default();
        config.server.listen = "127.0.0.1:0".parse().unwrap();
        config.delivery.allow_loopback = AllowLoopback::Always;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let opened = OpenStore { store: store.clone(), master_key, source: clock.clone() };
        let server = runtime.block_on(async {
            seed(&*store, &receiver.url(), endpoints).await;
            let log = Log::new(Level::Error, std::io::sink());
            Server::start_on(opened, config, log).await.unwrap()
        });
        let world = World::of(runtime, server, None);
        Self { world, store, clock, receiver, endpoints, _folder: folder }
    }

    fn secrets(&self, number: u32) -> Vec<EndpointSecret> {
        self.world.wait_for(self.store.secrets(id(number))).unwrap()
    }

    /// The two newest secrets of each endpoint: what its receiver knows from here on.
    fn two_newest(&self) -> HashMap<u32, Vec<Secret>> {
        let newest = |number| {
            let mut held = self.secrets(number);
            held.sort_by_key(|secret| std::cmp::Reverse(secret.created_at));
            held.truncate(2);
            held.into_iter().map(shared).collect()
        };
        (0..self.endpoints).map(|number| (number, newest(number))).collect()
    }

    /// Publishes an event and verifies it at every endpoint with the secrets that its receiver knows.
    #[track_caller]
    fn deliver(&self, event: &str, known: &HashMap<u32, Vec<Secret>>) {
        self.world.publish(event, "order.paid", None);
        for _ in 0..self.endpoints {
            let arrived = self.receiver.next();
            let number: u32 = arrived.header("x-number").unwrap().parse().unwrap();
            let verified = self.verify(&arrived, known[&number].clone());
            assert!(verified, "{event} at endpoint {number}");
        }
    }

    fn verify(&self, arrived: &Arrived, secrets: Vec<Secret>) -> bool {
        let receiver = railpost_receiver::Receiver::new(secrets, Vec::new());
        let now = self.clock.now().as_millis() / 1000;
        let header = |name: &str| arrived.header(name).map(str::as_bytes);
        receiver.verify(header, &arrived.body, now as i64).is_ok()
    }

    /// Any change of an endpoint's settings lets the server look for what is due.
    fn wake(&self) {
        let path = of_tenant(&format!("endpoints/{}", id(0)));
        self.world.patch(&path, &json!({"description": "woken"})).expect(200);
    }

    fn due(&self) -> usize {
        let due = self.store.due_rotations(self.clock.now(), None, 1);
        self.world.wait_for(due).unwrap().len()
    }
}

fn shared(secret: EndpointSecret) -> Secret {
    match secret.value {
        SecretValue::Shared(secret) => secret,
        SecretValue::Signing(_) => panic!("only shared secrets were made"),
    }
}

#[test]
fn a_receiver_that_knows_the_two_newest_secrets_verifies_every_delivery_of_1000_rotated_endpoints()
{
    let rotating = RotatingWorld::new(1_000);
    let mut known = rotating.two_newest();
    rotating.deliver("before", &known);
    for round in 1..=2 {
        rotating.clock.forward(HOUR);
        rotating.wake();
        let mut deliveries = 0;
        while rotating.due() > 0 {
            rotating.deliver(&format!("during-{round}-{deliveries}"), &known);
            deliveries += 1;
        }
        assert!(deliveries > 1, "deliveries went on during the rotation");
        rotating.deliver(&format!("overlap-{round}"), &known);
        known = rotating.two_newest();
        rotating.clock.forward(Span::from_mins(31));
        rotating.deliver(&format!("after-{round}"), &known);
    }
    for number in 0..rotating.endpoints {
        let held = rotating.secrets(number);
        assert_eq!(held.len(), 3, "each rotation is made once: endpoint {number}");
        let lasting = held.iter().filter(|secret| secret.expires_at.is_none()).count();
        assert_eq!(lasting, 1, "endpoint {number}");
    }
    rotating.world.publish("last", "order.paid", None);
    let arrived = rotating.receiver.next();
    let number: u32 = arrived.header("x-number").unwrap().parse().unwrap();
    let mut held = rotating.secrets(number);
    held.sort_by_key(|secret| secret.created_at);
    let oldest: Vec<Secret> = held.drain(..2).map(shared).collect();
    assert!(!rotating.verify(&arrived, oldest), "expired secrets do not sign");
    assert!(rotating.verify(&arrived, held.into_iter().map(shared).collect()));

    let mut entries = 0;
    let mut page = Some(PageRequest::first(500));
    while let Some(request) = page {
        let query = AuditQuery { tenant: None, target: None, at: Period::default(), page: request };
        let listing = rotating.world.wait_for(rotating.store.audit(query)).unwrap();
        let by_itself = |entry: &&railpost_store::AuditEntry| {
            entry.actor == "railpost" && entry.action == "secret.rotate"
        };
        entries += listing.items.iter().filter(by_itself).count();
        page = listing.next.map(|next| PageRequest::after(500, next));
    }
    assert_eq!(entries, 2_000);
}

#[test]
fn an_endpoint_shows_when_its_secrets_are_rotated_next_and_what_the_bounds_are() {
    let rotating = RotatingWorld::new(1);
    let path = of_tenant(&format!("endpoints/{}", id(0)));
    let shown = rotating.world.get(&path).expect(200).json();
    let secrets = rotating.world.get(&format!("{path}/secrets")).expect(200).json();
    assert_eq!(shown["rotate_every"], "1h");
    assert_eq!(shown["next_rotation_at"], secrets["next_rotation_at"]);
    let first = text(&shown["next_rotation_at"]);
    let changed = rotating.world.patch(&path, &json!({"rotate_every": "90d"})).expect(200).json();
    assert!(text(&changed["next_rotation_at"]) > first, "{changed}");
    let shown = rotating.world.get(&path).expect(200).json();
    assert_eq!(shown["next_rotation_at"], changed["next_rotation_at"]);
    for (bad, field) in [
        (json!({"rotate_every": "59m"}), "rotate_every"),
        (json!({"rotate_every": "367d"}), "rotate_every"),
        (json!({"rotate_overlap": "31d"}), "rotate_overlap"),
        (json!({"rotate_every": "2d", "rotate_overlap": "2d"}), "rotate_overlap"),
        (json!({"rotate_every": null, "rotate_overlap": "1d"}), "rotate_overlap"),
    ] {
        let refused = rotating.world.patch(&path, &bad).expect(422).json();
        assert_eq!(refused["field"], field, "{bad}");
    }
    let off = json!({"rotate_every": null, "rotate_overlap": null});
    let changed = rotating.world.patch(&path, &off).expect(200).json();
    assert_eq!(changed["next_rotation_at"], json!(null));
}

#[test]
fn a_rotation_by_hand_moves_the_next_one_and_both_kinds_get_a_new_secret() {
    let rotating = RotatingWorld::new(1);
    let path = of_tenant(&format!("endpoints/{}", id(0)));
    rotating.clock.forward(Span::from_mins(30));
    rotating.world.post(&format!("{path}/secrets/rotate"), &json!({"overlap": "1m"})).expect(201);
    rotating.world.post(&format!("{path}/secrets"), &json!({"kind": "signing"})).expect(201);
    rotating.clock.forward(Span::from_mins(45));
    rotating.wake();
    assert_eq!(rotating.due(), 0, "the newest is 45 minutes old");
    rotating.clock.forward(Span::from_mins(16));
    rotating.wake();
    let secrets = rotating.world.get_until(&format!("{path}/secrets"), |found| {
        found["items"].as_array().unwrap().len() == 5
    });
    let lasting: Vec<String> = secrets["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|secret| secret["expires_at"].is_null())
        .map(|secret| text(&secret["kind"]))
        .collect();
    assert_eq!(lasting.len(), 2, "{secrets}");
    assert!(lasting.contains(&"shared".to_owned()) && lasting.contains(&"signing".to_owned()));
}
