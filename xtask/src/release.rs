//! `cargo xtask release`: the archive that people install from.
//!
//! The same sources, compiler and C compiler give the same archive: paths of the machine are replaced in the binary,
//! and files have one time, owner and order. The time is that of the last commit, or `SOURCE_DATE_EPOCH`.

mod crates;
mod licences;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::machine::{run, target};
use crates::Crates;

/// Completions: the shell, and where its file belongs below `/usr/local`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/railpost"),
    ("fish", "share/fish/vendor_completions.d/railpost.fish"),
    ("zsh", "share/zsh/site-functions/_railpost"),
];

/// Files of the repository, and their names in the archive.
const COPIES: [(&str, &str); 6] = [
    ("LICENSE", "LICENSE"),
    ("packaging/README.md", "README.md"),
    ("crates/server/src/config/default.toml", "etc/railpost.toml"),
    ("deploy/systemd/railpost.service", "systemd/railpost.service"),
    ("deploy/systemd/railpost-backup.service", "systemd/railpost-backup.service"),
    ("deploy/systemd/railpost-backup.timer", "systemd/railpost-backup.timer"),
];

/// Builds the archive, and says what is in it.
pub(crate) fn release() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let triple = host()?;
    let crates = Crates::of_the_binary(root, &triple)?;
    let binary = build(root, &triple, &crates)?;
    let name = format!("railpost-{}-{triple}", crates.version());
    let folder = target(root)?.join("package");
    let content = folder.join(&name);
    let _ = fs::remove_dir_all(&folder);
    lay_out(root, &binary, &content)?;
    write(&content.join("sbom.cdx.json"), sbom::text(&crates, &triple, &rustc_version()?))?;
    write(&content.join("THIRD-PARTY.txt"), licences::text(&crates)?)?;
    pack(&folder, &name, commit_time(root)?)
}

/// The platform that is built for: this machine's.
fn host() -> Result<String, String> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn rustc_version() -> Result<String, String> {
    let text = output(Command::new("rustc").arg("--version"))?;
    Ok(text.split_whitespace().nth(1).unwrap_or_default().to_owned())
}

/// Builds the binary, and compares what was linked with the crates that the archive will name.
fn build(root: &Path, triple: &str, crates: &Crates) -> Result<PathBuf, String> {
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .map_err(|_| "neither CARGO_HOME nor HOME is set")?;
    let remap = [(home.as_str(), "/cargo"), (root.to_str().ok_or("a path in UTF-8")?, "/railpost")];
    let flags = remap.map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "railpost",
    ]);
    cargo.args(["--bin", "railpost", "--target", triple]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    // mimalloc has the time of its build in a message.
    let no_time = "-Wno-builtin-macro-redefined -D__DATE__=\"\" -D__TIME__=\"\"";
    cargo.env("CFLAGS", format!("-ffile-prefix-map={home}=/cargo {no_time}"));
    cargo.stderr(std::process::Stdio::inherit());
    let messages = output(&mut cargo)?;
    let below = target(root)?.join(triple);
    let linked = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let linked = linked.filter(|message| is_below(message, &below));
    let ids = linked.map(|message| message["package_id"].as_str().unwrap_or_default().to_owned());
    crates.compare(&ids.collect())?;
    Ok(below.join("dist/railpost"))
}

/// Whether a message of cargo is about a crate for the platform, not for a build script or a macro.
fn is_below(message: &Value, folder: &Path) -> bool {
    let files = message["filenames"].as_array().into_iter().flatten();
    message["reason"] == "compiler-artifact"
        && files.filter_map(Value::as_str).any(|file| Path::new(file).starts_with(folder))
}

/// Everything but what tells of the crates.
fn lay_out(root: &Path, binary: &Path, content: &Path) -> Result<(), String> {
    for (from, to) in COPIES {
        let bytes = fs::read(root.join(from)).map_err(|error| format!("{from}: {error}"))?;
        write(&content.join(to), &bytes)?;
    }
    let program = content.join("bin/railpost");
    write(&program, b"")?;
    fs::copy(binary, &program).map_err(|error| format!("{}: {error}", binary.display()))?;
    for (shell, to) in COMPLETIONS {
        let text = output(Command::new(&program).args(["completions", shell]))?;
        write(&content.join(to), text.as_bytes())?;
    }
    run(Command::new(&program).args(["man", "--dir"]).arg(content.join("share/man/man1")))
}

/// Adds checksums, and makes the archive and its own checksum.
fn pack(folder: &Path, name: &str, time: u64) -> Result<(), String> {
    let sums = "find . -type f ! -name SHA256SUMS -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS";
    run(Command::new("sh").args(["-ec", sums]).current_dir(folder.join(name)))?;
    let archive = format!("{name}.tar.gz");
    let pack = format!(
        "chmod -R u=rwX,go=rX {name}; \
         tar --create --format=ustar --sort=name --mtime=@{time} --owner=0 --group=0 --numeric-owner {name} \
         | gzip --no-name --best > {archive}; \
         sha256sum {archive} > {archive}.sha256; cat {archive}.sha256; ls -l {archive}; \
         tar --list --verbose --file {archive} | grep -v /man1/railpost-"
    );
    run(Command::new("sh").args(["-ec", &pack]).env("LC_ALL", "C").current_dir(folder))?;
    println!("{}", folder.join(archive).display());
    Ok(())
}

/// When the last commit was made, in seconds, unless the environment says otherwise.
fn commit_time(root: &Path) -> Result<u64, String> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))?
        }
    };
    text.trim().parse().map_err(|_| format!("expected seconds since 1970; got `{}`", text.trim()))
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(path, bytes));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// What a command prints, if it goes well.
fn output(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{shown} could not be run: {error}"))?;
    if !output.status.success() {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{shown} ended with {}\n{err}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{shown} printed no UTF-8"))
}
