//! The PostgreSQL server of the tests: databases of its own for each run, and its restart.

use std::process::Stdio;

use tokio::process::Command;
use tokio_postgres::NoTls;

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"))
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The URL of a new database on the test server.
pub(crate) async fn fresh(name: &str) -> String {
    let server = setting("RAILPOST_TEST_POSTGRES");
    let name = format!("railpost_crash_{name}_{}", std::process::id());
    let client = connect(&server).await;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    format!("{base}/{name}")
}

/// Kills the server without letting it write anything, and starts it again: as a crash of its machine would.
pub(crate) async fn restart() {
    let program = setting("RAILPOST_TEST_POSTGRES_RESTART");
    let status = Command::new(program).stdout(Stdio::null()).status().await.unwrap();
    assert!(status.success(), "PostgreSQL did not restart: {status}");
}

/// Deliveries that are not closed, of the endpoint that retries.
pub(crate) async fn open_deliveries(url: &str) -> i64 {
    let client = connect(url).await;
    let sql = "SELECT count(*) FROM deliveries AS d JOIN endpoints AS e ON e.num = d.endpoint \
               WHERE d.standing <= 3 AND e.settings::text LIKE '%/applied%'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}
