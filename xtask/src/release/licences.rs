//! The licences of all crates of the binary, with their texts as the crates' own files have them. Files of C code
//! that a crate brings along are among them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::crates::{Crate, Crates};

/// How the names of files with licences begin.
const NAMES: [&str; 6] = ["licence", "license", "copying", "copyright", "notice", "unlicense"];

const RULE: &str =
    "================================================================================";

/// A list of crates with their licences, then each text once with those who have it.
pub(super) fn text(crates: &Crates) -> Result<String, String> {
    let mut list = "Railpost is licensed under Apache-2.0, see LICENSE. Its binary links these crates, and the Rust\n\
                    standard library (MIT OR Apache-2.0). SQLite, in libsqlite3-sys, is in the public domain.\n\n"
        .to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for known in crates.0.values().filter(|known| known.checksum.is_some()) {
        let found = files(&known.folder)?;
        let note = if found.is_empty() { ": it has no file with the text" } else { "" };
        list += &format!("  {} {} ({}){note}\n", known.name, known.version, known.licence);
        for text in found {
            texts.entry(text).or_default().push(shown(known));
        }
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|(_, a), (_, b)| a.cmp(b));
    for (text, mut names) in texts {
        names.dedup();
        list += &format!("\n{RULE}\n{}\n{RULE}\n{text}\n", names.join(", "));
    }
    Ok(list)
}

fn shown(known: &Crate) -> String {
    format!("{} {}", known.name, known.version)
}

/// The texts of licences below a folder. Spaces at the ends of lines do not make two texts.
fn files(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let (mut open, mut paths) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().to_lowercase();
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            // Code may be named like a licence.
            let is_text =
                NAMES.iter().any(|begins| name.starts_with(begins)) && !name.ends_with(".rs");
            match (is_folder, is_text) {
                (true, _) => open.push(entry.path()),
                (false, true) => paths.push(entry.path()),
                (false, false) => {}
            }
        }
    }
    paths.sort();
    let read = |path| fs::read(path).map(|bytes| tidy(&String::from_utf8_lossy(&bytes)));
    paths.into_iter().map(read).collect::<Result<_, _>>().map_err(failed)
}

fn tidy(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    lines.join("\n")
}
