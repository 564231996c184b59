//! Backup, restore, and what receivers make of it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use railpost_receiver::{MemoryInbox, Verdict};
use serde_json::json;

use super::process::{ADMIN_KEY, Running, output, railpost};
use super::receiver::Receiver;

fn start(folder: &Path) -> Running {
    Running::start_with(folder, &[], &[("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)])
}

fn create_endpoint(server: &Running, receiver: &Receiver) -> String {
    let endpoint = json!({"url": receiver.url()});
    let (status, made) = server.post("/v1/tenants/default/endpoints", &endpoint);
    assert_eq!(status, 201, "{made}");
    made["secret"]["value"].as_str().unwrap().to_owned()
}

/// A receiver's application, with the real inbox.
struct Shop {
    receiver: Receiver,
    verifier: railpost_receiver::Receiver,
    inbox: MemoryInbox,
    applied: Vec<String>,
}

impl Shop {
    /// Takes the next request, and says what the inbox made of it.
    fn take(&mut self) -> Verdict {
        let arrived = self.receiver.next();
        let header = |name: &str| arrived.header(name).map(str::as_bytes);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let received = self.verifier.verify(header, arrived.body.as_bytes(), now).unwrap();
        let applied = &mut self.applied;
        let verdict = self.inbox.apply(&received, now, || {
            applied.push(received.event_id.to_string());
            Ok::<(), std::convert::Infallible>(())
        });
        let verdict = verdict.unwrap();
        arrived.answer(verdict.answer().status);
        verdict
    }

    /// Takes requests until this event was applied.
    fn take_until(&mut self, event: &str) {
        while !self.applied.iter().any(|applied| applied == event) {
            self.take();
        }
    }
}

fn publish(server: &Running, ids: std::ops::RangeInclusive<u32>) {
    for id in ids {
        server.publish(&json!({"id": format!("e{id}"), "type": "a", "key": "k", "payload": id}));
    }
}

#[test]
fn a_receiver_applies_all_that_is_published_after_a_restore() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let receiver = Receiver::new();
    let secret = create_endpoint(&server, &receiver);
    let verifier = railpost_receiver::Receiver::new(vec![secret.parse().unwrap()], vec![]);
    let (inbox, applied) = (MemoryInbox::default(), Vec::new());
    let mut shop = Shop { receiver, verifier, inbox, applied };
    publish(&server, 1..=3);
    shop.take_until("e3");
    let (status, answer) = server.post("/v1/backup", &json!({"path": "monday.db"}));
    assert_eq!(status, 200, "{answer}");
    publish(&server, 4..=6);
    shop.take_until("e6");
    assert_eq!(server.stopped().0, 0);

    let (code, out, err) = output(folder.path(), &["restore", "railpost-data/backups/monday.db"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("railpost-data/railpost.db"), "{out}");
    let kept = err.split("is kept as ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(folder.path().join(kept.trim_end_matches('.')).exists(), "{err}");

    // The seqs 4, 5 and 6 are given out once more, to other events.
    let server = start(folder.path());
    publish(&server, 7..=10);
    shop.take_until("e10");
    let all: Vec<String> = (1..=10).map(|id| format!("e{id}")).collect();
    assert_eq!(shop.applied, all);
    assert_eq!(server.get("/v1/tenants/default/events/e5", ADMIN_KEY).0, 404);
}

#[test]
fn a_store_that_a_server_has_open_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    assert_eq!(server.post("/v1/backup", &json!({"path": "a.db"})).0, 200);
    publish(&server, 1..=1);
    let backup = "railpost-data/backups/a.db";
    let (code, _, err) = output(folder.path(), &["restore", backup]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use") && err.contains("until its process has ended"), "{err}");
    assert_eq!(server.get("/v1/tenants/default/events/e1", ADMIN_KEY).0, 200);
}

#[test]
fn what_is_no_backup_of_this_store_leaves_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    publish(&server, 1..=1);
    assert_eq!(server.post("/v1/backup", &json!({"path": "a.db"})).0, 200);
    assert_eq!(server.stopped().0, 0);
    std::fs::write(folder.path().join("no.db"), "no database").unwrap();
    let mkfifo = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(mkfifo.unwrap().success());
    let backup = "railpost-data/backups/a.db";
    for (arguments, said) in [
        (&["restore", "no.db"][..], "error: the backup no.db is damaged: "),
        (&["restore", "missing.db"], "error: cannot read the backup missing.db: No such file"),
        (&["restore", "pipe"], "error: cannot read the backup pipe: it is not a regular file"),
        (&["restore", "railpost-data"], "it is not a regular file"),
        (&["restore", "railpost-data/railpost.db"], "it is the store itself"),
        (&["restore", backup, "--store", "memory:"], "memory store"),
        (&["restore", backup, "--data-dir", "elsewhere"], "the master key is missing"),
    ] {
        let (code, _, err) = output(folder.path(), arguments);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains(said), "{said} not in {err}");
    }
    assert!(!folder.path().join("elsewhere").exists());
    let key = folder.path().join("railpost-data/master.key");
    let master = std::fs::read(&key).unwrap();
    std::fs::write(&key, [1; 32]).unwrap();
    let (code, _, err) = output(folder.path(), &["restore", backup]);
    assert_eq!(code, 1);
    assert!(err.contains("master key is not the one"), "{err}");
    std::fs::write(&key, master).unwrap();
    let server = start(folder.path());
    assert_eq!(server.get("/v1/tenants/default/events/e1", ADMIN_KEY).0, 200);
}

#[test]
fn a_backup_is_verified_beside_the_running_server_and_damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    let receiver = Receiver::new();
    create_endpoint(&server, &receiver);
    publish(&server, 1..=3);
    assert_eq!(server.post("/v1/backup", &json!({"path": "a.db"})).0, 200);
    let backup = folder.path().join("railpost-data/backups/a.db");
    let verify = |file: &str, more: &[&str]| {
        output(folder.path(), &[&["backup", "verify", file, "--scratch", "."], more].concat())
    };
    let (code, out, err) = verify(backup.to_str().unwrap(), &[]);
    assert_eq!(code, 0, "{err}");
    let holds = "can be restored: 2 tenants, 1 endpoints, 1 secrets, 3 events (newest: 2";
    assert!(out.contains(holds) && out.contains(" 3 open deliveries, 0 dead letters"), "{out}");
    let (_, out, _) = verify("railpost-data/backups/a.db", &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["contents"]["events"], 3);

    let whole = std::fs::read(&backup).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (bytes, said) in [
        (&flipped[..], "does not match its checksum"),
        (&whole[..whole.len() - 100], "cut short"),
        (&whole[..whole.len() / 4096 / 2 * 4096], "is damaged: "),
        (b"", "is damaged: "),
    ] {
        std::fs::write(folder.path().join("damaged.db"), bytes).unwrap();
        let (code, out, err) = verify("damaged.db", &[]);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.starts_with("error: the backup damaged.db is damaged: "), "{err}");
        assert!(err.contains(said), "{said} not in {err}");
    }
    std::fs::create_dir(folder.path().join("other")).unwrap();
    for (arguments, said) in [
        (&["--data-dir", "other"][..], "the master key is missing"),
        (&["--scratch", "nowhere"], "cannot make a folder in nowhere"),
    ] {
        let verify = [&["backup", "verify", "railpost-data/backups/a.db"], arguments].concat();
        let (code, _, err) = output(folder.path(), &verify);
        assert!(code == 1 && err.contains(said), "{err}");
    }
    // Nothing is left of the copies.
    let left = std::fs::read_dir(folder.path()).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["damaged.db", "other", "railpost-data"]);
    assert_eq!(server.get("/v1/tenants/default/events/e3", ADMIN_KEY).0, 200);
}

#[test]
fn a_damaged_store_is_called_damaged_by_a_check_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path());
    for first in 0..20 {
        publish(&server, first * 10 + 1..=first * 10 + 10);
    }
    let mut command = railpost(folder.path(), &["store", "verify"]);
    command.env("RAILPOST_URL", server.url("")).env("RAILPOST_API_KEY", ADMIN_KEY);
    let verified = command.output().unwrap();
    assert_eq!(String::from_utf8(verified.stdout).unwrap(), "the store is whole\n");
    assert_eq!(server.stopped().0, 0);
    let (code, out, err) = output(folder.path(), &["store", "verify", "--offline"]);
    assert_eq!((code, out.as_str()), (0, "the store is whole\n"), "{err}");

    let database = folder.path().join("railpost-data/railpost.db");
    let mut bytes = std::fs::read(&database).unwrap();
    let last_page = bytes.len() - 4096;
    bytes[last_page..].fill(0xff);
    std::fs::write(&database, bytes).unwrap();
    let (code, _, err) = output(folder.path(), &["store", "verify", "--offline"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("the store is damaged: ") && err.contains("railpost restore FILE"),
        "{err}"
    );
}

#[test]
fn a_check_of_a_store_that_is_not_there_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["--data-dir", "d"], &["--store", "sqlite:other.db"]] {
        let verify = [&["store", "verify", "--offline"], arguments].concat();
        let (code, out, err) = output(folder.path(), &verify);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("there is no store at "), "{err}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    let verify = ["store", "verify", "--offline", "--store", "sqlite:empty.db"];
    let (code, _, err) = output(folder.path(), &verify);
    assert!(code == 1 && err.contains("there is no store at empty.db"), "{err}");
    assert_eq!(std::fs::read(folder.path().join("empty.db")).unwrap(), b"");
}

#[test]
fn a_store_that_does_not_open_because_it_is_damaged_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(start(folder.path()).stopped().0, 0);
    let database = folder.path().join("railpost-data/railpost.db");
    let whole = std::fs::read(&database).unwrap();
    let mut foreign = whole.clone();
    // The id of the application that a SQLite file belongs to.
    foreign[68..72].fill(7);
    for damaged in [&whole[..5000], &whole[..4096], &whole[..100], b"no database", &foreign[..]] {
        std::fs::write(&database, damaged).unwrap();
        let (code, _, err) = output(folder.path(), &["store", "verify", "--offline"]);
        assert_eq!(code, 1, "{err}");
        assert!(err.starts_with("error: the store is damaged: "), "{err}");
        assert!(err.contains("restore a backup") && !err.contains("store verify"), "{err}");
    }
}

#[test]
fn a_store_that_was_copied_back_begins_new_lines_before_its_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let renew = ["lines", "renew", "--offline", "--yes"];
    let (code, _, err) = output(folder.path(), &renew);
    assert!(code == 1 && err.contains("there is no store at "), "{err}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    let server = start(folder.path());
    let receiver = Receiver::new();
    create_endpoint(&server, &receiver);
    let next_place = |server: &Running, id: u32| {
        publish(server, id..=id);
        let arrived = receiver.next();
        let place = ["x-lane", "x-seq"].map(|name| arrived.header(name).unwrap().to_owned());
        arrived.answer(200);
        place
    };
    let [old_line, _] = next_place(&server, 1);
    let (code, _, err) = output(folder.path(), &renew);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("in use") && err.contains("until its process has ended"), "{err}");
    assert_eq!(server.stopped().0, 0);

    let (code, _, err) = output(folder.path(), &renew[..3]);
    assert!(code == 2 && err.contains("--yes"), "{err}");
    let (code, out, err) = output(folder.path(), &renew);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("every lane begins a new line"), "{out}");
    let server = start(folder.path());
    let [new_line, seq] = next_place(&server, 2);
    assert_eq!(seq, "1");
    assert_ne!(new_line, old_line);
    assert_eq!(server.stopped().0, 0);

    std::fs::write(folder.path().join("railpost-data/railpost.db"), "no database").unwrap();
    let (code, _, err) = output(folder.path(), &renew);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the store is damaged: ") && err.contains("restore a backup"), "{err}");
}

/// A library that has every sync of a file fail while the file that `FAIL_SYNC_IF` names exists.
#[cfg(target_os = "linux")]
const FAILING_SYNC: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int fails(void) { const char *file = getenv("FAIL_SYNC_IF"); return file && access(file, F_OK) == 0; }
int fsync(int fd) { if (fails()) { errno = EIO; return -1; } return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { if (fails()) { errno = EIO; return -1; } return syscall(SYS_fdatasync, fd); }
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_ends_the_process_and_the_next_start_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("sync.c"), folder.path().join("sync.so"));
    std::fs::write(&source, FAILING_SYNC).unwrap();
    let mut cc = std::process::Command::new("cc");
    let built = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(built.success());
    let broken = folder.path().join("broken");
    let set = [
        ("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY),
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAIL_SYNC_IF", broken.to_str().unwrap()),
    ];
    let server = Running::start_with(folder.path(), &[], &set);
    publish(&server, 1..=1);
    std::fs::write(&broken, "").unwrap();
    let event = json!({"id": "e2", "type": "a", "payload": 2});
    let (status, problem) = server.post("/v1/tenants/default/events", &event);
    assert_eq!((status, problem["code"].as_str()), (503, Some("store_stopped")), "{problem}");
    let (code, log) = server.ended();
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("\"event\":\"store_stopped\""), "{log}");
    std::fs::remove_file(&broken).unwrap();
    let server = Running::start_with(folder.path(), &[], &set);
    assert_eq!(server.get("/v1/tenants/default/events/e1", ADMIN_KEY).0, 200);
    publish(&server, 3..=3);
}
