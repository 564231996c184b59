//! The cost bound of a regular expression.
//!
//! Patterns are matched in linear time: for each byte of the text at most every place in the pattern is
//! looked at once. So what counts is how many places there are, with repetitions written out.

use super::SchemaError;
use crate::limits::SCHEMA_PATTERN_PLACES_MAX;

/// Cost of each byte of the text, where as many bytes as make a step cost 1.
pub(super) fn cost_per_byte(pattern: &str) -> Result<u64, SchemaError> {
    let places = places(pattern);
    if places > SCHEMA_PATTERN_PLACES_MAX {
        return Err(SchemaError::TooCostly(format!(
            "the pattern `{}` has {places} places with its repetitions written out; at most \
             {SCHEMA_PATTERN_PLACES_MAX} are allowed",
            shortened(pattern)
        )));
    }
    Ok(1 + 4 * places)
}

/// The beginning of a pattern, for people.
fn shortened(pattern: &str) -> String {
    let mut text: String = pattern.chars().take(40).collect();
    if text.len() < pattern.len() {
        text.push('…');
    }
    text
}

/// How many places there are at most. What is no pattern has some number, and is refused elsewhere.
fn places(pattern: &str) -> u64 {
    let mut count = Count::default();
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        if next == '{'
            && let Some((times, after)) = repetition(rest)
        {
            (count.last, rest) = (count.last.max(1).saturating_mul(times), after);
            continue;
        }
        match next {
            '(' => count.open(),
            ')' => count.close(),
            '*' | '+' | '?' | '|' | '^' | '$' => {}
            _ => count.place(),
        }
        rest = match next {
            '[' => after_class(rest),
            '\\' => rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or_default(),
            _ => rest,
        };
    }
    count.all()
}

/// Places that were counted.
#[derive(Default)]
struct Count {
    /// In the groups around, from the outermost on.
    around: Vec<u64>,
    /// In the innermost group, without what was read last.
    group: u64,
    /// What was read last: a repetition is about it.
    last: u64,
}

impl Count {
    fn place(&mut self) {
        self.group = self.group.saturating_add(self.last);
        self.last = 1;
    }

    fn open(&mut self) {
        self.around.push(self.group.saturating_add(self.last));
        (self.group, self.last) = (0, 0);
    }

    fn close(&mut self) {
        self.last = self.group.saturating_add(self.last);
        self.group = self.around.pop().unwrap_or_default();
    }

    fn all(self) -> u64 {
        self.around.into_iter().fold(self.group.saturating_add(self.last), u64::saturating_add)
    }
}

/// How often `{3}`, `{3,}` or `{3,5}` repeats at most, and what follows it.
fn repetition(rest: &str) -> Option<(u64, &str)> {
    let (inside, after) = rest.split_once('}')?;
    let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
    let least: u64 = least.trim().parse().ok()?;
    let most = most.trim().parse().unwrap_or(least.saturating_add(1));
    Some((least.max(most).max(1), after))
}

/// What follows a class such as `[a-z\]]`.
fn after_class(rest: &str) -> &str {
    let (mut escaped, mut first) = (false, true);
    for (at, next) in rest.char_indices() {
        match next {
            ']' if !escaped && !first => return &rest[at + 1..],
            '^' if first => continue,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
        first = false;
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        for (pattern, expected) in [
            ("", 0),
            ("^abc$", 3),
            ("a*b+c?", 3),
            ("[a-z]{3}", 3),
            ("[]a-z]{3}x", 4),
            (r"[\]]{2}\d{4}", 6),
            ("(ab){3}c", 7),
            ("((a{10}){10}){10}", 1_000),
            ("a{2,}", 3),
            ("a{2,5}", 5),
            ("(a|b|c){4}", 12),
            ("x(y(z){2}){3}", 10),
        ] {
            assert_eq!(places(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_its_size() {
        assert!(cost_per_byte("^[a-z0-9-]{1,63}$").is_ok());
        let refused = cost_per_byte("((a{100}){100}){100}");
        assert!(refused.is_err_and(|refused| refused.to_string().contains("1000000")));
    }

    #[test]
    fn what_is_no_pattern_has_some_number() {
        for pattern in ["(", ")", "[", "\\", "{", "a{", "a{x}", "a{99999999999999999999}", "()))(("]
        {
            let _ = places(pattern);
        }
    }
}
