//! Sources that cannot be read say what is wrong and what to run; the others go on.

use super::database::Database;
use super::support::{World, is_reading, source};

#[tokio::test(flavor = "multi_thread")]
async fn a_source_in_trouble_says_so_and_keeps_no_other_from_being_read() {
    let (good, empty, poor) =
        (Database::with_outbox().await, Database::empty().await, Database::with_outbox().await);
    let role = format!("poor_{}", std::process::id());
    poor.run(&format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")).await;
    let poor_url = poor.url.replace("postgres://railpost@", &format!("postgres://{role}@"));
    let tenant = "tenant = \"acme\"";
    let other_shape = "tenant = \"acme\"\nshape = \"custom\"\ntable = \"railpost_outbox\"\n\
                       columns = { id = \"id\", type = \"kind\", payload = \"payload\", order = \"seq\" }";
    let world = World::new().await;
    let relay = world.relay(vec![
        source("gone", "postgres://railpost@127.0.0.1:1/none", tenant),
        source("no-database", &good.url.replace("/relay_", "/none_"), tenant),
        source("unknown-host", "postgres://railpost@no-such-host.invalid/none", tenant),
        source("no-tls", &format!("{}?sslmode=require", good.url), tenant),
        source("no-table", &empty.url, &format!("{tenant}\nmode = \"tail\"\ntable = \"other\"")),
        source("empty", &empty.url, tenant),
        source("poor", &poor_url, tenant),
        source("other", &good.url, other_shape),
        source("store", "store", tenant),
        source("good", &good.url, tenant),
    ]);
    for (name, code, told, advised) in [
        ("gone", "unavailable", "PostgreSQL at 127.0.0.1:1: ", ""),
        ("unknown-host", "wrong", "PostgreSQL at no-such-host.invalid:5432: ", "correct the host"),
        ("no-tls", "wrong", "does not support TLS", "sslmode"),
        ("no-table", "wrong", "there is no table other", "railpost outbox init"),
        ("no-database", "wrong", "does not exist", "correct the database"),
        ("empty", "wrong", "railpost_outbox", "railpost outbox init"),
        ("poor", "wrong", "permission denied", "railpost outbox check"),
        ("other", "wrong", "kind", "columns"),
        ("store", "wrong", "not in PostgreSQL", "store.url"),
    ] {
        let trouble = world.until_trouble(name, code).await;
        assert!(trouble.to_string().contains(told), "{name}: {trouble}");
        assert!(trouble.remedy().unwrap_or_default().contains(advised), "{name}: {trouble:?}");
    }
    good.emit("e1", "order.paid", None).await;
    world.until_accepted(1).await;
    // A source that was fixed goes on by itself.
    empty.run(railpost_outbox::sql::POSTGRES_TABLE).await;
    empty.run("INSERT INTO railpost_outbox (id, type, payload) VALUES ('e2', 'a', '{}')").await;
    poor.run(&format!("GRANT SELECT, DELETE ON railpost_outbox TO {role}")).await;
    poor.run("INSERT INTO railpost_outbox (id, type, payload) VALUES ('e3', 'a', '{}')").await;
    world.until_accepted(3).await;
    let reading: Vec<bool> = relay.status().iter().map(is_reading).collect();
    assert_eq!(reading, [false, false, false, false, false, true, true, false, false, true]);
    // Nobody knows what waits at a source that does not answer: as long as it does not, it may be late.
    let looking = async {
        while relay.status()[0].lag.is_zero() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), looking).await.unwrap();
    relay.stop().await;
    poor.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_removal_fails_stops_the_source_and_is_no_second_event() {
    let database = Database::with_outbox().await;
    database
        .run(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not yet'; END $$; \
             CREATE TRIGGER keep BEFORE DELETE ON railpost_outbox FOR EACH ROW EXECUTE FUNCTION keep()",
        )
        .await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"\nbatch = 1")]);
    for n in 1..=5 {
        database.emit(&format!("e{n}"), "order.paid", Some("1")).await;
    }
    let trouble = world.until_trouble("shop", "unavailable").await;
    assert!(trouble.to_string().contains("not yet"), "{trouble}");
    database.run("DROP TRIGGER keep ON railpost_outbox").await;
    relay.wake();
    world.until_accepted(5).await;
    database.until_empty("railpost_outbox").await;
    assert_eq!(world.ids(), ["e1", "e2", "e3", "e4", "e5"]);
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_ended_is_taken_up_again() {
    let database = Database::with_outbox().await;
    let world = World::new().await;
    let relay = world.relay(vec![source("shop", &database.url, "tenant = \"acme\"")]);
    for n in 1..=5 {
        database.emit(&format!("e{n}"), "order.paid", Some("1")).await;
        world.until_accepted(n).await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND application_name LIKE 'railpost outbox%'";
        database.run(end).await;
    }
    assert_eq!(world.ids(), ["e1", "e2", "e3", "e4", "e5"]);
    relay.stop().await;
}
