//! JSON Schemas of instants and of lengths of time within bounds, for specifications.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::limits::{
    BREAKER_OPEN_MAX, DISABLE_AFTER_MAX, RATE_PERIOD_MAX, RETRY_DELAY_MAX, TTL_MAX,
};
use crate::time::UNITS;
use crate::{Span, Time};

const MOMENT: Span = Span::from_millis(1);

impl JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "format": "date-time",
            "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]\
                        ([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?\
                        ([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$",
            "description": "An instant of RFC 3339, from 1970 on.",
        })
    }
}

/// The schema of a length of time within these bounds, both included. JSON Schema has no bounds for texts, so
/// they are a pattern; people find them in `x-minimum` and `x-maximum`.
pub fn span_between(min: Span, max: Span) -> Schema {
    schemars::json_schema!({
        "type": "string",
        "pattern": pattern(min, max),
        "x-minimum": min.to_string(),
        "x-maximum": max.to_string(),
    })
}

/// The same for what may be absent.
pub fn optional_span_between(min: Span, max: Span) -> Schema {
    schemars::json_schema!({
        "type": ["string", "null"],
        "pattern": pattern(min, max),
        "x-minimum": min.to_string(),
        "x-maximum": max.to_string(),
    })
}

pub(crate) fn retry_delay(_: &mut SchemaGenerator) -> Schema {
    span_between(MOMENT, RETRY_DELAY_MAX)
}

pub(crate) fn retry_delays(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "array",
        "items": span_between(Span::ZERO, RETRY_DELAY_MAX),
        "minItems": 1,
        "maxItems": crate::limits::SCHEDULE_LEN_MAX,
    })
}

pub(crate) fn ttl(_: &mut SchemaGenerator) -> Schema {
    span_between(MOMENT, TTL_MAX)
}

pub(crate) fn rate_period(_: &mut SchemaGenerator) -> Schema {
    span_between(MOMENT, RATE_PERIOD_MAX)
}

pub(crate) fn breaker_open(_: &mut SchemaGenerator) -> Schema {
    span_between(MOMENT, BREAKER_OPEN_MAX)
}

pub(crate) fn disable_after(_: &mut SchemaGenerator) -> Schema {
    optional_span_between(Span::from_mins(1), DISABLE_AFTER_MAX)
}

/// Statuses and what they mean.
pub(crate) fn outcomes(generator: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({
        "type": "object",
        "patternProperties": { "^[1-5][0-9]{2}$": generator.subschema_for::<crate::Outcome>() },
        "additionalProperties": false,
    })
}

/// A pattern of all texts of lengths within the bounds, in each unit.
fn pattern(min: Span, max: Span) -> String {
    let unit = |(name, millis): (&str, u64)| {
        let (low, high) = (min.as_millis().div_ceil(millis), max.as_millis() / millis);
        (low <= high).then(|| format!("({}){name}", numbers(low, high).join("|")))
    };
    let units: Vec<String> = UNITS.into_iter().filter_map(unit).collect();
    format!("^0*({})$", units.join("|"))
}

/// Patterns of the whole numbers from `low` to `high`, without zeros before them.
fn numbers(low: u64, high: u64) -> Vec<String> {
    let digits = |number: u64| number.to_string().len() as u32;
    let of_length = |len: u32| {
        let least = if len == 1 { 0 } else { 10_u64.pow(len - 1) };
        let (low, high) = (low.max(least), high.min(10_u64.pow(len) - 1));
        same_length(&low.to_string(), &high.to_string())
    };
    (digits(low)..=digits(high)).flat_map(of_length).collect()
}

/// Patterns of the numbers between two that have as many digits.
fn same_length(low: &str, high: &str) -> Vec<String> {
    let (Some(first), Some(last)) = (low.bytes().next(), high.bytes().next()) else {
        return vec![String::new()];
    };
    let (low, high) = (&low[1..], &high[1..]);
    let with = |digit: u8, rest: Vec<String>| -> Vec<String> {
        rest.into_iter().map(|rest| format!("{}{rest}", digit as char)).collect()
    };
    if first == last {
        return with(first, same_length(low, high));
    }
    let whole_low = low.bytes().all(|digit| digit == b'0');
    let whole_high = high.bytes().all(|digit| digit == b'9');
    let mut patterns = Vec::new();
    if !whole_low {
        patterns.extend(with(first, same_length(low, &"9".repeat(low.len()))));
    }
    let (from, to) = (first + u8::from(!whole_low), last - u8::from(!whole_high));
    if from <= to {
        patterns.push(format!("{}{}", class(from, to), any(low.len())));
    }
    if !whole_high {
        patterns.extend(with(last, same_length(&"0".repeat(high.len()), high)));
    }
    patterns
}

fn class(from: u8, to: u8) -> String {
    match from == to {
        true => (from as char).to_string(),
        false => format!("[{}-{}]", from as char, to as char),
    }
}

fn any(digits: usize) -> String {
    match digits {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        digits => format!("[0-9]{{{digits}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_between_two_are_few_patterns() {
        for (low, high, expected) in [
            (0, 9, "[0-9]"),
            (1, 30, "[1-9]|[1-2][0-9]|30"),
            (60, 720, "[6-9][0-9]|[1-6][0-9]{2}|7[0-1][0-9]|720"),
            (7, 7, "7"),
            (99, 100, "99|100"),
        ] {
            assert_eq!(numbers(low, high).join("|"), expected, "{low} to {high}");
        }
    }
}
