//! The page of error codes, made of `docs/reference/errors.md`.

use std::fmt::Write as _;

use super::{escape, html, links, prose};
use crate::problem::Code;

const TEXT: &str = include_str!("../../../../docs/reference/errors.md");

/// The page.
pub fn page() -> String {
    let codes = Code::ALL.iter().map(|code| (format!("#{}", code.as_str()), code.as_str()));
    html("Railpost: error codes", &links(codes), &body())
}

/// The text in HTML. It knows headings and paragraphs, which is all that the file has.
fn body() -> String {
    let mut html = String::new();
    for block in TEXT.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let _ = match (block.strip_prefix("# "), block.strip_prefix("## ")) {
            (Some(title), _) => writeln!(html, "<h1>{}</h1>", prose(title)),
            (_, Some(code)) => {
                let id = escape(code.trim_matches('`'));
                writeln!(html, "<h2 id=\"{id}\">{}</h2>", prose(code))
            }
            _ => writeln!(html, "<p>{}</p>", prose(block)),
        };
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the file in its order, each with the line that follows it.
    fn listed() -> Vec<(String, String)> {
        let sections = TEXT.split("\n## ").skip(1);
        let sections = sections.map(|section| {
            let mut lines = section.lines().filter(|line| !line.is_empty());
            let mut next = || lines.next().unwrap_or_default().to_owned();
            (next().trim_matches('`').to_owned(), next())
        });
        sections.collect()
    }

    #[test]
    fn the_reference_lists_every_code_with_its_status_and_title() {
        let expected: Vec<(String, String)> = Code::ALL
            .iter()
            .map(|code| {
                let (status, title) = (code.status().as_u16(), code.title());
                (code.as_str().to_owned(), format!("Status {status}. {title}."))
            })
            .collect();
        assert_eq!(listed(), expected);
    }

    #[test]
    fn every_code_says_what_to_do() {
        for section in TEXT.split("\n## ").skip(1) {
            assert!(section.contains("\nWhat to do: "), "{section}");
        }
    }
}
