//! The browser that the dashboard's tests drive: Debian's Chromium and its driver.

use crate::machine::ensure;

/// Sees to it that both are there, and says how the tests find them.
pub(crate) fn prepare() -> Result<[(&'static str, String); 2], String> {
    ensure("chromium", "chromium")?;
    ensure("chromedriver", "chromium-driver")?;
    Ok([
        ("RAILPOST_TEST_CHROMIUM", on_path("chromium")?),
        ("RAILPOST_TEST_CHROMEDRIVER", on_path("chromedriver")?),
    ])
}

fn on_path(program: &str) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|it| it.exists());
    found
        .map(|it| it.display().to_string())
        .ok_or_else(|| format!("`{program}` is not on the path"))
}
