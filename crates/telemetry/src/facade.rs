//! What dependencies say through the `log` crate, in our log.

use log::{LevelFilter, Metadata, Record};

use super::log::{Level, Log, Value};

/// Has what dependencies warn of from this on written to this log. The `log` crate has one logger for the whole
/// process, so this is for the process's own start: a second call changes nothing.
pub fn follow_dependencies(log: &Log) {
    if log::set_boxed_logger(Box::new(DependencyLog(log.clone()))).is_ok() {
        // Below a warning they tell of every handshake.
        log::set_max_level(LevelFilter::Warn);
    }
}

struct DependencyLog(Log);

impl log::Log for DependencyLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        self.0.is_enabled(Level::Warn)
    }

    /// An error of a dependency is a warning of ours: what it means for deliveries, our own lines say.
    fn log(&self, record: &Record<'_>) {
        let (target, message) = (Value::Text(record.target()), Value::Display(record.args()));
        let fields = [("target", target), ("message", message)];
        self.0.line(Level::Warn, "dependency", &fields);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_dependency_warns_of_is_a_line_and_what_it_chats_about_is_not() {
        let sink = Sink::default();
        let log = Log::new(Level::Info, sink.clone());
        follow_dependencies(&log);
        log::warn!(target: "rustls", "a {}", "warning");
        log::debug!(target: "rustls", "a handshake");
        log.flush();
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let line =
            r#""level":"warn","event":"dependency","target":"rustls","message":"a warning"}"#;
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("handshake"), "{text}");
    }
}
