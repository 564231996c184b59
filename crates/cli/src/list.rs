//! Lists: one page, or all of them.

use serde_json::Value;
use url::Url;

use super::Session;
use super::failure::Outcome;
use super::out::Column;

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

/// Which events or deliveries are wanted, by what they share.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Filter {
    /// Only this event type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Only this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only from this time on (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_after: Option<String>,
    /// Only before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_before: Option<String>,
}

impl Filter {
    /// Its fields with their names in the API.
    pub(super) fn fields(&self) -> [(&'static str, &Option<String>); 4] {
        let Self { event_type, key, created_after, created_before } = self;
        [
            ("type", event_type),
            ("key", key),
            ("created_after", created_after),
            ("created_before", created_before),
        ]
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
    let limit = Some(if paging.all { 500 } else { paging.limit }.to_string());
    let url = with_query(url.clone(), &[("limit", &limit)]);
    let mut printer = Printer { below, ..Printer::new(session, columns) };
    let mut cursor = paging.cursor.clone();
    loop {
        let page = session.client.get(&with_query(url.clone(), &[("cursor", &cursor)]))?;
        printer.items(page["items"].as_array().map(Vec::as_slice).unwrap_or_default())?;
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() || !paging.all {
            return printer.end(cursor.as_deref());
        }
    }
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
    widths: Vec<usize>,
    printed: usize,
}

impl<'a> Printer<'a> {
    fn new(session: &'a Session, columns: &'a [Column]) -> Self {
        Self { session, columns, below: |_| Vec::new(), widths: Vec::new(), printed: 0 }
    }

    fn items(&mut self, items: &[Value]) -> Outcome {
        let out = self.session.out;
        if !out.json {
            self.printed += items.len();
            return if items.is_empty() {
                Ok(())
            } else {
                out.table(self.columns, items, &mut self.widths, self.below)
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
        match (self.printed, next) {
            (0, None) => out.hint("There is nothing to show."),
            (_, None) => {}
            (_, Some(next)) => {
                out.hint(&format!("There is more: add `--all`, or `--cursor {next}`."));
            }
        }
        Ok(())
    }
}
