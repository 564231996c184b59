//! For axum: extractors that hand a verified event to a handler. The router's state holds the [`RequestVerifier`].
//!
//! ```
//! use axum::{Router, extract::FromRef, routing::post};
//! use railpost_receiver::{Answer, Delivery, axum::JsonEvent, request_verifier::RequestVerifier};
//!
//! #[derive(Clone, FromRef)]
//! struct App {
//!     verifier: RequestVerifier,
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     id: String,
//! }
//!
//! async fn hook(event: JsonEvent<Order>) -> Answer {
//!     println!("{} is about {}", event.delivery.received.event_id, event.payload.id);
//!     Answer::TAKEN
//! }
//!
//! fn service(app: App) -> Router {
//!     Router::new().route("/hook", post(hook)).with_state(app)
//! }
//! ```

use crate::answer::Answer;
use crate::delivery::{Delivery, Thin};
use crate::receive::Rejection;
use crate::request_verifier::RequestVerifier;
use axum_core::body::Body;
use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use railpost_wire::EventType;
use railpost_wire::cloudevents::Data;
use serde::de::DeserializeOwned;

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        self.response::<Body>()
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.answer().into_response()
    }
}

/// The delivery that a layer has verified, or this request, verified here.
impl<S: Send + Sync> FromRequest<S> for Delivery
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(mut request: Request, state: &S) -> Result<Self, Rejection> {
        if let Some(delivery) = request.extensions_mut().remove() {
            return Ok(delivery);
        }
        let (_, delivery) = RequestVerifier::from_ref(state).verify(request).await?;
        Ok(delivery)
    }
}

/// A raw event whose body is JSON of the application's own.
#[derive(Debug, Clone)]
pub struct JsonEvent<T> {
    /// The delivery.
    pub delivery: Delivery,
    /// Its body.
    pub payload: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonEvent<T>
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let delivery = Delivery::from_request(request, state).await?;
        let payload = readable(delivery.json(), state)?;
        Ok(Self { delivery, payload })
    }
}

/// A CloudEvent, structured or binary, whose data is JSON of the application's own.
#[derive(Debug, Clone)]
pub struct CloudEventOf<T> {
    /// The delivery. Its [`cloud_event`](Delivery::cloud_event) has the rest of the attributes.
    pub delivery: Delivery,
    /// The attribute `type`.
    pub event_type: String,
    /// The attribute `source`.
    pub source: String,
    /// The attribute `data`.
    pub data: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for CloudEventOf<T>
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let delivery = Delivery::from_request(request, state).await?;
        readable(Self::of(delivery), state)
    }
}

impl<T: DeserializeOwned> CloudEventOf<T> {
    fn of(delivery: Delivery) -> Result<Self, Rejection> {
        let event = delivery.cloud_event()?;
        let data = json_data(&event.data)?;
        let (event_type, source) = (event.event_type.to_string(), event.source.to_string());
        Ok(Self { event_type, source, data, delivery })
    }
}

/// An event of an `event` envelope, whose data is JSON of the application's own.
#[derive(Debug, Clone)]
pub struct EventOf<T> {
    /// The delivery. Its [`event`](Delivery::event) has the rest.
    pub delivery: Delivery,
    /// The event's type.
    pub event_type: EventType,
    /// The event's data.
    pub data: T,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for EventOf<T>
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let delivery = Delivery::from_request(request, state).await?;
        readable(Self::of(delivery), state)
    }
}

impl<T: DeserializeOwned> EventOf<T> {
    fn of(delivery: Delivery) -> Result<Self, Rejection> {
        let event = delivery.event()?;
        let (data, event_type) = (json_data(&event.data)?, event.event_type.clone());
        Ok(Self { event_type, data, delivery })
    }
}

/// The data of an envelope as JSON of the application's own.
fn json_data<T: DeserializeOwned>(data: &Data<'_>) -> Result<T, Rejection> {
    let unexpected = |problem: String| Rejection::Unreadable(format!("data: {problem}"));
    let Data::Json(data) = data else { return Err(unexpected("expected JSON".to_owned())) };
    serde_json::from_str(data.get()).map_err(|error| unexpected(error.to_string()))
}

/// A thin event: [`Thin::fetch`] gets the rest.
#[derive(Debug, Clone)]
pub struct ThinEvent {
    /// The delivery.
    pub delivery: Delivery,
    /// What happened to what, and where the rest is.
    pub thin: Thin,
}

impl<S: Send + Sync> FromRequest<S> for ThinEvent
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let delivery = Delivery::from_request(request, state).await?;
        let thin = readable(delivery.thin(), state)?;
        Ok(Self { delivery, thin })
    }
}

/// What an endpoint with a raw envelope and `thin_above` sends: the payload, or where to fetch it.
#[derive(Debug, Clone)]
pub enum JsonOrThin<T> {
    /// The payload is here.
    Json(JsonEvent<T>),
    /// It is to be fetched.
    Thin(ThinEvent),
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonOrThin<T>
where
    RequestVerifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let delivery = Delivery::from_request(request, state).await?;
        readable(Self::of(delivery), state)
    }
}

impl<T: DeserializeOwned> JsonOrThin<T> {
    fn of(delivery: Delivery) -> Result<Self, Rejection> {
        Ok(match delivery.received.thin {
            true => Self::Thin(ThinEvent { thin: delivery.thin()?, delivery }),
            false => Self::Json(JsonEvent { payload: delivery.json()?, delivery }),
        })
    }
}

/// An authentic request whose body cannot be read is rejected, counted and logged like the others.
fn readable<T, S>(read: Result<T, Rejection>, state: &S) -> Result<T, Rejection>
where
    RequestVerifier: FromRef<S>,
{
    read.inspect_err(|rejection| RequestVerifier::from_ref(state).reject(rejection))
}
