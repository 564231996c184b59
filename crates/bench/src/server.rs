//! Railpost as a user runs it: the binary, its environment, its HTTP API. Defaults, nothing switched
//! off.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::http::{Call, Connection};
use crate::limits::{ANSWER_TIMEOUT, LOOK_EVERY};

/// The operator's key of every server that is measured. It opens nothing but a server on loopback that
/// is gone in seconds.
pub(crate) const ADMIN_KEY: &str = "rp_benchbenchbenchbenchbenchbenchbenchbench";

/// A running server. Dropping it kills it and removes its files.
pub(crate) struct Server {
    program: PathBuf,
    folder: PathBuf,
    store_url: String,
    pub(crate) address: String,
    child: Child,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Starts one with an empty folder of its own and waits until it is ready.
    pub(crate) fn start(program: &Path, folder: &Path, store_url: &str) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let child = spawn(program, folder, store_url, &address)?;
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let store_url = store_url.to_owned();
        let mut server = Self { program, folder, store_url, address, child, runtime };
        server.wait_until_ready()?;
        Ok(server)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a crash would.
    pub(crate) fn crash(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Writes its configuration, for its next start.
    pub(crate) fn configure(&self, configuration: &str) -> Result<(), String> {
        let path = self.folder.join("railpost.toml");
        fs::write(&path, configuration).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Starts it again, after a crash, on what it left. Returns at once.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.child = spawn(&self.program, &self.folder, &self.store_url, &self.address)?;
        Ok(())
    }

    pub(crate) fn wait_until_ready(&mut self) -> Result<(), String> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        while !self.is_ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("railpost ended with {status}: {}", self.last_words()));
            }
            if Instant::now() > until {
                return Err(format!("railpost was not ready in time: {}", self.last_words()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let answer = self.call(Method::GET, "/health/ready", None);
        answer.is_ok_and(|(status, _)| status == StatusCode::OK)
    }

    pub(crate) fn create_tenant(&self, id: &str) -> Result<(), String> {
        self.create("/v1/tenants", &json!({ "id": id })).map(drop)
    }

    /// Subscribes a port of the sink to some types; returns the secret it signs with.
    pub(crate) fn create_endpoint(
        &self,
        tenant: &str,
        port: u16,
        types: &[String],
    ) -> Result<String, String> {
        self.create_endpoint_at(tenant, &format!("http://127.0.0.1:{port}/"), types)
    }

    /// The same for any URL.
    pub(crate) fn create_endpoint_at(
        &self,
        tenant: &str,
        url: &str,
        types: &[String],
    ) -> Result<String, String> {
        let endpoint = json!({ "url": url, "types": types });
        let created = self.create(&format!("/v1/tenants/{tenant}/endpoints"), &endpoint)?;
        let secret = created["secret"]["value"].as_str().map(str::to_owned);
        secret.ok_or_else(|| format!("the endpoint was created without a secret: {created}"))
    }

    fn create(&self, path: &str, what: &Value) -> Result<Value, String> {
        let (status, body) = self.call(Method::POST, path, Some(what))?;
        if status != StatusCode::CREATED {
            let body = String::from_utf8_lossy(&body);
            return Err(format!("POST {path} was answered {status}: {body}"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("POST {path}: {error}"))
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, bytes::Bytes), String> {
        let body = body.map(Value::to_string).unwrap_or_default().into();
        let call = Call { method, path, content_type: "application/json", body };
        self.runtime.block_on(async {
            let mut connection = Connection::open(&self.address, Some(ADMIN_KEY)).await?;
            connection.send(call).await
        })
    }

    /// The end of its log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.crash();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where a server's output goes.
const LOG: &str = "railpost.log";

fn spawn(program: &Path, folder: &Path, store_url: &str, address: &str) -> Result<Child, String> {
    let problem = |error| format!("{} could not be started: {error}", program.display());
    let log = File::options().create(true).append(true).open(folder.join(LOG)).map_err(problem)?;
    Command::new(program)
        .arg("serve")
        .current_dir(folder)
        .env("RAILPOST_SERVER_LISTEN", address)
        .env("RAILPOST_SERVER_DATA_DIR", folder)
        .env("RAILPOST_SERVER_ADMIN_KEY", ADMIN_KEY)
        .env("RAILPOST_STORE_URL", store_url)
        // The sink is on this machine, whatever tenants there are.
        .env("RAILPOST_DELIVERY_ALLOW_LOOPBACK", "always")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(problem)?)
        .stderr(log)
        .spawn()
        .map_err(problem)
}

/// A free port of loopback.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}
