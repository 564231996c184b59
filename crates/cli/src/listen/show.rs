//! How a received request is printed.

use http::HeaderMap;
use railpost_engine::{Time, Timestamp};
use railpost_wire::{Received, Refusal, Verified};
use serde_json::{Value, json};

use super::misbehaviour::Answer;
use crate::failure::Outcome;
use crate::out::Out;

/// A request that was received, and its answer.
pub(crate) struct ReceivedRequest {
    pub(crate) at: Timestamp,
    pub(crate) received: Result<Received, Refusal>,
    pub(crate) event_type: Option<String>,
    /// Nothing when there is nothing to verify with.
    pub(crate) verdict: Option<Result<Verified, Refusal>>,
    pub(crate) remark: Option<String>,
    pub(crate) answer: Answer,
}

/// The event's type, where its own header or else the envelope tells it.
pub(crate) fn event_type(
    received: &Result<Received, Refusal>,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<String> {
    let received = received.as_ref().ok();
    if let Some(event_type) = received.and_then(|received| received.event_type.as_ref()) {
        return Some(event_type.to_string());
    }
    if let Some(value) = headers.get("ce-type") {
        return value.to_str().ok().map(str::to_owned);
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    body["type"].as_str().map(str::to_owned)
}

/// When the event happened, if the sender says so and it was in or after 1970.
fn event_time(received: &Received) -> Option<String> {
    let unix_ms = received.event_unix_ms.and_then(|unix_ms| unix_ms.try_into().ok());
    unix_ms.map(|unix_ms| Time(Timestamp::from_millis(unix_ms)).to_string())
}

impl ReceivedRequest {
    pub(crate) fn print(&self, out: Out, body: &[u8], quiet: bool) -> Outcome {
        if out.json {
            return out.line(&self.as_json(body, quiet).to_string());
        }
        let payload = if quiet { String::new() } else { pretty(body) };
        out.line(&format!("{}{payload}", self.line()))
    }

    fn line(&self) -> String {
        let time = Time(self.at).to_string();
        let time = time.get(11..23).unwrap_or(&time);
        let said = match &self.received {
            Ok(received) => self.described(received),
            Err(refusal) => format!("no Railpost headers: {refusal}"),
        };
        let remark = self.remark.as_ref().map(|remark| format!("  {remark}")).unwrap_or_default();
        format!("{time}  {said}  {}{remark}  -> {}", self.verdict_text(), self.answer)
    }

    fn described(&self, received: &Received) -> String {
        let mut parts = vec![received.event_id.to_string()];
        parts.extend(self.event_type.clone());
        parts.extend(received.schema_version.map(|version| format!("version={version}")));
        parts.extend(event_time(received).map(|time| format!("time={time}")));
        parts.extend(received.key.as_ref().map(|key| format!("key={key}")));
        parts.extend(received.line.as_ref().map(|line| format!("line={line}")));
        parts.extend(received.seq.map(|seq| format!("seq={seq}")));
        parts.extend(received.after.map(|after| format!("after={after}")));
        parts.extend(received.attempt.map(|number| format!("attempt={number}")));
        parts.extend(received.replay.then(|| "replay".to_owned()));
        parts.extend(received.thin.then(|| "thin".to_owned()));
        parts.join("  ")
    }

    fn verdict_text(&self) -> String {
        match &self.verdict {
            None => "unverified (no --secret)".to_owned(),
            Some(Ok(_)) => "verified".to_owned(),
            Some(Err(refusal)) => format!("NOT VERIFIED: {refusal}"),
        }
    }

    fn as_json(&self, body: &[u8], quiet: bool) -> Value {
        let mut line = json!({
            "at": Time(self.at).to_string(),
            "type": self.event_type,
            "verified": self.verdict.as_ref().map(Result::is_ok),
            "refusal": self.verdict.as_ref().and_then(|verdict| verdict.as_ref().err()).map(ToString::to_string),
            "remark": self.remark,
            "answer": self.answer.to_string(),
        });
        if let Ok(received) = &self.received {
            line["id"] = json!(received.event_id);
            line["event_time"] = json!(event_time(received));
            line["schema_version"] = json!(received.schema_version);
            line["key"] = json!(received.key);
            line["line"] = json!(received.line);
            line["seq"] = json!(received.seq);
            line["after"] = json!(received.after);
            line["attempt"] = json!(received.attempt);
            line["replay"] = json!(received.replay);
            line["thin"] = json!(received.thin);
        }
        if !quiet {
            line["payload"] = serde_json::from_slice(body)
                .unwrap_or_else(|_| json!(String::from_utf8_lossy(body)));
        }
        line
    }
}

/// A payload below its line, indented.
fn pretty(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(value) => format!("{value:#}"),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    text.lines().map(|line| format!("\n    {line}")).collect()
}
