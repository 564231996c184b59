//! Reading an answer's body: as much of it as is wanted, and never more than is bounded.

use std::future::Future;

use tokio::time::timeout;

use super::exchange::{BodyEnd, Detail};
use crate::limits::{BODY_KEPT_MAX, DRAIN_LEN_MAX, DRAIN_TIMEOUT};

/// A body as it comes, piece by piece.
pub(super) trait BodyPieces: Send {
    /// How many bytes are to come at the least.
    fn least_len(&self) -> u64;

    /// The next bytes; nothing once it is complete.
    fn next(&mut self) -> impl Future<Output = Option<Result<&[u8], BodyBroken>>> + Send;
}

/// A body breaks off, or is none.
#[derive(Debug)]
pub(super) struct BodyBroken;

/// Notes an answer's body in `detail`, as it comes. Whether it was read to the end, so that the
/// connection has nothing left over from it.
pub(super) async fn take_body(pieces: &mut impl BodyPieces, detail: &mut Detail) -> bool {
    let Some(response) = &mut detail.response else { return false };
    if response.is_success() {
        return drain(pieces).await;
    }
    response.body.end = keep(pieces, &mut response.body.kept).await;
    response.body.end == BodyEnd::Complete
}

/// Reads on for people, up to the bound.
async fn keep(pieces: &mut impl BodyPieces, kept: &mut Vec<u8>) -> BodyEnd {
    while let Some(piece) = pieces.next().await {
        let Ok(data) = piece else { return BodyEnd::Broken };
        let room = BODY_KEPT_MAX - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return BodyEnd::TooLarge;
        }
    }
    BodyEnd::Complete
}

/// Reads the small rest of an acknowledgement, so that its connection can serve again.
async fn drain(pieces: &mut impl BodyPieces) -> bool {
    if pieces.least_len() > DRAIN_LEN_MAX as u64 {
        return false;
    }
    timeout(DRAIN_TIMEOUT, discard(pieces)).await.unwrap_or(false)
}

async fn discard(pieces: &mut impl BodyPieces) -> bool {
    let mut len = 0;
    while let Some(piece) = pieces.next().await {
        let Ok(data) = piece else { return false };
        len += data.len();
        if len > DRAIN_LEN_MAX {
            return false;
        }
    }
    true
}
