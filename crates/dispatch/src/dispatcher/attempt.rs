//! One attempt: from a payload to a request, and from its exchange to what is recorded.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use railpost_engine::{Attempt, AttemptResult, Failure, Timestamp};
use railpost_store::{AttemptDetail, Parcel, Source, Timing};
use railpost_wire::{Envelope, Event, NodeId};
use tokio::sync::mpsc;

use super::ThinUrl;
use super::messages::TaskReport;
use super::prepared_endpoint::PreparedEndpoint;
use crate::{BadHeader, Detail, Exchange, Request, Response, Route, Sender, TraceParent};

/// What all attempts share.
pub(super) struct AttemptContext {
    pub(super) sender: Sender,
    pub(super) source: Arc<dyn Source>,
    pub(super) thin_url: Arc<dyn ThinUrl>,
    pub(super) node: Option<NodeId>,
    /// Takes the report of each attempt's end.
    pub(super) reports: mpsc::UnboundedSender<TaskReport>,
}

/// All that one attempt needs.
pub(super) struct AttemptJob {
    pub(super) attempt: Attempt,
    pub(super) prepared: Arc<PreparedEndpoint>,
    pub(super) parcel: Arc<Parcel>,
    /// What the receiver is told about the trace.
    pub(super) trace: Option<TraceParent>,
    pub(super) context: Arc<AttemptContext>,
}

impl AttemptJob {
    /// Makes the attempt. It ends, whatever happens, within the endpoint's total timeout.
    pub(super) async fn perform(&self) -> AttemptDetail {
        let AttemptContext { sender, source, thin_url, node, .. } = &*self.context;
        let railpost_engine::Attempt { number, follows, replay, .. } = self.attempt;
        let started_at = source.now();
        let request = SignedRequest {
            prepared: &self.prepared,
            parcel: &self.parcel,
            number,
            follows,
            replay,
            trace: self.trace,
            thin_url: &**thin_url,
        };
        detail(number, started_at, request.send(sender, started_at).await, *node)
    }
}

/// One signed request for one event.
pub(super) struct SignedRequest<'a> {
    pub(super) prepared: &'a PreparedEndpoint,
    pub(super) parcel: &'a Parcel,
    pub(super) number: u32,
    pub(super) follows: Option<u64>,
    pub(super) replay: bool,
    pub(super) trace: Option<TraceParent>,
    pub(super) thin_url: &'a dyn ThinUrl,
}

impl SignedRequest<'_> {
    /// Sends it. It ends, whatever happens, within the endpoint's total timeout.
    pub(super) async fn send(&self, sender: &Sender, now: Timestamp) -> Exchange {
        match (self.prepared.route(sender), self.prepared.blocked(now)) {
            (Err((failure, problem)), _) => not_sent(*failure, problem.clone()),
            (_, Some(problem)) => not_sent(Failure::NotSent, problem),
            (Ok(route), None) => match self.request(route, now) {
                Ok(request) => sender.send(request).await,
                Err(problem) => not_sent(Failure::NotSent, problem.to_string()),
            },
        }
    }

    fn request<'r>(&self, route: &'r Route, now: Timestamp) -> Result<Request<'r>, BadHeader> {
        let event = &self.parcel.event;
        let envelope = self.prepared.envelope_of(event.payload.len());
        // Only a thin envelope shows the URL, and signing it is not cheap.
        let url = match envelope {
            Envelope::Thin => self.thin_url.thin_url(self.parcel),
            _ => String::new(),
        };
        let event_to_wrap = Event {
            id: &event.id,
            event_type: &event.event_type,
            key: event.key.as_ref(),
            payload: &event.payload,
            content_type: &event.content_type,
            schema_version: event.schema_version,
            unix_ms: event.time.as_millis(),
            source: &self.prepared.source,
            cloudevent: event.cloudevent.as_deref(),
            url: &url,
        };
        let content = envelope.wrap_with(&event_to_wrap, &self.prepared.envelope_settings());
        let signers = self.prepared.signers(now);
        let own = self.wire_attempt(envelope, &content.body, &signers, now).values();
        let body = match &content.body {
            Cow::Borrowed(part) => event.payload.slice_ref(part),
            Cow::Owned(bytes) => Bytes::copy_from_slice(bytes),
        };
        let request = Request::new(route, content.headers, body)?.with_attempt(own);
        let request = request.with_resend(self.prepared.resend);
        Ok(match self.trace {
            Some(parent) => request.with_traceparent(parent),
            None => request,
        })
    }

    fn wire_attempt<'a>(
        &'a self,
        envelope: Envelope,
        body: &'a [u8],
        signers: &'a [railpost_wire::Signer],
        now: Timestamp,
    ) -> railpost_wire::Attempt<'a> {
        let (event, place) = (&self.parcel.event, self.parcel.line.as_ref());
        railpost_wire::Attempt {
            event_id: &event.id,
            event_type: &event.event_type,
            event_unix_ms: event.time.as_millis(),
            schema_version: event.schema_version,
            key: event.key.as_ref(),
            line: place.map(|place| &place.line),
            seq: place.map(|place| place.seq),
            after: place.zip(self.follows).and_then(|(place, lane_seq)| {
                let after = place.number(lane_seq);
                (after + 1 < place.seq.get()).then_some(after)
            }),
            number: self.number,
            replay: self.replay,
            thin: envelope == Envelope::Thin,
            timestamp: i64::try_from(now.as_millis() / 1000).unwrap_or(i64::MAX),
            body,
            signers,
        }
    }
}

/// The producer's trace, with a span of our own as the cause.
pub(super) fn own_span(parcel: &Parcel, source: &dyn Source) -> Option<TraceParent> {
    let parent: TraceParent = parcel.event.traceparent.as_ref()?.parse().ok()?;
    let mut span = [0; 8];
    source.fill_random(&mut span);
    parent.with_span(u64::from_be_bytes(span).max(1)).ok()
}

/// An attempt that ended without a request.
pub(super) fn without_request(
    attempt: &Attempt,
    (failure, problem): (Failure, String),
    now: Timestamp,
) -> AttemptDetail {
    detail(attempt.number, now, not_sent(failure, problem), None)
}

fn not_sent(failure: Failure, message: String) -> Exchange {
    let message = Some(message).filter(|message| !message.is_empty());
    Exchange {
        result: AttemptResult::Failed(failure),
        detail: Detail { message, ..Detail::default() },
    }
}

pub(super) fn detail(
    number: u32,
    started_at: Timestamp,
    exchange: Exchange,
    node: Option<NodeId>,
) -> AttemptDetail {
    let Exchange { result, detail } = exchange;
    let timing = timing(&detail);
    // Of an acknowledgement nothing is worth keeping but its status and timing.
    let acknowledged = matches!(result, AttemptResult::Response { status: 200..=299, .. });
    let response = detail.response.filter(|_| !acknowledged);
    AttemptDetail {
        number,
        started_at,
        result,
        timing,
        message: detail.message,
        response_headers: response.as_ref().map(kept_headers).unwrap_or_default(),
        response_body: response.map_or_else(Bytes::new, |response| response.body.kept.into()),
        node,
    }
}

fn kept_headers(response: &Response) -> Vec<(String, String)> {
    let (headers, _) = response.kept_headers();
    headers.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned())).collect()
}

fn timing(detail: &Detail) -> Timing {
    let micros = |span: Duration| u32::try_from(span.as_micros()).unwrap_or(u32::MAX);
    let timing = detail.timing;
    Timing {
        dns_us: timing.dns.map(micros),
        connect_us: timing.connect.map(micros),
        tls_us: timing.tls.map(micros),
        first_byte_us: timing.first_byte.map(micros),
        total_us: micros(timing.total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every attempt's task is allocated as a whole: one that dialled in place would have several times the size.
    #[test]
    fn an_attempt_is_small() {
        fn size<'j, F>(_: fn(&'j AttemptJob) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(AttemptJob::perform) <= 3 * 1024, "{}", size(AttemptJob::perform));
    }
}
