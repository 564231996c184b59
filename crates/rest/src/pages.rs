//! Pages to browse an API by: its operations and its error codes. They load nothing from other hosts, and run no
//! script.

mod operations;
mod schemas;
mod errors;

use std::fmt::Write as _;

pub use errors::page as errors;
pub use operations::page as operations;

/// How the pages look.
pub const STYLE: &str = include_str!("pages/style.css");

/// A whole page around its parts.
fn html(title: &str, navigation: &str, main: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n</head>\n<body>\n\
         <nav aria-label=\"Contents\">\n<p class=\"name\"><a href=\"/docs\">Railpost API</a></p>\n\
         {navigation}</nav>\n<main>\n{main}</main>\n</body>\n</html>\n"
    )
}

/// A list of links for the side of a page.
fn links<'a>(entries: impl Iterator<Item = (String, &'a str)>) -> String {
    let mut list = "<ul>\n".to_owned();
    for (target, text) in entries {
        let _ = writeln!(list, "<li><a href=\"{}\">{}</a></li>", escape(&target), escape(text));
    }
    list + "</ul>\n"
}

/// Text that means itself in HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A sentence in HTML: what stands between backticks is code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_text_means_itself() {
        assert_eq!(
            prose("a < b & `<i>` \"c\""),
            "a &lt; b &amp; <code>&lt;i&gt;</code> &quot;c&quot;"
        );
    }
}
