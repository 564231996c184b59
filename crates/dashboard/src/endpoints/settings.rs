//! The settings of an endpoint in its form: each once, with its path in the API, its label and its input.

use maud::Markup;
use serde_json::Value;

use crate::form::Field;
use crate::visit::{ApiRefusal, PageVisit};

/// A setting of an endpoint.
pub(super) struct Setting {
    /// Its path in the API. The last name of it is its name in the form.
    pub(super) path: &'static str,
    label: &'static str,
    hint: &'static str,
    input: SettingInput,
}

/// How a setting is typed, and what the API is sent for it.
enum SettingInput {
    Text,
    /// A text, or nothing if it is empty.
    OptionalText,
    /// Several lines of text.
    Lines,
    /// The same, or nothing if it is empty.
    OptionalLines,
    /// A list of words, one a line.
    WordLines,
    /// A list of words in one line.
    Words,
    Number,
    /// A number, or nothing if it is empty.
    OptionalNumber,
    /// One of a few: their values and labels.
    Choice(&'static [(&'static str, &'static str)]),
    /// `true` or `false`, with their labels.
    Flag(&'static [(&'static str, &'static str)]),
}

use SettingInput::{
    Choice, Flag, Lines, Number, OptionalLines, OptionalNumber, OptionalText, Text, WordLines,
    Words,
};

const fn setting(
    path: &'static str,
    label: &'static str,
    hint: &'static str,
    input: SettingInput,
) -> Setting {
    Setting { path, label, hint, input }
}

pub(super) const MAIN: &[Setting] = &[
    setting("url", "URL", "Where events are sent, such as https://example.com/hooks", Text),
    setting("description", "Description", "For people.", Lines),
    setting(
        "types",
        "Event types",
        "One filter a line: order.created, order.*, or * for all.",
        WordLines,
    ),
    setting(
        "policy.ordering",
        "Ordering",
        "Which deliveries wait for each other.",
        Choice(&[
            ("per_key", "per key: events of one key in order"),
            ("global", "global: everything in order"),
            ("none", "none: as fast as possible"),
        ]),
    ),
    setting(
        "policy.guarantee",
        "Guarantee",
        "What is promised about duplicates and loss.",
        Choice(&[
            ("at_least_once", "at least once: retry until acknowledged"),
            ("effectively_once", "effectively once: with all a receiver needs to apply it once"),
            ("at_most_once", "at most once: sent once, never again"),
        ]),
    ),
    setting(
        "policy.on_dead_letter",
        "A dead letter",
        "What it does to its lane.",
        Choice(&[
            ("hold", "hold the lane until someone acts"),
            ("advance", "let the lane move on"),
        ]),
    ),
    setting(
        "envelope",
        "Envelope",
        "How an event is wrapped.",
        Choice(&[
            ("raw", "raw: the producer's bytes"),
            ("cloudevents-structured", "CloudEvents, structured"),
            ("cloudevents-binary", "CloudEvents, binary"),
            ("event", "event: id, type, time, version and data in one object"),
            ("thin", "thin: a link to the event"),
            ("pagerduty", "PagerDuty: triggers and resolves incidents"),
            ("slack", "Slack: a message"),
            ("teams", "Microsoft Teams: a card"),
            ("template", "template: JSON of your own"),
        ]),
    ),
    setting(
        "routing_key",
        "Routing key",
        "Of the envelope PagerDuty. It is not shown again. Empty: as it is.",
        OptionalText,
    ),
    setting(
        "template",
        "Template",
        "Of the envelope template: JSON with places such as {{summary}} inside of strings.",
        OptionalLines,
    ),
    setting(
        "thin_above",
        "Reference above",
        "Payloads of more bytes than this are sent as a link. Empty: never.",
        OptionalNumber,
    ),
];

/// Where the settings of the backoff are.
pub(super) const BACKOFF: &str = "policy.retry.backoff";

pub(super) const STRATEGY: Setting = setting(
    "policy.retry.backoff.strategy",
    "Strategy",
    "How the wait between two attempts grows.",
    Choice(&[
        ("exponential", "exponential: the wait doubles with each failure"),
        ("fixed", "fixed: the same wait every time"),
        ("schedule", "schedule: the waits that are written down"),
    ]),
);

/// The settings of each strategy.
pub(super) const OF_STRATEGIES: [(&str, &[Setting]); 3] = [
    (
        "exponential",
        &[
            setting("policy.retry.backoff.base", "First wait", "Such as 2s.", Text),
            setting(
                "policy.retry.backoff.jitter",
                "Jitter",
                "How chance spreads the waits.",
                Choice(&[
                    ("full", "full: anything up to the wait"),
                    ("equal", "equal: half of the wait, and anything up to the other half"),
                    ("decorrelated", "decorrelated: anything up to three times the wait before"),
                    ("none", "none: the wait as it is"),
                ]),
            ),
        ],
    ),
    ("fixed", &[setting("policy.retry.backoff.delay", "Wait", "Such as 30s.", Text)]),
    (
        "schedule",
        &[
            setting(
                "policy.retry.backoff.delays",
                "Waits",
                "With spaces between them: 5s 1m 10m 1h.",
                Words,
            ),
            setting(
                "policy.retry.backoff.repeat_last",
                "After the last one",
                "What follows when all waits are over.",
                Flag(&[
                    ("false", "give up"),
                    ("true", "repeat the last wait until there are no attempts left"),
                ]),
            ),
        ],
    ),
];

pub(super) const LIMITS: &[Setting] = &[
    setting("policy.retry.max_delay", "Longest wait", "Such as 10m.", Text),
    setting("policy.retry.max_attempts", "Most attempts", "Then it is a dead letter.", Number),
    setting("policy.in_flight_max", "Most at once", "Attempts in flight at the same time.", Number),
    setting(
        "timeout",
        "Timeout",
        "Of one attempt, such as 15s. Empty: the server's own.",
        OptionalText,
    ),
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Setting> {
    let of_strategies = OF_STRATEGIES.iter().flat_map(|(_, settings)| *settings);
    MAIN.iter().chain([&STRATEGY]).chain(of_strategies).chain(LIMITS)
}

impl Setting {
    /// Its name in the form.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or_default()
    }

    /// What was typed.
    pub(super) fn typed(&self, visit: &PageVisit) -> String {
        match self.input {
            Lines | OptionalLines => lines(visit.field_as_typed(self.name())),
            WordLines => words(visit.field(self.name()).split_whitespace(), "\n"),
            Words => words(visit.field(self.name()).split_whitespace(), " "),
            _ => one_line(visit.field(self.name())),
        }
    }

    /// What the form holds for a value of the API.
    pub(super) fn text(&self, value: &Value) -> String {
        match (&self.input, value) {
            (Lines | OptionalLines, _) => lines(value.as_str().unwrap_or_default()),
            (WordLines, _) => words(texts(value), "\n"),
            (Words, _) => words(texts(value), " "),
            (Flag(_), _) => (*value == true).to_string(),
            (_, Value::Number(number)) => number.to_string(),
            _ => one_line(value.as_str().unwrap_or_default()),
        }
    }

    /// What the API is sent for what the form holds. A text that is no number is sent as it is: the API says what
    /// is wrong with it.
    pub(super) fn value(&self, text: &str) -> Value {
        match self.input {
            OptionalText | OptionalNumber | OptionalLines if text.is_empty() => Value::Null,
            Number | OptionalNumber => {
                text.parse::<u64>().map_or_else(|_| text.into(), Value::from)
            }
            WordLines | Words => text.split_whitespace().collect(),
            Flag(_) => (text == "true").into(),
            Text | OptionalText | Lines | OptionalLines | Choice(_) => text.into(),
        }
    }

    /// Its field in the form.
    pub(super) fn field(&self, text: &str, refused: Option<&ApiRefusal>) -> Markup {
        let Self { path, label, hint, .. } = *self;
        let field = Field { name: self.name(), path, label, hint };
        match self.input {
            Lines | OptionalLines | WordLines => field.lines(text, refused),
            Choice(options) | Flag(options) => field.choice(text, options, refused),
            Text | OptionalText | Words | Number | OptionalNumber => field.text(text, refused),
        }
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn words<'a>(words: impl Iterator<Item = &'a str>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}

/// As a field of one line holds it.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], "").trim().to_owned()
}

/// As a field of several lines holds it: browsers send every end of a line as CR LF.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}
