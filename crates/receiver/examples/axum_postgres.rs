//! An axum service on PostgreSQL: an order is created and updated in the transaction of its inbox row.
//!
//! `DATABASE_URL=postgres://… WEBHOOK_SECRET=whsec_… cargo run -p railpost-receiver --example axum_postgres`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a service talks to its operator")]

#[path = "shop/mod.rs"]
mod shop;

use railpost_receiver::Receiver;
use railpost_receiver::door::Door;
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = std::env::var("WEBHOOK_SECRET")?.parse()?;
    let door = Door::new(Receiver::new(vec![secret], vec![]))
        .log(|problem| eprintln!("turned away: {problem}"));
    let (client, connection) =
        tokio_postgres::connect(&std::env::var("DATABASE_URL")?, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let shop = shop::Shop::open(door, client).await?;
    let address = std::env::var("LISTEN").unwrap_or("127.0.0.1:8080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, shop::router(shop)).await?)
}
