//! A page of the docs, as far as its fenced blocks go.
//!
//! A block of `sh` is run, command by command. A line `# -> TEXT` says what the command above it prints, and
//! `# listen -> TEXT` what the receiver prints meanwhile; `…` stands for anything. A text that begins with
//! `error:` says that the command fails. Programs are run whole, and `# ->` or `// ->` says what they print.
//!
//! Comments that readers of the page do not see say what a block needs:
//!
//! - `<!-- scene: held lanes -->`: what the commands after it find, see [`crate::docs::terminals::Scene`].
//! - `<!-- stop: server -->`: the person stops it here.
//! - `<!-- not run: REASON -->`, before a block: it is not run, and the test lists it.
//! - `<!-- run by: FILE -->`, before a block: the test in that file runs it.
//! - `<!-- run if installed: TOOL -->`, before a block: it is run where the tool is.

use std::path::Path;

/// Blocks that are no commands: data, drawings, output.
const DATA: [&str; 5] = ["json", "mermaid", "promql", "text", "toml"];

/// What a page has, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Scene(String),
    Stop(String),
    Shell(Vec<Step>),
    Program(Program),
    NotRun { line: usize, reason: String },
}

/// A command, and what it is said to print.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) prints: Vec<String>,
    pub(crate) listener_prints: Vec<String>,
}

/// A program in another language, and what it is said to print.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) language: String,
    pub(crate) text: String,
    pub(crate) prints: Vec<String>,
    /// Whether its tool may be missing on this machine.
    pub(crate) optional: bool,
}

/// A fenced block as it stands in the page.
struct Block<'a> {
    /// The line of its fence, from 1.
    line: usize,
    language: &'a str,
    lines: Vec<&'a str>,
    marker: Option<(&'a str, &'a str)>,
}

/// The parts of this page, or what is wrong with it.
pub(crate) fn parts(root: &Path, name: &str, text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut marker = None;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let inside = lines.by_ref().map(|(_, line)| line.get(indent..).unwrap_or(""));
            let inside = inside.take_while(|line| *line != "```").collect();
            let block = Block { line: number + 1, language, lines: inside, marker: marker.take() };
            parts.extend(
                part(root, name, &block)
                    .map_err(|problem| format!("{name}:{}: {problem}", block.line))?,
            );
        } else if let Some(said) = comment(line) {
            match said {
                ("scene", scene) => parts.push(Part::Scene(scene.to_owned())),
                ("stop", what) => parts.push(Part::Stop(what.to_owned())),
                ("not run" | "run by" | "run if installed", _) => marker = Some(said),
                _ => return Err(format!("{name}:{}: unknown comment `{line}`", number + 1)),
            }
        } else if !line.trim().is_empty() && marker.is_some() {
            return Err(format!("{name}:{}: the comment before it belongs to a block", number + 1));
        }
    }
    Ok(parts)
}

/// `<!-- WHAT: DETAIL -->`
fn comment(line: &str) -> Option<(&str, &str)> {
    let inside = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    inside.split_once(": ")
}

fn part(root: &Path, page: &str, block: &Block<'_>) -> Result<Option<Part>, String> {
    match (block.language, block.marker) {
        ("", _) => Err("the block has no language; `text` is for output and drawings".to_owned()),
        (_, Some(("not run", reason))) => {
            Ok(Some(Part::NotRun { line: block.line, reason: reason.to_owned() }))
        }
        (_, Some(("run by", file))) => {
            let words = block.lines.first().into_iter().flat_map(|line| line.split_whitespace());
            check_runner(root, file, page, words)?;
            Ok(None)
        }
        ("json", _) => block
            .lines
            .join("\n")
            .parse::<serde_json::Value>()
            .map_or_else(|error| Err(format!("not JSON: {error}")), |_| Ok(None)),
        (data, _) if DATA.contains(&data) => Ok(None),
        ("sh", _) => Ok(Some(Part::Shell(steps(&block.lines)?))),
        (language @ ("python" | "js" | "go"), marker) => Ok(Some(Part::Program(Program {
            language: language.to_owned(),
            text: block.lines.join("\n") + "\n",
            prints: block.lines.iter().filter_map(|line| printed(line)).collect(),
            optional: marker.is_some(),
        }))),
        (other, _) => {
            Err(format!("say by a comment who runs this block of `{other}`, or why nobody does"))
        }
    }
}

/// A test that runs a block names its page, or what the block begins with.
fn check_runner<'a>(
    root: &Path,
    file: &str,
    page: &str,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(file));
    let text = text.map_err(|error| format!("`{file}`, which is said to run it: {error}"))?;
    let name = Path::new(page).file_name().and_then(|name| name.to_str()).unwrap_or(page);
    let usual = ["cargo", "run", "--release", "-p", "--", "railpost"];
    let telling = |word: &str| !usual.contains(&word) && word.len() >= 4 && text.contains(word);
    match text.contains(name) || words.any(telling) {
        true => Ok(()),
        false => Err(format!("`{file}`, which is said to run it, does not name `{name}`")),
    }
}

fn printed(line: &str) -> Option<String> {
    let line = line.trim_start();
    line.strip_prefix("# -> ").or(line.strip_prefix("// -> ")).map(str::to_owned)
}

/// The commands of a block: a line each, or more where a line ends with `\` or inside quotes.
fn steps(lines: &[&str]) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut command = String::new();
    for line in lines {
        if command.is_empty()
            && let Some(text) = line.strip_prefix("# ")
        {
            let step = steps.last_mut();
            match (text.strip_prefix("-> "), text.strip_prefix("listen -> "), step) {
                (Some(text), _, Some(step)) => step.prints.push(text.to_owned()),
                (_, Some(text), Some(step)) => step.listener_prints.push(text.to_owned()),
                _ => {}
            }
            continue;
        }
        command.push_str(line);
        if line.ends_with(['\\', '|']) || has_open_quote(&command) {
            command.push('\n');
        } else if !command.is_empty() {
            steps.push(Step { command: std::mem::take(&mut command), ..Step::default() });
        }
    }
    match command.is_empty() {
        true => Ok(steps),
        false => Err(format!("a command without an end: {command}")),
    }
}

/// Whether a quote of the shell is open at the end of this.
fn has_open_quote(command: &str) -> bool {
    let mut open = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match (open, character) {
            (None | Some('"'), '\\') => drop(characters.next()),
            (None, '\'' | '"') => open = Some(character),
            (Some(quote), character) if quote == character => open = None,
            _ => {}
        }
    }
    open.is_some()
}

/// The code that a page has between its words, one by one.
pub(crate) fn inline_commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        match line.trim_start().starts_with("```") {
            true => inside = !inside,
            false if !inside => prose = prose + line + " ",
            false => {}
        }
    }
    let quoted = prose.split('`').skip(1).step_by(2);
    let commands = quoted.filter(|code| code.starts_with("railpost "));
    commands.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Part>, String> {
        parts(Path::new(env!("CARGO_MANIFEST_DIR")), "page.md", text)
    }

    #[test]
    fn a_block_has_its_commands_and_what_each_prints() {
        let text =
            "```sh\ncurl a \\\n  b\n# -> 1\nsend '{\n}' # all\n# listen -> 2\n# a remark\n```\n";
        let parts = parsed(text).unwrap();
        let step = |command: &str, prints: &[&str], listener_prints: &[&str]| Step {
            command: command.to_owned(),
            prints: prints.iter().map(|text| (*text).to_owned()).collect(),
            listener_prints: listener_prints.iter().map(|text| (*text).to_owned()).collect(),
        };
        let expected =
            vec![step("curl a \\\n  b", &["1"], &[]), step("send '{\n}' # all", &[], &["2"])];
        assert_eq!(parts, [Part::Shell(expected)]);
    }

    #[test]
    fn a_block_that_nobody_runs_says_why() {
        let told = parsed("<!-- not run: it takes hours -->\n```sh\nbuild\n```\n").unwrap();
        assert_eq!(told, [Part::NotRun { line: 2, reason: "it takes hours".to_owned() }]);
        for (text, problem) in [
            ("```\nls\n```\n", "has no language"),
            ("```java\nx\n```\n", "say by a comment"),
            ("```json\n{\n```\n", "not JSON"),
            ("<!-- run by: src/missing.rs -->\n```java\nx\n```\n", "src/missing.rs"),
            ("<!-- run by: Cargo.toml -->\n```java\nx\n```\n", "does not name `page.md`"),
            ("<!-- nut run: typo -->\n", "unknown comment"),
            ("<!-- not run: lost -->\ntext\n", "belongs to a block"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn commands_between_words_are_found_and_those_in_blocks_are_not() {
        let text = "Run `railpost lanes\nlist`, not `ls`.\n```sh\nrailpost `serve`\n```\n";
        assert_eq!(inline_commands(text), ["railpost lanes list"]);
    }
}
