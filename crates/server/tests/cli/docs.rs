//! Every fenced command in the docs is run, on every page, or says why it is not.

mod page;
mod terminals;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use page::{Part, inline_commands, parts};
use terminals::Terminals;

use crate::world::run;

/// Pages that are followed at the same time: each has a server and a receiver.
const PAGES_AT_ONCE: usize = 8;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the repository, by its name below the root, with its text.
fn pages() -> Vec<(String, String)> {
    let docs = ["", "decisions", "internals", "reference", "runbooks"];
    let docs = docs.map(|folder| format!("docs/{folder}"));
    let others = ["", "deploy", "vectors", "receivers/python", "receivers/typescript"];
    let mut pages = Vec::new();
    for folder in docs.into_iter().chain(others.map(str::to_owned)) {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                pages.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    pages.sort();
    pages
}

/// Follows a page, and says what was not run, or what went wrong.
fn follow(name: &str, parts: &[Part]) -> Result<Vec<String>, String> {
    let followed = std::thread::scope(|scope| {
        let page = move || {
            let mut terminals = Terminals::new();
            terminals.follow(name, parts);
            std::mem::take(&mut terminals.skipped)
        };
        std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, page).unwrap().join()
    });
    followed.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("{name}: {}", text.unwrap_or_default())
    })
}

/// Follows pages, a few at a time.
fn follow_all(pages: &[(String, Vec<Part>)]) -> Vec<Result<Vec<String>, String>> {
    let queue = Mutex::new(pages.iter());
    let work = || {
        let next = || queue.lock().unwrap().next();
        std::iter::from_fn(next).map(|(name, parts)| follow(name, parts)).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let workers = [(); PAGES_AT_ONCE].map(|()| scope.spawn(work));
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn every_fenced_command_in_the_docs_runs() {
    let (mut problems, mut skipped, mut commands) = (Vec::new(), Vec::new(), 0);
    let mut pages_with_blocks = Vec::new();
    for (name, text) in pages() {
        match parts(&root(), &name, &text) {
            Ok(parts) if parts.is_empty() => {}
            Ok(parts) => pages_with_blocks.push((name, parts)),
            Err(problem) => problems.push(problem),
        }
    }
    for (_, parts) in &pages_with_blocks {
        commands += parts.iter().map(count).sum::<usize>();
    }
    for outcome in follow_all(&pages_with_blocks) {
        match outcome {
            Ok(more) => skipped.extend(more),
            Err(problem) => problems.push(problem),
        }
    }
    println!("{commands} commands and programs of {} pages; not run:", pages_with_blocks.len());
    println!("  {}", skipped.join("\n  "));
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(commands >= 30, "only {commands} commands were found");
}

/// How many commands a part has.
fn count(part: &Part) -> usize {
    match part {
        Part::Shell(steps) => steps.len(),
        Part::Program(_) => 1,
        Part::Scene(_) | Part::Stop(_) | Part::NotRun { .. } => 0,
    }
}

#[test]
fn every_command_between_words_is_one_that_exists() {
    let mut problems = Vec::new();
    for (name, text) in pages() {
        for command in inline_commands(&text) {
            problems.extend(
                wrong_with(&command).map(|problem| format!("{name}: `{command}`: {problem}")),
            );
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What the command line has against this command: an unknown subcommand or flag.
fn wrong_with(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let is_name = |word: &&&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let mut path: Vec<&str> = words
        .iter()
        .take_while(is_name)
        .take_while(|word| !word.starts_with('-'))
        .copied()
        .collect();
    let help = loop {
        let ran = run(&[&*path, &["--help"]].concat());
        match ran.code {
            0 => break ran.out,
            _ if path.is_empty() => return Some(ran.err),
            // The last word may be an argument, but not of a command that has commands.
            _ => {
                let word = path.pop().unwrap_or_default();
                let parent = run(&[&*path, &["--help"]].concat());
                if parent.out.contains("Commands:") || path.is_empty() {
                    return Some(format!("there is no `{word}`"));
                }
            }
        }
    };
    let flags = words.iter().filter(|word| word.starts_with("--"));
    let unknown =
        flags.map(|flag| flag.split('=').next().unwrap_or(flag)).find(|flag| !help.contains(flag));
    unknown.map(|flag| format!("there is no `{flag}`"))
}

#[test]
fn a_command_that_fails_or_prints_something_else_is_found() {
    for (block, problem) in [
        ("railpost config shew", "config shew"),
        ("railpost config default\n# -> no such line", "does not print `no such line`"),
        ("railpost dead-letters replay DELIVERY", "no DELIVERY known"),
    ] {
        let parts = parts(&root(), "page.md", &format!("```sh\n{block}\n```\n")).unwrap();
        let error = follow("page.md", &parts).unwrap_err();
        assert!(error.contains(problem), "{block}: {error}");
    }
}

#[test]
fn the_readme_has_a_first_webhook_before_line_40() {
    let readme = include_str!("../../../../README.md");
    assert!(readme.lines().take(40).any(|line| line.contains("send order.paid")));
}
