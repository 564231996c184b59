//! The Python package `receivers/python`: its linter, type checker and tests, and the built package in an
//! empty environment. What they need is pinned, and installed once into a folder below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{ensure, run, server_binary, target};
use crate::postgres::Postgres;
use crate::redis::Redis;

const PACKAGE: &str = "receivers/python";
const PINNED: &str = "tests/requirements.txt";

/// Runs everything that must pass.
pub(crate) fn test() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let target = target(root)?;
    let (package, folder) = (root.join(PACKAGE), target.join("python"));
    let python = prepare(&package.join(PINNED), &folder)?;
    let tool =
        |args: &[&str]| run(Command::new(&python).arg("-m").args(args).current_dir(&package));
    tool(&["ruff", "format", "--check", "."])?;
    tool(&["ruff", "check", "."])?;
    tool(&["mypy"])?;
    run_tests(&python, &package, &server_binary(&target)?)?;
    use_in_empty_environment(&python, &package, &folder)
}

/// An environment with everything that a file pins: the path of its interpreter.
pub(crate) fn prepare(requirements: &Path, folder: &Path) -> Result<PathBuf, String> {
    let (venv, stamp) = (folder.join("venv"), folder.join("stamp"));
    let python = venv.join("bin/python");
    let wanted = fs::read_to_string(requirements)
        .map_err(|error| format!("{}: {error}", requirements.display()))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    println!("   installing what {} pins", requirements.display());
    make_venv(&venv)?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(pip.arg(requirements))?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(python)
}

fn make_venv(venv: &Path) -> Result<(), String> {
    ensure("python3", "python3-venv")?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))
}

fn run_tests(python: &Path, package: &Path, server: &Path) -> Result<(), String> {
    let postgres = Postgres::start().map_err(|problem| format!("PostgreSQL: {problem}"))?;
    let redis = Redis::start().map_err(|problem| format!("Redis: {problem}"))?;
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest"]).current_dir(package);
    pytest.env("PYTHONPATH", package.join("src")).env("RAILPOST_BIN", server);
    pytest.env("RAILPOST_TEST_POSTGRES", postgres.url()).env("RAILPOST_TEST_REDIS", redis.url());
    run(&mut pytest)
}

/// Builds the wheel, installs it where nothing else is, and follows the beginning of its README there.
fn use_in_empty_environment(python: &Path, package: &Path, folder: &Path) -> Result<(), String> {
    let (wheels, empty) = (folder.join("wheels"), folder.join("empty"));
    let _ = fs::remove_dir_all(&wheels);
    let mut build = Command::new(python);
    build.args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    run(build.args(["--no-build-isolation", "--wheel-dir"]).arg(&wheels).arg(package))?;
    make_venv(&empty)?;
    let interpreter = empty.join("bin/python");
    let mut install = Command::new(&interpreter);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]);
    run(install.arg("--find-links").arg(&wheels).arg("railpost"))?;
    let script = package.join("tests/use_package.py");
    run(Command::new(&interpreter)
        .arg(script)
        .arg(package.join("README.md"))
        .env_remove("PYTHONPATH"))
}
