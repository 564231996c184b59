//! Instants on the command line: `2h` ago, a date, or RFC 3339.

use railpost_engine::{Span, Time, Timestamp};

use super::system;

const EXPECTED: &str = "expected a length of time before now such as `2h`, a date such as `2026-01-31` (UTC), \
     or a time such as `2026-01-31T12:00:00Z`";

/// An instant in RFC 3339, as the API takes it.
pub(super) fn instant(text: &str) -> Result<String, String> {
    parse(text, system::now()).map(|at| Time(at).to_string()).ok_or_else(|| EXPECTED.to_owned())
}

fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    if let Ok(span) = text.parse::<Span>() {
        return now.as_millis().checked_sub(span.as_millis()).map(Timestamp::from_millis);
    }
    let whole_day = format!("{text}T00:00:00Z");
    let parsed = text.parse::<Time>().or_else(|_| whole_day.parse());
    parsed.ok().map(|Time(at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_relative_a_date_or_a_time() {
        let now = "2026-01-31T12:00:00Z".parse::<Time>().expect("a time").0;
        for (text, at) in [
            ("2h", "2026-01-31T10:00:00.000Z"),
            ("7d", "2026-01-24T12:00:00.000Z"),
            ("2026-01-30", "2026-01-30T00:00:00.000Z"),
            ("2026-01-30T13:30:00+01:00", "2026-01-30T12:30:00.000Z"),
        ] {
            assert_eq!(parse(text, now).map(|at| Time(at).to_string()).as_deref(), Some(at));
        }
        for text in ["", "yesterday", "2", "2026-13-01", "99999999999d"] {
            assert_eq!(parse(text, now), None, "{text}");
        }
    }
}
