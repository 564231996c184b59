//! Cards for workflows of Microsoft Teams.

use super::notice::{Link, Notice};
use serde_json::{Value, json};

pub(super) fn body(notice: &Notice) -> Vec<u8> {
    let mut blocks = vec![
        json!({
            "type": "TextBlock",
            "text": escaped(&notice.heading()),
            "weight": "Bolder",
            "wrap": true,
        }),
        json!({ "type": "TextBlock", "text": escaped(&notice.summary), "wrap": true }),
    ];
    if !notice.facts.is_empty() {
        let fact = |(name, text): &(&str, String)| json!({ "title": name, "value": escaped(text) });
        let facts: Vec<Value> = notice.facts.iter().map(fact).collect();
        blocks.push(json!({ "type": "FactSet", "facts": facts }));
    }
    let mut card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    });
    if !notice.links.is_empty() {
        let action =
            |link: &Link| json!({ "type": "Action.OpenUrl", "title": link.text, "url": link.href });
        card["actions"] = notice.links.iter().map(action).collect();
    }
    let attachment = json!({
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": null,
        "content": card,
    });
    json!({ "type": "message", "attachments": [attachment] }).to_string().into_bytes()
}

/// Text blocks read Markdown: a text of somebody else must not become a link.
fn escaped(text: &str) -> String {
    text.replace('[', "\\[")
}
