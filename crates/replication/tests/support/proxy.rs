//! A way to a server that breaks after so many bytes of its answers, wherever in a message that is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards connections. Each is cut after the number of bytes that is set when it begins.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    bytes: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = Arc::new(AtomicUsize::new(usize::MAX));
        let limit = bytes.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server, limit.load(Ordering::Relaxed)));
            }
        });
        Self { address, bytes }
    }

    /// How many bytes of the server's answers get through, from the next connection on.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

async fn forward(client: TcpStream, server: SocketAddr, mut left: usize) {
    let server = TcpStream::connect(server).await.unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let questions = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut answer = vec![0; 64 * 1024];
        while left > 0 {
            let most = left.min(answer.len());
            match from_server.read(&mut answer[..most]).await {
                Ok(len) if len > 0 && to_client.write_all(&answer[..len]).await.is_ok() => {
                    left -= len;
                }
                _ => return,
            }
        }
    };
    tokio::select! {
        _ = questions => {}
        () = answers => {}
    }
}
