//! The values in the form of an endpoint, and their differences from the stored endpoint.

use std::collections::BTreeMap;

use railpost_engine::{Backoff, Policy};
use serde_json::{Map, Value, json};

use super::settings::{self, BACKOFF, OF_STRATEGIES, STRATEGY, Setting};
use crate::visit::PageVisit;

/// What is in the form, by the settings' paths: as it was typed, or as the endpoint is. Two drafts that are equal
/// look the same in the form, whatever a browser does to lines and spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Draft(BTreeMap<&'static str, String>);

impl Draft {
    /// What was typed.
    pub(super) fn typed(visit: &PageVisit) -> Self {
        Self(settings::all().map(|setting| (setting.path, setting.typed(visit))).collect())
    }

    /// The endpoint as it is.
    pub(super) fn of(endpoint: &Value) -> Self {
        let mut endpoint = endpoint.clone();
        // What another strategy would begin with, for people who change to it.
        let usual = serde_json::to_value(Backoff::default()).unwrap_or_default();
        for (name, value) in usual.as_object().into_iter().flatten() {
            let place = at(&mut endpoint, BACKOFF);
            if place[name].is_null() {
                place[name] = value.clone();
            }
        }
        let value = |path: &str| path.split('.').fold(&endpoint, |place, name| &place[name]);
        let text = |setting: &'static Setting| (setting.path, setting.text(value(setting.path)));
        Self(settings::all().map(text).collect())
    }

    /// An endpoint of which nothing was said yet.
    pub(super) fn new() -> Self {
        let policy = serde_json::to_value(Policy::default()).unwrap_or_default();
        Self::of(&json!({ "types": ["*"], "envelope": "raw", "policy": policy }))
    }

    /// What the form holds for a setting.
    pub(super) fn get(&self, setting: &Setting) -> &str {
        self.0.get(setting.path).map(String::as_str).unwrap_or_default()
    }

    /// What the API is sent so that what was `was` becomes this: the fields that differ, and all of the backoff if
    /// one of its fields does.
    pub(super) fn changes(&self, was: &Self) -> Map<String, Value> {
        let mut body = json!({});
        let differs = |setting: &&Setting| self.get(setting) != was.get(setting);
        for setting in settings::all().filter(differs) {
            match setting.path.starts_with(BACKOFF) {
                true => *at(&mut body, BACKOFF) = self.backoff(),
                false => *at(&mut body, setting.path) = setting.value(self.get(setting)),
            }
        }
        match body {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// The strategy that is chosen, with its fields.
    fn backoff(&self) -> Value {
        let strategy = self.get(&STRATEGY);
        let mut backoff = json!({ "strategy": strategy });
        let own = OF_STRATEGIES.iter().filter(|(name, _)| *name == strategy);
        for setting in own.flat_map(|(_, settings)| *settings) {
            backoff[setting.name()] = setting.value(self.get(setting));
        }
        backoff
    }
}

/// The place in an object that a path leads to, which is made if it is not there.
fn at<'v>(object: &'v mut Value, path: &str) -> &'v mut Value {
    path.split('.').fold(object, |place, name| &mut place[name])
}
