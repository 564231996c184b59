//! A receiver on loopback that answers when and as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::process::PATIENCE;

/// How often a wait for requests looks whether it is to stop.
const STOP_POLL: Duration = Duration::from_millis(20);

/// A request that waits for its answer.
pub(crate) struct Arrived {
    pub(crate) head: String,
    pub(crate) body: String,
    answer: Sender<u16>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Answers it.
    pub(crate) fn answer(self, status: u16) {
        let _ = self.answer.send(status);
    }
}

pub(crate) struct Receiver {
    address: SocketAddr,
    inbox: Mutex<Inbox<Arrived>>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (outbox, inbox) = channel();
        let outbox = Arc::new(outbox);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let outbox = outbox.clone();
                std::thread::spawn(move || serve(stream, &outbox));
            }
        });
        Self { address, inbox: Mutex::new(inbox) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request to arrive; nothing once this says to stop.
    pub(crate) fn next_until(&self, stop: &AtomicBool) -> Option<Arrived> {
        let inbox = self.inbox.lock().unwrap();
        loop {
            match inbox.recv_timeout(STOP_POLL) {
                Ok(arrived) => return Some(arrived),
                Err(_) if stop.load(Ordering::SeqCst) => return None,
                Err(_) => {}
            }
        }
    }

    /// The next request to arrive.
    #[track_caller]
    pub(crate) fn next(&self) -> Arrived {
        self.inbox.lock().unwrap().recv_timeout(PATIENCE).expect("something should have arrived")
    }
}

fn serve(mut stream: TcpStream, outbox: &Sender<Arrived>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
        }
        let (answer, answered) = channel();
        let mut arrived = Arrived { head, body: String::new(), answer };
        let len = arrived.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        arrived.body = String::from_utf8(body).ok()?;
        outbox.send(arrived).ok()?;
        let status = answered.recv().ok()?;
        let answer = format!("HTTP/1.1 {status} Told\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).ok()?;
    }
}
