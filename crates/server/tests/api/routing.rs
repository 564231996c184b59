//! Which route answers: the right path with the wrong method is told from the wrong path.

use crate::world::{JSON, World};

#[test]
fn the_wrong_method_is_told_which_ones_are_right() {
    let world = World::new();
    for (method, path, allow) in [
        ("DELETE", "/v1/tenants", "GET, HEAD, POST"),
        ("PUT", "/v1/tenants/default/events", "GET, HEAD, POST"),
        ("POST", "/health/live", "GET, HEAD"),
    ] {
        let answer = world.call(method, path, &world.admin, &JSON, b"{}").expect(405);
        assert_eq!(answer.code(), "method_not_allowed", "{method} {path}");
        let mut allowed: Vec<&str> =
            answer.headers["allow"].to_str().unwrap().split(", ").collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(", "), allow, "{method} {path}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{method} {path}");
    }
}

#[test]
fn what_is_no_path_is_not_found() {
    let world = World::new();
    for path in ["/v1", "/v1/tenants/", "/v1/tenants//events", "/v1/tenants/default/events/", "/x"]
    {
        let answer = world.get(path).expect(404);
        assert_eq!(answer.code(), "not_found", "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
    }
}

#[test]
fn a_request_for_the_head_is_answered_with_the_head_alone() {
    let world = World::new();
    let whole = world.get("/v1/tenants/default").expect(200);
    let head = world.call("HEAD", "/v1/tenants/default", &world.admin, &[], b"").expect(200);
    assert_eq!(head.text, "");
    for name in ["content-type", "content-length", "x-content-type-options"] {
        assert_eq!(head.headers[name], whole.headers[name], "{name}");
    }
}

#[test]
fn a_path_is_read_with_its_escapes() {
    let world = World::new();
    world.get("/v1/tenants/%64efault").expect(200);
    let refused = world.get("/v1/tenants/%ff").expect(400);
    assert_eq!(refused.json()["field"], "path");
}
