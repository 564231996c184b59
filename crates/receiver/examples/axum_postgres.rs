//! An axum service on PostgreSQL: an order is created and updated in the transaction of its inbox row.
//!
//! `DATABASE_URL=postgres://… WEBHOOK_SECRET=whsec_… cargo run -p railpost-receiver --example axum_postgres`;
//! `LISTEN` is `127.0.0.1:8080` unless it is set.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a service talks to its operator")]

#[path = "shop/mod.rs"]
mod shop;

use railpost_receiver::Receiver;
use railpost_receiver::postgres::Pool;
use railpost_receiver::request_verifier::RequestVerifier;
use railpost_receiver::tower::BoxError;

const CONNECTIONS: u16 = 16;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let secret = std::env::var("WEBHOOK_SECRET")?.parse()?;
    let verifier = RequestVerifier::new(Receiver::new(vec![secret], vec![]))
        .log(|problem| eprintln!("turned away: {problem}"));
    let database: tokio_postgres::Config = std::env::var("DATABASE_URL")?.parse()?;
    let pool = Pool::new(CONNECTIONS, move || {
        let database = database.clone();
        async move {
            let (client, connection) = database.connect(tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        }
    });
    let shop = shop::Shop::open(verifier, pool).await?;
    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}/hook", listener.local_addr()?);
    Ok(axum::serve(listener, shop::router(shop)).await?)
}
