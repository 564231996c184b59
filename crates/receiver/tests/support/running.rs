//! A receiver that runs as a process of its own, and a client for it.
#![allow(dead_code, reason = "each test binary uses its part")]

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use railpost_receiver::testing::TestRequest;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A receiver that runs, and its port.
pub(crate) struct Running {
    child: Child,
    port: u16,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it, and waits until it says where it listens.
    pub(crate) fn start(command: &mut Command) -> Self {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        let port = address.trim_end_matches("/hook").rsplit(':').next().unwrap();
        let port = port.parse().unwrap();
        Self { child, port, output }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The status and the body of its answer.
    pub(crate) async fn call(&self, method: &str, path: &str, sent: TestRequest) -> (u16, String) {
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let mut request = hyper::Request::builder().method(method).uri(path).header("host", "test");
        for (name, value) in &sent.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(sent.body))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
