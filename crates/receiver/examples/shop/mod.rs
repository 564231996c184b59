//! The shop of the worked example: `order.created` makes a row, `order.updated` changes it.

use axum::extract::{FromRef, State};
use axum::{Router, routing::post};
use railpost_receiver::axum::JsonEvent;
use railpost_receiver::postgres::{Pool, PostgresInbox, create_tables};
use railpost_receiver::request_verifier::{RequestVerifier, unix_now};
use railpost_receiver::tower::BoxError;
use railpost_receiver::{Answer, InboxConfig};
use tokio_postgres::{Client, Error};

/// What the service holds.
#[derive(Clone, FromRef)]
pub(crate) struct Shop {
    verifier: RequestVerifier,
    inbox: PostgresInbox,
    pool: Pool,
}

/// What the events of an order say.
#[derive(serde::Deserialize)]
#[serde(tag = "type")]
pub(crate) enum OrderEvent {
    #[serde(rename = "order.created")]
    Created { order: String, total: i32 },
    #[serde(rename = "order.updated")]
    Updated { order: String, total: i32 },
    #[serde(rename = "payment.settled")]
    Settled { payment: String },
}

impl Shop {
    pub(crate) async fn open(verifier: RequestVerifier, pool: Pool) -> Result<Self, BoxError> {
        let mut session = pool.get().await?;
        let client = session.client();
        create_tables(client).await?;
        let sql = "create table if not exists orders (id text primary key, total integer not null);
                   create table if not exists payments (id text primary key)";
        client.batch_execute(sql).await?;
        let inbox = PostgresInbox::new(InboxConfig::named("orders"));
        Ok(Self { verifier, inbox, pool })
    }
}

pub(crate) fn router(shop: Shop) -> Router {
    Router::new().route("/hook", post(hook)).with_state(shop)
}

async fn hook(State(shop): State<Shop>, event: JsonEvent<OrderEvent>) -> Answer {
    receive(&shop, &event).await.unwrap_or_else(|problem| shop.verifier.failed(&*problem))
}

/// The whole of it: the inbox's row and the effect, in one transaction.
async fn receive(shop: &Shop, event: &JsonEvent<OrderEvent>) -> Result<Answer, BoxError> {
    let mut session = shop.pool.get().await?;
    let admission = session.begin(&shop.inbox, &event.delivery.received, unix_now()).await?;
    if admission.verdict().applies() {
        apply(admission.client(), &event.payload).await?;
    }
    let verdict = admission.commit().await?;
    shop.verifier.counters().count(verdict);
    Ok(verdict.answer())
}

async fn apply(client: &Client, event: &OrderEvent) -> Result<(), Error> {
    match event {
        OrderEvent::Created { order, total } => {
            let sql = "insert into orders values ($1, $2)";
            client.execute(sql, &[order, total]).await?;
        }
        OrderEvent::Updated { order, total } => {
            // Without its row this is an error: order is what makes it right.
            let sql = "update orders set total = $2 where id = $1 returning id";
            client.query_one(sql, &[order, total]).await?;
        }
        OrderEvent::Settled { payment } => {
            client.execute("insert into payments values ($1)", &[payment]).await?;
        }
    }
    Ok(())
}
