//! An endpoint's health in words, as the API tells it.

use railpost_engine::Time;
use serde_json::Value;

use super::attempts::answer;
use super::out::{age, field, since_now, time};

/// Its state, and what it waits for, as a cell.
pub(super) fn cell(endpoint: &Value) -> String {
    let health = &endpoint["health"];
    match (field(health, "state").as_str(), waits_for(health)) {
        ("waiting", Some(what)) => format!("waiting ({what})"),
        (state, _) => state.to_owned(),
    }
}

fn waits_for(health: &Value) -> Option<&'static str> {
    match health["waits_for"].as_str() {
        Some("breaker") => Some("breaker open"),
        Some("probe") => Some("probe in flight"),
        Some("retry_after") => Some("Retry-After"),
        _ => None,
    }
}

/// Lines below an endpoint of a list, if anything is the matter with it.
pub(super) fn below(endpoint: &Value) -> Vec<String> {
    let health = &endpoint["health"];
    match health["state"].as_str() {
        None | Some("active") => last_error(health).into_iter().collect(),
        Some(_) => lines(endpoint),
    }
}

fn last_error(health: &Value) -> Option<String> {
    let error = &health["last_error"];
    (!error.is_null()).then(|| format!("last error {}: {}", age(error, "at"), error_words(error)))
}

fn lines(endpoint: &Value) -> Vec<String> {
    let health = &endpoint["health"];
    let since = health["since"].as_str().map(|_| format!("since {}", age(health, "since")));
    let facts: Vec<String> = since.into_iter().chain(last_error(health)).collect();
    let facts = (!facts.is_empty()).then(|| facts.join("; "));
    let blocked = endpoint["blocked"].as_str().map(str::to_owned);
    facts.into_iter().chain(blocked).chain(next(health)).collect()
}

/// Its parts for people, one to a line.
pub(super) fn facts(endpoint: &Value) -> Vec<(String, String)> {
    let health = &endpoint["health"];
    let mut facts = vec![("health".to_owned(), cell(endpoint))];
    let mut add = |name: &str, text: Option<String>| {
        facts.extend(text.map(|text| (name.to_owned(), text)));
    };
    let at = |item: &Value, name: &str| item[name].as_str().map(|_| time(item, name));
    add("since", at(health, "since"));
    add("until", at(health, "until"));
    let error = &health["last_error"];
    add("last error", at(error, "at").map(|at| format!("{}, {at}", error_words(error))));
    add("last success", at(health, "last_success_at"));
    add("next", next(health));
    facts
}

fn error_words(error: &Value) -> String {
    match error["message"].as_str() {
        Some(message) => message.to_owned(),
        None => answer(error),
    }
}

/// What happens next, with how far away its instants are.
pub(super) fn next(health: &Value) -> Option<String> {
    health["next"].as_str().map(with_relative_times)
}

/// A sentence with its instants as people read them: `in 12s` for one that is ahead.
pub(super) fn with_relative_times(sentence: &str) -> String {
    let word = |word: &str| {
        let instant = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let rest = &word[instant.len()..];
        match instant.parse::<Time>() {
            Ok(Time(at)) if instant.len() > 10 => {
                let second = instant.get(..19).unwrap_or(instant).replace('T', " ");
                format!("{second} ({}){rest}", since_now(at))
            }
            _ => word.to_owned(),
        }
    };
    sentence.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_says_what_it_waits_for() {
        for (health, shown) in [
            (json!({ "state": "active" }), "active"),
            (json!({ "state": "waiting", "waits_for": "breaker" }), "waiting (breaker open)"),
            (json!({ "state": "waiting", "waits_for": "retry_after" }), "waiting (Retry-After)"),
            (json!({ "state": "quarantined" }), "quarantined"),
        ] {
            assert_eq!(cell(&json!({ "health": health })), shown);
        }
    }

    #[test]
    fn the_last_error_of_an_active_endpoint_is_shown() {
        let error = json!({ "at": "2020-01-01T00:00:00Z", "message": "answered 503" });
        let health = |error: Value| json!({ "health": { "state": "active", "last_error": error } });
        let shown = below(&health(error));
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("last error "), "{shown:?}");
        assert!(shown[0].ends_with(" ago: answered 503"), "{shown:?}");
        assert_eq!(below(&health(Value::Null)), Vec::<String>::new());
    }

    #[test]
    fn instants_in_a_sentence_get_their_distance() {
        let shown = with_relative_times("One attempt goes at 2020-01-01T00:00:00Z; then more.");
        assert!(shown.starts_with("One attempt goes at 2020-01-01 00:00:00 ("), "{shown}");
        assert!(shown.ends_with(" ago); then more."), "{shown}");
    }
}
