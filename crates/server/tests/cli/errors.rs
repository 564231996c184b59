//! What people are told when something goes wrong.

use std::io::{Read, Write};

use crate::world::{World, railpost, run_with};

/// The URL of a server that answers every request with this, and is no Railpost.
fn other_server(answer: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_server_that_is_not_railpost_is_said_to_be_so() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<html></html>",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
    ] {
        let url = other_server(answer);
        for command in
            [&["tenants", "list"][..], &["send", "a.b"], &["send", "a.b", "--count", "2"]]
        {
            let mut failed = railpost();
            failed.args(command).args(["--server", &url]);
            let failed = run_with(failed, b"").expect(1);
            assert!(failed.err.contains("is not a Railpost server"), "{command:?}: {}", failed.err);
            assert!(failed.err.contains("RAILPOST_URL"), "{}", failed.err);
        }
    }
}

#[test]
fn https_to_a_server_that_speaks_http_says_to_try_http() {
    let world = World::new();
    let server = world.url().replace("http://", "https://");
    let failed = world.run(&["whoami", "--server", &server]).expect(1);
    assert!(failed.err.contains("may speak http"), "{}", failed.err);
    assert!(failed.err.contains(&format!("RAILPOST_URL to {}\n", world.url())), "{}", failed.err);
}

#[test]
fn a_path_too_much_in_the_url_is_said_to_be_so() {
    let world = World::new();
    for path in ["/v1", "/v1/", "/dashboard"] {
        let server = format!("{}{path}", world.url());
        for command in [&["whoami"][..], &["send", "a.b"]] {
            let failed = world.run(&[command, &["--server", &server]].concat()).expect(1);
            assert!(failed.err.contains(&format!("the path `{path}`")), "{}", failed.err);
            assert!(
                failed.err.contains(&format!("RAILPOST_URL to {}\n", world.url())),
                "{}",
                failed.err
            );
        }
    }
}

#[test]
fn an_empty_list_says_which_tenant_was_asked_and_which_exist() {
    let world = World::new();
    assert_eq!(
        world.run(&["events", "list"]).expect(0).err,
        "There is nothing to show in tenant `default`.\n"
    );
    world.run(&["tenants", "create", "acme"]).expect(0);
    let empty = world.run(&["events", "list", "--type", "a.b"]).expect(0).err;
    assert!(empty.starts_with("Nothing in tenant `default` matches."), "{empty}");
    assert!(empty.contains("`acme`") && empty.contains("RAILPOST_TENANT"), "{empty}");
    let unknown = world.run(&["events", "list", "--tenant", "nobody"]).expect(1).err;
    assert!(unknown.contains("`acme`, `default`"), "{unknown}");
    let key = world.json(&["keys", "create", "own", "--tenant", "acme"])["key"].clone();
    let key = key.as_str().unwrap();
    let own = world.run(&["events", "list", "--tenant", "acme", "--api-key", key]).expect(0).err;
    assert_eq!(own, "There is nothing to show in tenant `acme`.\n");
    let others = world.run(&["events", "list", "--api-key", key]).expect(1).err;
    assert!(others.contains("this API key is for tenant `acme` alone"), "{others}");
}

#[test]
fn a_usage_error_shows_what_is_required_whatever_the_environment_sets() {
    let world = World::new();
    for (arguments, usage) in [
        (&["endpoints", "create"][..], "Usage: railpost endpoints create [OPTIONS] --url <URL>\n"),
        (&["endpoint", "get"], "Usage: railpost endpoints show [OPTIONS] <ID>\n"),
        (&["send"], "Usage: railpost send [OPTIONS] <TYPE>\n"),
        (
            &["events", "redeliver", "x"],
            "railpost events redeliver [OPTIONS] --to <ENDPOINT> <ID>\n",
        ),
    ] {
        let failed = world.run(arguments).expect(2);
        assert!(failed.err.contains(usage), "{arguments:?}: {}", failed.err);
    }
}

#[test]
fn a_refused_private_address_names_the_flag_that_allows_it() {
    let world = World::new();
    let refused = world.run(&["endpoints", "create", "--url", "http://10.1.2.3/hooks"]).expect(1);
    assert!(refused.err.contains("--allow-network 10.1.2.3/32"), "{}", refused.err);
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_started_with_serve() {
    // A port that was free a moment ago and that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = railpost();
    command.args(["tenants", "list", "--server", &format!("http://127.0.0.1:{port}")]);
    let failed = run_with(command, b"").expect(1);
    assert!(failed.err.contains("railpost serve"), "{}", failed.err);
}

#[test]
fn refusals_say_what_to_do_next() {
    let world = World::new();
    for (arguments, wanted) in [
        (&["tenants", "list", "--api-key", ""][..], "export RAILPOST_API_KEY"),
        (&["tenants", "list", "--api-key", "rp_wrong"], "check RAILPOST_API_KEY"),
        (&["send", "a.b", "--tenant", "nobody"], "choose a tenant with --tenant"),
        (&["tenants", "show", "nobody"], "Not found: no such tenant: `nobody`"),
        (&["tenants", "create", "Bad Id"], "Invalid field: "),
        (&["send", "not a type"], "type:"),
    ] {
        let failed = world.run(arguments).expect(1);
        assert!(failed.err.contains(wanted), "{arguments:?}: {}", failed.err);
        assert_eq!(failed.out, "", "{arguments:?}");
    }
}

#[test]
fn with_json_an_error_is_json_with_the_problem() {
    let world = World::new();
    let failed = world.run(&["tenants", "show", "nobody", "--json"]).expect(1);
    let error: serde_json::Value = serde_json::from_str(&failed.err).unwrap();
    assert_eq!(error["problem"]["code"], "not_found");
}

#[test]
fn a_url_that_is_none_and_data_that_is_no_json_are_usage() {
    let world = World::new();
    assert!(world.run(&["whoami", "--server", "nowhere"]).expect(2).err.contains("--server"));
    assert!(world.run(&["whoami", "--server", "ftp://a.test"]).expect(2).err.contains("`ftp`"));
    assert!(world.run(&["send", "a.b", "--data", "{total: 1}"]).expect(2).err.contains("--data"));
    assert!(
        world
            .run(&["send", "a.b", "--data", "@/no/such/file"])
            .expect(2)
            .err
            .contains("/no/such/file")
    );
}
