//! Turns an HTTP request into an authentic delivery, or rejects it.

use crate::answer::Answer;
use crate::counters::Counters;
use crate::delivery::Delivery;
use crate::limits::BODY_LEN_MAX;
use crate::receive::{Receiver, Rejection};
use bytes::{Buf, Bytes};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header, request};
use http_body::Body;
use http_body_util::BodyExt;
use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

type Log = dyn Fn(&dyn Error) + Send + Sync;

/// Reads a request's body up to a limit, verifies it, counts, and logs why it rejected one.
#[derive(Clone)]
pub struct RequestVerifier {
    receiver: Receiver,
    body_len_max: usize,
    counters: Counters,
    log: Arc<Log>,
}

impl RequestVerifier {
    /// Verifies with the secrets of `receiver`.
    pub fn new(receiver: Receiver) -> Self {
        let (counters, log) = (Counters::default(), Arc::new(|_: &dyn Error| {}));
        Self { receiver, body_len_max: BODY_LEN_MAX, counters, log }
    }

    /// Reads no more than so many bytes.
    #[must_use]
    pub fn body_len_max(self, body_len_max: usize) -> Self {
        Self { body_len_max, ..self }
    }

    /// Tells `log` why a request was rejected, or what failed: the sender is told less.
    #[must_use]
    pub fn log(self, log: impl Fn(&dyn Error) + Send + Sync + 'static) -> Self {
        Self { log: Arc::new(log), ..self }
    }

    /// What became of the requests.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The delivery of an authentic request. A rejected one is counted and logged.
    pub async fn verify<B>(
        &self,
        request: Request<B>,
    ) -> Result<(request::Parts, Delivery), Rejection>
    where
        B: Body<Data: Buf>,
    {
        let (head, body) = request.into_parts();
        let delivery = match self.read(body).await {
            Ok(body) => {
                let headers = head.headers.iter();
                let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
                let headers: Vec<_> = headers.collect();
                Delivery::verify(&self.receiver, &headers, body, unix_now())
            }
            Err(rejection) => Err(rejection),
        };
        match delivery {
            Ok(delivery) => Ok((head, delivery)),
            Err(rejection) => {
                self.reject(&rejection);
                Err(rejection)
            }
        }
    }

    async fn read<B: Body<Data: Buf>>(&self, body: B) -> Result<Vec<u8>, Rejection> {
        let (mut body, mut bytes) = (pin!(body), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Rejection::Interrupted)?;
            let Ok(mut data) = frame.into_data() else { continue };
            if bytes.len() + data.remaining() > self.body_len_max {
                return Err(Rejection::TooLarge { limit: self.body_len_max });
            }
            bytes.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Ok(bytes)
    }

    pub(crate) fn reject(&self, rejection: &Rejection) {
        self.counters.count_rejected();
        (self.log)(rejection);
    }

    /// The store or the effect failed: counts and logs it, and asks the sender to try again.
    pub fn failed(&self, error: &dyn Error) -> Answer {
        self.counters.count_trouble();
        (self.log)(error);
        Answer::TROUBLE
    }
}

impl fmt::Debug for RequestVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestVerifier")
            .field("body_len_max", &self.body_len_max)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// The answer as a response of the `http` crate, with a body that a text can become.
    pub fn response<B: From<&'static str>>(self) -> Response<B> {
        let mut response = Response::new(B::from(self.text));
        *response.status_mut() =
            StatusCode::from_u16(self.status).expect("answers have status codes");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let retry_after: Option<(HeaderName, HeaderValue)> =
            self.retry_after.map(|seconds| (header::RETRY_AFTER, seconds.into()));
        headers.extend(retry_after);
        response
    }
}

/// The body that the handler gets in place of the one that was read.
pub(crate) fn body_again<B: From<Bytes>>(delivery: &Delivery) -> B {
    Bytes::from(delivery.body.clone()).into()
}

/// Seconds since 1970.
pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
