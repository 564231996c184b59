//! Lists: one page, or all of them.

use serde_json::Value;
use url::Url;

use super::Session;
use super::failure::Outcome;
use super::instant::instant;
use super::out::{Column, TableLayout};

/// How much of a list is wanted.
#[derive(Clone, Debug, clap::Args)]
pub struct Paging {
    /// Items on a page
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500), value_name = "N")]
    limit: u32,
    /// Go on where a page ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// Show all pages
    #[arg(long)]
    all: bool,
}

impl Paging {
    /// Items that one request asks for.
    pub(super) fn limit(&self) -> Option<String> {
        Some(if self.all { 500 } else { self.limit }.to_string())
    }
}

/// Which part of time is wanted.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Period {
    /// Only from this time on: `2h` (ago), `2026-01-31` or `2026-01-31T12:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<String>,
}

impl Period {
    /// Its fields with their names in the API.
    pub(super) fn fields(&self) -> [(&'static str, &Option<String>); 2] {
        [("created_after", &self.since), ("created_before", &self.until)]
    }
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EventFilter {
    /// Only this event type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    period: Period,
}

impl EventFilter {
    pub(super) fn fields(&self) -> Vec<(&'static str, &Option<String>)> {
        let own = [("type", &self.event_type), ("key", &self.key)];
        own.into_iter().chain(self.period.fields()).collect()
    }
}

/// Which deliveries are wanted.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DeliveryFilter {
    /// Only of this endpoint
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// Only those that are dead or discarded for this reason, such as `permanent`
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// Only those whose last answer has this status, such as 503
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only those whose last attempt got no answer because of this, such as `timeout`
    #[arg(long, value_name = "FAILURE")]
    failure: Option<String>,
    #[command(flatten)]
    events: EventFilter,
}

impl DeliveryFilter {
    pub(super) fn fields(&self) -> Vec<(&'static str, &Option<String>)> {
        let Self { endpoint, reason, status, failure, events } = self;
        let own =
            [("endpoint", endpoint), ("reason", reason), ("status", status), ("failure", failure)];
        own.into_iter().chain(events.fields()).collect()
    }
}

/// Adds what was given to a query.
pub(super) fn with_query(mut url: Url, fields: &[(&str, &Option<String>)]) -> Url {
    for (name, value) in fields {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
    url
}

/// Prints a list: a page of it and how to see more, or all.
pub(super) fn show(session: &Session, url: &Url, paging: &Paging, columns: &[Column]) -> Outcome {
    show_with_lines(session, url, paging, columns, |_| Vec::new())
}

/// The same with lines of each item's own below it.
pub(super) fn show_with_lines(
    session: &Session,
    url: &Url,
    paging: &Paging,
    columns: &[Column],
    below: fn(&Value) -> Vec<String>,
) -> Outcome {
    let paged = with_query(url.clone(), &[("limit", &paging.limit())]);
    let mut printer = Printer { below, ..Printer::new(session, columns) };
    let mut cursor = paging.cursor.clone();
    loop {
        let page = session.client.get(&with_query(paged.clone(), &[("cursor", &cursor)]))?;
        printer.items(page["items"].as_array().map(Vec::as_slice).unwrap_or_default())?;
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() || !paging.all {
            break;
        }
    }
    if printer.printed == 0 && cursor.is_none() && !session.out.json {
        session.out.hint(&session.client.why_nothing(url));
    }
    printer.end(cursor.as_deref())
}

/// Prints items that came whole.
pub(super) fn show_items(session: &Session, answer: &Value, columns: &[Column]) -> Outcome {
    show_items_with_lines(session, answer, columns, |_| Vec::new())
}

/// The same with lines of each item's own below it.
pub(super) fn show_items_with_lines(
    session: &Session,
    answer: &Value,
    columns: &[Column],
    below: fn(&Value) -> Vec<String>,
) -> Outcome {
    let mut printer = Printer { below, ..Printer::new(session, columns) };
    printer.items(answer["items"].as_array().map(Vec::as_slice).unwrap_or_default())?;
    printer.end(None)
}

/// Prints page after page as one table, or as one JSON document.
struct Printer<'a> {
    session: &'a Session,
    columns: &'a [Column],
    below: fn(&Value) -> Vec<String>,
    layout: TableLayout,
    printed: usize,
}

impl<'a> Printer<'a> {
    fn new(session: &'a Session, columns: &'a [Column]) -> Self {
        Self { session, columns, below: |_| Vec::new(), layout: TableLayout::default(), printed: 0 }
    }

    fn items(&mut self, items: &[Value]) -> Outcome {
        let out = self.session.out;
        if !out.json {
            self.printed += items.len();
            return if items.is_empty() {
                Ok(())
            } else {
                out.table(self.columns, items, &mut self.layout, self.below)
            };
        }
        for item in items {
            out.line(if self.printed == 0 { "{\"items\":[" } else { "," })?;
            out.line(&item.to_string())?;
            self.printed += 1;
        }
        Ok(())
    }

    fn end(self, next: Option<&str>) -> Outcome {
        let out = self.session.out;
        if out.json {
            let open = if self.printed == 0 { "{\"items\":[" } else { "" };
            return out.line(&format!("{open}],\"next\":{}}}", Value::from(next)));
        }
        if let Some(next) = next {
            out.hint(&format!("There is more: add `--all`, or `--cursor {next}`."));
        }
        Ok(())
    }
}
