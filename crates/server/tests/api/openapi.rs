//! The specification: the file in the repository is what the types say, and others can read it.

use std::path::Path;
use std::process::Command;

use crate::world::World;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi.json")
}

#[test]
fn the_file_in_the_repository_is_what_the_types_say() {
    let stored = std::fs::read_to_string(golden()).unwrap_or_default();
    let advice = "openapi.json differs from the API: if that is meant, renew it with \
                  `cargo run -- openapi > openapi.json` and look at its diff";
    assert!(stored == railpost::api::openapi_text(), "{advice}");
}

#[test]
fn an_independent_validator_finds_nothing_wrong() {
    let advice = "run the tests with `cargo xtask with-services test -p railpost`";
    let folder = std::env::var("RAILPOST_TEST_INTEROP")
        .unwrap_or_else(|_| panic!("RAILPOST_TEST_INTEROP is not set: {advice}"));
    let python = Path::new(&folder).join("venv/bin/python");
    let checked =
        Command::new(python).args(["-m", "openapi_spec_validator"]).arg(golden()).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
    assert!(said.contains("OK"), "{said}");
}

#[test]
fn the_server_shows_its_specification_and_pages_to_browse_it() {
    let world = World::new();
    let get = |path: &str| world.call("GET", path, "", &[], b"").expect(200);
    assert_eq!(get("/openapi.json").text, railpost::api::openapi_text());
    for path in ["/docs", "/docs/errors"] {
        let page = get(path);
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self'"), "{policy}");
    }
    assert_eq!(get("/docs/style.css").headers["content-type"], "text/css; charset=utf-8");
    for route in railpost::api::routes() {
        assert!(get("/docs").text.contains(route.path), "{} is not on the page", route.path);
    }
}
