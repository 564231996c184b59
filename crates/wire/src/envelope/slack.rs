//! Messages of Slack's incoming webhooks.

use super::notice::{Link, Notice};
use crate::limits::SLACK_SECTION_CHARS_MAX;
use serde_json::{Value, json};

pub(super) fn body(notice: &Notice) -> Vec<u8> {
    let heading = notice.heading();
    let section = mrkdwn(&format!("*{heading}*\n{}", notice.summary));
    let mut blocks = vec![json!({ "type": "section", "text": section })];
    if !notice.facts.is_empty() {
        let facts = notice.facts.iter().map(|(name, text)| format!("{name}: {text}"));
        let facts = facts.collect::<Vec<_>>().join("\n");
        blocks.push(json!({ "type": "context", "elements": [mrkdwn(&facts)] }));
    }
    if !notice.links.is_empty() {
        let buttons: Vec<Value> = notice.links.iter().map(button).collect();
        blocks.push(json!({ "type": "actions", "elements": buttons }));
    }
    let text = escaped(&format!("{heading}: {}", notice.summary));
    json!({ "text": text, "blocks": blocks }).to_string().into_bytes()
}

fn mrkdwn(text: &str) -> Value {
    json!({ "type": "mrkdwn", "text": escaped(text) })
}

fn button(link: &Link) -> Value {
    json!({
        "type": "button",
        "text": { "type": "plain_text", "text": link.text },
        "url": link.href,
    })
}

/// The text with what Slack takes for a mention or a link escaped, cut between two characters.
fn escaped(text: &str) -> String {
    let (mut escaped, mut count) = (String::new(), 0);
    for c in text.chars() {
        let mut buffer = [0; 4];
        let written = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            c => c.encode_utf8(&mut buffer),
        };
        count += written.chars().count();
        if count >= SLACK_SECTION_CHARS_MAX {
            escaped.push('…');
            break;
        }
        escaped.push_str(written);
    }
    escaped
}
