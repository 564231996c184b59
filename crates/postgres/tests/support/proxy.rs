//! A wire to the test server that can be cut and restored.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the wire is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Whole.
    Whole,
    /// No connection gets through; open ones are closed.
    Cut,
    /// No byte gets through, and nothing is closed: open connections stay open for ever.
    Silent,
    /// What the client says gets through; at the first word of an answer the connection breaks.
    BreaksBeforeAnswers,
}

/// Forwards connections to the server, as its wire allows.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    wire: Arc<watch::Sender<Wire>>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let wire = Arc::new(watch::Sender::new(Wire::Whole));
        let state = wire.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *state.borrow() != Wire::Cut {
                    tokio::spawn(forward(client, server, state.subscribe()));
                }
            }
        });
        Self { address, wire }
    }

    pub(crate) fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let (state, mut silence) = (wire.clone(), wire.clone());
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (mut question, mut answer) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            () = cut(&mut wire) => return,
            () = silenced(&mut silence) => {
                // Open until the wire is cut, for a client that still waits for an answer.
                cut(&mut wire).await;
                return;
            }
            read = client.read(&mut question) => match read {
                Ok(len) if len > 0 && server.write_all(&question[..len]).await.is_ok() => {}
                _ => return,
            },
            read = server.read(&mut answer) => match read {
                Ok(len) if len > 0 => {
                    let breaks = *state.borrow() == Wire::BreaksBeforeAnswers;
                    if breaks || client.write_all(&answer[..len]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

async fn cut(wire: &mut watch::Receiver<Wire>) {
    // An error means that the proxy is gone, which is as good as cut.
    let _ = wire.wait_for(|wire| *wire == Wire::Cut).await;
}

async fn silenced(wire: &mut watch::Receiver<Wire>) {
    let _ = wire.wait_for(|wire| *wire == Wire::Silent).await;
}
