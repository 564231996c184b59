//! A row of a source, and the event that it is.

use bytes::Bytes;
use railpost_engine::Timestamp;
use railpost_store::limits::{PARKED_ROW_LEN_MAX, PAYLOAD_LEN_MAX, TRACEPARENT_LEN_MAX};
use railpost_store::{Event, Hold, RowRefusal, RowToPark, SourceFields};
use railpost_wire::{ContentType, TenantId};
use ring::digest::{SHA256, digest};

use crate::config::SourceConfig;
use crate::limits::{CUT_FIELD_LEN, REASON_LEN_MAX};

/// A row of a source, as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRow {
    /// What names it at its source: the number that the database gave it.
    pub number: i64,
    /// What is in it, but for the payload.
    pub fields: SourceFields,
    /// Its payload.
    pub payload: Option<Bytes>,
    /// How many bytes its payload had, if it was left out: see [`SourceRow::leave_out`].
    pub left_out: Option<usize>,
}

impl SourceRow {
    /// The row as it is parked.
    pub(crate) fn to_park(&self, refusal: Option<RowRefusal>) -> RowToPark {
        let (fields, payload) = (self.fields.clone(), self.payload.clone());
        RowToPark { hold: self.hold(), refusal, fields, payload }
    }

    /// Whether it can neither be accepted nor be parked.
    pub(crate) fn is_too_large(&self) -> bool {
        let texts: usize = self.texts().map(str::len).sum();
        let payload = self.payload.as_ref().map_or(0, Bytes::len);
        // Only what is far too long for an event needs to be measured exactly, as JSON.
        payload + texts > PAYLOAD_LEN_MAX && self.to_park(None).bytes() > PARKED_ROW_LEN_MAX
    }

    /// Leaves out what cannot be kept of a row that is too large, so that it can be parked. A field that is cut is
    /// still longer than an event's may be: the row is refused.
    pub(crate) fn leave_out(&mut self) {
        self.left_out = self.payload.take().map(|payload| payload.len());
        for text in self.texts_mut() {
            cut(text, CUT_FIELD_LEN);
        }
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let SourceFields { id, tenant, event_type, key, content_type, traceparent, .. } =
            &self.fields;
        [id, tenant, event_type, key, content_type, traceparent]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let SourceFields { id, tenant, event_type, key, content_type, traceparent, .. } =
            &mut self.fields;
        [id, tenant, event_type, key, content_type, traceparent].into_iter().flatten()
    }

    /// What rows of the same tenant and key wait for; nothing for a row without a key.
    pub(crate) fn hold(&self) -> Option<Hold> {
        let key = self.fields.key.as_deref()?;
        let tenant = self.fields.tenant.as_deref().unwrap_or_default();
        let text = format!("{}:{tenant}{key}", tenant.len());
        let mut hold = [0; 16];
        hold.copy_from_slice(&digest(&SHA256, text.as_bytes()).as_ref()[..16]);
        Some(Hold(hold))
    }

    /// Puts the configured tenant where the row names none. A row that names another one keeps it, and
    /// is refused.
    pub(crate) fn complete(&mut self, config: &SourceConfig) {
        if let Some(tenant) = &config.tenant {
            self.fields.tenant.get_or_insert_with(|| tenant.to_string());
        }
    }

    /// The event, or why it is none. One that does not say when it happened, happened at `now`.
    pub(crate) fn event(
        &self,
        config: &SourceConfig,
        now: Timestamp,
    ) -> Result<(TenantId, Event), RowRefusal> {
        let fields = &self.fields;
        let tenant: TenantId = parse("tenant", fields.tenant.as_deref())?;
        if let Some(own) = config.tenant.as_ref().filter(|own| **own != tenant) {
            return Err(refusal(
                "tenant",
                format!("expected `{own}`, whose source it is; got `{tenant}`"),
            ));
        }
        let content_type = match fields.content_type.as_deref() {
            None => ContentType::JSON,
            text => parse("content_type", text)?,
        };
        let event = Event {
            id: parse("id", fields.id.as_deref())?,
            event_type: parse("type", fields.event_type.as_deref())?,
            key: fields.key.as_deref().map(|key| parse("key", Some(key))).transpose()?,
            payload: self.checked_payload()?,
            content_type,
            schema_version: fields.schema_version.map(schema_version).transpose()?,
            time: fields.time.map_or(Ok(now), time)?,
            traceparent: fields.traceparent.clone().map(traceparent).transpose()?,
            cloudevent: None,
        };
        Ok((tenant, event))
    }

    fn checked_payload(&self) -> Result<Bytes, RowRefusal> {
        if let Some(len) = self.left_out {
            let problem = format!(
                "expected at most {PAYLOAD_LEN_MAX} bytes; got {len}, too many to be kept: the row is parked without them"
            );
            return Err(refusal("payload", problem));
        }
        let payload =
            self.payload.clone().ok_or_else(|| refusal("payload", "expected bytes; got NULL"))?;
        if payload.len() > PAYLOAD_LEN_MAX {
            let problem =
                format!("expected at most {PAYLOAD_LEN_MAX} bytes; got {}", payload.len());
            return Err(refusal("payload", problem));
        }
        Ok(payload)
    }
}

/// A refusal whose reason is cut to its bound.
pub(crate) fn refusal(code: &str, reason: impl Into<String>) -> RowRefusal {
    let mut reason = reason.into();
    cut(&mut reason, REASON_LEN_MAX);
    RowRefusal { code: code.to_owned(), reason }
}

/// Cuts a text to so many bytes, where a character ends.
fn cut(text: &mut String, len_max: usize) {
    if text.len() > len_max {
        let end = (0..=len_max - '…'.len_utf8()).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    field: &str,
    text: Option<&str>,
) -> Result<T, RowRefusal> {
    let text = text.ok_or_else(|| refusal(field, "expected a value; got NULL"))?;
    text.parse().map_err(|error: T::Err| refusal(field, error.to_string()))
}

fn schema_version(version: i64) -> Result<u32, RowRefusal> {
    let problem = || format!("expected 0 to {}; got {version}", u32::MAX);
    u32::try_from(version).map_err(|_| refusal("schema_version", problem()))
}

fn time(millis: i64) -> Result<Timestamp, RowRefusal> {
    let problem = || format!("expected a time from 1970 on; got {millis} milliseconds");
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| refusal("time", problem()))
}

fn traceparent(text: String) -> Result<String, RowRefusal> {
    let visible = text.bytes().all(|c| c.is_ascii_graphic() || c == b' ');
    if visible && (1..=TRACEPARENT_LEN_MAX).contains(&text.len()) {
        return Ok(text);
    }
    Err(refusal(
        "traceparent",
        format!("expected 1 to {TRACEPARENT_LEN_MAX} visible ASCII characters"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SourceConfig {
        let text = format!("name = \"shop\"\nurl = \"postgres://a@b/c\"\n{text}");
        toml::from_str::<crate::config::SourceSection>(&text).unwrap().check().unwrap()
    }

    fn row() -> SourceRow {
        let fields = SourceFields {
            id: Some("e1".to_owned()),
            event_type: Some("order.paid".to_owned()),
            key: Some("42".to_owned()),
            ..SourceFields::default()
        };
        let payload = Some(Bytes::from_static(b"{}"));
        SourceRow { number: 1, fields, payload, ..SourceRow::default() }
    }

    fn refused(change: impl FnOnce(&mut SourceRow)) -> String {
        let config = config("tenant = \"acme\"");
        let mut row = row();
        change(&mut row);
        row.complete(&config);
        let now = Timestamp::from_millis(7);
        row.event(&config, now)
            .map(|(tenant, _)| tenant.to_string())
            .unwrap_or_else(|refusal| refusal.code)
    }

    #[test]
    fn a_row_is_an_event_or_says_which_field_is_wrong() {
        let fields = |change: fn(&mut SourceFields)| refused(|row| change(&mut row.fields));
        assert_eq!(refused(|_| ()), "acme");
        assert_eq!(fields(|fields| fields.id = None), "id");
        assert_eq!(fields(|fields| fields.id = Some("a b".to_owned())), "id");
        assert_eq!(fields(|fields| fields.event_type = Some("order paid".to_owned())), "type");
        assert_eq!(fields(|fields| fields.key = Some(String::new())), "key");
        assert_eq!(fields(|fields| fields.key = None), "acme");
        assert_eq!(fields(|fields| fields.tenant = Some("other".to_owned())), "tenant");
        assert_eq!(fields(|fields| fields.content_type = Some("json".to_owned())), "content_type");
        assert_eq!(fields(|fields| fields.schema_version = Some(-1)), "schema_version");
        assert_eq!(fields(|fields| fields.time = Some(-1)), "time");
        assert_eq!(fields(|fields| fields.traceparent = Some("é".to_owned())), "traceparent");
        assert_eq!(refused(|row| row.payload = None), "payload");
        assert_eq!(
            refused(|row| row.payload = Some(vec![b'1'; PAYLOAD_LEN_MAX + 1].into())),
            "payload"
        );
    }

    #[test]
    fn a_row_that_is_too_large_can_be_parked_without_its_payload_and_is_refused() {
        let config = config("tenant = \"acme\"");
        let large = "x".repeat(PARKED_ROW_LEN_MAX);
        type Change = fn(&mut SourceRow, String);
        let changes: [(Change, &str); 3] = [
            (|row, large| row.payload = Some(large.into()), "payload"),
            (|row, large| row.fields.key = Some(large), "key"),
            // In JSON a control character has six bytes.
            (|row, large| row.fields.id = Some("\u{1}".repeat(large.len() / 5)), "id"),
        ];
        for (change, code) in changes {
            let mut row = row();
            assert!(!row.is_too_large());
            change(&mut row, large.clone());
            assert!(row.is_too_large(), "{code}");
            row.leave_out();
            assert!(!row.is_too_large() && row.payload.is_none(), "{code}");
            row.complete(&config);
            let refusal = row.event(&config, Timestamp::from_millis(7)).unwrap_err();
            assert_eq!(refusal.code, code);
        }
    }

    #[test]
    fn a_payload_may_be_any_bytes() {
        assert_eq!(refused(|row| row.payload = Some(Bytes::from_static(b"{\xff"))), "acme");
    }

    #[test]
    fn rows_share_a_hold_if_they_share_tenant_and_key() {
        let hold = |tenant: &str, key: Option<&str>| {
            let mut row = row();
            row.fields.tenant = Some(tenant.to_owned());
            row.fields.key = key.map(str::to_owned);
            row.hold()
        };
        assert_eq!(hold("a", Some("1")), hold("a", Some("1")));
        assert_ne!(hold("a", Some("1")), hold("a", Some("2")));
        assert_ne!(hold("a", Some("b1")), hold("ab", Some("1")));
        assert_eq!(hold("a", None), None);
    }

    #[test]
    fn a_long_reason_is_cut_where_a_character_ends() {
        let reason = refusal("type", "é".repeat(REASON_LEN_MAX)).reason;
        assert!(reason.len() <= REASON_LEN_MAX && reason.ends_with("é…"), "{}", reason.len());
    }
}
