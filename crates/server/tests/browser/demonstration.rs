//! The demo, to its end.

use std::time::Duration;

use railpost::demo::run;
use railpost_cli::demo::{DemoEnding, DemoOptions, DemoViewer, NoViewer};
use tokio::runtime::Runtime;

#[test]
fn the_demo_shows_every_scene_and_ends() {
    let options = DemoOptions { down_for: Duration::from_millis(500), ..DemoOptions::default() };
    let mut text = Vec::new();
    let mut viewer = NoViewer;
    let played = run(0, options, &mut viewer, &mut text, std::future::pending());
    Runtime::new().unwrap().block_on(played).unwrap();
    let text = String::from_utf8(text).unwrap();
    for word in [
        "/dashboard/sign-in?token=",
        "webhook-signature: v1,",
        "the event's id: the same in every attempt",
        "Scene 12 of 12",
        "it landed with attempt 3",
        "in order: [1, 2, 3]",
        "came twice and was applied once",
        "2 wait behind the dead letter",
        "order-21: a change, no event. Nobody remembers to publish it.",
        "order-22: no change, no event. order-23: a change, an event, and it landed.",
        "Nothing is left of it.",
    ] {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
}

#[test]
fn the_demo_ends_when_it_is_told_to() {
    let mut text = Vec::new();
    let options = DemoOptions { ending: DemoEnding::Stay, ..DemoOptions::default() };
    let mut viewer = NoViewer;
    let ended = run(0, options, &mut viewer, &mut text, std::future::ready(()));
    Runtime::new().unwrap().block_on(ended).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("The demo is over."));
}

/// A viewer who counts the scenes that waited, and wants no playground.
struct CountingViewer(usize);

impl DemoViewer for CountingViewer {
    async fn next_scene(&mut self) {
        self.0 += 1;
    }

    async fn wants_playground(&mut self) -> bool {
        false
    }
}

#[test]
fn the_demo_waits_for_its_viewer_between_scenes_and_asks_before_it_stays() {
    let options =
        DemoOptions { scenes: 3, ending: DemoEnding::Ask, down_for: Duration::from_millis(500) };
    let (mut viewer, mut text) = (CountingViewer(0), Vec::new());
    let played = run(0, options, &mut viewer, &mut text, std::future::pending());
    Runtime::new().unwrap().block_on(played).unwrap();
    assert_eq!(viewer.0, 2);
    assert!(String::from_utf8(text).unwrap().contains("The demo is over."));
}
