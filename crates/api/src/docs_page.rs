//! The built-in documentation: the specification, a page to browse it, and the error codes. Pages are rendered
//! here, load nothing from other hosts, and run no script.

mod operations;
mod schemas;
mod errors;

use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use schemars::SchemaGenerator;

use super::answer::{DescribedAnswer, HtmlPage, Media, RawResponse, Stylesheet};
use super::auth::Needs;
use super::body::NoBody;
use super::call::Ctx;
use super::openapi::{openapi, openapi_text};
use super::path::NoPath;
use super::problem::Problem;
use super::query::NoQuery;
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    use Needs::Nothing;
    vec![
        Route::new(Method::GET, "/openapi.json", Nothing, "The OpenAPI document", document),
        Route::new(Method::GET, "/docs", Nothing, "The API, to browse", browse),
        Route::new(Method::GET, "/docs/errors", Nothing, "The error codes", error_codes),
        Route::new(Method::GET, "/docs/style.css", Nothing, "The style sheet of the pages", style),
    ]
}

/// What was made once and is given to everyone.
#[derive(Debug, Default)]
pub(crate) struct DocsPages {
    document: OnceLock<Bytes>,
    operations: OnceLock<Bytes>,
    errors: OnceLock<Bytes>,
}

const HTML: &str = "text/html; charset=utf-8";
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; frame-ancestors 'none'";
const STYLE: &str = include_str!("docs_page/style.css");

/// The document itself.
struct Document;

impl Media for Document {
    fn describe(_: &mut SchemaGenerator) -> Vec<DescribedAnswer> {
        let object = schemars::json_schema!({ "type": "object" });
        vec![DescribedAnswer::of(StatusCode::OK, "application/json", object)]
    }
}

async fn document(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<Document>, Problem> {
    let text = ctx.app.pages.document.get_or_init(|| openapi_text().into());
    Ok(page("application/json", text.clone()))
}

async fn browse(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<HtmlPage>, Problem> {
    let text = ctx.app.pages.operations.get_or_init(|| operations::page(&openapi()).into());
    Ok(page(HTML, text.clone()))
}

async fn error_codes(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<HtmlPage>, Problem> {
    let text = ctx.app.pages.errors.get_or_init(|| errors::page().into());
    Ok(page(HTML, text.clone()))
}

async fn style(
    _: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<Stylesheet>, Problem> {
    Ok(page("text/css; charset=utf-8", Bytes::from_static(STYLE.as_bytes())))
}

fn page<M>(kind: &'static str, text: Bytes) -> RawResponse<M> {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    RawResponse::new(response)
}

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

    #[test]
    fn pages_bring_no_script_and_no_style_of_their_own_and_load_nothing_from_elsewhere() {
        for page in [operations::page(&openapi()), errors::page()] {
            for part in ["<script", "<style", " style=", " onclick", "src=", "<iframe"] {
                let found = page.find(part).map(|at| &page[at..page.len().min(at + 80)]);
                assert_eq!(found, None, "{part}");
            }
            for target in page.split("href=\"").skip(1) {
                let here = target.starts_with('#') || target.starts_with('/');
                assert!(here && !target.starts_with("//"), "{}", &target[..target.len().min(80)]);
            }
        }
    }
}
