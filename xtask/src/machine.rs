//! What the chores need of the machine they run on.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sees to it that a program is there: `package` is Debian's name for what brings it.
pub(crate) fn ensure(program: &str, package: &str) -> Result<(), String> {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    if asked.is_ok() { Ok(()) } else { install(package) }
}

/// Installs one of Debian's packages, where that is possible.
pub(crate) fn install(package: &str) -> Result<(), String> {
    println!("   apt-get install {package}");
    apt_get(&["update", "-qq"], package)?;
    apt_get(&["install", "-qq", "-y", "--no-install-recommends", package], package)
}

fn apt_get(args: &[&str], package: &str) -> Result<(), String> {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    run(&mut command)
        .map_err(|problem| format!("{problem}: install `{package}` and run this again"))
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown} ended with {status}")),
        Err(error) => Err(format!("{shown} could not be run: {error}")),
    }
}

/// The folder that everything is built and installed in.
pub(crate) fn target(root: &Path) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    std::path::absolute(target).map_err(|error| format!("target: {error}"))
}

/// The server that packages are tested with: the one that `RAILPOST_BIN` names, or the workspace's own, with
/// the features of its tests, so that they need not be built twice.
pub(crate) fn server_binary(target: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("RAILPOST_BIN") {
        return Ok(named.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    run(build.args(["build", "--quiet", "--workspace", "--all-features", "--bin", "railpost"]))?;
    Ok(target.join("debug/railpost"))
}

/// A port of loopback that nobody uses.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}
