//! A throwaway Redis server for the tests: in a temp directory, on a free port of loopback, keeping
//! nothing, gone when the tests are.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{ensure, free_port};

/// How long the server may take until it listens: it does so within a moment.
const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server. Dropping it stops the server and removes its files.
pub(crate) struct Redis {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Redis {
    pub(crate) fn start() -> Result<Self, String> {
        ensure("redis-server", "redis-server")?;
        let folder = std::env::temp_dir().join(format!("railpost-redis-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .map_err(|error| format!("{} could not be made: {error}", folder.display()))?;
        let port = free_port()?;
        let mut server = Self { child: spawn(&folder, port)?, folder, port };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("redis-server ended with {status}"));
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("redis-server did not listen within {START_MAX:?}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Err(problem) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("xtask: the Redis server did not stop: {problem}");
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn spawn(folder: &Path, port: u16) -> Result<Child, String> {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1", "--dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("redis-server could not be run: {error}"))
}
