//! The demo, to its end.

use std::time::Duration;

use railpost::demo::run;
use railpost_cli::demo::DemoOptions;
use tokio::runtime::Runtime;

#[test]
fn the_demo_shows_every_scene_and_ends() {
    let options = DemoOptions {
        exit_after_scenes: true,
        down_for: Duration::from_millis(500),
        ..DemoOptions::default()
    };
    let mut text = Vec::new();
    Runtime::new().unwrap().block_on(run(0, options, &mut text, std::future::pending())).unwrap();
    let text = String::from_utf8(text).unwrap();
    for word in [
        "/dashboard/sign-in?token=",
        "Scene 11 of 11",
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
    let ended = run(0, DemoOptions::default(), &mut text, std::future::ready(()));
    Runtime::new().unwrap().block_on(ended).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("The demo is over."));
}
