//! Events in binary mode: the data is the body, the attributes are `ce-` headers.

use super::{Attributes, BadCloudEvent, CloudEvent, Data, JSON, Value, rules};
use crate::names::is_json;
use crate::percent;
use crate::text::Unexpected;
use std::{borrow::Cow, collections::BTreeMap};

/// A request's body, and the headers that belong to it: `content-type`, and `ce-` ones in binary mode.
/// All values are visible ASCII and spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content<'a> {
    /// Names, in lower case, and values.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// What is sent, and signed.
    pub body: Cow<'a, [u8]>,
}

impl<'a> CloudEvent<'a> {
    /// Reads an event in binary mode from all headers of a message, or at least those that matter, and
    /// its body. An empty body is no data; JSON is data as such if its content type says so; all other
    /// data is bytes.
    pub fn from_http<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        body: &'a [u8],
    ) -> Result<Self, BadCloudEvent> {
        let mut attributes = Attributes(BTreeMap::new());
        for (header, value) in headers {
            if let Some(name) = attribute_name(header)? {
                let value = decode(&name, value)?;
                attributes.add(name.into(), Value::String(value.into()))?;
            }
        }
        let data = attributes.data_of_body(body);
        attributes.into_event(data)
    }

    /// Writes it in binary mode.
    pub fn to_http(&self) -> Result<Content<'_>, BadCloudEvent> {
        self.check()?;
        Ok(Content { headers: self.http_headers(), body: self.data.as_bytes().into() })
    }

    /// Its headers, without checking it: for events whose parts are right by their types.
    pub(crate) fn http_headers(&self) -> Vec<(Cow<'static, str>, String)> {
        let implied = matches!(self.data, Data::Json(_)).then_some(JSON);
        let content_type = self.datacontenttype.as_deref().or(implied);
        let content_type = content_type.map(|value| ("content-type".into(), value.to_owned()));
        let header =
            |name: &str, value: &str| (format!("ce-{name}").into(), percent::encode(value));
        let named = self.attributes().filter(|(name, _)| *name != "datacontenttype");
        let named = named.map(|(name, value)| header(name, value));
        let extensions =
            self.extensions.iter().map(|(name, value)| header(name, &value.to_string()));
        content_type.into_iter().chain(named).chain(extensions).collect()
    }
}

impl Data<'_> {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Data::None => b"",
            Data::Json(value) => value.get().as_bytes(),
            Data::Text(text) => text.as_bytes(),
            Data::Binary(bytes) => bytes,
        }
    }
}

impl<'a> Attributes<'a> {
    fn data_of_body(&self, body: &'a [u8]) -> Data<'a> {
        let declared = self.0.get("datacontenttype");
        let says_json = matches!(declared, Some(Value::String(declared)) if is_json(declared));
        if says_json && let Ok(value) = serde_json::from_slice(body) {
            return Data::Json(value);
        }
        if body.is_empty() { Data::None } else { Data::Binary(body.into()) }
    }
}

/// The attribute that a header carries, if it carries one.
fn attribute_name(header: &str) -> Result<Option<String>, BadCloudEvent> {
    let header = header.to_ascii_lowercase();
    let name = match header.strip_prefix("ce-") {
        None if header == "content-type" => "datacontenttype",
        None => return Ok(None),
        Some("datacontenttype") => {
            let problem = Unexpected::new("`Content-Type` to say it, in binary mode", &header);
            return Err(BadCloudEvent::new("datacontenttype", problem));
        }
        Some(name) => name,
    };
    rules::check_name(name)?;
    Ok(Some(name.to_owned()))
}

/// Reads a header's value: quotes of older senders are taken off, then escapes are undone. A content
/// type is neither quoted nor escaped.
fn decode(attribute: &str, value: &[u8]) -> Result<String, BadCloudEvent> {
    let decoded = match attribute {
        "datacontenttype" => parse_ascii(value),
        _ => unquote(value).and_then(|value| percent::decode(&value)),
    };
    decoded.map_err(|problem| BadCloudEvent::new(attribute.to_owned(), problem))
}

fn parse_ascii(value: &[u8]) -> Result<String, Unexpected> {
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii());
    text.map(str::to_owned).ok_or_else(|| Unexpected::bytes("ASCII", value))
}

/// The inside of a quoted string of RFC 9110; a value that does not begin with a quote as it is.
fn unquote(value: &[u8]) -> Result<Cow<'_, [u8]>, Unexpected> {
    let Some(quoted) = value.strip_prefix(b"\"") else { return Ok(value.into()) };
    let refused = || Unexpected::bytes("a quoted string with its end", value);
    let mut inside = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    loop {
        match bytes.next().ok_or_else(refused)? {
            b'"' if bytes.as_slice().is_empty() => return Ok(inside.into()),
            b'"' => return Err(refused()),
            b'\\' => inside.push(*bytes.next().ok_or_else(refused)?),
            other => inside.push(*other),
        }
    }
}
