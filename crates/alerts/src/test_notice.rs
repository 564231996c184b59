//! Notices by which people see that they are reached: one that fires, and one that resolves it.

use railpost_engine::{Time, Timestamp};
use railpost_store::Severity;
use railpost_wire::AlertId;
use serde_json::json;

use crate::notice::{Notice, NoticeContext, NoticeStatus, dedup_key};
use crate::{AlertSettings, Rule};

/// The types of notices of a test that names no rule.
pub const TEST_TYPES: (&str, &str) = ("railpost.alert.test.fired", "railpost.alert.test.resolved");

/// What tests are about: no alert has it, so a test resolves no alert.
pub const TEST_SUBJECT: &str = "test";

/// A test.
#[derive(Clone, Copy, Debug)]
pub struct TestNotice<'a> {
    /// The rule whose notices are sent; nothing for notices of tests.
    pub rule: Option<Rule>,
    /// What the ids of its notices begin with.
    pub id: AlertId,
    /// When it is made.
    pub at: Timestamp,
    /// The settings in use.
    pub settings: &'a AlertSettings,
}

impl TestNotice<'_> {
    /// The type of its notice of this status.
    pub fn notice_type(&self, status: NoticeStatus) -> &'static str {
        let (fired, resolved) = self.rule.map_or(TEST_TYPES, Rule::notice_types);
        if status == NoticeStatus::Resolved { resolved } else { fired }
    }

    /// Its notice of this status.
    pub fn notice(&self, status: NoticeStatus, context: &NoticeContext) -> Notice {
        let name = self.rule.map_or("test", Rule::name);
        let about = self.rule.map_or_else(String::new, |rule| format!(" of rule {rule}"));
        let over = if status == NoticeStatus::Resolved { ", resolved" } else { "" };
        Notice {
            notice: name.to_owned(),
            status,
            severity: self
                .rule
                .map_or(Severity::Critical, |rule| self.settings.rule(rule).severity),
            summary: format!(
                "Test{about}{over}: this notice shows that people are reached. Nothing is wrong, and there is nothing to \
                 do."
            ),
            dedup_key: dedup_key(context, name, None, TEST_SUBJECT),
            alert: None,
            tenant: None,
            subject: TEST_SUBJECT.to_owned(),
            endpoint: None,
            since: Time(self.at),
            at: Time(self.at),
            details: json!({}),
            links: Vec::new(),
            test: true,
        }
    }
}
