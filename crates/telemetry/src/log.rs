//! Log lines: one event each, with named fields. All threads append to one shared buffer, and a separate
//! thread writes it out.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railpost_engine::{Time, Timestamp};
use railpost_store::{Source, SystemSource};
use serde::{Deserialize, Serialize};

use crate::limits::{LOG_FLUSH_TIMEOUT, LOG_LINES_TOGETHER_MAX, LOG_PAUSE, LOG_WAITING_LEN_MAX};

/// How much a line matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// The usual course of things.
    #[default]
    Info,
    /// Something to look at when there is time.
    Warn,
    /// Something to look at now.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }

    /// The terminal's colour for it.
    fn colour(self) -> &'static str {
        match self {
            Level::Debug => "\x1b[2m",
            Level::Info => "\x1b[32m",
            Level::Warn => "\x1b[33m",
            Level::Error => "\x1b[31m",
        }
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStyle {
    /// For machines: a JSON object a line.
    Json,
    /// For people.
    Text {
        /// With the terminal's colours.
        colours: bool,
    },
}

/// What a field holds.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// Anything that can be written.
    Display(&'a dyn fmt::Display),
    /// A number.
    Number(u64),
    /// So many microseconds, told in milliseconds.
    Millis(u64),
    /// Yes or no.
    Truth(bool),
}

/// Names, and what the fields of those names hold.
pub trait Fields<'f>: IntoIterator<Item = &'f (&'f str, Value<'f>)> {}

impl<'f, F: IntoIterator<Item = &'f (&'f str, Value<'f>)>> Fields<'f> for F {}

/// Writes log lines. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    level: Level,
    style: LogStyle,
    writer: Arc<WriterGuard>,
}

/// What all clones of a log share. Dropping it ends the thread that writes.
struct WriterGuard(Arc<LogBuffer>);

/// The buffer of lines between the logging threads and the writer thread.
#[derive(Default)]
struct LogBuffer {
    queue: Mutex<LogQueue>,
    /// Notified when the empty buffer gets a line.
    wake: Condvar,
    dropped: AtomicU64,
}

/// What was said and is not being written yet.
#[derive(Default)]
struct LogQueue {
    text: String,
    /// Callers that wait until the buffer is written.
    waiting: Vec<SyncSender<()>>,
    /// All loggers are dropped.
    over: bool,
}

impl Log {
    /// A log that writes what matters at least this much, as JSON.
    pub fn new(level: Level, sink: impl Write + Send + 'static) -> Self {
        Self::with_style(level, LogStyle::Json, sink)
    }

    /// A log whose lines look like this.
    ///
    /// # Panics
    ///
    /// If the machine has no thread left for it.
    pub fn with_style(level: Level, style: LogStyle, sink: impl Write + Send + 'static) -> Self {
        let lines = Arc::<LogBuffer>::default();
        let writer = Writer { lines: lines.clone(), sink, style, told: 0 };
        let thread = std::thread::Builder::new().name("log".to_owned());
        thread.spawn(move || writer.run()).expect("a thread can be made");
        Self { level, style, writer: Arc::new(WriterGuard(lines)) }
    }

    /// Whether a line that matters this much is written.
    pub fn is_enabled(&self, level: Level) -> bool {
        level >= self.level
    }

    /// Writes a line: what happened, and its fields. It never waits: a line for which there is no
    /// room is counted and left out.
    pub fn line<'f>(&self, level: Level, event: &str, fields: impl Fields<'f>) {
        if !self.is_enabled(level) {
            return;
        }
        let (now, lines) = (SystemSource.now(), &self.writer.0);
        let mut queue = lines.queue();
        if queue.text.len() >= LOG_WAITING_LEN_MAX {
            lines.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_first = queue.text.is_empty();
        add_line(&mut queue.text, self.style, now, level, event, fields);
        drop(queue);
        if is_first {
            lines.wake.notify_one();
        }
    }

    /// How many lines there was no room for.
    pub fn lines_dropped(&self) -> u64 {
        self.writer.0.dropped.load(Ordering::Relaxed)
    }

    /// Waits until what was said so far is written, but not for long.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        let lines = &self.writer.0;
        lines.queue().waiting.push(done);
        lines.wake.notify_one();
        let _ = written.recv_timeout(Duration::from(LOG_FLUSH_TIMEOUT));
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.0.queue().over = true;
        self.0.wake.notify_one();
    }
}

impl LogBuffer {
    fn queue(&self) -> MutexGuard<'_, LogQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to write, takes it into the empty `text`, and says who waits for it. Nothing
    /// when all is over and written.
    fn take(&self, text: &mut String) -> Option<Vec<SyncSender<()>>> {
        let mut queue = self.queue();
        while queue.text.is_empty() && queue.waiting.is_empty() {
            if queue.over {
                return None;
            }
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.text, text);
        Some(std::mem::take(&mut queue.waiting))
    }
}

/// What the thread has that writes.
struct Writer<S> {
    lines: Arc<LogBuffer>,
    sink: S,
    style: LogStyle,
    /// How many dropped lines have been reported.
    told: u64,
}

impl<S: Write> Writer<S> {
    fn run(mut self) {
        let mut text = String::new();
        while let Some(waiting) = self.lines.take(&mut text) {
            self.tell_dropped(&mut text);
            // Nowhere is left to complain to.
            let _ = self.sink.write_all(text.as_bytes());
            let _ = self.sink.flush();
            for done in waiting {
                let _ = done.send(());
            }
            if text.len() < LOG_LINES_TOGETHER_MAX {
                std::thread::sleep(LOG_PAUSE);
            }
            text.clear();
        }
    }

    fn tell_dropped(&mut self, text: &mut String) {
        let dropped = self.lines.dropped.load(Ordering::Relaxed);
        if dropped > self.told {
            let fields = [("lines", Value::Number(dropped - self.told))];
            let now = SystemSource.now();
            add_line(text, self.style, now, Level::Warn, "log_lines_dropped", &fields);
            self.told = dropped;
        }
    }
}

fn add_line<'f>(
    text: &mut String,
    style: LogStyle,
    now: Timestamp,
    level: Level,
    event: &str,
    fields: impl Fields<'f>,
) {
    let written = match style {
        LogStyle::Json => json_line(text, now, level, event, fields),
        LogStyle::Text { colours } => text_line(text, now, (level, colours), event, fields),
    };
    written.expect("a text can be written to");
}

fn json_line<'f>(
    line: &mut String,
    now: Timestamp,
    level: Level,
    event: &str,
    fields: impl Fields<'f>,
) -> fmt::Result {
    line.push_str(r#"{"timestamp":""#);
    write!(line, "{}", Time(now))?;
    line.push_str(r#"","level":""#);
    line.push_str(level.name());
    line.push_str(r#"","event":"#);
    quote(line, &Value::Text(event))?;
    for (name, value) in fields {
        line.push_str(",\"");
        line.push_str(name);
        line.push_str("\":");
        match value {
            Value::Text(_) | Value::Display(_) => quote(line, value)?,
            Value::Number(number) => line.push_str(itoa::Buffer::new().format(*number)),
            Value::Millis(micros) => {
                line.push_str(itoa::Buffer::new().format(micros / 1000));
                line.push('.');
                // With a digit before them, so that all three are written.
                line.push_str(&itoa::Buffer::new().format(1000 + micros % 1000)[1..]);
            }
            Value::Truth(truth) => line.push_str(if *truth { "true" } else { "false" }),
        }
    }
    line.write_str("}\n")
}

fn text_line<'f>(
    line: &mut String,
    now: Timestamp,
    (level, colours): (Level, bool),
    event: &str,
    fields: impl Fields<'f>,
) -> fmt::Result {
    let time = Time(now).to_string();
    let (on, faint, off) =
        if colours { (level.colour(), "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
    let clock = time.get(11..23).unwrap_or_default();
    write!(line, "{faint}{clock}{off} {on}{:5}{off} {event}", level.name().to_uppercase())?;
    for (name, value) in fields {
        write!(line, " {faint}{name}={off}")?;
        let text = value.to_string();
        let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '"');
        if plain { line.push_str(&text) } else { quote(line, value)? }
    }
    line.write_str("\n")
}

/// Writes a value as a text of JSON: nothing in it can end the line or the field. There is a line for
/// every attempt, so nothing is made on the way.
fn quote(line: &mut String, value: &Value<'_>) -> fmt::Result {
    line.push('"');
    match value {
        Value::Text(text) => Escaping(line).write_str(text)?,
        Value::Display(shown) => write!(Escaping(line), "{shown}")?,
        other => write!(Escaping(line), "{other}")?,
    }
    line.write_str("\"")
}

/// Writes a text as the inside of a text of JSON.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        let is_special = |c: u8| c.is_ascii_control() || c == b'"' || c == b'\\';
        // Nearly all texts have nothing special. To look at all bytes is faster than to stop at one.
        if !text.bytes().fold(false, |any, c| any | is_special(c)) {
            self.0.push_str(text);
            return Ok(());
        }
        while let Some(at) = rest.bytes().position(is_special) {
            let (before, special) = rest.split_at(at);
            self.0.push_str(before);
            match special.as_bytes()[0] {
                c @ (b'"' | b'\\') => self.0.extend(['\\', char::from(c)]),
                b'\n' => self.0.push_str("\\n"),
                c => write!(self.0, "\\u{c:04x}")?,
            }
            rest = &special[1..];
        }
        self.0.push_str(rest);
        Ok(())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Display(shown) => shown.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Millis(micros) => write!(f, "{}.{:03}", micros / 1000, micros % 1000),
            Value::Truth(truth) => truth.fmt(f),
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("level", &self.level).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Mutex;

    use super::*;

    /// A sink that keeps what is written once its door is open.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl SharedBuffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn format_line<'f>(
        style: LogStyle,
        level: Level,
        event: &str,
        fields: impl Fields<'f>,
    ) -> String {
        let mut text = String::new();
        add_line(&mut text, style, AT, level, event, fields);
        text
    }

    const AT: Timestamp = Timestamp::from_millis(1_700_000_000_123);

    #[test]
    fn a_line_is_json_or_text() {
        let fields = [
            ("tenant", Value::Text("acme")),
            ("message", Value::Text("a \"b\"\nc")),
            ("attempt", Value::Number(3)),
            ("latency_ms", Value::Millis(1_500)),
            ("replay", Value::Truth(false)),
        ];
        let line = |style| format_line(style, Level::Warn, "attempt", &fields);
        assert_eq!(
            line(LogStyle::Json),
            concat!(
                r#"{"timestamp":"2023-11-14T22:13:20.123Z","level":"warn","event":"attempt","#,
                r#""tenant":"acme","message":"a \"b\"\nc","attempt":3,"latency_ms":1.500,"replay":false}"#,
                "\n"
            )
        );
        assert_eq!(
            line(LogStyle::Text { colours: false }),
            "22:13:20.123 WARN  attempt tenant=acme message=\"a \\\"b\\\"\\nc\" attempt=3 \
             latency_ms=1.500 replay=false\n"
        );
        assert!(line(LogStyle::Text { colours: true }).contains("\x1b[33mWARN \x1b[0m"));
    }

    #[test]
    fn milliseconds_have_three_places() {
        for (micros, millis) in
            [(0, "0.000"), (7, "0.007"), (999, "0.999"), (12_345_678, "12345.678")]
        {
            let fields = [("took_ms", Value::Millis(micros))];
            let line = format_line(LogStyle::Json, Level::Info, "done", &fields);
            assert!(line.ends_with(&format!(",\"took_ms\":{millis}}}\n")), "{line}");
        }
    }

    #[test]
    fn whatever_a_field_holds_reads_back_from_one_line() {
        let every: String = (0..=u8::MAX).map(char::from).collect();
        for text in ["", "plain", "\"", "\\", "\r\n", "é\u{2028}€", &every] {
            let line = format_line(LogStyle::Json, Level::Info, "e", &[("f", Value::Text(text))]);
            let read: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!((read["f"].as_str(), line.matches('\n').count()), (Some(text), 1));
        }
    }

    #[test]
    fn what_matters_less_is_not_written() {
        let kept = SharedBuffer::default();
        let log = Log::new(Level::Warn, kept.clone());
        log.line(Level::Info, "quiet", &[]);
        log.line(Level::Error, "loud", &[]);
        log.flush();
        let text = kept.text();
        assert!(text.contains("loud") && !text.contains("quiet"), "{text}");
    }

    #[test]
    fn what_was_said_last_is_written_after_everyone_has_gone() {
        let (kept, (tell, told)) = (SharedBuffer::default(), sync_channel(1));
        /// Tells when the writer lets it go.
        struct Last(SharedBuffer, SyncSender<()>);
        impl Write for Last {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.write(bytes)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        impl Drop for Last {
            fn drop(&mut self) {
                self.1.send(()).unwrap();
            }
        }
        let log = Log::new(Level::Info, Last(kept.clone(), tell));
        let clone = log.clone();
        log.line(Level::Info, "first", &[]);
        drop(log);
        clone.line(Level::Info, "last", &[]);
        drop(clone);
        told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        let text = kept.text();
        assert!(text.contains("first") && text.contains("last"), "{text}");
    }

    #[test]
    fn lines_without_room_are_counted_and_told_of() {
        let kept = SharedBuffer::default();
        let log = Log::new(Level::Info, kept.clone());
        let door = kept.0.lock().unwrap();
        let mut written = 0;
        while log.lines_dropped() < 5 {
            log.line(Level::Info, "said", &[]);
            written += 1;
        }
        drop(door);
        log.flush();
        let text = kept.text();
        let count = |event: &str| text.matches(&format!("\"event\":\"{event}\"")).count();
        assert_eq!(count("said") as u64 + log.lines_dropped(), written);
        assert!(text.contains(r#""event":"log_lines_dropped","lines":"#), "nothing was said of it");
    }
}
