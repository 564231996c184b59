//! Events as a stream: one line each way per event, for as long as the client likes.
//!
//! The answer flows while the request does. Nothing is read from the client before what it sent is
//! answered, and nothing is answered before the client takes it, so a stream holds at most a group of lines
//! and a part of a line. An invalid line gets an error line and does not stop the others.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::response::IntoResponse;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt};
use http::request::Parts;
use http::{Method, StatusCode, header};
use railpost_store::limits::BATCH_BYTES_MAX;
use railpost_store::{AcceptBatch, Event};
use railpost_wire::TenantId;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::publish::{NewEvent, Receipt, bounded, event, trace_of};
use crate::answer::{DescribedAnswer, Media, RawResponse};
use crate::auth::Needs;
use crate::body::{BodyLimits, FromBody, media_type, parse_json, too_slow, unsupported};
use crate::call::Ctx;
use crate::event_types;
use crate::limits::{STREAM_GROUP_MAX, STREAM_LINE_LEN_MAX};
use crate::path::OfTenant;
use crate::problem::{Code, Problem, ProblemView};
use crate::query::NoQuery;
use crate::route::Route;

const NDJSON: &str = "application/x-ndjson";

pub(super) fn routes() -> Vec<Route> {
    vec![Route::new(
        Method::POST,
        "/v1/tenants/{tenant}/events/stream",
        Needs::Publish,
        "Publish a stream of events, one line of JSON each; each gets a line of the answer",
        publish_stream,
    )]
}

/// Events, one line each, as they come.
pub(crate) struct EventLines {
    body: BodyDataStream,
    trace: Option<String>,
}

impl FromBody for EventLines {
    const REPEATABLE: bool = false;

    async fn from_body(
        _: BodyLimits,
        parts: &Parts,
        body: Body,
    ) -> Result<(Self, Option<Bytes>), Problem> {
        if media_type(parts) != NDJSON {
            return Err(unsupported(parts, NDJSON));
        }
        Ok((Self { body: body.into_data_stream(), trace: trace_of(&parts.headers) }, None))
    }

    fn describe(schemas: &mut SchemaGenerator) -> Vec<(&'static str, Schema)> {
        vec![(NDJSON, schemas.subschema_for::<NewEvent<'static>>())]
    }
}

/// What became of one line of a stream.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum AnswerLine<'a> {
    /// The event is durable, with its deliveries.
    Accepted {
        /// Which line, from 1. Empty lines count.
        line: u64,
        #[serde(flatten)]
        receipt: &'a Receipt,
    },
    /// The line was refused; the others are not affected.
    Refused {
        /// Which line, from 1. Empty lines count.
        line: u64,
        /// What is wrong with it.
        problem: ProblemView<'a>,
    },
}

/// The answer to a stream. The schema is that of each line.
pub(crate) struct AnswerLines;

impl Media for AnswerLines {
    fn describe(schemas: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        let line = schemas.subschema_for::<AnswerLine<'static>>();
        vec![DescribedAnswer::of(StatusCode::OK, NDJSON, line)]
    }
}

async fn publish_stream(
    ctx: Ctx,
    path: OfTenant,
    _: NoQuery,
    lines: EventLines,
) -> Result<RawResponse<AnswerLines>, Problem> {
    let patience = Duration::from(ctx.app.settings.limits.request_timeout);
    let publisher = Publisher {
        input: LineReader { body: lines.body, buffer: BytesMut::new(), skipping: false, patience },
        trace: lines.trace,
        tenant: path.tenant,
        ctx,
        line: 0,
        ended: false,
    };
    let body = Body::from_stream(publisher.answers());
    Ok(RawResponse::new(([(header::CONTENT_TYPE, NDJSON)], body).into_response()))
}

/// One open stream. When the client disconnects, the connection's task drops it.
struct Publisher {
    input: LineReader,
    trace: Option<String>,
    tenant: TenantId,
    ctx: Ctx,
    /// The number of the last line read.
    line: u64,
    ended: bool,
}

/// Lines read together: each an event with its warnings, or what is wrong with it.
type Group = Vec<(u64, Result<(Event, Vec<String>), Problem>)>;

impl Publisher {
    /// The answers, in order, a group of lines at a time.
    fn answers(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        futures_util::stream::unfold(self, |mut publisher| async move {
            if publisher.ended {
                return None;
            }
            let group = publisher.next_group().await;
            let answers = publisher.accept(group).await;
            Some((Ok(answers), publisher))
        })
    }

    /// The next lines: waits for one, then takes those that have come already. Empty at the end.
    async fn next_group(&mut self) -> Group {
        let (mut group, mut bytes) = (Group::new(), 0);
        while group.len() < STREAM_GROUP_MAX && bytes < BATCH_BYTES_MAX - STREAM_LINE_LEN_MAX {
            let next = match group.is_empty() {
                true => self.input.next_line().await,
                false => match self.input.next_line().now_or_never() {
                    Some(next) => next,
                    None => break,
                },
            };
            match next {
                StreamItem::Line(line) => {
                    self.line += 1;
                    bytes += line.len();
                    if !line.trim_ascii().is_empty() {
                        group.push((self.line, self.event(&line).await));
                    }
                }
                StreamItem::TooLong => {
                    self.line += 1;
                    group.push((self.line, Err(too_long())));
                }
                StreamItem::End => self.ended = true,
                StreamItem::Broken(code) => {
                    self.ended = true;
                    group.push((self.line + 1, Err(self.broken(code))));
                }
            }
            if self.ended {
                break;
            }
        }
        group
    }

    async fn event(&mut self, line: &Bytes) -> Result<(Event, Vec<String>), Problem> {
        let event = event(&self.ctx, parse_json(line)?, self.trace.as_deref())?;
        let warnings = event_types::check(&self.ctx, &self.tenant, &event).await?;
        Ok((event, warnings))
    }

    /// Why the stream ends before its client says so.
    fn broken(&self, code: Code) -> Problem {
        match code {
            Code::RequestTimeout => too_slow(self.ctx.app.settings.limits.of_bodies()),
            code => Problem::new(code, "the body ended early"),
        }
    }

    /// Accepts the events of a group in one commit, and answers for each line.
    async fn accept(&mut self, group: Group) -> Bytes {
        let good = group.iter().filter_map(|(_, checked)| checked.as_ref().ok());
        let events: Vec<Event> = good.map(|(event, _)| event.clone()).collect();
        let mut outcomes = self.accept_events(events).await.into_iter();
        let mut answers = Vec::new();
        for (line, checked) in group {
            let outcome = checked.and_then(|(_, warnings)| {
                let receipt = outcomes.next().unwrap_or_else(|| Err(defect()))?;
                Ok(Receipt { warnings: bounded(warnings), ..receipt })
            });
            write_answer(&mut answers, line, &outcome);
        }
        answers.into()
    }

    /// A commit is whole or not at all: if one event stands in the way of the others, each gets its
    /// own.
    async fn accept_events(&mut self, events: Vec<Event>) -> Vec<Result<Receipt, Problem>> {
        if events.is_empty() {
            return Vec::new();
        }
        let problem = match self.commit(events.clone()).await {
            Ok(receipts) => return receipts.into_iter().map(Ok).collect(),
            Err(problem) => problem,
        };
        let trouble =
            matches!(problem.code, Code::StoreUnavailable | Code::StoreStopped | Code::Internal);
        if trouble || events.len() == 1 {
            return vec![Err(problem); events.len()];
        }
        let mut outcomes = Vec::with_capacity(events.len());
        for event in events {
            let receipt = self.commit(vec![event]).await;
            outcomes.push(receipt.and_then(|mut receipts| receipts.pop().ok_or_else(defect)));
        }
        outcomes
    }

    /// Goes on to its end when the client goes away: what is committed must reach the dispatcher too.
    async fn commit(&mut self, events: Vec<Event>) -> Result<Vec<Receipt>, Problem> {
        let ids: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
        let (tenant, accepted_by) = (self.tenant.clone(), self.ctx.caller.accepted_by());
        let batch = AcceptBatch { tenant, events, accepted_by, idempotency: None };
        let dispatcher = self.ctx.app.dispatcher.clone();
        let accepted = tokio::spawn(async move { dispatcher.accept(batch).await });
        let receipts = accepted.await.map_err(|_| defect())?;
        let receipts = receipts.inspect_err(|error| self.ctx.app.telemetry.note_stopped(error))?;
        Ok(ids.into_iter().zip(receipts).map(|(id, got)| Receipt::of(id, (&got).into())).collect())
    }
}

fn too_long() -> Problem {
    let detail = format!("a line may have at most {STREAM_LINE_LEN_MAX} bytes");
    Problem::new(Code::TooLarge, detail)
}

fn defect() -> Problem {
    Problem::new(Code::Internal, "the events were not answered for")
}

fn write_answer(answers: &mut Vec<u8>, line: u64, outcome: &Result<Receipt, Problem>) {
    let answer = match outcome {
        Ok(receipt) => AnswerLine::Accepted { line, receipt },
        Err(problem) => AnswerLine::Refused { line, problem: problem.view() },
    };
    serde_json::to_writer(&mut *answers, &answer).expect("what the API answers is JSON");
    answers.push(b'\n');
}

/// What comes next in a stream.
enum StreamItem {
    Line(Bytes),
    /// A line that is longer than one may be; it was not kept.
    TooLong,
    End,
    Broken(Code),
}

/// The client's lines, out of what its body brings.
struct LineReader {
    body: BodyDataStream,
    buffer: BytesMut,
    /// The line that has begun is too long already: the rest of it is thrown away.
    skipping: bool,
    /// How long the client may take for a line.
    patience: Duration,
}

impl LineReader {
    /// The next line without its end. Dropping the future loses nothing.
    async fn next_line(&mut self) -> StreamItem {
        let patience = self.patience;
        let line = tokio::time::timeout(patience, self.read_line()).await;
        line.unwrap_or(StreamItem::Broken(Code::RequestTimeout))
    }

    async fn read_line(&mut self) -> StreamItem {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + at);
                self.buffer.advance(1);
                return self.line(line);
            }
            if self.buffer.len() > STREAM_LINE_LEN_MAX {
                self.buffer.clear();
                self.skipping = true;
            }
            searched = self.buffer.len();
            match self.body.next().await {
                Some(Err(_)) => return StreamItem::Broken(Code::MalformedBody),
                Some(Ok(chunk)) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.is_empty() && !self.skipping => return StreamItem::End,
                None => {
                    let line = self.buffer.split();
                    return self.line(line);
                }
            }
        }
    }

    fn line(&mut self, line: BytesMut) -> StreamItem {
        let too_long = std::mem::take(&mut self.skipping) || line.len() > STREAM_LINE_LEN_MAX;
        if too_long { StreamItem::TooLong } else { StreamItem::Line(line.freeze()) }
    }
}
