//! The wording of docs and comments: lines that fit a screen, and words that readers know.

use std::fs;
use std::path::{Path, PathBuf};

/// Columns of a line of a Markdown file. Tables and code blocks may be wider: they cannot be wrapped.
const COLUMNS_MAX: usize = 110;

/// Words that readers stumble over, each with its plain replacement.
const WORDS: [(&str, &str); 7] = [
    ("anew", "again"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("nobody's", "unknown"),
    ("whoever", "the caller"),
];

/// Folders whose Rust comments and strings are checked too.
const SOURCES: [&str; 19] = [
    "crates/api",
    "crates/bench",
    "crates/cli",
    "crates/conformance",
    "crates/dashboard",
    "crates/dispatch",
    "crates/engine",
    "crates/outbox",
    "crates/postgres",
    "crates/receiver",
    "crates/relay",
    "crates/replication",
    "crates/schema",
    "crates/server",
    "crates/sim",
    "crates/sqlite",
    "crates/store",
    "crates/telemetry",
    "crates/wire",
];

/// Folders of things that are built or installed.
const SKIPPED: [&str; 3] = ["dist", "node_modules", "target"];

/// Checks every Markdown file of the repository, and the comments and strings of [`SOURCES`].
pub(crate) fn check() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut problems = Vec::new();
    for path in files(&root, "md")? {
        problems.extend(located(&root, &path, markdown_problems)?);
    }
    for folder in SOURCES.map(|folder| root.join(folder)) {
        for path in files(&folder, "rs")? {
            problems.extend(located(&root, &path, rust_problems)?);
        }
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("{count} lines to change:\n{}", problems.join("\n"))),
    }
}

/// A problem and the number of its line, from 1.
type Found = (usize, String);

fn located(
    root: &Path,
    path: &Path,
    find: impl Fn(&str) -> Vec<Found>,
) -> Result<Vec<String>, String> {
    let shown = path.strip_prefix(root).unwrap_or(path).display();
    let text = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let found = find(&text).into_iter();
    Ok(found.map(|(line, problem)| format!("  {shown}:{line}: {problem}")).collect())
}

/// The files below a folder with this extension, in order. A missing folder has none.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop().filter(|folder| folder.is_dir()) {
        let entries = fs::read_dir(&folder);
        for entry in entries.map_err(|error| format!("{}: {error}", folder.display()))? {
            let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_skipped = name.starts_with('.') || SKIPPED.contains(&&*name);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !is_skipped => open.push(path),
                Ok(kind) if kind.is_file() && path.extension().is_some_and(|e| e == extension) => {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn markdown_problems(text: &str) -> Vec<Found> {
    let mut problems = Vec::new();
    let mut in_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.starts_with('|') {
            problems.push((number, format!("{columns} columns, at most {COLUMNS_MAX}")));
        }
        problems.extend(words_of(line).map(|problem| (number, problem)));
    }
    problems
}

fn rust_problems(text: &str) -> Vec<Found> {
    let lines = text.lines().zip(1..);
    let found = lines.flat_map(|(line, number)| {
        prose(line).into_iter().flat_map(words_of).map(move |problem| (number, problem))
    });
    found.collect()
}

/// The strings and the comment of a line of Rust. Names in code are not prose.
fn prose(line: &str) -> Vec<&str> {
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    code.split('"').skip(1).step_by(2).chain([comment]).collect()
}

fn words_of(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '_');
    let words = text.split(move |c| !is_part(c)).map(str::to_lowercase);
    words.filter_map(|word| {
        let (word, plain) = WORDS.iter().find(|(known, _)| *known == word)?;
        Some(format!("`{word}`: write `{plain}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_found_outside_of_tables_and_code_blocks() {
        let long = "ä".repeat(COLUMNS_MAX + 1);
        let fits = "ä".repeat(COLUMNS_MAX);
        let text = format!("{fits}\n{long}\n| {long} |\n```\n{long}\n```\n{long}\n");
        let lines: Vec<usize> =
            markdown_problems(&text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [2, 7]);
    }

    #[test]
    fn a_word_is_found_as_a_whole_in_prose_and_never_in_names() {
        for (line, expected) in [
            ("// Mend it.", 1),
            ("let text = \"start it anew\"; // whoever asks", 2),
            ("fn run_anew(mend: bool) {}", 0),
            ("// recommended, amended", 0),
        ] {
            assert_eq!(rust_problems(line).len(), expected, "{line}");
        }
        assert_eq!(markdown_problems("It is Nobody's.\n")[0].0, 1);
    }
}
