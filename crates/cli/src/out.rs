//! What a command prints: results on stdout, progress and hints on stderr.

use std::io::{IsTerminal, Write};

use railpost_engine::{Time, Timestamp};
use serde_json::Value;

use super::failure::Outcome;
use super::system;

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    pub(super) json: bool,
    colours: bool,
    /// Widest line of a table, in characters.
    width: usize,
}

/// Widest line where there is no terminal, or a wider one.
const WIDTH_MAX: usize = 120;
/// No line is made narrower than this.
const WIDTH_MIN: usize = 60;
/// No column is cut shorter: less of a URL or a type is not worth reading.
const CUT_MIN: usize = 12;
const GAP: &str = "  ";
/// Spaces before a line below an item.
const INDENT: usize = 4;

/// A column of a table: its title, and how a cell is made of an item.
#[derive(Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    cell: fn(&Value) -> String,
    may_be_cut: bool,
}

/// A column whose cells are shown whole: people copy them.
pub(super) const fn full_column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, cell, may_be_cut: false }
}

/// A column whose cells are cut where the line would be too wide.
pub(super) const fn cut_column(title: &'static str, cell: fn(&Value) -> String) -> Column {
    Column { title, cell, may_be_cut: true }
}

impl Out {
    /// Results as JSON, or for people.
    pub fn new(json: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = std::io::stdout().is_terminal() && !no_color && !json;
        Self { json, colours, width: width() }
    }

    /// Lines of text that fit, each behind `indent` spaces.
    pub(super) fn wrapped(self, text: &str, indent: usize) -> Vec<String> {
        let width = self.width.saturating_sub(indent).max(CUT_MIN);
        let lines = text.lines().flat_map(|line| wrap(line, width));
        lines.map(|line| format!("{:indent$}{line}", "")).collect()
    }

    /// One line of results.
    pub(super) fn line(self, text: &str) -> Outcome {
        Ok(writeln!(std::io::stdout().lock(), "{text}")?)
    }

    /// Bytes as they are.
    pub fn bytes(self, bytes: &[u8]) -> Outcome {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// JSON on lines of its own, for people and machines alike.
    pub(super) fn value(self, value: &Value) -> Outcome {
        self.line(&format!("{value:#}"))
    }

    /// JSON for machines, one line for people.
    pub fn done(self, value: &Value, line: &str) -> Outcome {
        if self.json { self.value(value) } else { self.line(line) }
    }

    /// What a person may want to know beside the results.
    #[allow(clippy::print_stderr, reason = "hints are not results")]
    pub fn hint(self, text: &str) {
        if !self.json {
            eprintln!("{text}");
        }
    }

    /// Shows how far something has come, on one line of a terminal.
    #[allow(clippy::print_stderr, reason = "progress is not a result")]
    pub fn progress(self, text: &str) {
        if !self.json && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text}");
        }
    }

    /// Takes the progress away.
    pub fn progress_done(self) {
        self.progress("");
    }

    /// A thing with its fields, one to a line.
    pub(super) fn record(self, value: &Value) -> Outcome {
        if self.json {
            return self.value(value);
        }
        match value.as_object() {
            Some(_) => self.facts(&facts(value, &[])),
            None => self.value(value),
        }
    }

    /// Names and what they stand for, one to a line.
    pub(super) fn facts(self, facts: &[(String, String)]) -> Outcome {
        let width = facts.iter().map(|(name, _)| len(name)).max().unwrap_or(0);
        for (name, shown) in facts {
            let indent = format!("\n{:width$}{GAP}", "");
            let shown = shown.replace('\n', &indent);
            let line = format!("{}{GAP}{shown}", self.bold(&format!("{name:width$}")));
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Items as a table, each with lines `below` it.
    pub(super) fn table(
        self,
        columns: &[Column],
        items: &[Value],
        layout: &mut TableLayout,
        below: fn(&Value) -> Vec<String>,
    ) -> Outcome {
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|item| columns.iter().map(|column| (column.cell)(item)).collect())
            .collect();
        let first_page = layout.widths.is_empty();
        layout.fit(columns, &rows, self.width);
        if first_page {
            let titles: Vec<String> =
                columns.iter().map(|column| column.title.to_uppercase()).collect();
            self.line(&self.bold(&layout.aligned(&titles)))?;
        }
        for (row, item) in rows.iter().zip(items) {
            self.line(&self.painted(&layout.aligned(row)))?;
            for line in layout.moved_cells(columns, row).into_iter().chain(below(item)) {
                self.wrapped(&line, INDENT).iter().try_for_each(|line| self.line(line))?;
            }
        }
        Ok(())
    }

    pub(super) fn bold(self, text: &str) -> String {
        if self.colours { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// With the words of states in their colours.
    pub(super) fn painted(self, line: &str) -> String {
        if !self.colours {
            return line.to_owned();
        }
        let words = |part: &str| part.split(' ').map(paint).collect::<Vec<_>>().join(" ");
        let parts: Vec<String> = line.split(NOT_ACKNOWLEDGED).map(words).collect();
        parts.join(&paint(NOT_ACKNOWLEDGED))
    }
}

/// The one state of two words: its second word alone is another state.
pub(super) const NOT_ACKNOWLEDGED: &str = "not acknowledged";

/// The word of a state in its colour.
fn paint(word: &str) -> String {
    match word {
        "delivered" | "acknowledged" | "active" | "done" | "verified" | "reading" | "ok" => {
            format!("\x1b[32m{word}\x1b[0m")
        }
        "waiting" | "retryable" | "paused" | "running" | "failing" | "warning" => {
            format!("\x1b[33m{word}\x1b[0m")
        }
        "dead" | "permanent" | "quarantined" | "gone" | "failed" | "trouble" | "bad"
        | NOT_ACKNOWLEDGED => format!("\x1b[31m{word}\x1b[0m"),
        word => word.to_owned(),
    }
}

fn len(text: &str) -> usize {
    text.chars().count()
}

/// How wide the columns of a table are. The pages of a list share it, so that they line up.
#[derive(Clone, Debug, Default)]
pub(super) struct TableLayout {
    widths: Vec<usize>,
    /// Columns that do not fit: their cells stand on a line below the row.
    moved: Vec<usize>,
}

impl TableLayout {
    /// Makes room for these rows in lines of this width: moves columns that may be cut below the row until the
    /// others can be read, then cuts the widest of these.
    fn fit(&mut self, columns: &[Column], rows: &[Vec<String>], line: usize) {
        self.widths.resize(columns.len(), 0);
        for (at, column) in columns.iter().enumerate() {
            let widest = rows.iter().map(|row| len(&row[at])).max().unwrap_or(0);
            self.widths[at] = self.widths[at].max(widest).max(column.title.len());
        }
        let least = |at: usize| match columns[at].may_be_cut {
            true => self.widths[at].min(CUT_MIN),
            false => self.widths[at],
        };
        let cuttable: Vec<usize> =
            (0..columns.len()).filter(|at| columns[*at].may_be_cut).collect();
        for at in cuttable.iter().rev() {
            let kept = (0..columns.len()).filter(|at| !self.moved.contains(at));
            if kept.map(|at| least(at) + GAP.len()).sum::<usize>() <= line + GAP.len() {
                break;
            }
            if !self.moved.contains(at) {
                self.moved.push(*at);
            }
        }
        self.moved.sort_unstable();
        self.cut(&cuttable, line);
    }

    fn cut(&mut self, cuttable: &[usize], line: usize) {
        loop {
            let kept = (0..self.widths.len()).filter(|at| !self.moved.contains(at));
            let wide = kept.map(|at| self.widths[at] + GAP.len()).sum::<usize>();
            let may_be_cut = |at: &&usize| !self.moved.contains(at) && self.widths[**at] > CUT_MIN;
            let widest = cuttable.iter().filter(may_be_cut).max_by_key(|at| self.widths[**at]);
            match widest {
                Some(at) if wide > line + GAP.len() => self.widths[*at] -= 1,
                _ => return,
            }
        }
    }

    /// The cells of a row that stand in its line.
    fn aligned(&self, cells: &[String]) -> String {
        let kept = (0..cells.len()).filter(|at| !self.moved.contains(at));
        let line: Vec<String> = kept.map(|at| padded(&cells[at], self.widths[at])).collect();
        line.join(GAP).trim_end().to_owned()
    }

    /// The cells of a row that stand below it, with their titles.
    fn moved_cells(&self, columns: &[Column], cells: &[String]) -> Option<String> {
        let told = self.moved.iter().filter(|at| cells[**at] != "-");
        let told: Vec<String> =
            told.map(|at| format!("{} {}", columns[*at].title, cells[*at])).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// A text in this width, cut if it is longer.
fn padded(text: &str, width: usize) -> String {
    if len(text) > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return format!("{kept}…");
    }
    format!("{text:width$}")
}

/// The width of the terminal that results go to.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map(|size| usize::from(size.ws_col)).unwrap_or(0);
    if columns == 0 { WIDTH_MAX } else { columns.clamp(WIDTH_MIN, WIDTH_MAX) }
}

/// A line in pieces that fit, broken between words where that is possible.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = line.trim_end().chars().collect();
    while rest.len() > width {
        let space = rest[..=width].iter().rposition(|char| *char == ' ').filter(|at| *at > 0);
        let tail = rest.split_off(space.unwrap_or(width));
        pieces.push(rest.iter().collect());
        rest = tail.into_iter().skip(usize::from(space.is_some())).collect();
    }
    pieces.push(rest.iter().collect());
    pieces
}

/// The fields of a thing for people, without those that are told otherwise. What people copy comes first.
pub(super) fn facts(value: &Value, without: &[&str]) -> Vec<(String, String)> {
    let fields = value.as_object().into_iter().flatten();
    let (ids, others): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| *name == "id");
    let wanted = ids.into_iter().chain(others);
    let wanted = wanted.filter(|(name, _)| !without.contains(&name.as_str()));
    wanted.map(|(name, value)| (name.clone(), show(name, value))).collect()
}

/// A field for people: text without quotes, times with their age.
fn show(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if is_instant(name) => with_age(text),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Value::Object(_) | Value::Array(_) => format!("{value:#}"),
        other => other.to_string(),
    }
}

/// Whether a field of this name holds an instant.
fn is_instant(name: &str) -> bool {
    ["at", "since", "until"]
        .into_iter()
        .any(|word| name == word || name.ends_with(&format!("_{word}")))
}

/// A field of an item as a cell: nothing is a dash.
pub(super) fn field(item: &Value, name: &str) -> String {
    match &item[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A time with its age beside it.
pub(super) fn with_age(text: &str) -> String {
    match text.parse::<Time>() {
        Ok(Time(at)) => format!("{text} ({})", relative(at, system::now())),
        Err(_) => text.to_owned(),
    }
}

/// The time of a field, to the second, with its age.
pub(super) fn time(item: &Value, name: &str) -> String {
    let Some(text) = item[name].as_str() else { return "-".to_owned() };
    match text.parse::<Time>() {
        Ok(Time(at)) => {
            let second = text.get(..19).unwrap_or(text).replace('T', " ");
            format!("{second} ({})", relative(at, system::now()))
        }
        Err(_) => text.to_owned(),
    }
}

/// How old the time of a field is.
pub(super) fn age(item: &Value, name: &str) -> String {
    let parsed = item[name].as_str().and_then(|text| text.parse::<Time>().ok());
    parsed.map_or_else(|| "-".to_owned(), |Time(at)| relative(at, system::now()))
}

/// How far away an instant is.
pub(super) fn since_now(at: Timestamp) -> String {
    relative(at, system::now())
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        return format!("in {}", rough(at.since(now).as_millis() / 1000));
    }
    format!("{} ago", rough(now.since(at).as_millis() / 1000))
}

/// A length in its largest unit.
fn rough(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ages_are_in_their_largest_unit() {
        let at = |seconds: u64| Timestamp::from_millis(1_000_000_000 + seconds * 1000);
        for (then, now, text) in [
            (0, 0, "0s ago"),
            (0, 119, "119s ago"),
            (0, 120, "2m ago"),
            (0, 7200, "2h ago"),
            (0, 172_800, "2d ago"),
            (30, 0, "in 30s"),
        ] {
            assert_eq!(relative(at(then), at(now)), text);
        }
    }

    #[test]
    fn a_phrase_that_says_no_is_painted_as_a_failure() {
        let out = Out { json: false, colours: true, width: WIDTH_MAX };
        for (line, painted) in [
            ("200: acknowledged", "200: \x1b[32macknowledged\x1b[0m"),
            ("503: not acknowledged", "503: \x1b[31mnot acknowledged\x1b[0m"),
        ] {
            assert_eq!(out.painted(line), painted);
        }
    }

    fn layout(line: usize) -> TableLayout {
        let columns = [
            full_column("id", |item| field(item, "id")),
            cut_column("url", |item| field(item, "url")),
        ];
        let mut layout = TableLayout::default();
        layout.fit(&columns, &[vec!["x".repeat(60), "u".repeat(90)]], line);
        let below = layout.moved_cells(&columns, &["x".to_owned(), "u".to_owned()]);
        assert_eq!(below.as_deref(), (!layout.moved.is_empty()).then_some("url u"));
        layout
    }

    #[test]
    fn a_table_fits_and_leaves_whole_columns_whole() {
        let cells = ["x".repeat(60), "u".repeat(90)];
        let line = layout(100).aligned(&cells);
        assert_eq!(len(&line), 100);
        assert!(line.starts_with(&cells[0]) && line.ends_with("u…"));
    }

    #[test]
    fn a_column_that_cannot_be_read_in_a_narrow_line_moves_below() {
        assert_eq!(layout(74).moved, Vec::<usize>::new());
        assert_eq!(layout(73).moved, vec![1_usize]);
        assert_eq!(layout(73).aligned(&["x".repeat(60), "u".repeat(90)]), "x".repeat(60));
    }

    #[test]
    fn text_is_broken_between_words_and_a_long_word_where_it_must() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn fields_are_shown_without_json_around_them() {
        let item = json!({"a": "text", "b": null, "c": ["x", "y"], "d": 5});
        for (name, shown) in [("a", "text"), ("b", "-"), ("c", "x,y"), ("d", "5"), ("e", "-")] {
            assert_eq!(field(&item, name), shown);
        }
    }
}
