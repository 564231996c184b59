//! A browser of a test's own, driven by the W3C's WebDriver: plain JSON over HTTP.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::world::World;

/// Longest that a test waits for something that must show. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

const FLAGS: [&str; 9] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
];

/// A browser that shows a world's dashboard. It ends with the test.
pub(crate) struct Browser {
    driver: Child,
    session: String,
    base: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn new(world: &World) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let (driver, address) = start_driver();
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": setting("RAILPOST_TEST_CHROMIUM"), "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = call("POST", &format!("{address}/session"), Some(&wanted)).unwrap();
        let session = format!("{address}/session/{}", made["sessionId"].as_str().unwrap());
        Self { driver, session, base: world.url(""), _profile: profile }
    }

    /// A browser in which the user of this key is signed in.
    pub(crate) fn signed_in(world: &World, key: &str) -> Self {
        let browser = Self::new(world);
        browser.go("/dashboard/sign-in");
        browser.fill("#key", key);
        browser.click("main button");
        browser.wait_for("nav.tabs");
        browser
    }

    pub(crate) fn go(&self, path: &str) {
        self.post("url", &json!({"url": format!("{}{path}", self.base)}));
    }

    /// The path of the page that is shown.
    pub(crate) fn path(&self) -> String {
        self.script("return location.pathname", &[]).as_str().unwrap().to_owned()
    }

    /// Runs a script in the page.
    pub(crate) fn script(&self, script: &str, args: &[Value]) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": args}))
    }

    /// Runs a script that ends by calling its last argument.
    pub(crate) fn script_later(&self, script: &str, args: &[Value]) -> Value {
        self.post("execute/async", &json!({"script": script, "args": args}))
    }

    /// How many elements match.
    pub(crate) fn count(&self, css: &str) -> u64 {
        let script = "return document.querySelectorAll(arguments[0]).length";
        self.script(script, &[css.into()]).as_u64().unwrap()
    }

    /// The text of the first element that matches.
    pub(crate) fn text(&self, css: &str) -> String {
        self.wait_for(css);
        let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
        self.script(script, &[css.into()]).as_str().unwrap().to_owned()
    }

    /// Waits until something matches.
    #[track_caller]
    pub(crate) fn wait_for(&self, css: &str) {
        self.wait_until(css, || self.count(css) > 0);
    }

    /// Waits until nothing matches.
    #[track_caller]
    pub(crate) fn wait_without(&self, css: &str) {
        self.wait_until(css, || self.count(css) == 0);
    }

    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            let page = self.script("return document.body?.innerText ?? ''", &[]);
            assert!(begun.elapsed() < PATIENCE, "waiting for `{what}` on {}:\n{page}", self.path());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Types into a field, in place of what is there.
    #[track_caller]
    pub(crate) fn fill(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.post(&format!("element/{element}/clear"), &json!({}));
        self.post(&format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// Presses what matches and waits for the page that follows.
    #[track_caller]
    pub(crate) fn click(&self, css: &str) {
        let element = self.element(css);
        self.post(&format!("element/{element}/click"), &json!({}));
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        self.wait_for(css);
        let found = self.post("element", &json!({"using": "css selector", "value": css}));
        let id = found.as_object().unwrap().values().next().unwrap();
        id.as_str().unwrap().to_owned()
    }

    /// A command of Chromium's own.
    pub(crate) fn chromium(&self, command: &str, params: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    /// What the page complained of since this was asked last.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.post("se/log", &json!({"type": "browser"}));
        let severe = lines.as_array().unwrap().iter().filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].to_string()).collect()
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        let called = call("POST", &format!("{}/{command}", self.session), Some(body));
        called.unwrap_or_else(|problem| panic!("{command} {body:.200}: {problem}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = call("DELETE", &self.session, None);
        let _ = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

/// Starts the driver and waits until it listens.
fn start_driver() -> (Child, String) {
    let port = free_port();
    let mut driver = Command::new(setting("RAILPOST_TEST_CHROMEDRIVER"))
        .arg(format!("--port={port}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = String::new();
    let mut output = BufReader::new(driver.stdout.take().unwrap());
    while !told.contains("started successfully") {
        assert!(output.read_line(&mut told).unwrap() > 0, "the driver ended: {told}");
    }
    (driver, format!("http://127.0.0.1:{port}"))
}

/// A port for a driver. Left to choose for itself, a driver takes a free one of IPv6 and then needs the same one
/// of IPv4, which some connection may have. Below the ports that systems give to connections, a port that is
/// free stays free.
fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut ports = (0..COUNT).map(|_| {
        let number = std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed);
        (FIRST + number % COUNT) as u16
    });
    let is_taken = |host: &str, port| {
        let bound = TcpListener::bind((host, port));
        bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    };
    let free = ports.find(|port| !is_taken("127.0.0.1", *port) && !is_taken("::1", *port));
    free.expect("a free port")
}

fn call(method: &str, url: &str, body: Option<&Value>) -> Result<Value, String> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let text = body.map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(url);
    let request = request.header("content-type", "application/json").body(text).unwrap();
    let mut response = agent.run(request).map_err(|error| error.to_string())?;
    let reading = response.body_mut().with_config().limit(64 * 1024 * 1024);
    let answer: Value = serde_json::from_str(&reading.read_to_string().unwrap()).unwrap();
    match response.status().is_success() {
        true => Ok(answer["value"].clone()),
        false => Err(answer["value"]["message"].to_string()),
    }
}

/// What the test command says about the machine.
pub(crate) fn setting(name: &str) -> PathBuf {
    let advice = "run these tests with `cargo xtask with-services test -p railpost --test browser`";
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: {advice}")).into()
}
