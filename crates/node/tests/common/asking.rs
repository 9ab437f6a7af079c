//! A client of a door that may send any request: plain HTTP under TLS.

use godwit_store::door::RequestBody;
use godwit_trust::{
    Credential, Expect,
    door::{self, Fingerprint, WantedHost},
};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{future::poll_fn, net::SocketAddr, pin::Pin};
use tokio::runtime::{Builder, Runtime};
use tokio_openssl::SslStream;

/// Asks one thing after the other, each through a connection of its own.
pub struct Asking {
    pub at: SocketAddr,
    pub credential: Credential,
    runtime: Runtime,
}

/// An answer of the door.
pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Its lines, each as JSON.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let lines = self.body.split_inclusive(|&b| b == b'\n');
        let read = |line: &[u8]| {
            assert!(line.ends_with(b"\n"), "a line was cut");
            serde_json::from_slice(line).unwrap()
        };
        lines.map(read).collect()
    }

    /// Returns the refusal in the last line; null: there is none.
    pub fn refusal(&self) -> serde_json::Value {
        self.lines()
            .last()
            .map_or(serde_json::Value::Null, |line| line["error"].clone())
    }
}

impl Asking {
    /// Returns a client without a name.
    pub fn at(at: SocketAddr) -> Self {
        Self::with(at, Credential::nobody())
    }

    pub fn with(at: SocketAddr, credential: Credential) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self {
            at,
            credential,
            runtime,
        }
    }

    fn connect(&self) -> SslStream<tokio::net::TcpStream> {
        let wanted = WantedHost::Vouched(Expect::Host("localhost".into()));
        let ssl = door::visit(&self.credential, &wanted, "localhost").unwrap();
        self.runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(self.at).await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut tls = SslStream::new(ssl, socket).unwrap();
            Pin::new(&mut tls).connect().await.unwrap();
            tls
        })
    }

    /// Returns the fingerprint of the node's key.
    pub fn key(&self) -> Fingerprint {
        door::key_shown(self.connect().ssl())
            .unwrap()
            .expect("a node shows a key")
    }

    pub fn ask(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        let tls = self.connect();
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(RequestBody::whole(body)).unwrap();
        self.runtime.block_on(async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
            tokio::spawn(connection);
            let (head, mut body) = sender.send_request(request).await.unwrap().into_parts();
            let mut whole = Vec::new();
            loop {
                let frame =
                    poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut body), context));
                match frame.await {
                    None => break,
                    Some(frame) => whole.extend_from_slice(&frame.unwrap().into_data().unwrap()),
                }
            }
            Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body: whole,
            }
        })
    }
}
