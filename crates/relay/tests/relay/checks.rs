//! `check` names what is wrong with a source, and its SQL fixes it.

use railpost_relay::{Finding, SourceConfig, Verdict, check, drop_source, init};

use super::database::Database;
use super::support::source;

fn worst(findings: &[Finding]) -> Vec<(&'static str, Verdict)> {
    let wrong = findings.iter().filter(|finding| finding.verdict != Verdict::Good);
    wrong.map(|finding| (finding.condition, finding.verdict)).collect()
}

/// Runs every fix that is SQL.
async fn fix(database: &Database, config: &SourceConfig) {
    for finding in check(config, None).await {
        for statement in finding.fix.iter().filter(|fix| fix.contains(';')) {
            database
                .client
                .batch_execute(statement)
                .await
                .unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_init_made_has_nothing_wrong() {
    for fields in ["", "wake = \"notify\"\norder = \"commit\"", "table = \"public.events\""] {
        let database = Database::empty().await;
        let config = source("shop", &database.url, &format!("tenant = \"acme\"\n{fields}"));
        assert_eq!(worst(&check(&config, None).await), [("table", Verdict::Bad)]);
        // What is there already is left as it is.
        for _ in 0..2 {
            init(&config, None).await.unwrap();
            assert_eq!(worst(&check(&config, None).await), [], "{fields}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_made_table_is_mended_by_what_check_says() {
    let database = Database::empty().await;
    database
        .run(
            "CREATE SEQUENCE numbers CACHE 50; \
             CREATE TABLE events (id text, n bigint DEFAULT nextval('numbers'), kind text, body text, done bool); \
             ALTER SEQUENCE numbers OWNED BY events.n",
        )
        .await;
    let fields = "tenant = \"acme\"\nshape = \"custom\"\ntable = \"events\"\nafter = \"mark\"\nwake = \"notify\"\n\
                  columns = { id = \"id\", type = \"kind\", payload = \"body\", order = \"n\", done = \"done\" }";
    let config = source("shop", &database.url, fields);
    let expected = [
        ("sequence", Verdict::Bad),
        ("unique", Verdict::Bad),
        ("floor", Verdict::Warning),
        ("notify", Verdict::Bad),
        ("mark", Verdict::Warning),
    ];
    assert_eq!(worst(&check(&config, None).await), expected);
    fix(&database, &config).await;
    // The floor needs a word in the configuration too.
    assert_eq!(worst(&check(&config, None).await), [("floor", Verdict::Warning)]);
    let config = source(
        "shop",
        &database.url,
        &fields.replace("done = \"done\"", "done = \"done\", xid = \"xid\""),
    );
    assert_eq!(worst(&check(&config, None).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_the_application_gives_are_no_order() {
    let database = Database::empty().await;
    database
        .run("CREATE TABLE events (id text, n bigint PRIMARY KEY, kind text, body text, xid xid8)")
        .await;
    let fields = "tenant = \"acme\"\nshape = \"custom\"\ntable = \"events\"\n\
                  columns = { id = \"id\", type = \"kind\", payload = \"body\", order = \"n\", xid = \"xid\" }";
    let config = source("shop", &database.url, fields);
    let findings = check(&config, None).await;
    assert_eq!(worst(&findings), [("order", Verdict::Bad), ("floor", Verdict::Warning)]);
    let order = findings.iter().find(|finding| finding.condition == "order").unwrap();
    assert!(order.fix.as_ref().unwrap().contains("GENERATED ALWAYS AS IDENTITY"), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_lacks_rights_is_told_which() {
    let database = Database::with_outbox().await;
    let role = format!("reader_{}", std::process::id());
    database.run(&format!("DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN")).await;
    let url = database.url.replace("railpost@", &format!("{role}@"));
    let slot = database.url.rsplit('/').next().unwrap();
    let fields = format!("tenant = \"acme\"\nmode = \"tail\"\nslot = \"{slot}\"");
    let config = source("shop", &url, &fields);
    assert_eq!(worst(&check(&config, None).await), [("rights", Verdict::Bad)]);
    fix(&database, &config).await;
    let expected = [
        ("replication", Verdict::Bad),
        ("publication", Verdict::Bad),
        ("log size", Verdict::Warning),
    ];
    assert_eq!(worst(&check(&config, None).await), expected);
    let sql =
        check(&config, None).await.into_iter().filter(|finding| finding.verdict == Verdict::Bad);
    for fix in sql.filter_map(|finding| finding.fix) {
        database.run(&fix).await;
    }
    assert_eq!(worst(&check(&config, None).await), [("log size", Verdict::Warning)]);
    let own = source("shop", &database.url, &fields);
    assert_eq!(drop_source(&own, None).await, Ok(vec![format!("publication {slot}")]));
    assert_eq!(drop_source(&own, None).await, Ok(vec![]));
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tailed_table_is_checked_for_its_columns_and_its_number() {
    let database = Database::empty().await;
    database
        .run("CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype text, aggregateid text, kind text, payload jsonb)")
        .await;
    let config = source(
        "shop",
        &database.url,
        "tenant = \"acme\"\nmode = \"tail\"\nshape = \"debezium\"\nslot = \"none\"",
    );
    assert_eq!(worst(&check(&config, None).await), [("columns", Verdict::Bad)]);
    database.run("ALTER TABLE outboxevent RENAME kind TO type").await;
    let conditions: Vec<&str> =
        worst(&check(&config, None).await).into_iter().map(|(name, _)| name).collect();
    assert_eq!(conditions, ["order", "publication", "log size"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_file_that_init_made_has_nothing_wrong() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("shop.db");
    let config = source("shop", &format!("sqlite:{}", path.display()), "tenant = \"acme\"");
    assert_eq!(worst(&check(&config, None).await), [("file", Verdict::Bad)]);
    init(&config, None).await.unwrap();
    init(&config, None).await.unwrap();
    assert_eq!(worst(&check(&config, None).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_configuration_left_at_a_source_is_dropped_too() {
    let database = Database::empty().await;
    let slot = database.url.rsplit('/').next().unwrap();
    let tailed = format!("tenant = \"acme\"\nmode = \"tail\"\nslot = \"{slot}\"");
    let notified = source("shop", &database.url, "tenant = \"acme\"\nwake = \"notify\"");
    let tailed = source("shop", &database.url, &tailed);
    init(&notified, None).await.unwrap();
    init(&tailed, None).await.unwrap();
    init(&tailed, None).await.unwrap();
    let trigger = "trigger railpost_outbox_notify on railpost_outbox".to_owned();
    let polled = source("shop", &database.url, "tenant = \"acme\"");
    assert_eq!(drop_source(&polled, None).await, Ok(vec![trigger]));
    assert_eq!(drop_source(&tailed, None).await, Ok(vec![format!("publication {slot}")]));
    assert_eq!(drop_source(&polled, None).await, Ok(vec![]));
    let away = source("shop", "postgres://railpost@127.0.0.1:1/none", "tenant = \"acme\"");
    assert_eq!(drop_source(&away, None).await.unwrap_err().code(), "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_encoding_is_refused() {
    let database = Database::empty().await;
    let name = format!("{}_latin1", database.url.rsplit('/').next().unwrap());
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    database.run(&create).await;
    let url = format!("{}/{name}", database.url.rsplit_once('/').unwrap().0);
    let config = source("shop", &url, "tenant = \"acme\"");
    init(&config, None).await.unwrap();
    assert_eq!(worst(&check(&config, None).await), [("encoding", Verdict::Bad)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_one_finding() {
    let config = source("shop", "postgres://railpost@127.0.0.1:1/none", "tenant = \"acme\"");
    assert_eq!(worst(&check(&config, None).await), [("connection", Verdict::Bad)]);
}
