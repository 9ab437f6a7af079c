//! Messages between processes of this machine, each with at most one descriptor.

use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    sockopt::{self, Timeout},
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = passed.as_slice();
    if !passed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(passed));
    }
    let sent = rustix::io::retry_on_intr(|| {
        net::sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives a message; an error if the other end is closed.
pub(super) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        net::recvmsg(
            socket,
            &mut [IoSliceMut::new(buffer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    match received.bytes {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        len => Ok((len, passed)),
    }
}

/// Ends a line: the other side sees that nobody is here any more.
pub(super) fn shut(socket: &OwnedFd) {
    let _ = net::shutdown(socket, Shutdown::Both);
}

/// Takes nothing more; what was sent before can still be received.
pub(super) fn shut_ear(socket: &OwnedFd) {
    let _ = net::shutdown(socket, Shutdown::Read);
}

/// Tells whether an error only says that nothing came in time.
pub(super) fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
