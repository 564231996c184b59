//! What people decide about one delivery: replay, skip, discard.

use railpost_engine::{Because, Command, Delivery, DeliveryState, DiscardReason};
use railpost_store::DeliveryView as Stored;
use serde_json::json;

use super::answer::Answer;
use super::call::{AuditAction, Ctx};
use super::deliveries::{self, DeliveryView};
use super::problem::Problem;
use crate::app::App;
use crate::limits::{COMMAND_RETRIES_MAX, COMMAND_RETRY_DELAY};
use crate::serve::duration;

/// Carries a command out and answers with the delivery as the command leaves it.
///
/// The dispatcher comes first, then the audit entry and the stored answer: of a command that was
/// refused nothing is written, and one that was carried out and whose answer was lost is refused as
/// [`wrong_state`](super::problem::Code::WrongState) when it comes again, because its delivery moved on.
pub(crate) async fn carry_out<A: Answer>(
    ctx: &Ctx,
    command: Command,
    stored: Stored,
    answer: impl FnOnce(DeliveryView) -> A,
) -> Result<A, Problem> {
    command_delivery(&ctx.app, command, stored.delivery).await?;
    // Before anybody is told that it is done, or the answer is stored for when the request comes again.
    ctx.app.dispatcher.written().await?;
    let audit_action = AuditAction {
        action: action_name(command),
        tenant: Some(stored.tenant.clone()),
        target: stored.delivery.id.to_string(),
        detail: json!({ "endpoint": stored.delivery.endpoint, "event": stored.event }),
    };
    ctx.commit(Vec::new(), audit_action, answer(DeliveryView::from(after(command, stored)))).await
}

/// Hands a command to the dispatcher. A delivery beyond what the engine has in memory is loaded when
/// the command names it, so the command is given again until it has been, for a bounded time.
pub(crate) async fn command_delivery(
    app: &App,
    command: Command,
    mut delivery: Delivery,
) -> Result<(), Problem> {
    let mut delay = duration(COMMAND_RETRY_DELAY);
    for _ in 0..COMMAND_RETRIES_MAX {
        match app.dispatcher.command(command, delivery).await? {
            Err(Because::NotLoaded) => {}
            obeyed => return Ok(obeyed?),
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
        delivery = deliveries::find(app, delivery.id).await?.delivery;
    }
    Ok(app.dispatcher.command(command, delivery).await??)
}

/// The delivery as the command leaves it. The record of it is on its way to the store, and a replay
/// may be under way already. One that is discarded during an attempt that succeeds is delivered.
fn after(command: Command, mut stored: Stored) -> Stored {
    let delivery = &mut stored.delivery;
    delivery.state = match (command, delivery.state) {
        (Command::Replay, _) => DeliveryState::Pending,
        (Command::Skip, DeliveryState::Dead { reason, .. }) => {
            DeliveryState::Dead { reason, holds: false }
        }
        (Command::Skip, state) => state,
        (Command::Discard, _) => DeliveryState::Discarded { reason: DiscardReason::Person },
    };
    stored
}

fn action_name(command: Command) -> &'static str {
    match command {
        Command::Replay => "delivery.replay",
        Command::Skip => "delivery.skip",
        Command::Discard => "delivery.discard",
    }
}
