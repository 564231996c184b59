//! What it says when it cannot start.

use std::io::{Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::process::{Running, output};

/// Says why it does not start with these arguments.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let arguments = [&["serve"], arguments].concat();
    let (code, stdout, stderr) = output(folder, &arguments);
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    stderr
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "{part} not in {text}");
    }
}

/// A folder in which a server ran.
fn used() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Running::start(folder.path(), &[]).stopped().0, 0);
    folder
}

const ANY_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn a_port_that_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = refused(folder.path(), &["--listen", &address]);
    says(&text, &["server.listen", &address, "another program", "--listen", "ss -ltnp"]);
    assert!(!folder.path().join("railpost-data").exists(), "it began although it cannot listen");
}

#[test]
fn a_data_folder_that_cannot_be_made() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let arguments = [&ANY_PORT[..], &["--data-dir", "file/data"]].concat();
    says(&refused(folder.path(), &arguments), &["server.data_dir", "file/data", "--data-dir"]);
}

#[test]
fn a_database_that_another_process_has() {
    let folder = tempfile::tempdir().unwrap();
    let _running = Running::start(folder.path(), &[]);
    says(&refused(folder.path(), &ANY_PORT), &["railpost.db", "in use", "another process"]);
}

#[test]
fn a_master_key_that_others_may_read() {
    let folder = used();
    let key = folder.path().join("railpost-data/master.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    says(&refused(folder.path(), &ANY_PORT), &["master.key", "644", "chmod 600"]);
}

#[test]
fn a_database_without_its_master_key() {
    let folder = used();
    let key = folder.path().join("railpost-data/master.key");
    std::fs::remove_file(&key).unwrap();
    says(&refused(folder.path(), &ANY_PORT), &["railpost.db", "no master key", "put the key back"]);
    assert!(!key.exists());
}

#[test]
fn a_wrong_master_key() {
    let folder = used();
    let key = folder.path().join("railpost-data/master.key");
    std::fs::write(&key, [1; 32]).unwrap();
    says(
        &refused(folder.path(), &ANY_PORT),
        &["master key is not the one", "store.master_key_file"],
    );
    std::fs::write(&key, [1; 31]).unwrap();
    says(&refused(folder.path(), &ANY_PORT), &["31 bytes instead of 32"]);
}

#[test]
fn a_database_of_a_newer_version() {
    let folder = used();
    let database = folder.path().join("railpost-data/railpost.db");
    let mut file = std::fs::File::options().write(true).open(database).unwrap();
    // Where SQLite's file format keeps `user_version`.
    file.seek(SeekFrom::Start(60)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
    says(&refused(folder.path(), &ANY_PORT), &["schema 99", "newer version"]);
}

#[test]
fn a_database_that_cannot_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://me:hunter2@127.0.0.1:1/railpost";
    let text = refused(folder.path(), &[&ANY_PORT[..], &["--store", url]].concat());
    says(&text, &["store.url", "PostgreSQL", "is it running"]);
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_certificate_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("railpost.toml");
    std::fs::write(file, "[server]\ntls_certificate = \"no.pem\"\ntls_key = \"no.pem\"\n").unwrap();
    says(&refused(folder.path(), &ANY_PORT), &["server.tls_certificate", "no.pem"]);
}
