//! TLS under HTTP, in long strides.
//!
//! The library reads and writes one record at a time, with two system calls each. A thread that wakes for 16 KiB
//! spends more time on waking than on encryption. Below the library, the socket is therefore read and written in long
//! pieces. Above, all complete records are taken at once. An idle connection holds no buffer.

use godwit_trust::door::{self, Ssl, SslRef};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_openssl::SslStream;

/// A conversation under TLS.
#[derive(Debug)]
pub struct Tls<S>(SslStream<Strides<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Tls<S> {
    /// Begins the handshake, as a server or a client by the engine's setting.
    ///
    /// # Errors
    ///
    /// A failure of the handshake or of the connection.
    pub async fn begin(ssl: Ssl, stream: S) -> Result<Self, TlsFailure> {
        let strides = Strides {
            stream,
            read: PendingBytes::default(),
            written: PendingBytes::default(),
            gathers: false,
            is_over: false,
            sent_bytes: 0,
        };
        let mut tls = SslStream::new(ssl, strides).map_err(|error| TlsFailure::Io(error.into()))?;
        let begun = Pin::new(&mut tls).do_handshake().await;
        begun.map_err(|error| match error.into_io_error() {
            Ok(cause) => TlsFailure::Io(cause),
            Err(error) if door::is_elsewhere(&error) => TlsFailure::Elsewhere,
            Err(error) if error.ssl_error().is_none() => {
                TlsFailure::Io(io::ErrorKind::UnexpectedEof.into())
            }
            Err(error) => TlsFailure::Said(door::refusal(&error)),
        })?;
        // In the handshake each flush was sent, since the peer waits for it. From now on writes are gathered.
        tls.get_mut().gathers = true;
        Ok(Self(tls))
    }

    /// Returns how many bytes the system has taken.
    pub fn sent_bytes(&self) -> u64 {
        self.0.get_ref().sent_bytes
    }

    /// Returns the engine, which has the peer's certificate.
    pub fn ssl(&self) -> &SslRef {
        self.0.ssl()
    }
}

/// Why a conversation did not begin.
#[derive(Debug)]
pub enum TlsFailure {
    /// The connection.
    Io(io::Error),
    /// The reason why the handshake failed.
    Said(godwit_trust::Error),
    /// The server has another key than is wanted, and knows no way to the wanted one.
    Elsewhere,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tls<S> {
    /// Fills all of `buffer`, if that many bytes have arrived. To the library a broken connection looks like
    /// an ended one. After a proper end it reads no further below, so `is_over` tells the two apart.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let filled = buffer.filled().len();
            let read = Pin::new(&mut self.0).poll_read(context, buffer);
            let now = buffer.filled().len();
            match read {
                Poll::Ready(Ok(())) if now > filled && buffer.remaining() > 0 => {}
                // The error is returned again at the next read.
                Poll::Ready(Err(_)) | Poll::Pending if now > before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) if now == before && self.0.get_ref().is_over => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                read => return read,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tls<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        while written < bytes.len() {
            // The engine must never have to wait in the middle of a record: it would want the very
            // same bytes again.
            let room = self.0.get_mut().poll_room(context);
            let wrote = match room {
                Poll::Ready(Ok(())) => Pin::new(&mut self.0).poll_write(context, &bytes[written..]),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            match wrote {
                Poll::Ready(Ok(more)) if more > 0 => written += more,
                _ if written > 0 => break,
                wrote => return wrote,
            }
        }
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            match self.as_mut().poll_write(context, slice) {
                Poll::Ready(Ok(more)) => {
                    written += more;
                    if more < slice.len() {
                        break;
                    }
                }
                _ if written > 0 => break,
                wrote => return wrote,
            }
        }
        Poll::Ready(Ok(written))
    }

    /// A writer need not copy several pieces into one.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.get_mut().poll_sent(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A socket that is read and written in long pieces.
#[derive(Debug)]
struct Strides<S> {
    stream: S,
    read: PendingBytes,
    written: PendingBytes,
    /// Whether written bytes may wait for more.
    gathers: bool,
    /// Whether nothing more can come.
    is_over: bool,
    sent_bytes: u64,
}

/// Bytes that wait; the memory is given back when none are on their way.
#[derive(Debug, Default)]
struct PendingBytes {
    bytes: Vec<u8>,
    taken: usize,
}

impl PendingBytes {
    fn left(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn take(&mut self, count: usize) {
        self.taken += count;
    }

    fn give_back(&mut self) {
        *self = Self::default();
    }
}

impl<S: AsyncWrite + Unpin> Strides<S> {
    /// Sends what waits if it is long.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.written.left().len() < STRIDE_BYTES {
            true => Poll::Ready(Ok(())),
            false => self.poll_sent(context),
        }
    }

    /// Sends all that waits.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.written.left().is_empty() {
            let left = self.written.left();
            let sent = ready!(Pin::new(&mut self.stream).poll_write(context, left))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written.take(sent);
            self.sent_bytes += sent as u64;
        }
        self.written.give_back();
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strides<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            stream,
            read,
            is_over,
            ..
        } = &mut *self;
        if read.left().is_empty() {
            read.bytes.resize(STRIDE_BYTES, 0);
            let mut room = ReadBuf::new(&mut read.bytes);
            let came = Pin::new(stream).poll_read(context, &mut room);
            let count = room.filled().len();
            read.bytes.truncate(count);
            read.taken = 0;
            if count == 0 {
                read.give_back();
                *is_over = came.is_ready();
                return came;
            }
        }
        let count = read.left().len().min(buffer.remaining());
        buffer.put_slice(&read.left()[..count]);
        read.take(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Strides<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.gathers {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        let PendingBytes { bytes: held, taken } = &mut self.written;
        if *taken > STRIDE_BYTES {
            held.drain(..std::mem::take(taken));
        }
        held.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// The library flushes in the middle of its messages; gathered bytes are sent by [`Strides::poll_sent`].
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.gathers {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

const STRIDE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests;
