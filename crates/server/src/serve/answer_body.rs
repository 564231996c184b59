//! The body of an answer, watched on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::activity::OpenRequest;
use crate::limits::ANSWER_FRAME_LEN_MAX;

/// An answer's body. It notes whether the client or the server is waited for.
pub(super) struct AnswerBody {
    body: Body,
    /// What is left of a part that is too long for one frame.
    rest: Bytes,
    exchange: OpenRequest,
}

impl AnswerBody {
    pub(super) fn new(body: Body, mut exchange: OpenRequest) -> Self {
        exchange.wait_for_client();
        Self { body, rest: Bytes::new(), exchange }
    }

    /// With HTTP/2 a part is given in pieces: what was handed over counts as taken.
    fn piece(&mut self, mut part: Bytes) -> Bytes {
        if self.exchange.is_http2() && part.len() > ANSWER_FRAME_LEN_MAX {
            self.rest = part.split_off(ANSWER_FRAME_LEN_MAX);
        }
        part
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            this.exchange.wait_for_client();
            let rest = std::mem::take(&mut this.rest);
            return Poll::Ready(Some(Ok(Frame::data(this.piece(rest)))));
        }
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => {
                this.exchange.wait_for_server();
                Poll::Pending
            }
            Poll::Ready(frame) => {
                this.exchange.wait_for_client();
                Poll::Ready(
                    frame.map(|frame| frame.map(|frame| frame.map_data(|part| this.piece(part)))),
                )
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;

    use http_body::Body as _;
    use http_body_util::BodyExt;

    use super::super::activity::{Activity, Deadlines};
    use super::*;
    use railpost_api::LimitsConfig;

    #[tokio::test]
    async fn with_http2_a_long_part_is_given_in_pieces_and_nothing_of_it_is_lost() {
        let long: Bytes = (0..200_000_u32).map(|n| n as u8).collect::<Vec<_>>().into();
        let activity = Arc::new(Activity::new(Deadlines::of(&LimitsConfig::default())));
        activity.speaks_http2();
        let mut body = AnswerBody::new(long.clone().into(), OpenRequest::begin(&activity));
        assert_eq!(body.size_hint().exact(), Some(200_000));
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), ANSWER_FRAME_LEN_MAX);
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(200_000 - ANSWER_FRAME_LEN_MAX as u64));
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), long);
    }
}
