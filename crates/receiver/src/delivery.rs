//! A delivery as it arrived, and what can be read out of it: JSON, a CloudEvent, an event, or a thin one.

use crate::limits::HEADERS_KEPT_MAX;
use crate::receive::{Receiver, Rejection};
use base64::{Engine, engine::general_purpose::STANDARD};
use railpost_wire::cloudevents::{CloudEvent, ContentMode, Data};
use railpost_wire::{EventId, EventType, Key, Received};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// An authentic delivery: what its headers say, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What to deduplicate and to order by.
    pub received: Received,
    /// The headers that belong to the body: `content-type`, and `ce-…` in binary mode. Lower-case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The bytes as they arrived.
    pub body: Vec<u8>,
}

impl Delivery {
    /// Verifies a request, and keeps what belongs to its event.
    pub fn verify(
        receiver: &Receiver,
        headers: &[(&str, &[u8])],
        body: Vec<u8>,
        now: i64,
    ) -> Result<Self, Rejection> {
        let find = |wanted: &str| {
            let found = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| *value)
        };
        let received = receiver.verify(find, &body, now)?;
        Ok(Self { received, headers: kept(headers)?, body })
    }

    /// The body as JSON of the application's own.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
        self.check_whole()?;
        self.read_json()
    }

    fn read_json<T: DeserializeOwned>(&self) -> Result<T, Rejection> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Rejection::Unreadable(format!("the body is not as expected: {error}")))
    }

    /// The CloudEvent that it is, in structured or binary mode. Its id, or the one that its source and id
    /// make, must be the one that was signed.
    pub fn cloud_event(&self) -> Result<CloudEvent<'_>, Rejection> {
        self.check_whole()?;
        let event = match self.mode()? {
            ContentMode::Structured => CloudEvent::from_json(&self.body)?,
            ContentMode::Binary => {
                let headers = self.headers.iter();
                let headers = headers.map(|(name, value)| (name.as_str(), value.as_slice()));
                CloudEvent::from_http(headers, &self.body)?
            }
            ContentMode::Batched => {
                return Err(Rejection::Unreadable("a batch, where one event was expected".into()));
            }
        };
        self.check_cloud_event_id(&event)?;
        Ok(event)
    }

    /// The event of an `event` envelope. Its id must be the one that was signed.
    pub fn event(&self) -> Result<EventBody<'_>, Rejection> {
        self.check_whole()?;
        let event = EventBody::read(&self.body)?;
        self.check_id(&event.id.to_string())?;
        Ok(event)
    }

    /// The thin event that it is. Its id must be the one that was signed.
    pub fn thin(&self) -> Result<Thin, Rejection> {
        let thin: Thin = self.read_json()?;
        self.check_id(&thin.id.to_string())?;
        Ok(thin)
    }

    /// The delivery with its payload: itself where the body holds the event, and with what `get` fetches
    /// where the body is a reference (`X-Thin`). An endpoint with `thin_above` sends both. What is
    /// fetched is the producer's payload, as a raw delivery has it; see [`Thin::fetch`] for `origin`.
    pub async fn fetched<E: From<Rejection>>(
        self,
        origin: &str,
        get: impl AsyncFnOnce(&str) -> Result<Fetched, E>,
    ) -> Result<Self, E> {
        if !self.received.thin {
            return Ok(self);
        }
        let Fetched { content_type, payload } = self.thin()?.fetch(origin, get).await?;
        let headers = vec![("content-type".to_owned(), content_type.into_bytes())];
        let received = Received { thin: false, ..self.received };
        Ok(Self { received, headers, body: payload })
    }

    /// A reference is JSON too, and must not be taken for the payload.
    fn check_whole(&self) -> Result<(), Rejection> {
        if !self.received.thin {
            return Ok(());
        }
        let problem = "the body is a reference to the event, not the event: fetch it first";
        Err(Rejection::Unreadable(problem.to_owned()))
    }

    fn mode(&self) -> Result<ContentMode, Rejection> {
        let content_type = self.headers.iter().find(|(name, _)| name == "content-type");
        let content_type = content_type.map_or(&[][..], |(_, value)| value);
        ContentMode::of_content_type(&String::from_utf8_lossy(content_type))
            .map_err(|problem| Rejection::Unreadable(format!("content-type: {problem}")))
    }

    /// An event that came to the sender as a CloudEvent keeps the id that it came with; the signed id is made
    /// of its source and that id.
    fn check_cloud_event_id(&self, event: &CloudEvent<'_>) -> Result<(), Rejection> {
        if event.event_id() == self.received.event_id {
            return Ok(());
        }
        self.check_id(&event.id)
    }

    fn check_id(&self, id: &str) -> Result<(), Rejection> {
        if id == self.received.event_id.to_string() {
            return Ok(());
        }
        Err(Rejection::Unreadable("the body has another event id than the headers".into()))
    }
}

/// The headers that belong to the body.
fn kept(headers: &[(&str, &[u8])]) -> Result<Vec<(String, Vec<u8>)>, Rejection> {
    let keep = |(name, value): &(&str, &[u8])| {
        let name = name.to_ascii_lowercase();
        (name == "content-type" || name.starts_with("ce-")).then(|| (name, value.to_vec()))
    };
    let kept: Vec<_> = headers.iter().filter_map(keep).collect();
    if kept.len() > HEADERS_KEPT_MAX {
        return Err(Rejection::Unreadable(format!("more than {HEADERS_KEPT_MAX} `ce-` headers")));
    }
    Ok(kept)
}

/// What an `event` envelope holds.
#[derive(Debug, Clone)]
pub struct EventBody<'a> {
    /// The event's id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it happened, by RFC 3339.
    pub created_at: Option<String>,
    /// The version of its type's schema, if it has one.
    pub version: Option<u32>,
    /// Its key, if it has one.
    pub key: Option<Key>,
    /// Its payload: JSON byte for byte, other bytes, or none at all.
    pub data: Data<'a>,
}

/// Its members. A JSON payload may be `null`, which is not the same as none.
#[derive(Deserialize)]
struct EventMembers<'a> {
    id: EventId,
    #[serde(rename = "type")]
    event_type: EventType,
    created_at: Option<String>,
    version: Option<u32>,
    key: Option<Key>,
    #[serde(default, borrow, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> EventBody<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Rejection> {
        let unreadable = |problem: &dyn std::fmt::Display| {
            Rejection::Unreadable(format!("no event envelope: {problem}"))
        };
        let members: EventMembers<'a> =
            serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        let data = match (members.data, members.data_base64) {
            (None, None) => Data::None,
            (Some(value), None) => Data::Json(value),
            (None, Some(text)) => {
                let bytes = STANDARD.decode(text);
                Data::Binary(bytes.map_err(|_| unreadable(&"data_base64 is not base64"))?.into())
            }
            (Some(_), Some(_)) => return Err(unreadable(&"both data and data_base64")),
        };
        let EventMembers { id, event_type, created_at, version, key, .. } = members;
        Ok(Self { id, event_type, created_at, version, key, data })
    }
}

/// A thin event: what happened to what, and where the rest is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Thin {
    /// The event's id.
    pub id: EventId,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Its key, if it has one.
    #[serde(default)]
    pub key: Option<Key>,
    /// Where to fetch the rest, with the receiver's own credentials.
    pub url: String,
}

/// The payload behind a reference, as the sender answered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The answer's `content-type`.
    pub content_type: String,
    /// The answer's body.
    pub payload: Vec<u8>,
}

impl Thin {
    /// Fetches the rest with `get`, an HTTP client of the application's own, if the URL is one of
    /// `origin`'s, such as `https://railpost.example`. The credentials that `get` sends must never go to
    /// another host, whatever the body says.
    pub async fn fetch<B, E: From<Rejection>>(
        &self,
        origin: &str,
        get: impl AsyncFnOnce(&str) -> Result<B, E>,
    ) -> Result<B, E> {
        let rest = self.url.strip_prefix(origin.trim_end_matches('/'));
        if !rest.is_some_and(|rest| rest.starts_with('/')) {
            let problem = format!("the event's URL is not one of {origin}");
            return Err(Rejection::Unreadable(problem).into());
        }
        get(&self.url).await
    }
}
