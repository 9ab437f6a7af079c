//! A fake door, whose answers a test makes.

use godwit_store::{
    RemoteOptions,
    channel::Cancel,
    door::{Door, RequestBody},
};
use godwit_trust::{
    Credential, Peer,
    door::{Doorway, Elsewhere, Fingerprint},
};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible, future::poll_fn, net::SocketAddr, pin::Pin, sync::Arc, time::Duration,
};
use tokio::runtime::{Builder, Runtime};
use tokio_openssl::SslStream;

/// Returns the answer to a target and a body.
pub type Answers = dyn Fn(&str, Vec<u8>) -> Response<RequestBody> + Send + Sync;

pub struct Fake {
    at: SocketAddr,
    key: Fingerprint,
    _runtime: Runtime,
}

impl Fake {
    pub fn new(answers: Arc<Answers>) -> Self {
        let credential = godwit_trust::lab::throw_away(Duration::from_secs(3600)).unwrap();
        let key = Fingerprint::of_credential(&credential).unwrap();
        let doorway = Arc::new(Doorway::of(&credential, &[], None).unwrap());
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let at = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let mut tls =
                    SslStream::new(doorway.open(&Elsewhere::default()).unwrap(), socket).unwrap();
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    Pin::new(&mut tls).accept().await.unwrap();
                    let answer = service_fn(move |request| answer(Arc::clone(&answers), request));
                    // A client may leave at any time.
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(tls), answer)
                        .await;
                });
            }
        });
        Self {
            at,
            key,
            _runtime: runtime,
        }
    }

    /// Returns it as our client sees it, which calls it lab.
    pub fn door(&self) -> Door {
        let peer = Peer::new("lab", self.key, &[self.at.to_string()]);
        let options = RemoteOptions::new(Cancel::new().unwrap());
        Door::of_peer(&peer, Credential::nobody(), &options).unwrap()
    }
}

async fn answer(
    answers: Arc<Answers>,
    request: Request<Incoming>,
) -> Result<Response<RequestBody>, Infallible> {
    let (head, mut body) = request.into_parts();
    let mut asked = Vec::new();
    loop {
        let frame = poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut body), context));
        match frame.await {
            None => break,
            Some(frame) => asked.extend_from_slice(&frame.unwrap().into_data().unwrap()),
        }
    }
    Ok(answers(head.uri.path(), asked))
}
