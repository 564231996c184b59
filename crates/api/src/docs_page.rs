//! The built-in documentation: the specification, a page to browse it, and the error codes. Pages are rendered
//! here, load nothing from other hosts, and run no script.

use std::sync::OnceLock;

use axum::response::IntoResponse;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use railpost_rest::pages;
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
    let text = ctx.app.pages.operations.get_or_init(|| pages::operations(&openapi()).into());
    Ok(page(HTML, text.clone()))
}

async fn error_codes(
    ctx: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<HtmlPage>, Problem> {
    let text = ctx.app.pages.errors.get_or_init(|| pages::errors().into());
    Ok(page(HTML, text.clone()))
}

async fn style(
    _: Ctx,
    _: NoPath,
    _: NoQuery,
    _: NoBody,
) -> Result<RawResponse<Stylesheet>, Problem> {
    Ok(page("text/css; charset=utf-8", Bytes::from_static(pages::STYLE.as_bytes())))
}

fn page<M>(kind: &'static str, text: Bytes) -> RawResponse<M> {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    RawResponse::new(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_bring_no_script_and_no_style_of_their_own_and_load_nothing_from_elsewhere() {
        for page in [pages::operations(&openapi()), pages::errors()] {
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
