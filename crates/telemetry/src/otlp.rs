//! Where spans go, and what goes with them.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// The collector that spans are sent to.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Its URL, without `/v1/traces`.
    pub url: String,
    /// The headers of every request to it.
    pub headers: OtlpHeaders,
}

/// Headers as `OTEL_EXPORTER_OTLP_HEADERS` has them: `name=value,name=value`, with values percent-encoded. Values
/// stay out of debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(Vec<(HeaderName, String)>);

/// A text that is no list of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHeaders;

impl fmt::Display for BadHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected headers such as `authorization=Bearer%20TOKEN,x-team=orders`")
    }
}

impl std::error::Error for BadHeaders {}

impl FromStr for OtlpHeaders {
    type Err = BadHeaders;

    fn from_str(text: &str) -> Result<Self, BadHeaders> {
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.map(header).collect::<Result<_, _>>().map(Self)
    }
}

fn header(pair: &str) -> Result<(HeaderName, String), BadHeaders> {
    let (name, value) = pair.split_once('=').ok_or(BadHeaders)?;
    let name: HeaderName = name.trim().parse().map_err(|_| BadHeaders)?;
    let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| BadHeaders)?;
    HeaderValue::from_str(&value).map_err(|_| BadHeaders)?;
    Ok((name, value.into_owned()))
}

impl OtlpHeaders {
    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.clone()))
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_as_the_environment_of_open_telemetry_has_them() {
        let read = |text: &str| {
            let headers = text.parse::<OtlpHeaders>();
            headers.map(|headers| {
                headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
            })
        };
        for (text, expected) in [
            ("", &[][..]),
            ("authorization=Bearer%20abc==", &["authorization: Bearer abc=="]),
            ("X-Team = orders , api-key=1", &["x-team: orders", "api-key: 1"]),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for text in ["authorization", "a b=c", "a=%0A", "a=%FF", "=x"] {
            assert_eq!(read(text), Err(BadHeaders), "{text}");
        }
    }

    #[test]
    fn values_stay_out_of_debug_output() {
        let headers: OtlpHeaders = "authorization=hunter2".parse().unwrap();
        assert_eq!(format!("{headers:?}"), "[\"authorization\"]");
    }
}
