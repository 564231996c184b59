//! The dashboard in a real browser, and the demo.
//!
//! `cargo xtask with-services test -p railpost --test browser` installs Chromium if it is missing and
//! says where it is. With `RAILPOST_SCREENSHOTS=FOLDER` a picture of every page is written there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the tests of the API use more of it")]
#[path = "../api/world.rs"]
mod world;
#[allow(dead_code, reason = "the tests of the API use more of it")]
#[path = "../api/receiver.rs"]
mod receiver;
#[allow(dead_code, reason = "the tests of the API use more of it")]
#[path = "../api/scene.rs"]
mod scene;
#[allow(dead_code, reason = "the tests of the API use more of it")]
#[path = "../api/sign_in.rs"]
mod sign_in;
#[allow(dead_code, reason = "the tests of the API use more of it")]
#[path = "../api/contract.rs"]
mod contract;

mod webdriver;
mod outbox_file;
mod signing_in;
mod operating;
mod outbox;
mod alerts;
mod every_page;
mod every_button;
mod unchanged;
mod truth;
mod watching;
mod finding;
mod demonstration;
