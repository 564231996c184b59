//! The SQL of docs/outbox.md runs as it stands there.

use crate::support::{PostgresOutbox, sqlite};

const PAGE: &str = include_str!("../../../../docs/outbox.md");

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines().map(str::trim_start);
    let begin = format!("```{language}");
    while lines.any(|line| line == begin) {
        blocks
            .push(lines.by_ref().take_while(|line| *line != "```").collect::<Vec<_>>().join("\n"));
    }
    blocks
}

#[tokio::test]
async fn every_snippet_for_postgres_runs_and_emits_what_it_says() {
    let outbox = PostgresOutbox::create().await;
    let orders =
        "CREATE TABLE orders (id int PRIMARY KEY, paid boolean); INSERT INTO orders VALUES (42)";
    outbox.client.batch_execute(orders).await.unwrap();
    for block in blocks("sql") {
        outbox
            .client
            .batch_execute(&block)
            .await
            .unwrap_or_else(|error| panic!("{error}: {block}"));
    }
    let counts = "SELECT type || ' ' || count(*) FROM railpost_outbox GROUP BY type ORDER BY type";
    let rows = outbox.client.query(counts, &[]).await.unwrap();
    let counts: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(counts, ["order.noted 1", "order.paid 4", "photo.taken 1"]);
}

#[test]
fn every_snippet_for_sqlite_runs_and_emits_what_it_says() {
    let connection = sqlite();
    let orders = "CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER)";
    connection.execute_batch(orders).unwrap();
    for block in blocks("sqlite") {
        connection.execute_batch(&block).unwrap_or_else(|error| panic!("{error}: {block}"));
    }
    let payload = "SELECT payload FROM railpost_outbox WHERE type = 'order.paid'";
    let payload: String = connection.query_row(payload, [], |row| row.get(0)).unwrap();
    assert_eq!(payload, r#"{"order":42}"#);
}
