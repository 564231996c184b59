//! HTTP/2 by hand: frames that a polite client would not send in this order, or at all.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::world::{PATIENCE, World};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;

/// The flags of a frame that ends its stream, and of one that ends its block of headers.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A connection.
pub(crate) struct Http2(TcpStream);

/// A frame that came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Http2 {
    /// A connection whose preface was sent.
    pub(crate) fn connect(world: &World) -> Self {
        let stream = TcpStream::connect(world.server().address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut connection = Self(stream);
        connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        connection.send(SETTINGS, 0, 0, &[]);
        connection
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![len[1], len[2], len[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.0.write_all(&frame).unwrap();
    }

    /// Asks for something without a body.
    pub(crate) fn get(&mut self, stream: u32, path: &str, fields: &[(&str, &str)]) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &head(GET, path, fields));
    }

    /// The next frame; nothing when the server has hung up.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
                ) =>
            {
                return None;
            }
            Err(error) => panic!("the server neither answered nor hung up: {error}"),
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload).unwrap();
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads on until this stream has its whole answer, and gives the answer's body.
    #[track_caller]
    pub(crate) fn answer(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame = self.next().expect("the answer should have come");
            if frame.stream != stream || frame.kind > HEADERS {
                continue;
            }
            if frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if frame.flags & END_STREAM != 0 {
                return body;
            }
        }
    }
}

/// What a head begins with.
pub(crate) const GET: u8 = 0x82;
pub(crate) const POST: u8 = 0x83;

/// A head, with nothing compressed but what HTTP/2 has a number for.
pub(crate) fn head(method: u8, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    const SCHEME_HTTP: u8 = 0x86;
    let mut block = vec![method, SCHEME_HTTP];
    block.push(0x04);
    text(&mut block, path);
    block.push(0x01);
    text(&mut block, "railpost");
    for (name, value) in fields {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

/// A text behind its length, which has seven bits in its first byte.
fn text(block: &mut Vec<u8>, text: &str) {
    match text.len().checked_sub(127) {
        None => block.push(text.len() as u8),
        Some(mut rest) => {
            block.push(127);
            while rest >= 128 {
                block.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text.as_bytes());
}
