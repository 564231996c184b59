//! A report as a page of its own: no scripts, nothing to load, and it prints.

use std::fmt::Write as _;

use super::{Section, Words};

const STYLE: &str = "
  :root { color-scheme: light dark; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
  .period { margin-top: .2rem; opacity: .75; } .verdict { font-size: 1.1rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid #8884; }
  td { overflow-wrap: anywhere; } .remark { opacity: .75; max-width: 46rem; }
  @media print { body { margin: 0; max-width: none; font-size: 10pt; } h2 { break-after: avoid; }
    tr { break-inside: avoid; } .wide { overflow: visible; } }
";

pub(super) fn page(words: &Words) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}, {period}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p class=\"period\">{period}</p>\n<p class=\"verdict\">{verdict}</p>\n",
        title = escaped(&words.title),
        period = escaped(&words.period),
        verdict = escaped(&words.verdict),
    );
    words.sections.iter().for_each(|section| write_section(&mut page, section));
    page + "</body>\n</html>\n"
}

fn write_section(page: &mut String, section: &Section) {
    let _ = writeln!(page, "<section>\n<h2>{}</h2>", escaped(section.title));
    if !section.rows.is_empty() {
        page.push_str("<div class=\"wide\">\n<table>\n");
        if section.columns.iter().any(|title| !title.is_empty()) {
            let titles = section.columns.iter();
            let titles = titles.map(|title| format!("<th scope=\"col\">{}</th>", escaped(title)));
            let _ = writeln!(page, "<thead><tr>{}</tr></thead>", titles.collect::<String>());
        }
        page.push_str("<tbody>\n");
        for row in &section.rows {
            let cells = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell)));
            let _ = writeln!(page, "<tr>{}</tr>", cells.collect::<String>());
        }
        page.push_str("</tbody>\n</table>\n</div>\n");
    }
    if let Some(remark) = &section.remark {
        let _ = writeln!(page, "<p class=\"remark\">{}</p>", escaped(remark));
    }
    page.push_str("</section>\n");
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_text_and_no_markup() {
        let rows = vec![vec!["<script>alert(\"&\")</script>".to_owned()]];
        let section = Section { title: "By endpoint", columns: vec!["name"], rows, remark: None };
        let words = Words {
            title: "Deliveries of acme".to_owned(),
            period: String::new(),
            verdict: String::new(),
            sections: vec![section],
        };
        let page = page(&words);
        assert!(page.contains("<td>&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;</td>"));
        assert!(!page.contains("<script"));
    }
}
