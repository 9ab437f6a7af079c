//! Lines on a connection that waits for a visitor, from whichever end.

use godwit_wire::door::park::{LINE_BYTES_MAX, ParkLine};
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::timeout,
};

/// A stream that carries lines until a visitor takes it.
#[derive(Debug)]
pub(crate) struct ParkedStream<S> {
    stream: S,
    /// The beginning of a line.
    held: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ParkedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            held: Vec::new(),
        }
    }

    /// Reads one line, byte by byte: the bytes after it may be the visitor's. Lines are rare.
    pub(crate) fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ParkLine>> {
        loop {
            let mut byte = [0];
            let mut read = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            match read.filled() {
                [] => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                [b'\n'] => {
                    let line = std::mem::take(&mut self.held);
                    return Poll::Ready(heard(&line));
                }
                _ if self.held.len() == LINE_BYTES_MAX => {
                    return Poll::Ready(Err(io::Error::other("a line without an end")));
                }
                [byte, ..] => self.held.push(*byte),
            }
        }
    }

    /// Waits for a line.
    pub(crate) async fn hear(&mut self, within: Duration) -> io::Result<ParkLine> {
        timeout(within, poll_fn(|context| self.poll_said(context))).await?
    }

    /// Says a line, and what follows it.
    pub(crate) async fn say(
        &mut self,
        said: ParkLine,
        behind: &[u8],
        within: Duration,
    ) -> io::Result<()> {
        let all = [said.to_string().as_bytes(), behind].concat();
        let said = async {
            self.stream.write_all(&all).await?;
            self.stream.flush().await
        };
        timeout(within, said).await?
    }

    /// Returns the stream; it is the visitor's now.
    pub(crate) fn into_stream(self) -> S {
        self.stream
    }
}

fn heard(line: &[u8]) -> io::Result<ParkLine> {
    let said = std::str::from_utf8(line)
        .ok()
        .and_then(|line| line.parse().ok());
    said.ok_or_else(|| io::Error::other("a line that is not allowed here"))
}
