//! Input from the command line, a file or stdin.

use std::io::Read;

use serde::Deserialize;
use serde_json::Value;

use super::failure::{Failure, Outcome};
use crate::limits::INPUT_LEN_MAX;

/// The bytes of `TEXT`, `@FILE` or `-` for stdin.
pub(super) fn read(flag: &str, given: &str) -> Outcome<Vec<u8>> {
    match given.strip_prefix('@') {
        _ if given == "-" => read_all(flag, std::io::stdin().lock()),
        Some(path) => read_file(flag, path),
        None => Ok(given.as_bytes().to_vec()),
    }
}

/// The bytes of a file, or of stdin for `-`.
pub(super) fn read_file(flag: &str, path: &str) -> Outcome<Vec<u8>> {
    if path == "-" {
        return read_all(flag, std::io::stdin().lock());
    }
    read_all(flag, open(flag, path)?)
}

pub(super) fn open(flag: &str, path: &str) -> Outcome<std::fs::File> {
    std::fs::File::open(path).map_err(|error| Failure::usage(format!("{flag}: {path}: {error}")))
}

/// JSON from `TEXT`, `@FILE` or `-`.
pub(super) fn read_json(flag: &str, given: &str) -> Outcome<Value> {
    parse_json(flag, &read(flag, given)?)
}

pub(super) fn parse_json<'a, T: Deserialize<'a>>(flag: &str, bytes: &'a [u8]) -> Outcome<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        let next = format!(
            "quote it for the shell, such as {flag} '{{\"total\": 12}}', or use {flag} @FILE"
        );
        Failure::usage(format!("{flag}: expected JSON: {error}")).next(next)
    })
}

fn read_all(flag: &str, reader: impl Read) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(INPUT_LEN_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > INPUT_LEN_MAX {
        return Err(Failure::usage(format!("{flag}: more than {INPUT_LEN_MAX} bytes")));
    }
    Ok(bytes)
}
