//! Reading an answer: as much of it as is wanted, and never more than is bounded.

use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::{Instant, timeout};

use super::exchange::{Body, BodyEnd, Detail, Response};
use crate::limits::{BODY_KEPT_MAX, DRAIN_LEN_MAX, DRAIN_TIMEOUT};

/// Notes an answer's head in `detail`. Its body is what follows.
pub(super) fn take_head(
    answer: ::http::Response<Incoming>,
    started: Instant,
    detail: &mut Detail,
) -> Incoming {
    detail.timing.first_byte = Some(started.elapsed());
    let (head, incoming) = answer.into_parts();
    detail.response = Some(Response {
        status: head.status.as_u16(),
        version: head.version,
        headers: head.headers,
        body: Body::default(),
    });
    incoming
}

/// Notes an answer's body in `detail`, as it comes. Whether it was read to the end, so that the
/// connection has nothing left over from it.
pub(super) async fn take_body(mut incoming: Incoming, detail: &mut Detail) -> bool {
    let Some(response) = &mut detail.response else { return false };
    if response.is_success() {
        return drain(&mut incoming).await;
    }
    response.body.end = keep(&mut incoming, &mut response.body.kept).await;
    response.body.end == BodyEnd::Complete
}

/// Reads on for people, up to the bound.
async fn keep(incoming: &mut Incoming, kept: &mut Vec<u8>) -> BodyEnd {
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else { return BodyEnd::Broken };
        let Some(data) = frame.data_ref() else { continue };
        let room = BODY_KEPT_MAX - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return BodyEnd::TooLarge;
        }
    }
    BodyEnd::Complete
}

/// Reads the small rest of an acknowledgement, so that its connection can serve again.
async fn drain(incoming: &mut Incoming) -> bool {
    if incoming.is_end_stream() {
        return true;
    }
    if incoming.size_hint().lower() > DRAIN_LEN_MAX as u64 {
        return false;
    }
    timeout(DRAIN_TIMEOUT, discard(incoming)).await.unwrap_or(false)
}

async fn discard(incoming: &mut Incoming) -> bool {
    let mut len = 0;
    while let Some(frame) = incoming.frame().await {
        let Ok(frame) = frame else { return false };
        len += frame_len(&frame);
        if len > DRAIN_LEN_MAX {
            return false;
        }
    }
    true
}

fn frame_len(frame: &Frame<bytes::Bytes>) -> usize {
    frame.data_ref().map_or(0, bytes::Bytes::len)
}
