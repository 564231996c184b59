//! Live parts of pages: drawn while someone watches, and sent as server-sent events when they differ.
//!
//! A part that does not change is drawn less and less often. A stream that is silent says from time to time that
//! it is there, so that a page can tell silence from a lost connection.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use maud::{Markup, html};
use tokio::sync::watch;

use super::layout;
use super::session::LivePermit;
use super::shown;
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply};
use crate::limits::{LIVE_ALIVE_EVERY, LIVE_EVERY_MAX, LIVE_EVERY_MIN};

/// A part of a page that is drawn again when it changes, at this path of the tenant or of the operator.
pub(super) fn live_part(visit: &PageVisit, path: &str, part: &Markup) -> Markup {
    let query = visit.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    html! {
        p.contact id="contact" role="status" {}
        noscript { p.hint { "Reload the page to see what is new." } }
        div id="live" data-live={ (visit.path(&format!("/live{path}"))) (query) } { (part) }
    }
}

/// A live part while it is watched.
struct LiveStream<F> {
    visit: PageVisit,
    draw: F,
    closing: watch::Receiver<bool>,
    last: String,
    /// How many alerts were open when that was last sent.
    open_alerts: Option<u64>,
    /// How long to wait before the next drawing.
    pause: Duration,
    /// How long nothing was sent.
    silent_for: Duration,
    _permit: LivePermit,
}

/// Streams a part for as long as it is watched.
pub(super) fn updates<F, R>(visit: PageVisit, draw: F) -> PageResult
where
    F: Fn(PageVisit) -> R + Send + 'static,
    R: Future<Output = Result<Markup, ApiRefusal>> + Send,
{
    let context = &visit.context.sessions;
    let permit = context.acquire_live_permit().ok_or_else(|| {
        ApiRefusal::new(503, "Too many live pages", "reload the page to see what is new")
    })?;
    let closing = context.closing();
    let live = LiveStream {
        visit,
        draw,
        closing,
        last: String::new(),
        open_alerts: None,
        pause: Duration::ZERO,
        silent_for: Duration::ZERO,
        _permit: permit,
    };
    let events = stream::unfold(live, |mut live| async move {
        let event = live.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(event)), live))
    });
    let mut response = Response::new(Body::from_stream(events));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(Reply::Raw(response))
}

impl<F, R> LiveStream<F>
where
    F: Fn(PageVisit) -> R,
    R: Future<Output = Result<Markup, ApiRefusal>>,
{
    /// The next event. Nothing once the server stops or the session ends, and when the part cannot be drawn just
    /// now: the page then says that it lost contact, and asks again.
    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pause) => self.silent_for += self.pause,
                _ = self.closing.wait_for(|closing| *closing) => return None,
            }
            self.visit = self.visit.refreshed().await.ok()??;
            match (self.draw)(self.visit.clone()).await {
                Ok(part) => {
                    let changes = [self.changed(part.into_string()), self.alerts_changed().await];
                    let events: String = changes.into_iter().flatten().collect();
                    if !events.is_empty() {
                        return Some(events);
                    }
                }
                Err(refused) if refused.is_temporary() => return None,
                Err(refused) => return Some(event(Some("refused"), &refused.to_string())),
            }
            if self.silent_for >= Duration::from(LIVE_ALIVE_EVERY) {
                self.silent_for = Duration::ZERO;
                return Some(event(Some("alive"), ""));
            }
        }
    }

    /// The event that says how many alerts are open, if that changed: the navigation shows it.
    async fn alerts_changed(&mut self) -> Option<String> {
        let open = layout::open_alerts(&self.visit).await;
        let is_new = self.open_alerts.replace(open) != Some(open);
        is_new.then(|| event(Some("alerts"), &shown::count(open)))
    }

    /// The event for a part, if it differs from the last one. Otherwise the next drawing is later.
    fn changed(&mut self, part: String) -> Option<String> {
        let least = Duration::from(LIVE_EVERY_MIN);
        if part == self.last {
            self.pause = (self.pause * 3 / 2).clamp(least, LIVE_EVERY_MAX.into());
            return None;
        }
        self.pause = least;
        self.silent_for = Duration::ZERO;
        self.last = part;
        Some(event(None, &self.last))
    }
}

/// An event of this kind, or an unnamed one.
fn event(kind: Option<&str>, data: &str) -> String {
    let kind = kind.map(|kind| format!("event: {kind}\n")).unwrap_or_default();
    let lines: Vec<String> = data.lines().map(|line| format!("data: {line}\n")).collect();
    let data = if lines.is_empty() { "data:\n".to_owned() } else { lines.concat() };
    format!("{kind}{data}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_kind_and_a_data_line_for_each_line() {
        assert_eq!(event(None, "<p>a</p>\n<p>b</p>"), "data: <p>a</p>\ndata: <p>b</p>\n\n");
        assert_eq!(event(Some("alive"), ""), "event: alive\ndata:\n\n");
    }
}
