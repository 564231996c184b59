//! What a thief of the files does not find.

use base64::Engine;
use railpost::config::Config;
use ring::digest::{SHA256, digest};
use serde_json::json;

use crate::world::{JSON, World};

#[test]
fn keys_secrets_and_static_headers_are_nowhere_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.server.data_dir = folder.path().join("data");
    let world = World::stored(config.clone());
    let headers = [JSON[0], ("idempotency-key", "again")];
    let post = |path: &str, body: serde_json::Value| {
        world.call("POST", path, &world.admin, &headers, body.to_string().as_bytes()).expect(201)
    };
    let endpoint =
        json!({"url": "https://example.com", "headers": {"X-Token": "t0ken-of-the-endpoint"}});
    let endpoint = post("/v1/tenants/default/endpoints", endpoint).json();
    let secret = endpoint["secret"]["value"].as_str().unwrap().to_owned();
    let key = post("/v1/keys", json!({"name": "a", "scope": "admin"})).json();
    let key = key["key"].as_str().unwrap().to_owned();
    let hash = digest(&SHA256, key.as_bytes()).as_ref().try_into().unwrap();
    let stored = world.wait_for(world.server().app().store.api_key_by_hash(&hash)).unwrap();
    assert_eq!(stored.unwrap().name, "a");
    let admin = world.admin.clone();
    drop(world);
    let encoded = secret.strip_prefix("whsec_").unwrap();
    let raw = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    let hidden: [&[u8]; 5] =
        [admin.as_bytes(), key.as_bytes(), encoded.as_bytes(), &raw, b"t0ken-of-the-endpoint"];
    let mut looked_at = 0;
    for entry in std::fs::read_dir(&config.server.data_dir).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for (index, text) in hidden.iter().enumerate() {
            let found = bytes.windows(text.len()).any(|part| part == *text);
            assert!(!found, "number {index} stands in {}", path.display());
        }
        looked_at += bytes.len();
    }
    assert!(looked_at > 10_000, "the database is among the files");
}
