//! The interop tools: programs that take questions as JSON and give answers as JSON.

use crate::support::interop_folder;
use railpost_receiver::testing::TestRequest;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// A library that answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Library {
    Python,
    Node,
}

pub(crate) fn python() -> Command {
    Command::new(interop_folder().join("venv/bin/python"))
}

impl Library {
    pub(crate) const ALL: [Self; 2] = [Self::Python, Self::Node];

    pub(crate) fn ask(self, questions: &[Value]) -> Vec<Value> {
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/tools");
        let mut command = match self {
            Self::Python => python(),
            Self::Node => Command::new("node"),
        };
        command.arg(match self {
            Self::Python => format!("{tools}/ask.py"),
            Self::Node => format!("{tools}/ask.js"),
        });
        command.env("NODE_PATH", interop_folder().join("node_modules"));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(|error| {
                panic!(
                    "{self:?} could not be run: {error}: prepare it with `cargo xtask with-services`"
                )
            });
        let query = serde_json::to_vec(questions).unwrap();
        child.stdin.take().unwrap().write_all(&query).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{self:?} ended with {}", output.status);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// A question about a request: its headers in lower case, as servers have them, and its body.
pub(crate) fn about(ask: &str, sent: &TestRequest, secret: &str) -> Value {
    let headers = sent.headers.iter();
    let headers: serde_json::Map<String, Value> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), json!(value))).collect();
    json!({"ask": ask, "secret": secret, "headers": headers, "body": base64(&sent.body)})
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = move |at: usize| char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]);
        let length = chunk.len();
        (0..4).map(move |at| if at <= length { digit(at) } else { '=' })
    };
    bytes.chunks(3).flat_map(encode).collect()
}
