//! Rotates the secrets of endpoints that are due, a few at a time.

use std::sync::Arc;
use std::time::Duration;

use railpost_api::{App, rotate_due_secrets};
use railpost_store::StoreError;
use railpost_telemetry::{Level, Value};
use tokio::sync::watch;

use crate::limits::{
    SECRET_ROTATION_EVERY, SECRET_ROTATION_STEP, SECRET_ROTATION_STEP_REST, UPKEEP_RETRY,
};
use crate::upkeep::{stops_before_next, stops_within};

/// Looks now and then, and when an endpoint's settings change, until the server stops. What is interrupted is still
/// due at the next start.
pub(crate) async fn run(app: Arc<App>, mut stopping: watch::Receiver<bool>) {
    loop {
        let done = rotate_all_due(&app, &mut stopping).await;
        let rest = if done.is_ok() { SECRET_ROTATION_EVERY } else { UPKEEP_RETRY };
        if let Err(problem) = done {
            app.telemetry.note_stopped(&problem);
            let fields = [("problem", Value::Display(&problem))];
            app.telemetry.log.line(Level::Warn, "secret_rotations_failed", &fields);
        }
        if stops_before_next(Duration::from(rest), &app.secret_schedules, &mut stopping).await {
            return;
        }
    }
}

/// Endpoints that are due at once get their turn one step after the other: each is read again by the dispatcher.
async fn rotate_all_due(app: &App, stopping: &mut watch::Receiver<bool>) -> Result<(), StoreError> {
    let (mut rotated, mut after) = (0, None);
    loop {
        let step = rotate_due_secrets(app, after, SECRET_ROTATION_STEP).await?;
        (rotated, after) = (rotated + step.rotated, step.next);
        let rest = Duration::from(SECRET_ROTATION_STEP_REST);
        if after.is_none() || stops_within(rest, stopping).await {
            break;
        }
    }
    if rotated > 0 {
        let fields = [("endpoints", Value::Number(rotated))];
        app.telemetry.log.line(Level::Info, "secrets_rotated", &fields);
    }
    Ok(())
}
