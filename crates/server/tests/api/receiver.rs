//! A receiver on loopback that does as it is told and shows what came.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(candidate, _)| candidate.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// A receiver. It answers 200 unless told otherwise.
pub(crate) struct Receiver {
    address: SocketAddr,
    inbox: Inbox<Arrived>,
    answers: Arc<Mutex<Vec<Told>>>,
}

/// What a receiver was told to answer.
enum Told {
    Status(u16),
    WithHeader(u16, String),
    /// Whatever comes from there, when it comes.
    Later(Inbox<u16>),
}

/// Longest that a test waits for something that must come. Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

impl Receiver {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (outbox, inbox) = channel();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let script = answers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (outbox, script) = (outbox.clone(), script.clone());
                std::thread::spawn(move || serve(stream, &outbox, &script));
            }
        });
        Self { address, inbox, answers }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// The next answers are these statuses; after them, 200.
    pub(crate) fn answers(&self, statuses: &[u16]) {
        let told = statuses.iter().map(|status| Told::Status(*status));
        self.answers.lock().unwrap().extend(told);
    }

    /// The next answer has this status and header.
    pub(crate) fn answers_with_header(&self, status: u16, header: &str) {
        self.answers.lock().unwrap().push(Told::WithHeader(status, header.to_owned()));
    }

    /// The next answer is the status that is sent there, when it is sent.
    pub(crate) fn answers_later(&self) -> Outbox<u16> {
        let (later, told) = channel();
        self.answers.lock().unwrap().push(Told::Later(told));
        later
    }

    /// The next one to arrive.
    #[track_caller]
    pub(crate) fn next(&self) -> Arrived {
        self.inbox.recv_timeout(PATIENCE).expect("something should have arrived")
    }

    /// What has arrived and was not looked at yet.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.inbox.try_iter().collect()
    }
}

fn serve(stream: TcpStream, outbox: &Outbox<Arrived>, script: &Mutex<Vec<Told>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let arrived = read_request(&mut reader)?;
        let told = {
            let mut script = script.lock().unwrap();
            if script.is_empty() { Told::Status(200) } else { script.remove(0) }
        };
        outbox.send(arrived).ok()?;
        let (status, header) = match told {
            Told::Status(status) => (status, "x-told: yes".to_owned()),
            Told::WithHeader(status, header) => (status, header),
            Told::Later(told) => (told.recv().ok()?, "x-told: yes".to_owned()),
        };
        let answer = format!("HTTP/1.1 {status} Told\r\ncontent-length: 4\r\n{header}\r\n\r\ntold");
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Arrived> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let arrived = Arrived { headers, body: Vec::new() };
    let len = arrived.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some(Arrived { body, ..arrived })
}
