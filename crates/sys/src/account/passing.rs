//! Messages between processes of this machine, each with at most one descriptor.

use crate::passing::{self, send_passing};
use rustix::net::{
    self, AddressFamily, Shutdown, SocketFlags, SocketType,
    sockopt::{self, Timeout},
};
use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

/// Returns the two ends of a line. A message arrives whole or not at all.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Bounds every wait on this end.
pub(super) fn patience(socket: &OwnedFd, limit: Duration) -> io::Result<()> {
    for way in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(socket, way, Some(limit))?;
    }
    Ok(())
}

/// Sends a message; the receiver gets a copy of the descriptor.
pub(super) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    passed: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    match send_passing(socket, bytes, passed.as_slice())? == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives a message; an error if the other end is closed.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut passed = Vec::new();
    match passing::receive(socket, buffer, &mut passed)? {
        (_, true) => Err(io::ErrorKind::InvalidData.into()),
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (len, _) => Ok((len, passed.into_iter().next())),
    }
}

/// Ends a line: the other side sees that this side has closed.
pub(super) fn shut(socket: &OwnedFd) {
    let _ = net::shutdown(socket, Shutdown::Both);
}

/// Receives nothing more, except bytes that were sent before.
pub(super) fn shut_ear(socket: &OwnedFd) {
    let _ = net::shutdown(socket, Shutdown::Read);
}

/// Tells whether an error is a time-out.
pub(super) fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
