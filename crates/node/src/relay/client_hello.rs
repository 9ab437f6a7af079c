//! The first bytes of a connection, kept until its target is known.
//!
//! TLS reads the first message of a visitor, which names the wanted key. If the key is that of a parked node, the node
//! must receive the bytes from the first, and the visitor none of ours. So the bytes are kept until TLS answers, and an
//! answer that refuses the key is withheld. After that a read or write checks one empty option.

use godwit_trust::door::Elsewhere;
use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose visitor may want a parked node.
#[derive(Debug)]
pub(crate) struct HelloStream<S> {
    /// Away once it was given back.
    stream: Option<S>,
    noted: Option<Box<HelloNotes<S>>>,
}

#[derive(Debug)]
struct HelloNotes<S> {
    elsewhere: Elsewhere,
    heard: Vec<u8>,
    refusal: Vec<u8>,
    back: ReturnedStream<S>,
}

/// Returns the stream of a visitor for a parked node, after TLS has released it.
pub(crate) type ReturnedStream<S> = Arc<Mutex<Option<Diverted<S>>>>;

/// A visitor for a parked node.
#[derive(Debug)]
pub(crate) struct Diverted<S> {
    pub(crate) stream: S,
    /// The label of the key that is wanted.
    pub(crate) label: String,
    /// All bytes that were received so far.
    pub(crate) heard: Vec<u8>,
    /// The refusal to send if no connection to that node is parked.
    pub(crate) refusal: Vec<u8>,
}

impl<S> HelloStream<S> {
    /// Wraps a stream, and keeps the bytes read from it until the first answer.
    pub(crate) fn new(stream: S, elsewhere: Elsewhere, back: ReturnedStream<S>) -> Self {
        Self {
            stream: Some(stream),
            noted: Some(Box::new(HelloNotes {
                elsewhere,
                heard: Vec::new(),
                refusal: Vec::new(),
                back,
            })),
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        let stream = self.stream.as_mut().map(Pin::new);
        stream.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for HelloStream<S> {
    fn drop(&mut self) {
        let (Some(stream), Some(noted)) = (self.stream.take(), self.noted.take()) else {
            return;
        };
        if let Some(label) = noted.elsewhere.label() {
            let diverted = Diverted {
                stream,
                label: label.to_owned(),
                heard: noted.heard,
                refusal: noted.refusal,
            };
            *noted.back.lock() = Some(diverted);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HelloStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(this.stream()?.poll_read(context, buffer))?;
        if let Some(noted) = &mut this.noted {
            noted.heard.extend_from_slice(&buffer.filled()[before..]);
            if noted.heard.len() > HEARD_MAX {
                return Poll::Ready(Err(io::Error::other(
                    "it says too much before it is answered",
                )));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HelloStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(noted) = &mut this.noted {
            if noted.elsewhere.label().is_some() {
                noted.refusal.extend_from_slice(bytes);
                return Poll::Ready(Ok(bytes.len()));
            }
            this.noted = None;
        }
        this.stream()?.poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(context)
    }
}

/// OpenSSL takes a first word of 128 KiB.
const HEARD_MAX: usize = 160 << 10;
