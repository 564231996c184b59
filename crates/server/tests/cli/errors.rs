//! What people are told when something goes wrong.

use crate::world::{World, railpost, run_with};

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
        (&["send", "a.b", "--tenant", "nobody"], "railpost tenants list"),
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
    assert!(world.run(&["send", "a.b", "--data", "{total: 1}"]).expect(2).err.contains("--data"));
    assert!(
        world
            .run(&["send", "a.b", "--data", "@/no/such/file"])
            .expect(2)
            .err
            .contains("/no/such/file")
    );
}
