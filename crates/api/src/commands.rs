//! Commands about one delivery: replay, skip, discard.

use std::time::Duration;

use railpost_engine::{Command, Delivery, DeliveryState, DiscardReason, IgnoredReason};
use railpost_store::{AuditEntry, DeliveryView as Stored};
use serde_json::json;

use super::answer::Answer;
use super::audit::Action;
use super::call::{AuditAction, Ctx};
use super::deliveries::{self, DeliveryView};
use super::problem::Problem;
use crate::app::App;
use crate::limits::{COMMAND_RETRIES_MAX, COMMAND_RETRY_DELAY};

/// Carries a command out and answers with the delivery as the command leaves it.
///
/// The audit entry is written with the decision, the stored answer after it: of a command that was
/// refused nothing is written, and one that was carried out and whose answer was lost is refused as
/// [`wrong_state`](super::problem::Code::WrongState) when it comes again, because its delivery moved on.
pub(crate) async fn carry_out<A: Answer>(
    ctx: &Ctx,
    command: Command,
    stored: Stored,
    answer: impl FnOnce(DeliveryView) -> A,
) -> Result<A, Problem> {
    let audit = ctx.audit_entry(AuditAction {
        action: action_of(command),
        tenant: Some(stored.tenant.clone()),
        target: stored.delivery.id.to_string(),
        detail: json!({ "endpoint": stored.delivery.endpoint, "event": stored.event }),
    });
    command_delivery(&ctx.app, command, stored.delivery, Some(audit)).await?;
    // Before anybody is told that it is done, or the answer is stored for when the request comes again.
    ctx.app.dispatcher.written().await?;
    let view = deliveries::view(ctx, after(command, stored)).await?;
    ctx.remember(answer(view)).await
}

/// Hands a command to the dispatcher. A delivery beyond what the engine has in memory is loaded when
/// the command names it, so the command is given again until it has been, for a bounded time.
pub async fn command_delivery(
    app: &App,
    command: Command,
    mut delivery: Delivery,
    audit: Option<AuditEntry>,
) -> Result<(), Problem> {
    let mut delay = Duration::from(COMMAND_RETRY_DELAY);
    for _ in 0..COMMAND_RETRIES_MAX {
        match app.dispatcher.decide(command, delivery, audit.clone()).await? {
            Err(IgnoredReason::NotLoaded) => {}
            obeyed => return Ok(obeyed?),
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
        delivery = deliveries::find(app, delivery.id).await?.delivery;
    }
    Ok(app.dispatcher.decide(command, delivery, audit).await??)
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

fn action_of(command: Command) -> Action {
    match command {
        Command::Replay => Action::DeliveryReplay,
        Command::Skip => Action::DeliverySkip,
        Command::Discard => Action::DeliveryDiscard,
    }
}
