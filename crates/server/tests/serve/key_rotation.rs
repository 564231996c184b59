//! A rotation of the master key in a process that is killed in the middle of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use railpost_sqlite::SqliteStore;
use railpost_store::{
    Change, EndpointPrivate, EndpointSettings, MasterKey, NewEndpoint, NewSecret, Registry,
    SecretValue, Setup, Source, StoreError, SystemSource, Write,
};
use railpost_wire::{EndpointId, Secret, SecretId};
use serde_json::{Value, json};

use super::process::{ADMIN_KEY, PATIENCE, Running, output, railpost};
use super::receiver::Receiver;
use super::seeded;

/// Endpoints beside the one that is sent to: enough for a rotation to be interrupted.
const IDLE_ENDPOINTS: u32 = 5_000;
const ROTATION: &str = "/v1/master-key/rotation";

fn start(folder: &Path) -> Running {
    let set =
        [("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY), ("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "always")];
    Running::start_with(folder, &[], &set)
}

fn idle(number: u32) -> EndpointId {
    EndpointId::from_u128(1_000 + u128::from(number))
}

fn idle_secret(number: u32) -> Secret {
    let mut bytes = [1; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Secret::generate(&bytes)
}

/// Endpoints that want nothing, each with a secret of its own.
fn add_idle_endpoints(folder: &Path) {
    seeded::look(folder, async |store| {
        for numbers in (0..IDLE_ENDPOINTS).collect::<Vec<_>>().chunks(50) {
            let writes = numbers.iter().flat_map(|number| {
                let mut settings = EndpointSettings::all_events("http://127.0.0.1:1/");
                settings.filters = vec!["never.sent".parse().unwrap()];
                let (id, tenant) = (idle(*number), seeded::tenant());
                let private = EndpointPrivate::default();
                let secret = NewSecret {
                    id: SecretId::from_u128(1_000 + u128::from(*number)),
                    endpoint: id,
                    value: SecretValue::Shared(idle_secret(*number)),
                    expires_at: None,
                };
                let endpoint = NewEndpoint { id, tenant, settings, private };
                [Write::CreateEndpoint(endpoint), Write::CreateSecret(secret)]
            });
            let change = Change { writes: writes.collect(), ..Change::default() };
            store.commit(change).await.unwrap();
        }
    });
}

fn status(server: &Running) -> Value {
    let (code, text) = server.get(ROTATION, ADMIN_KEY);
    assert_eq!(code, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn status_when(server: &Running, done: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let found = status(server);
        if done(&found) {
            return found;
        }
        assert!(begun.elapsed() < 3 * PATIENCE, "{found}");
        std::thread::yield_now();
    }
}

fn key_file(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("railpost-data/master.key")).unwrap()
}

fn open(folder: &Path, key: &[u8]) -> Result<SqliteStore, StoreError> {
    let master_key = MasterKey::new(key.try_into().unwrap());
    let setup = Setup { source: Arc::new(SystemSource), master_key };
    SqliteStore::open(&folder.join("railpost-data/railpost.db"), setup)
}

/// Answers everything, and counts what is not signed with the endpoint's secret.
fn verify_all(receiver: &Receiver, stop: &AtomicBool) -> (u32, u32) {
    let trusted = railpost_receiver::Receiver::new(vec![seeded::secret()], Vec::new());
    let (mut verified, mut refused) = (0, 0);
    while let Some(arrived) = receiver.next_until(stop) {
        let now = SystemSource.now().as_millis() / 1000;
        let header = |name: &str| arrived.header(name).map(str::as_bytes);
        match trusted.verify(header, arrived.body.as_bytes(), now as i64) {
            Ok(_) => verified += 1,
            Err(_) => refused += 1,
        }
        arrived.answer(200);
    }
    (verified, refused)
}

#[test]
fn the_master_key_is_rotated_under_load_although_the_process_is_killed_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::new();
    seeded::seed(folder.path(), &receiver.url());
    add_idle_endpoints(folder.path());
    let old = key_file(folder.path());
    let stop = AtomicBool::new(false);
    let (verified, refused) = std::thread::scope(|scope| {
        let verifying = scope.spawn(|| verify_all(&receiver, &stop));
        let mut server = start(folder.path());
        for number in 0..50 {
            server.publish(&json!({"id": format!("before-{number}"), "type": "a", "payload": 1}));
        }
        let (code, begun) = server.post(ROTATION, &json!({}));
        assert_eq!((code, &begun["running"]), (200, &json!(true)), "{begun}");
        let mut kills = 0;
        while kills < 3 {
            let is_running = |found: &Value| found["running"] == true;
            let found = status_when(&server, |found| {
                !is_running(found) || found["reencrypted"].as_u64() > Some(0)
            });
            if !is_running(&found) {
                break;
            }
            server.publish(&json!({"id": format!("kill-{kills}"), "type": "a", "payload": 1}));
            kills += 1;
            server.signal("KILL");
            server.ended();
            let both = key_file(folder.path());
            assert_eq!((both.len(), both[32..].to_vec()), (64, old.clone()), "both keys are kept");
            server = start(folder.path());
        }
        assert!(kills > 0, "it is killed in the middle at least once");
        for number in 0..50 {
            server.publish(&json!({"id": format!("after-{number}"), "type": "a", "payload": 1}));
        }
        status_when(&server, |found| found["running"] == false);
        let begun = Instant::now();
        while key_file(folder.path()).len() != 32 {
            assert!(begun.elapsed() < PATIENCE, "the old key is still in the file");
            std::thread::yield_now();
        }
        let (_, audit) = server.get("/v1/audit", ADMIN_KEY);
        assert_eq!(audit.matches("master_key.rotated").count(), 1, "it ends once: {audit}");
        server.stopped();
        stop.store(true, Ordering::SeqCst);
        verifying.join().unwrap()
    });
    assert_eq!(refused, 0);
    assert!(verified > 100, "every event came at least once; {verified} came");

    let new = key_file(folder.path());
    assert_ne!(new, old);
    assert!(matches!(open(folder.path(), &old), Err(StoreError::WrongMasterKey)));
    let store = open(folder.path(), &new).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        for number in 0..IDLE_ENDPOINTS {
            let held = store.secrets(idle(number)).await.unwrap();
            let [SecretValue::Shared(secret)] =
                &held.iter().map(|secret| secret.value.clone()).collect::<Vec<_>>()[..]
            else {
                panic!("{held:?}")
            };
            assert_eq!(*secret.reveal(), *idle_secret(number).reveal());
        }
        let sent_to = store.endpoint(seeded::endpoint()).await.unwrap().unwrap();
        assert_eq!(sent_to.private.unwrap().headers["x-token"], seeded::TOKEN);
    });
}

#[test]
fn the_command_line_rotates_to_a_key_of_the_operators_and_shows_how_far_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let new = folder.path().join("new.key");
    std::fs::write(&new, [42; 32]).unwrap();
    let run = |arguments: &[&str]| {
        let url = server.url("");
        let whole = [arguments, &["--server", &url, "--api-key", ADMIN_KEY]].concat();
        output(folder.path(), &whole)
    };
    let (_, said, _) = run(&["rotate-master-key", "--status"]);
    assert!(said.contains("is not being rotated"), "{said}");
    let path = new.to_str().unwrap();
    let (code, _, problem) = run(&["rotate-master-key", "--new-key-file", path]);
    assert!(code != 0 && problem.contains("chmod 600"), "{problem}");
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (code, said, problem) = run(&["rotate-master-key", "--new-key-file", path]);
    assert_eq!(code, 0, "{problem}");
    assert!(said.contains("the master key is rotated since"), "{said}");
    server.stopped();
    assert_eq!(key_file(folder.path()), [42; 32]);
    start(folder.path()).stopped();
}

#[test]
fn a_command_prints_the_master_key_and_both_keys_for_a_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, [1; 32]).unwrap();
    let command = format!("cat {}", keys.display());
    let set = [
        ("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY),
        ("RAILPOST_STORE_MASTER_KEY_COMMAND", command.as_str()),
    ];
    let server = Running::start_with(folder.path(), &[], &set);
    let (code, refused) = server.post(ROTATION, &json!({}));
    assert_eq!(code, 409, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("must print the new key"), "{refused}");
    std::fs::write(&keys, [[2; 32], [1; 32]].concat()).unwrap();
    let (code, begun) = server.post(ROTATION, &json!({}));
    assert_eq!((code, &begun["running"]), (200, &json!(true)), "{begun}");
    status_when(&server, |found| found["running"] == false);
    server.stopped();
    assert!(!folder.path().join("railpost-data/master.key").exists(), "no file is made");
    std::fs::write(&keys, [2; 32]).unwrap();
    Running::start_with(folder.path(), &[], &set).stopped();

    for (printed, problem) in [
        (&b"short"[..], "it printed 5"),
        (&[2; 65][..], "it printed more"),
        (&[1; 32][..], "the master key is not the one"),
    ] {
        std::fs::write(&keys, printed).unwrap();
        let mut command = railpost(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        let ended = command.envs(set.iter().copied()).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && said.contains(problem), "{said}");
    }
    let fails = [set[0], ("RAILPOST_STORE_MASTER_KEY_COMMAND", "false")];
    let mut command = railpost(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let ended = command.envs(fails.iter().copied()).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("store.master_key_command: `false` failed"), "{said}");
}
