//! Schemathesis, which nobody here wrote, against a throwaway server: it reads the specification, sends what
//! fits it and what does not, and holds the answers against it. It is pinned, from PyPI, in a folder below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::machine::{free_port, run, server_binary, target};
use crate::python;

const TOOLS: &str = "crates/server/tests/schemathesis";

/// How much is tried, and what chance makes of it.
#[derive(Clone, Copy)]
pub(crate) struct Draw {
    /// Examples of each operation.
    examples: u32,
    seed: u32,
}

/// That of every test run: the same one each time, so that a failure is the change's.
pub(crate) const USUAL: Draw = Draw { examples: 3, seed: 1 };

impl Draw {
    /// Reads `--examples N` and `--seed N`.
    pub(crate) fn from_words(words: &[&str]) -> Result<Self, String> {
        words.chunks(2).try_fold(USUAL, |draw, option| {
            let number = option.get(1).and_then(|number| number.parse().ok());
            match (option[0], number) {
                ("--examples", Some(examples @ 1..)) => Ok(Self { examples, ..draw }),
                ("--seed", Some(seed)) => Ok(Self { seed, ..draw }),
                _ => Err(format!(
                    "expected `--examples N` or `--seed N`; got `{}`",
                    option.join(" ")
                )),
            }
        })
    }
}

/// The admin key of the throwaway server.
const ADMIN_KEY: &str = "rp_schemathesis-0123456789-abcdefghijklmnop";

/// Runs it.
pub(crate) fn check(draw: Draw) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let target = target(root)?;
    let (tools, folder) = (root.join(TOOLS), target.join("schemathesis"));
    let python = python::prepare(&tools.join("requirements.txt"), &folder)?;
    let server = Server::start(&server_binary(&target)?, &folder)?;
    let mut program = Command::new(python);
    program.arg(tools.join("run.py")).arg(&server.url);
    program.args(["--examples", &draw.examples.to_string(), "--seed", &draw.seed.to_string()]);
    run(program.env("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY).current_dir(&folder))
}

/// A server in memory on a free port of loopback. It sends nothing anywhere, whatever endpoints are made there,
/// and looks no name up. It ends with this value.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// A source that events are relayed from: run.py makes its file.
    fn configure(folder: &Path) -> Result<PathBuf, String> {
        let (config, source) = (folder.join("railpost.toml"), folder.join("app.db"));
        let _ = fs::remove_file(&source);
        let text = format!("[[outbox]]\nname = \"app\"\nurl = \"sqlite:{}\"\n", source.display());
        fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        Ok(config)
    }

    fn start(program: &Path, folder: &Path) -> Result<Self, String> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let data = folder.join("data");
        let _ = fs::remove_dir_all(&data);
        let mut command = Command::new(program);
        command.args(["serve", "--store", "memory:", "--log-level", "error", "--listen", &address]);
        command.arg("--data-dir").arg(&data);
        command.arg("--config").arg(Self::configure(folder)?);
        command.env("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY);
        command.env("RAILPOST_DELIVERY_ALLOW_PUBLIC", "false");
        command.env("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "never");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Self { child, url: format!("http://{address}") })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
