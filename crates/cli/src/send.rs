//! `railpost send`: publishes events.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};

use railpost_engine::Span;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Session;
use super::attempts;
use super::client::{Body, pause};
use super::events;
use super::failure::{Failure, Outcome};
use super::input;
use super::list;
use super::out::field;
use super::replay::bar;
use super::signatures;
use crate::limits::{SEND_BATCH_LEN, STREAM_LINE_LEN_MAX};

/// The arguments of `send`.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "railpost send [OPTIONS] <TYPE>\n       railpost send [OPTIONS] --ndjson <FILE|->"
)]
pub struct Arguments {
    /// The event's type, such as `order.paid`
    #[arg(required_unless_present = "ndjson", value_name = "TYPE")]
    event_type: Option<String>,
    /// The payload
    #[arg(long, short, default_value = "{}", value_name = "JSON|@FILE|-")]
    data: String,
    /// The key: events with the same key arrive one after the other
    #[arg(long)]
    key: Option<String>,
    /// An id of your own: publishing it twice accepts it once
    #[arg(long, conflicts_with = "count")]
    id: Option<String>,
    /// The version of the type's schema
    #[arg(long, value_name = "N")]
    schema_version: Option<u32>,
    /// When it happened (RFC 3339)
    #[arg(long)]
    time: Option<String>,
    /// The trace it belongs to
    #[arg(long)]
    traceparent: Option<String>,
    /// Publish events from a file, one JSON object a line, or from stdin
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["event_type", "data", "key", "id", "count", "wait"])]
    ndjson: Option<String>,
    /// Publish it this many times, for tests
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    count: u64,
    /// Spread them over this many keys
    #[arg(long, value_name = "K", conflicts_with = "key", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Wait until it is delivered or dead, and show the attempts
    #[arg(long, conflicts_with = "count")]
    wait: bool,
    /// How long to wait with --wait
    #[arg(long, default_value = "60s", value_name = "TIME")]
    timeout: Span,
}

pub(super) fn run(arguments: &Arguments, session: &Session) -> Outcome {
    match &arguments.ndjson {
        Some(path) if path == "-" => stream(session, std::io::stdin().lock(), None),
        Some(path) => {
            let file = input::open("--ndjson", path)?;
            let len = file.metadata().map(|about| about.len()).ok();
            stream(session, file, len)
        }
        None if arguments.count > 1 => many(arguments, session),
        None => one(arguments, session),
    }
}

impl Arguments {
    /// The event as JSON, but for the id where none was chosen. The payload stays as it was written.
    fn event(&self, key: Option<&str>) -> Outcome<String> {
        let mut event = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                event.insert(name.to_owned(), value);
            }
        };
        set("type", self.event_type.as_ref().map(|text| json!(text)));
        set("key", key.or(self.key.as_deref()).map(|text| json!(text)));
        set("id", self.id.as_ref().map(|text| json!(text)));
        set("schema_version", self.schema_version.map(|number| json!(number)));
        set("time", self.time.as_ref().map(|text| json!(text)));
        set("traceparent", self.traceparent.as_ref().map(|text| json!(text)));
        let event = Value::from(event).to_string();
        Ok(format!("{},\"payload\":{}}}", event.trim_end_matches('}'), self.payload()?))
    }

    /// The payload on one line, otherwise as it was written.
    fn payload(&self) -> Outcome<String> {
        let bytes = input::read("--data", &self.data)?;
        input::parse_json::<&RawValue>("--data", &bytes)?;
        // A line break in JSON is only ever space between its parts.
        Ok(String::from_utf8_lossy(&bytes).replace(['\n', '\r'], " "))
    }
}

/// The event with an id, so that a request that is sent again publishes nothing twice. What is no
/// object stays as it is: the server says what is wrong with it.
fn with_id(event: &str) -> String {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(event).unwrap_or_default();
    let rest = event.trim_start().strip_prefix('{');
    match rest {
        Some(rest) if !fields.is_empty() && !fields.contains_key("id") => {
            format!("{{\"id\":\"{}\",{rest}", signatures::new_event_id())
        }
        _ => event.to_owned(),
    }
}

fn one(arguments: &Arguments, session: &Session) -> Outcome {
    let (client, out) = (&session.client, session.out);
    let bytes = with_id(&arguments.event(None)?).into_bytes();
    let body = Body { content_type: "application/json", bytes };
    let receipt = client.publish(&client.of_tenant(&["events"]), &body)?;
    let receipt = receipt.into_iter().next().unwrap_or_default();
    if !arguments.wait {
        out.done(&receipt, &receipt_line(&receipt))?;
        hint_nobody(session, &receipt);
        return Ok(());
    }
    out.hint(&receipt_line(&receipt));
    hint_nobody(session, &receipt);
    let ended = wait(session, &field(&receipt, "id"), Duration::from(arguments.timeout))?;
    show_attempts(session, &receipt, &ended)
}

fn receipt_line(receipt: &Value) -> String {
    let verb = if receipt["duplicate"] == true { "accepted before" } else { "accepted" };
    let warnings = receipt["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let warnings: String = warnings
        .iter()
        .map(|text| format!("\nwarning: {}", text.as_str().unwrap_or_default()))
        .collect();
    let noun = if receipt["deliveries"] == 1 { "delivery" } else { "deliveries" };
    let (id, count) = (field(receipt, "id"), field(receipt, "deliveries"));
    format!("{id} {verb}, {count} {noun}{warnings}")
}

fn hint_nobody(session: &Session, receipt: &Value) {
    if receipt["deliveries"] == 0 && receipt["duplicate"] != true {
        session.out.hint(&events::no_endpoint(&field(receipt, "id")));
        session.out.hint("To receive such events here: railpost listen --register");
    }
}

/// Looks until all deliveries of an event have ended.
fn wait(session: &Session, event: &str, patience: Duration) -> Outcome<Vec<Value>> {
    let url = session.client.of_tenant(&["events", event, "deliveries"]);
    let until = Instant::now() + patience;
    loop {
        let items = session.client.get(&url)?["items"].as_array().cloned().unwrap_or_default();
        let open = items.iter().filter(|item| !has_ended(item)).count();
        if open == 0 {
            session.out.progress_done();
            return Ok(items);
        }
        if Instant::now() >= until {
            session.out.progress_done();
            return Err(Failure::new(format!("{open} of {} deliveries have not ended", items.len()))
                .next(format!("look again with `railpost events deliveries {event}`, or give it longer with --timeout")));
        }
        session.out.progress(&format!("waiting for {open} of {} deliveries …", items.len()));
        pause();
    }
}

fn has_ended(delivery: &Value) -> bool {
    matches!(delivery["state"].as_str(), Some("delivered" | "dead" | "discarded"))
}

fn show_attempts(session: &Session, receipt: &Value, ended: &[Value]) -> Outcome {
    let mut all = Vec::new();
    for delivery in ended {
        let url = session.client.of_tenant(&["deliveries", &field(delivery, "id"), "attempts"]);
        let answer = session.client.get(&url)?;
        if !session.out.json {
            session.out.line(&format!("{} {}", field(delivery, "id"), field(delivery, "state")))?;
            let below = attempts::below;
            list::show_items_with_lines(session, &answer, &attempts::COLUMNS, below)?;
        }
        let mut delivery = delivery.clone();
        delivery["attempts"] = answer["items"].clone();
        all.push(delivery);
    }
    if session.out.json {
        session.out.value(&json!({ "receipt": receipt, "deliveries": all }))?;
    }
    match ended.iter().filter(|delivery| delivery["state"] != "delivered").count() {
        0 => Ok(()),
        lost => Err(Failure::new(format!("{lost} of {} deliveries did not arrive", ended.len()))
            .next(how_to_look(ended))),
    }
}

/// Where to look at deliveries that did not arrive.
fn how_to_look(ended: &[Value]) -> String {
    let first = |state: &str| ended.iter().find(|delivery| delivery["state"] == state);
    let dead = first("dead").map(|_| {
        "`railpost dead-letters list` shows the dead ones; `railpost dead-letters replay ID` sends one again".to_owned()
    });
    let discarded = first("discarded").map(|delivery| {
        format!("`railpost deliveries show {}` shows why it was discarded", field(delivery, "id"))
    });
    dead.into_iter().chain(discarded).collect::<Vec<_>>().join("; ")
}

/// Publishes copies of an event, with the numbers of their keys.
fn many(arguments: &Arguments, session: &Session) -> Outcome {
    let keys = arguments.keys.unwrap_or(1);
    let key = |number: u64| arguments.keys.map(|_| format!("key-{}", number + 1));
    let events: Vec<String> = (0..keys.min(arguments.count))
        .map(|number| arguments.event(key(number).as_deref()))
        .collect::<Outcome<_>>()?;
    let mut tally = SendProgress::new(session, Some(arguments.count));
    let mut at = 0;
    while at < arguments.count {
        let group = (arguments.count - at).min(SEND_BATCH_LEN as u64);
        let copy = |number: u64| events[(number % events.len() as u64) as usize].clone();
        let lines: Vec<String> = (at..at + group).map(copy).collect();
        tally.publish(&lines, at)?;
        at += group;
        tally.progress(at);
    }
    tally.end()
}

/// Publishes lines as they come.
fn stream(session: &Session, reader: impl Read, len: Option<u64>) -> Outcome {
    let mut reader = BufReader::new(reader);
    let mut tally = SendProgress::new(session, len);
    let (mut lines, mut line_number, mut read) = (Vec::new(), 0, 0);
    loop {
        let mut line = String::new();
        let taken = (&mut reader).take(STREAM_LINE_LEN_MAX as u64 + 1).read_line(&mut line)?;
        if taken > STREAM_LINE_LEN_MAX {
            return Err(Failure::new(format!(
                "line {}: longer than {STREAM_LINE_LEN_MAX} bytes",
                line_number + lines.len() + 1
            )));
        }
        read += taken as u64;
        if taken > 0 {
            lines.push(line.trim_end().to_owned());
        }
        if lines.len() == SEND_BATCH_LEN || taken == 0 && !lines.is_empty() {
            tally.publish(&lines, line_number as u64)?;
            line_number += lines.len();
            lines.clear();
            tally.progress(read);
        }
        if taken == 0 {
            return tally.end();
        }
    }
}

/// What became of many events.
struct SendProgress<'a> {
    session: &'a Session,
    of: Option<u64>,
    started: Instant,
    accepted: u64,
    duplicates: u64,
    deliveries: u64,
    refused: u64,
}

impl<'a> SendProgress<'a> {
    fn new(session: &'a Session, of: Option<u64>) -> Self {
        let started = Instant::now();
        Self { session, of, started, accepted: 0, duplicates: 0, deliveries: 0, refused: 0 }
    }

    /// Publishes lines; `before` is how many lines came before them.
    fn publish(&mut self, lines: &[String], before: u64) -> Outcome {
        let client = &self.session.client;
        let bytes = lines.iter().map(|line| with_id(line) + "\n").collect::<String>().into_bytes();
        let body = Body { content_type: "application/x-ndjson", bytes };
        let answer = client.publish(&client.of_tenant(&["events", "stream"]), &body)?;
        for mut receipt in answer {
            receipt["line"] = json!(receipt["line"].as_u64().unwrap_or(0) + before);
            self.count(&receipt)?;
        }
        Ok(())
    }

    fn count(&mut self, receipt: &Value) -> Outcome {
        if self.session.out.json {
            self.session.out.line(&receipt.to_string())?;
        }
        match receipt.get("problem") {
            Some(problem) => {
                self.refused += 1;
                let field_name =
                    problem["field"].as_str().map(|name| format!("{name}: ")).unwrap_or_default();
                self.session.out.hint(&format!(
                    "line {}: {field_name}{}",
                    receipt["line"],
                    field(problem, "detail")
                ));
            }
            None => {
                self.accepted += 1;
                self.duplicates += u64::from(receipt["duplicate"] == true);
                self.deliveries += receipt["deliveries"].as_u64().unwrap_or(0);
            }
        }
        Ok(())
    }

    fn progress(&self, done: u64) {
        self.session.out.progress(&format!("{}  {} accepted", bar(done, self.of), self.accepted));
    }

    fn end(self) -> Outcome {
        let out = self.session.out;
        out.progress_done();
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let Self { accepted, duplicates, deliveries, refused, .. } = self;
        if !out.json {
            let rate = accepted as f64 / seconds;
            out.line(&format!("{accepted} accepted, {duplicates} duplicates, {deliveries} deliveries, {refused} rejected, {rate:.0} a second"))?;
        }
        if accepted > duplicates && deliveries == 0 {
            out.hint("No endpoint matched any of these events. See why: railpost events list, then railpost events story ID");
        }
        if refused > 0 {
            return Err(Failure::new(format!("{refused} events were rejected"))
                .next("fix these lines and send them again"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discarded_delivery_is_not_looked_for_among_dead_letters() {
        let (dead, discarded) = (
            json!({ "id": "dlv_1", "state": "dead" }),
            json!({ "id": "dlv_2", "state": "discarded" }),
        );
        let next = how_to_look(std::slice::from_ref(&discarded));
        assert!(next.contains("deliveries show dlv_2") && !next.contains("dead-letters"), "{next}");
        let next = how_to_look(std::slice::from_ref(&dead));
        assert!(next.contains("dead-letters list") && !next.contains("discarded"), "{next}");
        let next = how_to_look(&[dead, discarded]);
        assert!(next.contains("dead-letters list") && next.contains("dlv_2"), "{next}");
    }

    #[test]
    fn an_event_without_an_id_gets_one_and_stays_as_it_was_written_otherwise() {
        let given = with_id(r#" {"type":"a","payload":{"b": 1.0, "a":2}}"#);
        assert!(given.starts_with(r#"{"id":"evt_"#), "{given}");
        assert!(given.ends_with(r#"","type":"a","payload":{"b": 1.0, "a":2}}"#), "{given}");
        for same in [r#"{"id":"x","type":"a"}"#, "[1]", "{}", "no json", ""] {
            assert_eq!(with_id(same), same);
        }
    }
}
