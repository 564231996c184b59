//! A receiver that acknowledges everything and notes it. It outlives the servers that send to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use super::judge::Arrivals;

pub(crate) struct Receiver {
    address: SocketAddr,
    arrivals: Mutex<Arrivals>,
    changed: Notify,
}

impl Receiver {
    pub(crate) fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let receiver =
            Arc::new(Self { address, arrivals: Mutex::default(), changed: Notify::new() });
        let accepting = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let receiver = accepting.clone();
                std::thread::spawn(move || receiver.serve(stream));
            }
        });
        receiver
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap()
    }

    /// Waits until the arrivals are as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&Arrivals) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(&self.arrivals()) {
                return;
            }
            changed.await;
        }
    }

    /// Serves one connection until its server ends it, or dies.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let mut len = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
                let line = line.trim_end().to_ascii_lowercase();
                if let Some(value) = line.strip_prefix("content-length:") {
                    len = value.trim().parse().ok()?;
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; len];
            reader.read_exact(&mut body).ok()?;
            self.arrivals().add(serde_json::from_slice(&body).unwrap());
            self.changed.notify_waiters();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
        }
    }
}
