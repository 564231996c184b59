//! The libraries that nobody here wrote, for the interop tests: pinned, from PyPI and npm, in a folder
//! below `target`. They are installed once, and again when what is pinned changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{ensure, run, target};

/// What is pinned, and by which file of the tests.
const PINNED: [&str; 3] = ["requirements.txt", "package.json", "package-lock.json"];
const TOOLS: &str = "crates/receiver/tests/interop/tools";

/// Prepares the folder and says where it is.
pub(crate) fn prepare() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let (tools, folder) = (root.join(TOOLS), target(root)?.join("interop"));
    let wanted = pinned(&tools)?;
    let stamp = folder.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    println!("   installing what {TOOLS} pins");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    install_python(&tools, &folder)?;
    install_node(&tools, &folder)?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(folder)
}

fn pinned(tools: &Path) -> Result<String, String> {
    let read = |name: &str| {
        fs::read_to_string(tools.join(name)).map_err(|error| format!("{TOOLS}/{name}: {error}"))
    };
    PINNED.into_iter().map(read).collect()
}

fn install_python(tools: &Path, folder: &Path) -> Result<(), String> {
    ensure("python3", "python3-venv")?;
    let venv = folder.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(pip.arg(tools.join("requirements.txt")))
}

fn install_node(tools: &Path, folder: &Path) -> Result<(), String> {
    ensure("npm", "npm")?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(tools.join(name), folder.join(name))
            .map_err(|error| format!("{name}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    run(npm.current_dir(folder))
}
