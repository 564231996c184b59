//! Live parts of pages: rendered a few times a second, and sent as server-sent events when they differ.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use maud::Markup;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::session::LivePermit;
use super::visit::{ApiRefusal, PageVisit};
use super::{PageResult, Reply, lanes, replays};
use crate::limits::LIVE_EVERY;

pub(super) async fn lanes(visit: PageVisit) -> PageResult {
    updates(visit, async |visit: PageVisit| lanes::live(&visit).await)
}

pub(super) async fn replay(visit: PageVisit) -> PageResult {
    updates(visit, async |visit: PageVisit| replays::live(&visit).await)
}

/// A live part while it is watched.
struct LiveStream<F> {
    visit: PageVisit,
    draw: F,
    ticks: Interval,
    closing: watch::Receiver<bool>,
    last: String,
    _permit: LivePermit,
}

fn updates<F, R>(visit: PageVisit, draw: F) -> PageResult
where
    F: Fn(PageVisit) -> R + Send + 'static,
    R: Future<Output = Result<Markup, ApiRefusal>> + Send,
{
    let context = &visit.context.sessions;
    let permit = context.acquire_live_permit().ok_or_else(|| {
        ApiRefusal::new(503, "Too many live pages", "reload the page to see what is new")
    })?;
    let mut ticks = interval(Duration::from(LIVE_EVERY));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let closing = context.closing();
    let live = LiveStream { visit, draw, ticks, closing, last: String::new(), _permit: permit };
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
    /// The next event: the part as it is, when it differs from what was sent. Nothing once the server
    /// stops, the session ends or the API refuses.
    async fn next(&mut self) -> Option<String> {
        loop {
            tokio::select! {
                _ = self.ticks.tick() => {}
                _ = self.closing.wait_for(|closing| *closing) => return None,
            }
            match self.visit.refreshed().await {
                Ok(visit) => self.visit = visit?,
                // The store is in trouble. That passes.
                Err(_) => continue,
            }
            let part = (self.draw)(self.visit.clone()).await.ok()?.into_string();
            if part != self.last {
                let event = event(&part);
                self.last = part;
                return Some(event);
            }
        }
    }
}

fn event(part: &str) -> String {
    let lines: Vec<String> = part.lines().map(|line| format!("data: {line}\n")).collect();
    format!("{}\n", lines.concat())
}
